//! Records in the audit log which caller read which prompt or resource, without arguments and contents.

use std::time::{Duration, Instant};

use serde_json::Value;
use serde_json::value::RawValue;

use crate::domain::access::principal::Principal;
use crate::domain::access::rule::Effect;
use crate::domain::catalog::tool::ServerName;
use crate::domain::execution::outcome;
use crate::service::mcp::passthrough::PassError;
use crate::service::ports::{AuditAction, AuditEntry, CallOutcome, PassthroughKind, PassthroughRequest};
use crate::service::records::audit::Audit;

/// Maximum length of a recorded name, in characters.
const LONGEST_SUBJECT: usize = 500;

/// Records a read when it ends or its caller disconnects.
pub(super) struct Read<'a> {
    audit: &'a Audit,
    /// The audit entry; `None` if there is nothing to record.
    entry: Option<AuditEntry>,
    started: Instant,
}

impl<'a> Read<'a> {
    /// Starts the record of a request; `None` if the request is not a read.
    pub(super) fn begin(audit: &'a Audit, server: &ServerName, request: &PassthroughRequest, principal: &Principal) -> Option<Self> {
        let (action, member) = match request.what {
            PassthroughKind::Prompt => (AuditAction::PromptGet, "name"),
            PassthroughKind::Resource => (AuditAction::ResourceRead, "uri"),
            _ => return None,
        };
        let name = request.params.get(member).and_then(Value::as_str).unwrap_or_default();
        let subject = if action == AuditAction::ResourceRead { address(name) } else { name.chars().take(LONGEST_SUBJECT).collect() };
        let entry = AuditEntry {
            server: Some(server.clone()),
            outcome: Some(CallOutcome::Cancelled),
            ..AuditEntry::of_change(principal, action, subject)
        };
        Some(Self { audit, entry: Some(entry), started: Instant::now() })
    }

    /// `is_known`: the server exists. Requests to unknown servers are not recorded.
    pub(super) fn ended(&mut self, result: &Result<Box<RawValue>, PassError>, is_known: bool) {
        let Some(entry) = &mut self.entry else { return };
        entry.outcome = match result {
            Ok(result) => {
                entry.bytes = Some(result.get().len() as u64);
                Some(if outcome::is_question(result.get()) { CallOutcome::InputRequired } else { CallOutcome::Success })
            }
            Err(PassError::NotFound) if !is_known => {
                self.entry = None;
                return;
            }
            Err(PassError::NotFound) => {
                entry.decision = Effect::Block;
                None
            }
            Err(PassError::Call(_) | PassError::Waiting(_)) => Some(CallOutcome::Failed),
            Err(PassError::Credentials(_)) => Some(CallOutcome::Rejected),
            Err(PassError::Limited(_)) => Some(CallOutcome::Limited),
        };
    }
}

impl Drop for Read<'_> {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.take() {
            let took = if entry.outcome.is_some() { self.started.elapsed() } else { Duration::ZERO };
            self.audit.record(AuditEntry { took, ..entry });
        }
    }
}

/// Removes parts of a resource's URI that may be secret: user, password, query and fragment. A `data:` URI is
/// reduced to its scheme.
fn address(uri: &str) -> String {
    let end = uri.find(['?', '#']).unwrap_or(uri.len());
    let uri = &uri[..end];
    let without_user = |rest: &str| {
        let authority = rest.find('/').unwrap_or(rest.len());
        let user = rest[..authority].rfind('@').map_or(0, |at| at + 1);
        rest[user..].to_owned()
    };
    let shown = match uri.split_once(':') {
        Some((scheme, _)) if scheme.eq_ignore_ascii_case("data") => "data:".to_owned(),
        Some((scheme, rest)) if rest.starts_with("//") => format!("{scheme}://{}", without_user(&rest[2..])),
        _ => uri.to_owned(),
    };
    shown.chars().take(LONGEST_SUBJECT).collect()
}

#[cfg(test)]
mod tests {
    use super::{LONGEST_SUBJECT, address};

    #[test]
    fn an_address_is_written_down_without_what_may_be_secret() {
        for (uri, shown) in [
            ("file:///a/b.txt", "file:///a/b.txt"),
            ("https://anna:secret@example.org/a@b?token=1#x", "https://example.org/a@b"),
            ("https://example.org#secret?x", "https://example.org"),
            ("custom:thing?key=1", "custom:thing"),
            ("data:text/plain;base64,c2VjcmV0", "data:"),
            ("no address", "no address"),
            ("", ""),
        ] {
            assert_eq!(address(uri), shown);
        }
        assert_eq!(address(&"é".repeat(10_000)).chars().count(), LONGEST_SUBJECT);
    }
}
