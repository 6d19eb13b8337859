//! Identifies a caller's view by those attributes that rules, toolsets or keys refer to.
//!
//! Callers share a view unless a rule distinguishes them. Other attributes, such as the model or a person's groups, create no new
//! view.

use crate::domain::access::principal::Principal;
use crate::domain::access::rule::PlacedRule;
use crate::domain::access::toolset_name::ToolsetName;
use crate::domain::access::visibility::Scope;
use crate::domain::catalog::tool::ServerName;
use crate::domain::text::canonical::Fingerprint;

/// The attributes of callers that rules refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RuleAttributes {
    principals: bool,
    groups: bool,
    models: bool,
}

impl RuleAttributes {
    pub(super) fn by(rules: &[PlacedRule]) -> Self {
        Self {
            principals: rules.iter().any(|rule| !rule.rule.principals.is_empty()),
            groups: rules.iter().any(|rule| !rule.rule.groups.is_empty()),
            models: rules.iter().any(|rule| !rule.rule.models.is_empty()),
        }
    }

    /// The fingerprint of the caller's view: equal for callers with equal views. Each list is hashed with its length, so that
    /// different lists never yield the same bytes.
    pub(super) fn of(self, principal: &Principal) -> Fingerprint {
        let mut bytes = Vec::with_capacity(128);
        if self.principals {
            write([Some(principal.id.as_str()), principal.email.as_deref()].into_iter().flatten(), &mut bytes);
        }
        if self.groups {
            write(principal.groups.iter().map(String::as_str), &mut bytes);
        }
        if self.models {
            write(principal.model.iter().map(String::as_str), &mut bytes);
        }
        match &principal.servers {
            Scope::All => bytes.push(0),
            Scope::Only(servers) => {
                bytes.push(1);
                write(servers.iter().map(ServerName::as_str), &mut bytes);
            }
        }
        for toolsets in &principal.within {
            write(toolsets.iter().map(ToolsetName::as_str), &mut bytes);
        }
        Fingerprint::of_bytes(&bytes)
    }
}

fn write<'a>(texts: impl Iterator<Item = &'a str>, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; 8]);
    let mut count = 0_u64;
    for text in texts {
        out.extend_from_slice(&(text.len() as u64).to_le_bytes());
        out.extend_from_slice(text.as_bytes());
        count += 1;
    }
    out[start..start + 8].copy_from_slice(&count.to_le_bytes());
}
