//! Section `[definitions]`: what to do when a server changes a tool's definition.

use crate::domain::text::named::named;
use crate::settings::values::Reader;

named! {
    /// What to do when a definition differs from its baseline.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum DefinitionChanges {
        /// Don't compare definitions.
        Off = "off",
        /// Publish the changed tool, and report the change to admins.
        #[default]
        Flag = "flag",
        /// Hide the tool until an admin approves it.
        Quarantine = "quarantine",
    }

    /// What to do when a known server adds a tool or a prompt.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum NewDefinitions {
        /// Publish it, and list it as new for admins.
        #[default]
        Flag = "flag",
        /// Hide it until an admin approves it.
        Quarantine = "quarantine",
    }
}

/// The settings in section `[definitions]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DefinitionSettings {
    pub changes: DefinitionChanges,
    pub new: NewDefinitions,
}

impl DefinitionSettings {
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let unknown = ("unknown mode", "write \"flag\", \"quarantine\" or \"off\"");
        let changes = reader.choice("definitions.changes", DefinitionChanges::of_name, unknown);
        let new = reader.choice("definitions.new", NewDefinitions::of_name, ("unknown mode", "write \"flag\" or \"quarantine\""));
        if changes == DefinitionChanges::Off && new == NewDefinitions::Quarantine {
            let remedy = "set definitions.changes to \"flag\" or \"quarantine\"";
            reader.problem("definitions.new", "has no effect: with definitions.changes \"off\" nothing is compared", remedy);
        }
        Self { changes, new }
    }
}
