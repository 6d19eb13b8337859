//! The policy: which caller may use which tool.

use actix_web::{HttpRequest, HttpResponse, get, post, put, web};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{expected, versioned};
use crate::domain::access::policy::{Effect, Rule, RulePlace, RuleProblem, RuleSource};
use crate::http::body::Body;
use crate::http::caller::Administrator;
use crate::http::described::described;
use crate::http::member::misfit_in;
use crate::http::problem::{Answer, Problem, read_json};
use crate::http::state::State;
use crate::service::access::policies::{self, Check, CheckAnswer, CheckError, CheckPrincipal, CheckedDecision, PolicyError, PolicyView};
use crate::service::ports::{AuditAction, AuditEntry};

/// The rules to put in force.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "for the description alone: each rule is read by itself, so that all mistakes are reported with their numbers"
)]
struct PolicyBody {
    /// The decision without a matching rule. `null`: the decision in the settings.
    default: Option<EffectBody>,
    /// The first matching rule decides.
    #[schema(required = false)]
    rules: Vec<RuleBody>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CheckBody {
    /// A published name, or `server/tool`. Without it: all tools.
    tool: Option<String>,
    /// `key:NAME`, `user:ID`, `service-key`, `admin` or `anyone`. Without it: all known callers.
    principal: Option<String>,
    /// The e-mail address of a user.
    email: Option<String>,
    /// The groups of a user, in addition to those of the settings.
    #[serde(default)]
    groups: Vec<String>,
    model: Option<String>,
    /// Rules to test, instead of those set over the API.
    #[serde(default)]
    #[schema(value_type = Option<PolicyBody>)]
    policy: Option<Value>,
}

described! {
    /// The rules in force.
    struct PolicyViewBody of PolicyView {
        /// Version of the rules set over the API; 0: none.
        version: u64,
        /// As set over the API. `null`: the settings decide.
        default: Option<EffectBody>,
        /// The decision without a matching rule.
        effective_default: EffectBody,
        /// Rules of the settings. They come first.
        settings_rules: Vec<RuleBody>,
        /// Rules set over the API.
        rules: Vec<RuleBody>,
        /// Rules without effect.
        warnings: Vec<RuleProblemBody>,
    }

    #[serde(rename_all = "snake_case")]
    enum EffectBody of Effect {
        Allow,
        Block,
    }

    /// A rule: all its conditions must hold. One matching text per condition suffices; `annotations` must all hold.
    struct RuleBody of Rule {
        effect: EffectBody,
        /// Patterns of server names.
        servers unless "Vec::is_empty": Vec<String>,
        /// Patterns of the servers' own tool names. Patterns with `__` also match published names.
        tools unless "Vec::is_empty": Vec<String>,
        /// Patterns of tags.
        tags unless "Vec::is_empty": Vec<String>,
        /// `readOnlyHint`, `destructiveHint`, `idempotentHint` or `openWorldHint`, each optionally with `=false`.
        annotations unless "Vec::is_empty": Vec<String>,
        /// Patterns of toolset names.
        toolsets unless "Vec::is_empty": Vec<String>,
        /// Patterns of callers, such as `key:NAME` and `user:ID`.
        principals unless "Vec::is_empty": Vec<String>,
        /// Patterns of group names.
        groups unless "Vec::is_empty": Vec<String>,
        /// Patterns of model names.
        models unless "Vec::is_empty": Vec<String>,
    }

    /// The position of a rule.
    struct RulePlaceBody of RulePlace {
        source: RuleSourceBody,
        /// Counted from 1 in its source.
        number: usize,
    }

    #[serde(rename_all = "snake_case")]
    enum RuleSourceBody of RuleSource {
        Settings,
        Api,
    }

    /// An error or a warning about a rule.
    struct RuleProblemBody of RuleProblem {
        #[serde(flatten)]
        place: RulePlaceBody,
        reason: String,
    }

    /// The decisions.
    struct CheckAnswerBody of CheckAnswer {
        decisions: Vec<CheckedDecisionBody>,
        /// Rules without effect.
        warnings: Vec<RuleProblemBody>,
    }

    struct CheckedDecisionBody of CheckedDecision {
        principal: String,
        /// The published name.
        name: String,
        server: String,
        tool: String,
        effect: EffectBody,
        /// The deciding rule, if there is one.
        rule: Option<RulePlaceBody>,
        reason: String,
    }
}

/// Returns the rules in force.
#[utoipa::path(responses((status = 200, description = "The rules in force", body = PolicyViewBody)))]
#[get("/v1/admin/policy")]
pub async fn show_policy(state: web::Data<State>, _caller: Administrator) -> HttpResponse {
    let view = state.policies.view();
    versioned(view.version, &view)
}

/// Replaces the rules set over the API. They are in force before the response.
#[utoipa::path(
    request_body = PolicyBody,
    params(("If-Match" = Option<String>, Header, description = "The ETag of the rules to replace; after another change, the request has no effect")),
    responses(
        (status = 200, description = "The rules in force", body = PolicyViewBody),
        (status = 412, description = "The rules have changed since that ETag"),
        (status = 422, description = "Unreadable or contradictory rules, each with its number and the reason")
    )
)]
#[put("/v1/admin/policy")]
pub async fn replace_policy(state: web::Data<State>, caller: Administrator, request: HttpRequest, body: Body) -> Answer {
    let body: Value = read_json(&body.0)?;
    let view = state.policies.replace(&body, expected(&request)?).await.map_err(|error| invalid(error, &body))?;
    tracing::info!(version = view.version, rules = view.rules.len(), "policy replaced");
    state.audit.record(AuditEntry::of_change(&caller.0, AuditAction::PolicyReplace, format!("version {}", view.version)));
    Ok(versioned(view.version, &view))
}

/// Explains who may call what, and which rule decides; also for rules that are not in force. Changes nothing.
#[utoipa::path(
    request_body = CheckBody,
    responses(
        (status = 200, description = "The decisions", body = CheckAnswerBody),
        (status = 422, description = "Neither a tool nor a principal, an unknown one, or invalid rules")
    )
)]
#[post("/v1/admin/policy/check")]
pub async fn check_policy(state: web::Data<State>, _caller: Administrator, body: Body) -> Answer {
    let CheckBody { tool, principal, email, groups, model, policy } = read_json(&body.0)?;
    let principal = principal.map(|principal| CheckPrincipal { principal, email, groups, model });
    let check = Check { tool, principal, draft: policy };
    let answer = state.policies.check(&check).map_err(|error| match (error, &check.draft) {
        (CheckError::Draft(error), Some(draft)) => {
            let problem = invalid(error, draft);
            let parameter = problem.parameter.map_or("policy".into(), |member| format!("policy.{member}").into());
            Problem { parameter: Some(parameter), ..problem }
        }
        (error, _) => error.into(),
    });
    Ok(HttpResponse::Ok().json(answer?))
}

/// A problem with rules, with the name of the invalid member.
fn invalid(error: PolicyError, rules: &Value) -> Problem {
    let member = if let PolicyError::Malformed(_) = error { misfit_in::<policies::Body>(rules.clone()) } else { None };
    Problem::from(error).naming(member)
}
