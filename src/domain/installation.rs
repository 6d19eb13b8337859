//! The installation to which a store belongs.
//!
//! The store and its folder hold the same id, so that a lost store is detected.
//!
//! Rules and keys exist only in the store, and so do toolsets, tags and approvals from the API, to which rules of the
//! settings file refer. Without them, callers may use what was blocked. So a store that lost them must not start as if they
//! had never existed.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The record in the folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Installation {
    pub id: Uuid,
    /// Whether its store ever held keys, rules, or data that rules depend on: toolsets, tool metadata, approvals.
    pub had_rules_or_keys: bool,
}

/// Why a store does not belong to its folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    #[error("it is empty")]
    Empty,
    #[error("it belongs to another installation")]
    Other,
}

/// The ids that store and folder hold from now on. `fresh` identifies a new installation.
///
/// # Errors
/// [`Mismatch`]: starting would lose rules, keys, or data that rules depend on.
pub(crate) fn settle(
    stored: Option<Uuid>,
    has_rules_or_keys: bool,
    folder: Option<Installation>,
    fresh: impl FnOnce() -> Uuid,
) -> Result<Installation, Mismatch> {
    let is_same = folder.is_some_and(|folder| stored == Some(folder.id));
    if folder.is_some_and(|folder| folder.had_rules_or_keys) && !is_same {
        return Err(if stored.is_none() { Mismatch::Empty } else { Mismatch::Other });
    }
    let id = stored.or(folder.map(|folder| folder.id)).unwrap_or_else(fresh);
    let had_rules_or_keys = has_rules_or_keys || folder.is_some_and(|folder| folder.had_rules_or_keys);
    Ok(Installation { id, had_rules_or_keys })
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{Installation, Mismatch, settle};

    const ONE: Uuid = Uuid::from_u128(1);
    const TWO: Uuid = Uuid::from_u128(2);
    const FRESH: Uuid = Uuid::from_u128(3);

    fn folder(id: Uuid, had_rules_or_keys: bool) -> Installation {
        Installation { id, had_rules_or_keys }
    }

    #[test]
    fn a_store_and_a_folder_agree_or_the_start_is_refused() {
        let cases = [
            // A new installation, and one of the version before ids existed.
            (None, false, None, Ok(folder(FRESH, false))),
            (None, true, None, Ok(folder(FRESH, true))),
            // The folder was deleted, or the store was moved to another one.
            (Some(ONE), true, None, Ok(folder(ONE, true))),
            (Some(ONE), false, Some(folder(ONE, true)), Ok(folder(ONE, true))),
            (Some(ONE), true, Some(folder(ONE, false)), Ok(folder(ONE, true))),
            // Nothing can be lost.
            (None, false, Some(folder(ONE, false)), Ok(folder(ONE, false))),
            (Some(TWO), true, Some(folder(ONE, false)), Ok(folder(TWO, true))),
            (None, false, Some(folder(ONE, true)), Err(Mismatch::Empty)),
            (None, true, Some(folder(ONE, true)), Err(Mismatch::Empty)),
            (Some(TWO), true, Some(folder(ONE, true)), Err(Mismatch::Other)),
        ];
        for (stored, has, beside, expected) in cases {
            assert_eq!(settle(stored, has, beside, || FRESH), expected, "{stored:?} {has} {beside:?}");
        }
    }
}
