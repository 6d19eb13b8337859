//! The errors of the ports: the store and MCP servers.

use super::{Code, Problem, whole_seconds};
use crate::service::ports::{CallError, StoreError};

/// `Retry-After` while the store is not available, in seconds. The service uses it 2.5 seconds after it is back.
pub(super) const STORE_RETRY_SECONDS: u64 = 3;

/// What to do about a call without an answer: to repeat it could carry it out twice.
const MAYBE_CARRIED_OUT: &str = "The server may have carried out the call: check this before you repeat it.";

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let source = std::error::Error::source(&error).map(ToString::to_string);
        let (is_away, changed) = match error {
            StoreError::Failed { .. } => (false, "nothing was changed."),
            StoreError::Away { is_unsure: false, .. } => (true, "nothing was changed. Try again."),
            StoreError::Away { is_unsure: true, .. } => {
                (true, "the change may have been made. Read the current state before you try again.")
            }
        };
        let detail = format!("{error}; {changed}");
        if is_away {
            tracing::warn!(%error, source, "the store is not available for an operation");
            return Self { retry_after: Some(STORE_RETRY_SECONDS), ..Self::new(Code::StoreUnavailable, detail) };
        }
        tracing::error!(%error, source, "the store rejected an operation");
        Self::new(Code::Internal, detail)
    }
}

impl From<CallError> for Problem {
    fn from(error: CallError) -> Self {
        let detail = error.to_string();
        match error {
            CallError::UnknownServer => Self::not_found(),
            CallError::Unavailable { sent: true, .. } => Self::new(Code::ServerUnavailable, format!("{detail}. {MAYBE_CARRIED_OUT}")),
            CallError::Unavailable { retry_after, .. } => {
                let seconds = whole_seconds(retry_after);
                Self { retry_after: Some(seconds), ..Self::new(Code::ServerUnavailable, format!("{detail}. Try again in {seconds} s.")) }
            }
            CallError::NoCredentials => Self::new(Code::UserNeeded, detail),
            CallError::NotLetIn { retry_after, .. } => Self {
                retry_after: Some(whole_seconds(retry_after)),
                ..Self::new(Code::ServerUnavailable, format!("{detail}. If it rejects a secret, set another one; otherwise try again."))
            },
            CallError::TooManyUsers { retry_after, .. } => Self {
                retry_after: Some(whole_seconds(retry_after)),
                ..Self::new(
                    Code::ServerUnavailable,
                    format!("{detail}. Try again; an administrator can raise it under [user_connections]."),
                )
            },
            CallError::Timeout(_) => Self::new(Code::Timeout, format!("{detail}. {MAYBE_CARRIED_OUT}")),
            CallError::Refused { retry_after: Some(time), .. } => {
                let seconds = whole_seconds(time);
                Self { retry_after: Some(seconds), ..Self::new(Code::ServerError, format!("{detail}. Try again in {seconds} s.")) }
            }
            CallError::Refused { .. } | CallError::Challenged(_) | CallError::Protocol { .. } => Self::new(Code::ServerError, detail),
            CallError::TooLarge { .. } => Self::new(Code::ResultTooLarge, format!("{detail}. Request less from the tool.")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_failed_call_has_its_status_and_retry_time() {
        let unavailable = |milliseconds| {
            let retry_after = Duration::from_millis(milliseconds);
            Problem::from(CallError::Unavailable { reason: "its program ended".into(), retry_after, sent: false })
        };
        assert_eq!([0, 1000, 2900, 60_000].map(|time| unavailable(time).retry_after), [1, 1, 3, 60].map(Some));
        // Nobody knows whether it is being connected.
        let detail = unavailable(2900).detail;
        assert!(detail.ends_with("its program ended. Try again in 3 s."), "{detail}");

        // Repeating such a call could carry it out twice.
        let lost = CallError::Unavailable { reason: "its program ended".into(), retry_after: Duration::from_secs(1), sent: true };
        let lost = Problem::from(lost);
        assert_eq!((lost.code, lost.retry_after), (Code::ServerUnavailable, None));
        assert!(lost.detail.ends_with("The server may have carried out the call: check this before you repeat it."), "{}", lost.detail);

        let refused = Problem::from(CallError::Refused { status: 403, retry_after: None });
        assert_eq!((refused.code.status().as_u16(), refused.code.name(), refused.retry_after), (502, "server_error", None));
        assert_eq!(refused.detail, "the MCP server refused the call with HTTP status 403");
        let busy = Problem::from(CallError::Refused { status: 429, retry_after: Some(Duration::from_secs(7)) });
        assert_eq!((busy.code, busy.retry_after), (Code::ServerError, Some(7)));
        assert_eq!(busy.detail, "the MCP server refused the call with HTTP status 429. Try again in 7 s.");

        let timeout = Problem::from(CallError::Timeout(Duration::from_micros(59_998_380)));
        let expected = "no answer within 60 s. The server may have carried out the call: check this before you repeat it.";
        assert_eq!((timeout.code, timeout.retry_after, timeout.detail.as_str()), (Code::Timeout, None, expected));
    }

    #[test]
    fn a_store_that_is_away_is_worth_another_attempt() {
        let of = |error: StoreError| {
            let problem = Problem::from(error);
            (problem.code.status().as_u16(), problem.retry_after.is_some(), problem.detail)
        };
        let source = || "no connection".into();
        let failed = of(StoreError::Failed { action: "save a key", source: source() });
        assert_eq!((failed.0, failed.1), (500, false));
        let (status, has_time, detail) = of(StoreError::Away { action: "save a key", is_unsure: false, source: source() });
        assert!(status == 503 && has_time && detail.contains("nothing was changed"), "{detail}");
        let (status, has_time, detail) = of(StoreError::Away { action: "save a key", is_unsure: true, source: source() });
        assert!(status == 503 && has_time && detail.contains("may have been made"), "{detail}");
    }
}
