//! Entries of the audit log.

use std::time::{Duration, SystemTime};

use crate::domain::access::policy::{Effect, RulePlace};
use crate::domain::access::principal::Principal;
use crate::domain::catalog::tool::{ServerName, ToolId};
use crate::service::ports::CallOutcome;

/// An audited action. Contains no arguments and no results.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditEntry {
    pub at: SystemTime,
    pub principal: String,
    pub action: AuditAction,
    /// For calls and tool overrides.
    pub tool: Option<ToolId>,
    /// For reads: the server.
    pub server: Option<ServerName>,
    /// For changes: the changed object. For wrong keys: the client's address. For reads: the prompt's name, or the resource's URI
    /// without its query.
    pub subject: Option<String>,
    pub decision: Effect,
    /// The deciding rule, as numbered then.
    pub rule: Option<RulePlace>,
    /// For allowed calls and reads.
    pub outcome: Option<CallOutcome>,
    pub took: Duration,
    /// Size of the response.
    pub bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditAction {
    Call,
    PromptGet,
    ResourceRead,
    KeyCreate,
    KeyRotate,
    KeyRevoke,
    PolicyReplace,
    ToolsetReplace,
    ToolsetRemove,
    EnrichmentReplace,
    EnrichmentRemove,
    ToolFactsReplace,
    ToolFactsRemove,
    DefinitionApprove,
    SecretReplace,
    SecretRemove,
    SecretsForget,
    SessionEnd,
    /// The first wrong key of a burst from one address.
    WrongKey,
    /// The wrong key with which the address exceeded the limit.
    WrongKeysLimit,
}

impl AuditAction {
    const ALL: [Self; 20] = [
        Self::Call,
        Self::PromptGet,
        Self::ResourceRead,
        Self::KeyCreate,
        Self::KeyRotate,
        Self::KeyRevoke,
        Self::PolicyReplace,
        Self::ToolsetReplace,
        Self::ToolsetRemove,
        Self::EnrichmentReplace,
        Self::EnrichmentRemove,
        Self::ToolFactsReplace,
        Self::ToolFactsRemove,
        Self::DefinitionApprove,
        Self::SecretReplace,
        Self::SecretRemove,
        Self::SecretsForget,
        Self::SessionEnd,
        Self::WrongKey,
        Self::WrongKeysLimit,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::PromptGet => "prompt_get",
            Self::ResourceRead => "resource_read",
            Self::KeyCreate => "key_create",
            Self::KeyRotate => "key_rotate",
            Self::KeyRevoke => "key_revoke",
            Self::PolicyReplace => "policy_replace",
            Self::ToolsetReplace => "toolset_replace",
            Self::ToolsetRemove => "toolset_remove",
            Self::EnrichmentReplace => "enrichment_replace",
            Self::EnrichmentRemove => "enrichment_remove",
            Self::ToolFactsReplace => "tool_facts_replace",
            Self::ToolFactsRemove => "tool_facts_remove",
            Self::DefinitionApprove => "definition_approve",
            Self::SecretReplace => "secret_replace",
            Self::SecretRemove => "secret_remove",
            Self::SecretsForget => "secrets_forget",
            Self::SessionEnd => "session_end",
            Self::WrongKey => "wrong_key",
            Self::WrongKeysLimit => "wrong_keys_limit",
        }
    }

    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.name() == name)
    }
}

impl AuditEntry {
    /// A change by this principal.
    #[must_use]
    pub fn of_change(principal: &Principal, action: AuditAction, subject: String) -> Self {
        Self {
            at: SystemTime::now(),
            principal: principal.id.as_str().to_owned(),
            action,
            tool: None,
            server: None,
            subject: Some(subject),
            decision: Effect::Allow,
            rule: None,
            outcome: None,
            took: Duration::ZERO,
            bytes: None,
        }
    }
}

/// An entry with its number. Numbers grow over time.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredAuditEntry {
    pub id: u64,
    pub entry: AuditEntry,
}

/// A filter for entries; `None` matches everything.
#[derive(Clone, Debug, Default)]
pub struct AuditQuery {
    pub principal: Option<String>,
    pub action: Option<AuditAction>,
    pub server: Option<String>,
    pub tool: Option<String>,
    pub decision: Option<Effect>,
    pub outcome: Option<CallOutcome>,
    pub since: Option<SystemTime>,
    pub until: Option<SystemTime>,
    /// Only entries with smaller numbers.
    pub before: Option<u64>,
    pub limit: usize,
}
