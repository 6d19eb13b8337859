//! The audit log, for administrators.

use actix_web::{get, web};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::policy::RulePlaceBody;
use super::{principal, time, time_of, uncached};
use crate::domain::access::rule::{Effect, RulePlace};
use crate::http::caller::Administrator;
use crate::http::problem::{Answer, Problem, limit};
use crate::http::query::Query;
use crate::http::state::State;
use crate::service::ports::{AuditAction, AuditQuery, CallOutcome, StoredAuditEntry};

pub(in crate::http) const DEFAULT_LIMIT: usize = 100;
pub(in crate::http) const MAX_LIMIT: usize = 1_000;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct AuditParameters {
    /// The caller: `key:NAME`, `user:ID`, `service-key`, `admin`, `anyone`, or `nobody` for wrong keys.
    principal: Option<String>,
    /// The action: `call`, `prompt_get`, `resource_read`, `key_create`, `key_rotate`, `key_revoke`, `policy_replace`,
    /// `toolset_replace`, `toolset_remove`, `server_replace`, `server_enable`, `server_disable`, `server_restart`, `server_remove`,
    /// `enrichment_replace`, `enrichment_remove`, `tool_facts_replace`, `tool_facts_remove`, `definition_approve`, `secret_replace`,
    /// `secret_remove`, `secrets_forget`, `feedback_give`, `learning_forget`, `learning_replay`, `switch_on`, `switch_off`, `sign_in`,
    /// `sign_out`, `session_end`, `wrong_key` or `wrong_keys_limit`.
    action: Option<String>,
    server: Option<String>,
    /// The tool's name on its server.
    tool: Option<String>,
    /// The decision of the rules: `allow` or `block`.
    decision: Option<String>,
    /// The outcome: `success`, `tool_error`, `rejected`, `failed`, `cancelled`, `limited` or `input_required`.
    outcome: Option<String>,
    /// Start of the period, as an RFC 3339 time.
    since: Option<String>,
    /// End of the period, as an RFC 3339 time.
    until: Option<String>,
    /// Only entries before this number: the value of `next` in the previous response.
    before: Option<u64>,
    /// Maximum number of entries to return.
    limit: Option<usize>,
}

#[derive(Serialize, ToSchema)]
struct EntryBody {
    id: u64,
    at: String,
    principal: String,
    action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    /// The changed object, such as a key or the version of the policy. For a wrong key, the client's address. For a
    /// read, the name of the prompt, or the address of the resource without its query.
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<String>,
    /// The decision of the rules: `allow` or `block`.
    decision: &'static str,
    /// The deciding rule, with the number that it had at the time.
    #[schema(value_type = Option<RulePlaceBody>)]
    rule: Option<RulePlace>,
    outcome: Option<&'static str>,
    took_ms: f64,
    /// Size of the response, in bytes.
    bytes: Option<u64>,
}

#[derive(Serialize, ToSchema)]
struct AuditBody {
    /// The entries, newest first.
    entries: Vec<EntryBody>,
    /// The value of `before` for the next request, if there may be more entries.
    next: Option<u64>,
}

/// Lists the entries of the audit log. Each entry describes a call, a read or a change, with its caller, decision and
/// outcome. Entries never contain arguments or results.
#[utoipa::path(
    params(AuditParameters),
    responses(
        (status = 200, description = "The entries, newest first. Entries from the last tenth of a second may be missing.", body = AuditBody),
        (status = 422, description = "A value is invalid")
    )
)]
#[get("/v1/admin/audit")]
pub async fn list_audit(state: web::Data<State>, _caller: Administrator, query: Query<AuditParameters>) -> Answer {
    let query = query.0.read()?;
    let found = state.audit.find(&query).await?;
    let next = found.last().filter(|_| found.len() == query.limit).map(|last| last.id);
    let body = AuditBody { entries: found.into_iter().map(EntryBody::from).collect(), next };
    Ok(uncached(&body))
}

impl AuditParameters {
    fn read(self) -> Result<AuditQuery, Problem> {
        let limit = limit(self.limit, DEFAULT_LIMIT, 1..=MAX_LIMIT)?;
        Ok(AuditQuery {
            principal: self.principal.as_deref().map(principal).transpose()?.map(|principal| principal.as_str().to_owned()),
            action: known("action", self.action.as_deref(), AuditAction::of_name, &AuditAction::NAMES)?,
            server: self.server,
            tool: self.tool,
            decision: known("decision", self.decision.as_deref(), Effect::of_name, &Effect::NAMES)?,
            outcome: known("outcome", self.outcome.as_deref(), CallOutcome::of_name, &CallOutcome::NAMES)?,
            since: time_of("since", self.since)?,
            until: time_of("until", self.until)?,
            before: self.before,
            limit,
        })
    }
}

/// Checks that a parameter has one of its allowed values.
fn known<T>(
    parameter: &'static str,
    name: Option<&str>,
    read: impl Fn(&str) -> Option<T>,
    names: &[&'static str],
) -> Result<Option<T>, Problem> {
    let (last, first) = names.split_last().unwrap_or((&"", &[]));
    let invalid = || Problem::invalid(parameter, format!("{parameter} is {} or {last}.", first.join(", ")));
    name.map(|name| read(name).ok_or_else(invalid)).transpose()
}

impl From<StoredAuditEntry> for EntryBody {
    fn from(StoredAuditEntry { id, entry }: StoredAuditEntry) -> Self {
        let (server, tool) = entry.tool.map(|tool| (tool.server.to_string(), tool.name.to_string())).unzip();
        let server = server.or_else(|| entry.server.map(|server| server.to_string()));
        Self {
            id,
            at: time(entry.at),
            principal: entry.principal,
            action: entry.action.name(),
            server,
            tool,
            subject: entry.subject,
            decision: entry.decision.name(),
            rule: entry.rule,
            outcome: entry.outcome.map(CallOutcome::name),
            took_ms: (entry.took.as_secs_f64() * 1e6).round() / 1e3,
            bytes: entry.bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use utoipa::IntoParams as _;

    use super::{AuditParameters, Effect, known};
    use crate::service::ports::{AuditAction, CallOutcome};

    /// Regression test: the reference and the error listed only some of the actions.
    #[test]
    fn every_value_is_described_and_named_in_the_error() {
        let parameters = AuditParameters::into_params(|| None);
        for (name, values) in [("action", &AuditAction::NAMES[..]), ("decision", &Effect::NAMES[..]), ("outcome", &CallOutcome::NAMES[..])]
        {
            let described = parameters.iter().find(|parameter| parameter.name == name).and_then(|found| found.description.clone()).unwrap();
            let problem = known(name, Some("foo"), |_| None::<()>, values).unwrap_err();
            for value in values {
                assert!(described.contains(&format!("`{value}`")), "{value}: {described}");
                assert!(problem.detail.contains(value), "{value}: {}", problem.detail);
            }
            assert_eq!(described.matches('`').count(), 2 * values.len(), "{described}");
        }
        let problem = known("decision", Some("maybe"), Effect::of_name, &Effect::NAMES).unwrap_err();
        assert_eq!(problem.detail, "decision is allow or block.");
    }
}
