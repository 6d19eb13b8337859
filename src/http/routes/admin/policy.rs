//! The policy, for administrators: rules that decide which caller may use which tool.

use actix_web::{HttpRequest, HttpResponse, get, post, put, web};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{ManagedByBody, expected, versioned};
use crate::domain::access::principal::Principal;
use crate::domain::access::rule::{Effect, Rule, RulePlace, RuleProblem, RuleSource};
use crate::http::body::Body;
use crate::http::caller::Administrator;
use crate::http::described::described;
use crate::http::member::misfit_in;
use crate::http::problem::{Answer, Problem, read_definition};
use crate::http::state::State;
use crate::service::access::policies::{
    self, Check, CheckAnswer, CheckError, CheckPrincipal, CheckedDecision, PolicyError, PolicyView, SettingsRule,
};
use crate::service::ports::{AuditAction, AuditEntry};

/// The new rules.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
#[expect(
    dead_code,
    reason = "for the description alone: each rule is read by itself, so that all mistakes are reported with their numbers"
)]
struct PolicyBody {
    /// The decision if no rule matches. `null` means the decision in the settings. If a file or a variable sets `access.default`, another
    /// decision is rejected.
    default: Option<EffectBody>,
    /// The rules in order; the first matching rule decides.
    #[schema(required = false)]
    rules: Vec<RuleBody>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CheckBody {
    /// Tool to check, given by its public name or as `server/tool`. By default, all tools are checked.
    tool: Option<String>,
    /// Caller to check: `key:NAME`, `user:ID`, `service-key`, `admin` or `anyone`. By default, all known callers are
    /// checked.
    principal: Option<String>,
    /// Email address of the user.
    email: Option<String>,
    /// Groups of the user, in addition to the groups in the settings.
    #[serde(default)]
    groups: Vec<String>,
    model: Option<String>,
    /// Rules to test in place of the rules that were set over the API.
    #[serde(default)]
    #[schema(value_type = Option<PolicyBody>)]
    policy: Option<Value>,
}

described! {
    /// The rules that are in effect.
    struct PolicyViewBody of PolicyView {
        /// Version of the rules that were set over the API; 0 means that none were set.
        version: u64,
        /// The default that was set over the API; `null` means that the settings decide. If a file or a variable sets another one, the stricter
        /// one applies: see `effective_default`.
        default: Option<EffectBody>,
        /// The decision if no rule matches.
        effective_default: EffectBody,
        /// Rules from the settings, which are evaluated first.
        settings_rules: Vec<SettingsRuleBody>,
        /// Rules that were set over the API. They have no `managed_by`, so that `PUT` accepts them as they are.
        rules: Vec<RuleBody>,
        /// Rules that can never have an effect.
        warnings: Vec<RuleProblemBody>,
    }

    /// A rule from the settings, which only the settings file can change.
    struct SettingsRuleBody of SettingsRule {
        #[serde(flatten)]
        rule: RuleBody,
        managed_by: ManagedByBody,
    }

    #[serde(rename_all = "snake_case")]
    enum EffectBody of Effect {
        Allow,
        Block,
    }

    /// A rule. It matches if all its conditions match. A condition matches if one of its patterns does. In
    /// `annotations`, all entries must match.
    struct RuleBody of Rule {
        effect: EffectBody,
        /// Patterns for server names.
        servers unless "Vec::is_empty": Vec<String>,
        /// Patterns for the servers' own tool names. In a pattern that contains `__`, it stands between server and tool, as
        /// in public names; a pattern that blocks or excludes also matches own names.
        tools unless "Vec::is_empty": Vec<String>,
        /// Patterns for tags.
        tags unless "Vec::is_empty": Vec<String>,
        /// `readOnlyHint`, `destructiveHint`, `idempotentHint` or `openWorldHint`; each may be followed by `=false`.
        annotations unless "Vec::is_empty": Vec<String>,
        /// Patterns for toolset names.
        toolsets unless "Vec::is_empty": Vec<String>,
        /// Patterns for callers, such as `key:NAME` and `user:ID`.
        principals unless "Vec::is_empty": Vec<String>,
        /// Patterns for group names.
        groups unless "Vec::is_empty": Vec<String>,
        /// Patterns for model names.
        models unless "Vec::is_empty": Vec<String>,
    }

    /// Where a rule was defined.
    struct RulePlaceBody of RulePlace {
        source: RuleSourceBody,
        /// The rule's number within its source, counted from 1.
        number: usize,
    }

    #[serde(rename_all = "snake_case")]
    enum RuleSourceBody of RuleSource {
        Settings,
        Api,
    }

    /// An error in a rule, or a warning about it.
    struct RuleProblemBody of RuleProblem {
        #[serde(flatten)]
        place: RulePlaceBody,
        reason: String,
    }

    /// Who may call which tool.
    struct CheckAnswerBody of CheckAnswer {
        decisions: Vec<CheckedDecisionBody>,
        /// Rules that can never have an effect.
        warnings: Vec<RuleProblemBody>,
    }

    struct CheckedDecisionBody of CheckedDecision {
        principal: String,
        /// The tool's public name.
        name: String,
        server: String,
        tool: String,
        effect: EffectBody,
        /// The deciding rule, if any rule matched.
        rule: Option<RulePlaceBody>,
        reason: String,
    }
}

/// Returns the rules that are in effect.
#[utoipa::path(responses((status = 200, description = "The rules that are in effect", body = PolicyViewBody)))]
#[get("/v1/admin/policy")]
pub async fn show_policy(state: web::Data<State>, _caller: Administrator) -> HttpResponse {
    let view = state.policies.view();
    versioned(view.version, &view)
}

/// Replaces the rules that were set over the API. The new rules take effect before the response is sent.
#[utoipa::path(
    request_body = PolicyBody,
    params(("If-Match" = Option<String>, Header, description = "The ETag of the rules to replace; if the rules have changed since, the request has no effect")),
    responses(
        (status = 200, description = "The rules that are in effect", body = PolicyViewBody),
        (status = 409, description = "A file or a variable sets `access.default`, and `default` differs from it (`managed_by_file`)"),
        (status = 412, description = "The rules have changed since that ETag"),
        (status = 422, description = "Rules are unreadable or contradictory; the error contains the number of each such rule and the reason")
    )
)]
#[put("/v1/admin/policy")]
pub async fn replace_policy(state: web::Data<State>, caller: Administrator, request: HttpRequest, body: Body) -> Answer {
    let body: Value = read_definition(&body.0)?;
    let view = replace(&state, &caller.0, &body, expected(&request)?).await?;
    Ok(versioned(view.version, &view))
}

