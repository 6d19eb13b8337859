//! The errors of keys, rules, limits, secrets and sign-ins.

use super::{Code, Problem, sentence, whole_seconds};
use crate::domain::access::management::ManagedInFile;
use crate::domain::access::rule::RuleSource;
use crate::service::access::connections::ConnectionError;
use crate::service::access::keys::KeyError;
use crate::service::access::limits::Limited;
use crate::service::access::policies::{CheckError, PolicyError};
use crate::service::access::secrets::{CredentialError, SecretError};

/// `Retry-After` if an authorization server failed, in seconds.
const SIGN_IN_RETRY_SECONDS: u64 = 5;

impl From<ManagedInFile> for Problem {
    fn from(error: ManagedInFile) -> Self {
        Self::new(Code::ManagedByFile, sentence(&error.to_string()))
    }
}

impl From<KeyError> for Problem {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::NotFound => Self::new(Code::NotFound, "There is no such key."),
            KeyError::Invalid { parameter, reason } => Self::invalid(parameter, format!("{reason}.")),
            KeyError::NameTaken => Self::new(Code::Conflict, format!("{error}.")),
            KeyError::OfFile(error) => Self::from(error),
            KeyError::Store(error) => Self::from(error),
        }
    }
}

impl From<PolicyError> for Problem {
    fn from(error: PolicyError) -> Self {
        match error {
            PolicyError::Invalid(ref rules) => {
                let given = rules.iter().find(|rule| rule.place.source == RuleSource::Api);
                let parameter = given.map(|rule| format!("rules[{}]", rule.place.number - 1).into());
                Self { parameter, ..Self::new(Code::InvalidRequest, format!("{error}.")) }
            }
            PolicyError::Malformed(_) => Self::new(Code::InvalidRequest, format!("{error}.")),
            PolicyError::TooManyRules => Self::invalid("rules", format!("{error}.")),
            PolicyError::OfFile(error) => Self { parameter: Some("default".into()), ..Self::from(error) },
            PolicyError::Changed(_) => Self::new(Code::PreconditionFailed, format!("{error}. Read the current version and change that.")),
            PolicyError::Store(error) => Self::from(error),
            PolicyError::Unreadable(_) => Self::new(Code::Internal, error.to_string()),
        }
    }
}

impl From<CheckError> for Problem {
    fn from(error: CheckError) -> Self {
        let detail = format!("{error}.");
        match error {
            CheckError::UnknownTool(_) | CheckError::FormerTool(_) => Self::invalid("tool", detail),
            CheckError::UnknownPrincipal(_) => Self::invalid("principal", detail),
            CheckError::Nothing => Self::new(Code::InvalidRequest, detail),
            CheckError::Draft(error) => Self::from(error),
        }
    }
}

impl From<Limited> for Problem {
    fn from(limited: Limited) -> Self {
        let seconds = whole_seconds(limited.retry_after);
        Self { retry_after: Some(seconds), ..Self::new(Code::RateLimited, format!("{limited}. Try again in {seconds} s.")) }
    }
}

impl From<SecretError> for Problem {
    fn from(error: SecretError) -> Self {
        match error {
            SecretError::NoKey => Self::new(Code::SecretsOff, format!("{error}.")),
            SecretError::Nobody => Self::new(Code::UserNeeded, format!("{error}.")),
            SecretError::NotFound => Self::not_found(),
            SecretError::Invalid { parameter, reason } => Self::invalid(parameter, format!("{reason}.")),
            SecretError::Seal(error) => Self::new(Code::Internal, error.to_string()),
            SecretError::Store(error) => Self::from(error),
        }
    }
}

impl From<CredentialError> for Problem {
    fn from(error: CredentialError) -> Self {
        match error {
            CredentialError::NoUser(_) | CredentialError::Nobody(_) => Self::new(Code::UserNeeded, format!("{error}.")),
            CredentialError::NoKey(_) => Self::new(Code::SecretsOff, format!("{error}.")),
            CredentialError::Unfilled { .. } => Self::new(Code::CredentialsMissing, format!("{error}.")),
            CredentialError::Connection(error) => Self::from(error),
            CredentialError::Store(error) => Self::from(error),
        }
    }
}

impl From<ConnectionError> for Problem {
    fn from(error: ConnectionError) -> Self {
        let detail = sentence(&error.to_string());
        match error {
            ConnectionError::SignInNeeded { link, .. } => Self { sign_in_url: link, ..Self::new(Code::SignInNeeded, detail) },
            ConnectionError::Nobody(_) => Self::new(Code::UserNeeded, detail),
            ConnectionError::NotSetUp(_) => Self::new(Code::SecretsOff, detail),
            ConnectionError::NoUserToken { .. } | ConnectionError::TokenRejected { .. } => Self::new(Code::CredentialsMissing, detail),
            ConnectionError::NotIssued { .. } => Self::new(Code::ServerUnavailable, detail),
            ConnectionError::Unavailable { .. } => {
                Self { retry_after: Some(SIGN_IN_RETRY_SECONDS), ..Self::new(Code::ServerUnavailable, format!("{detail} Try again.")) }
            }
            ConnectionError::Seal(error) => Self::new(Code::Internal, error.to_string()),
            ConnectionError::Store(error) => Self::from(error),
        }
    }
}
