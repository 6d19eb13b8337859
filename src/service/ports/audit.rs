//! Entries of the audit log.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::domain::access::principal::{Principal, PrincipalId};
use crate::domain::access::rule::{Effect, RulePlace};
use crate::domain::catalog::tool::{ServerName, ToolId};
use crate::domain::text::named::named;
use crate::service::ports::CallOutcome;

/// An audited action. It contains no arguments and no results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuditEntry {
    pub at: SystemTime,
    pub principal: String,
    pub action: AuditAction,
    /// The tool of a call, or of a changed override.
    pub tool: Option<ToolId>,
    /// The server of a read.
    pub server: Option<ServerName>,
    /// The object of a change, the client's address for a wrong key, or for a read the prompt's name or the resource's URI
    /// without its query.
    pub subject: Option<String>,
    pub decision: Effect,
    /// The rule that decided, with its number at that time.
    pub rule: Option<RulePlace>,
    /// The outcome of an allowed call or read.
    pub outcome: Option<CallOutcome>,
    pub took: Duration,
    /// Size of the response, in bytes.
    pub bytes: Option<u64>,
}

named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
    pub enum AuditAction {
        Call = "call",
        PromptGet = "prompt_get",
        ResourceRead = "resource_read",
        KeyCreate = "key_create",
        KeyRotate = "key_rotate",
        KeyRevoke = "key_revoke",
        PolicyReplace = "policy_replace",
        ToolsetReplace = "toolset_replace",
        ToolsetRemove = "toolset_remove",
        ServerReplace = "server_replace",
        ServerEnable = "server_enable",
        ServerDisable = "server_disable",
        ServerRestart = "server_restart",
        ServerRemove = "server_remove",
        EnrichmentReplace = "enrichment_replace",
        EnrichmentRemove = "enrichment_remove",
        ToolFactsReplace = "tool_facts_replace",
        ToolFactsRemove = "tool_facts_remove",
        DefinitionApprove = "definition_approve",
        SecretReplace = "secret_replace",
        SecretRemove = "secret_remove",
        SecretsForget = "secrets_forget",
        FeedbackGive = "feedback_give",
        LearningForget = "learning_forget",
        LearningReplay = "learning_replay",
        SwitchOn = "switch_on",
        SwitchOff = "switch_off",
        SignIn = "sign_in",
        SignOut = "sign_out",
        SessionEnd = "session_end",
        /// The first wrong key of a burst from one address.
        WrongKey = "wrong_key",
        /// The wrong key with which the address exceeded the limit.
        WrongKeysLimit = "wrong_keys_limit",
    }
}

impl AuditEntry {
    /// The entry for a permitted change by this principal. Also used for reads, before they end.
    pub fn of_change(principal: &Principal, action: AuditAction, subject: String) -> Self {
        Self::of_owner(&principal.id, action, subject)
    }

    /// The entry for a change of an owner's data.
    pub fn of_owner(owner: &PrincipalId, action: AuditAction, subject: String) -> Self {
        Self {
            at: SystemTime::now(),
            principal: owner.as_str().to_owned(),
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

/// An entry with its sequence number.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredAuditEntry {
    pub id: u64,
    pub entry: AuditEntry,
}

/// Filters entries. `None` matches everything.
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
    /// Only entries with smaller sequence numbers.
    pub before: Option<u64>,
    pub limit: usize,
}
