//! Migrates a schema, or uses one that a newer version has migrated.
//!
//! While replicas are upgraded one after another, a replica of the older version may restart after a newer one has migrated the schema.
//! A migration that only adds something doesn't disturb the older version. So the schema contains the number of the oldest migration whose
//! version may still use it, `installation.compatible_from`. A migration that removes, renames or reinterprets something sets it to its own
//! number.

use std::borrow::Cow;

use sqlx::migrate::{MigrateError, Migration, Migrator};

/// The number from which on a version may use a schema.
pub(super) const COMPATIBLE_FROM: &str = "SELECT compatible_from FROM installation";

/// The number of the last migration of a schema. The table that it reads is sqlx's own.
pub(super) const NEWEST: &str = "SELECT max(version) FROM _sqlx_migrations";

/// The number of the newest migration that this version knows.
pub(super) fn newest(migrator: &Migrator) -> i64 {
    migrator.iter().map(|migration| migration.version).max().unwrap_or_default()
}

/// Whether a version with this newest migration may use a schema. `schema` is the schema's newest migration, and `compatible_from` its
/// number, if it has one.
pub(super) fn may_use(newest: i64, schema: i64, compatible_from: Option<i64>) -> bool {
    schema <= newest || compatible_from.is_some_and(|from| from <= newest)
}

/// The migrations without the refusal of a schema that has others.
pub(super) fn lenient(migrator: &'static Migrator) -> Migrator {
    let migrations: &'static [Migration] = &migrator.migrations;
    Migrator { migrations: Cow::Borrowed(migrations), ignore_missing: true, ..Migrator::DEFAULT }
}

/// Whether a migration was refused only because a newer version has migrated the schema, and this version may use it. Logs it then.
pub(super) fn is_bearable(error: &MigrateError, migrator: &Migrator, compatible_from: Option<i64>) -> bool {
    let MigrateError::VersionMissing(migration) = error else { return false };
    let newest = newest(migrator);
    let is_bearable = *migration > newest && may_use(newest, *migration, compatible_from);
    if is_bearable {
        tracing::warn!(migration, "a newer version has migrated the store, and this version may still use it: upgrade this service soon");
    }
    is_bearable
}

#[cfg(test)]
mod tests {
    use super::may_use;

    #[test]
    fn a_newer_schema_is_used_only_if_it_says_so() {
        for (newest, schema, compatible_from, expected) in [
            (45, 45, None, true),
            (45, 40, None, true),
            (45, 46, None, false),
            (45, 46, Some(45), true),
            (45, 60, Some(41), true),
            (45, 46, Some(46), false),
        ] {
            assert_eq!(may_use(newest, schema, compatible_from), expected, "{newest} {schema} {compatible_from:?}");
        }
    }
}
