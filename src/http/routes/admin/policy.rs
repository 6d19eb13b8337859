//! The policy: which caller may use which tool.
#![expect(unreachable_pub, reason = "the route macros repeat the visibility on an inner function")]

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, get, post, put, web};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::expected;
use crate::domain::access::policy::{Effect, Rule, RulePlace, RuleProblem, RuleSource};
use crate::http::body::Body;
use crate::http::caller::Administrator;
use crate::http::described::described;
use crate::http::problem::{Problem, read_json};
use crate::http::state::State;
use crate::service::access::policies::{Asked, Check, CheckAnswer, CheckedDecision, PolicyView};
use crate::service::ports::{AuditAction, AuditEntry};

/// The rules to put in force.
#[derive(ToSchema)]
#[expect(dead_code, reason = "for the description alone: each rule is read by itself, so that all mistakes are told with their numbers")]
struct PolicyBody {
    /// `allow` or `block`: what holds where no rule fits. `null`: what the settings say.
    default: Option<String>,
    /// The first that fits decides. `effect` is `allow` or `block`; every other member is a condition, a list of texts:
    /// `servers`, `tools`, `tags`, `toolsets`, `principals`, `groups`, `models` (patterns, any fits) and `annotations` (all must hold).
    #[schema(value_type = Vec<Object>)]
    rules: Vec<Value>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct CheckBody {
    /// A published name, or `server/tool`. Without it: all tools.
    #[serde(default)]
    tool: Option<String>,
    /// `key:NAME`, `user:ID`, `service-key`, `admin` or `anyone`. Without it: everybody who is known.
    #[serde(default)]
    principal: Option<String>,
    /// The e-mail address of a user.
    #[serde(default)]
    email: Option<String>,
    /// The groups of a user, beside those of the settings.
    #[serde(default)]
    groups: Vec<String>,
    #[serde(default)]
    model: Option<String>,
    /// Rules to try out in place of those that were given over the API.
    #[serde(default)]
    #[schema(value_type = Option<PolicyBody>)]
    policy: Option<Value>,
}

described! {
    PolicyView =>
    /// The rules in force.
    struct PolicyViewBody {
        /// Of what was given over the API; 0: nothing.
        version: u64,
        /// As it was given over the API. `null`: the settings decide.
        default: Option<EffectBody>,
        /// What holds where no rule fits.
        effective_default: EffectBody,
        /// Of the settings. They come first.
        settings_rules: Vec<RuleBody>,
        /// As they were given over the API.
        rules: Vec<RuleBody>,
        /// Rules without effect.
        warnings: Vec<RuleProblemBody>,
    }
}

described! {
    Effect =>
    #[serde(rename_all = "snake_case")]
    enum EffectBody {
        Allow,
        Block,
    }
}

described! {
    Rule =>
    /// A rule: all its conditions must hold. Of the texts in a condition one is enough, of `annotations` all are needed.
    struct RuleBody {
        effect: EffectBody,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        servers: Vec<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tools: Vec<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        tags: Vec<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        annotations: Vec<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        toolsets: Vec<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        principals: Vec<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        groups: Vec<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        models: Vec<String>,
    }
}

described! {
    RulePlace =>
    /// Where a rule stands.
    struct RulePlaceBody {
        source: RuleSourceBody,
        /// Counted from 1 in its source.
        number: usize,
    }
}

described! {
    RuleSource =>
    #[serde(rename_all = "snake_case")]
    enum RuleSourceBody {
        Settings,
        Api,
    }
}

described! {
    RuleProblem =>
    /// What is wrong or doubtful about a rule.
    struct RuleProblemBody {
        #[serde(flatten)]
        place: RulePlaceBody,
        reason: String,
    }
}

described! {
    CheckAnswer =>
    /// What would be decided.
    struct CheckAnswerBody {
        decisions: Vec<CheckedDecisionBody>,
        /// Rules without effect.
        warnings: Vec<RuleProblemBody>,
    }
}

described! {
    CheckedDecision =>
    struct CheckedDecisionBody {
        principal: String,
        /// The published name.
        name: String,
        server: String,
        tool: String,
        effect: EffectBody,
        /// The rule that decides, if one does.
        rule: Option<RulePlaceBody>,
        reason: String,
    }
}

/// The rules in force.
#[utoipa::path(
    operation_id = "show_policy",
    tag = "administration",
    responses(
        (status = 200, description = "The rules in force", body = PolicyViewBody),
        (status = 404, description = "The caller does not administer")
    )
)]
#[get("/v1/admin/policy")]
pub async fn show(state: web::Data<State>, _caller: Administrator) -> HttpResponse {
    answer(&state.policies.view())
}

/// Replaces the rules that were given here. They are in force when the answer goes out.
#[utoipa::path(
    operation_id = "replace_policy",
    tag = "administration",
    request_body = PolicyBody,
    params(("If-Match" = Option<String>, Header, description = "The ETag of the rules that are replaced: if others hold meanwhile, nothing happens")),
    responses(
        (status = 200, description = "The rules in force", body = PolicyViewBody),
        (status = 404, description = "The caller does not administer"),
        (status = 412, description = "Other rules hold than the ETag says"),
        (status = 422, description = "Rules that can't be read or contradict each other, each with its number and the reason")
    )
)]
#[put("/v1/admin/policy")]
pub async fn replace(state: web::Data<State>, caller: Administrator, request: HttpRequest, body: Body) -> Result<HttpResponse, Problem> {
    let body: Value = read_json(&body.0)?;
    let view = state.policies.replace(&body, expected(&request)?).await?;
    tracing::info!(version = view.version, rules = view.rules.len(), "policy replaced");
    state.audit.record(AuditEntry::of_change(&caller.0, AuditAction::PolicyReplace, format!("version {}", view.version)));
    Ok(answer(&view))
}

/// Who may call what, and which rule says so; also with rules that are not in force. Changes nothing.
#[utoipa::path(
    operation_id = "check_policy",
    tag = "administration",
    request_body = CheckBody,
    responses(
        (status = 200, description = "The decisions", body = CheckAnswerBody),
        (status = 404, description = "The caller does not administer"),
        (status = 422, description = "Neither a tool nor a principal, or one that is not known, or wrong rules")
    )
)]
#[post("/v1/admin/policy/check")]
pub async fn check(state: web::Data<State>, _caller: Administrator, body: Body) -> Result<HttpResponse, Problem> {
    let CheckBody { tool, principal, email, groups, model, policy } = read_json(&body.0)?;
    let principal = principal.map(|principal| Asked { principal, email, groups, model });
    Ok(HttpResponse::Ok().json(state.policies.check(&Check { tool, principal, draft: policy })?))
}

fn answer(view: &PolicyView) -> HttpResponse {
    let etag = format!("\"{}\"", view.version);
    HttpResponse::Ok().insert_header((header::ETAG, etag)).insert_header((header::CACHE_CONTROL, "no-store")).json(view)
}