/// Replaces the rules, and records who did.
pub(in crate::http) async fn replace(
    state: &State,
    administrator: &Principal,
    body: &Value,
    expected: Option<u64>,
) -> Result<PolicyView, Problem> {
    let view = state.policies.replace(body, expected).await.map_err(|error| invalid(error, body))?;
    tracing::info!(version = view.version, rules = view.rules.len(), "policy replaced");
    state.audit.record(AuditEntry::of_change(administrator, AuditAction::PolicyReplace, format!("version {}", view.version)));
    Ok(view)
}

/// Shows who may call which tools, and which rule decides. It can also test rules that are not in effect. It changes
/// nothing.
#[utoipa::path(
    request_body = CheckBody,
    responses(
        (status = 200, description = "Who may call which tool", body = CheckAnswerBody),
        (status = 409, description = "The rules to test have a `default` other than `access.default` in a file or a variable (`managed_by_file`)"),
        (status = 422, description = "The request contains neither a tool nor a principal, one of them is unknown, or the rules are invalid")
    )
)]
#[post("/v1/admin/policy/check")]
pub async fn check_policy(state: web::Data<State>, _caller: Administrator, body: Body) -> Answer {
    let CheckBody { tool, principal, email, groups, model, policy } = read_definition(&body.0)?;
    let principal = principal.map(|principal| CheckPrincipal { principal, email, groups, model });
    Ok(HttpResponse::Ok().json(check(&state, &Check { tool, principal, draft: policy })?))
}

/// Who may call which tools, with the rules in effect or with a draft.
pub(in crate::http) fn check(state: &State, check: &Check) -> Result<CheckAnswer, Problem> {
    state.policies.check(check).map_err(|error| match (error, &check.draft) {
        (CheckError::Draft(error), Some(draft)) => {
            let problem = invalid(error, draft);
            let parameter = problem.parameter.map_or("policy".into(), |member| format!("policy.{member}").into());
            Problem { parameter: Some(parameter), ..problem }
        }
        (error, _) => error.into(),
    })
}

/// Converts an error in rules, and names the invalid member.
fn invalid(error: PolicyError, rules: &Value) -> Problem {
    let member = if let PolicyError::Malformed(_) = error { misfit_in::<policies::Body>(rules.clone()) } else { None };
    Problem::from(error).naming(member)
}
