//! The known and the listed definitions in memory, and their comparison.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use ahash::RandomState;
use serde_json::Value;

use super::{DefinitionState, Kind};
use crate::domain::access::management::ManagedInFile;
use crate::domain::catalog::definition::{NO_TOOL, SERVER_KEY, prompt_of, skeleton};
use crate::domain::catalog::hidden_text::visible;
use crate::domain::catalog::tool::{ServerName, Tool, ToolId};
use crate::domain::text::canonical::Fingerprint;
use crate::service::catalog::log_limit::LogLimit;
use crate::service::ports::StoredDefinition;
use crate::settings::{DefinitionChanges, DefinitionSettings, NewDefinitions};

#[derive(Default)]
pub(super) struct State {
    pub(super) settings: DefinitionSettings,
    /// The fingerprints that the settings file approves. They replace the known ones.
    pub(super) approved: HashMap<ToolId, Fingerprint, RandomState>,
    /// The listed definitions that the settings file doesn't approve and that are logged, each with the approved fingerprint.
    pub(super) unapproved: HashMap<ToolId, (Fingerprint, Fingerprint), RandomState>,
    /// The name of the settings file.
    pub(super) file: Arc<str>,
    /// The known definitions of all tools ever seen, and of servers and their prompts.
    pub(super) known: HashMap<ServerName, HashMap<Arc<str>, StoredDefinition, RandomState>, RandomState>,
    /// The definitions that servers list now.
    pub(super) present: HashMap<ServerName, Present, RandomState>,
    /// Tools with similar-looking names, by the common form of these names.
    pub(super) alike: HashMap<String, BTreeSet<ToolId>, RandomState>,
}

#[derive(Default)]
pub(super) struct Present {
    pub(super) fingerprints: HashMap<Arc<str>, Fingerprint, RandomState>,
    pub(super) withheld: Vec<Arc<Tool>>,
    /// The full definitions of the server and its prompts, by key.
    pub(super) parts: HashMap<Arc<str>, Value, RandomState>,
    /// Names that are not remembered because the server has listed too many.
    pub(super) beyond: HashSet<Arc<str>, RandomState>,
}

impl State {
    pub(super) fn note_alike(&mut self, tool: &ToolId) {
        if !tool.name.starts_with(NO_TOOL) {
            self.alike.entry(skeleton(&tool.name)).or_default().insert(tool.clone());
        }
    }

    pub(super) fn forget(&mut self, tool: &ToolId) {
        if let Some(known) = self.known.get_mut(&tool.server) {
            known.remove(&tool.name);
        }
        let read_as = skeleton(&tool.name);
        if let Some(alike) = self.alike.get_mut(&read_as) {
            alike.remove(tool);
            if alike.is_empty() {
                self.alike.remove(&read_as);
            }
        }
    }

    /// Checks that no file approves this definition.
    pub(super) fn check_given(&self, id: &ToolId) -> Result<(), ManagedInFile> {
        let is_in_file = self.approved.contains_key(id);
        if is_in_file { Err(ManagedInFile::new(format_args!("the approval of {}", shown(id)), &self.file)) } else { Ok(()) }
    }

    /// Whether the known definition is not the one that the settings file approves. The approved one was then never listed.
    pub(super) fn lacks_approved(&self, id: &ToolId) -> bool {
        let known = || self.known.get(&id.server).and_then(|known| known.get(&id.name)).map(|known| known.fingerprint);
        self.approved.get(id).is_some_and(|approved| known() != Some(*approved))
    }

    pub(super) fn withholds(&self) -> bool {
        self.settings.changes == DefinitionChanges::Quarantine || self.settings.new == NewDefinitions::Quarantine
    }

    pub(super) fn is_beyond(&self, tool: &ToolId) -> bool {
        self.present.get(&tool.server).is_some_and(|present| present.beyond.contains(&tool.name))
    }

    /// Logs a new tool once, with other tools that have a similar-looking name.
    pub(super) fn log_new(&self, stored: &StoredDefinition, limit: &mut LogLimit) {
        let tool = shown(&stored.tool);
        let is_approved = self.approved.contains_key(&stored.tool);
        let is_withheld = stored.is_new && self.settings.new == NewDefinitions::Quarantine && !is_approved;
        if is_withheld && limit.take() {
            tracing::warn!(tool, "a definition that a server has added is withheld until it is approved");
        }
        if stored.tool.name.starts_with(NO_TOOL) {
            return;
        }
        let alike = self.alike.get(&skeleton(&stored.tool.name)).into_iter().flatten();
        if let Some(other) = alike.into_iter().find(|other| other.name != stored.tool.name)
            && limit.take()
        {
            tracing::warn!(tool, looks_like = shown(other), "the names of two tools look the same");
        }
    }

    /// Logs each listed definition that isn't the one that the settings file approves, once.
    pub(super) fn log_unapproved(&mut self) {
        let is_withheld = self.settings.changes == DefinitionChanges::Quarantine;
        for (tool, (listed, approved)) in self.newly_unapproved() {
            let (tool, file) = (shown(&tool), &*self.file);
            if is_withheld {
                tracing::warn!(tool, %listed, %approved, file, "the definition of a tool is not the approved one of the file; it is withheld");
            } else {
                tracing::warn!(tool, %listed, %approved, file, "the definition of a tool is not the approved one of the file");
            }
        }
    }

    /// The definitions to log: the listed and the approved fingerprint of each.
    fn newly_unapproved(&mut self) -> Vec<(ToolId, (Fingerprint, Fingerprint))> {
        let is_off = self.settings.changes == DefinitionChanges::Off;
        let differing = |(tool, approved): (&ToolId, &Fingerprint)| {
            let listed = self.listed(tool).filter(|listed| listed != approved && !is_off)?;
            Some((tool.clone(), (listed, *approved)))
        };
        let now: HashMap<ToolId, (Fingerprint, Fingerprint), RandomState> = self.approved.iter().filter_map(differing).collect();
        let mut new: Vec<_> = now.iter().filter(|(tool, pair)| self.unapproved.get(*tool) != Some(*pair)).collect();
        new.sort();
        let new = new.into_iter().map(|(tool, pair)| (tool.clone(), *pair)).collect();
        self.unapproved = now;
        new
    }

    /// The fingerprint of the definition that the server lists now.
    /// Whether the server has not yet listed anything of a kind.
    pub(super) fn is_first(&self, server: &ServerName, kind: Kind) -> bool {
        let known = self.known.get(server);
        !known.is_some_and(|known| known.keys().any(|key| kind.has(key)) || kind.listed().is_some_and(|key| known.contains_key(key)))
    }

    pub(super) fn listed(&self, tool: &ToolId) -> Option<Fingerprint> {
        self.present.get(&tool.server)?.fingerprints.get(&tool.name).copied()
    }

    /// Whether a known server added the tool and nobody has approved it yet.
    pub(super) fn is_new(&self, tool: &ToolId, now: &Fingerprint) -> bool {
        if self.approved.contains_key(tool) {
            return false;
        }
        let known = self.known.get(&tool.server).and_then(|known| known.get(&tool.name));
        known.map_or_else(
            || self.is_beyond(tool),
            |known| known.is_new && (known.fingerprint == *now || self.settings.new == NewDefinitions::Quarantine),
        )
    }

    pub(super) fn of(&self, tool: &ToolId) -> Option<DefinitionState> {
        self.compare(tool, &self.listed(tool)?)
    }

    pub(super) fn compare(&self, tool: &ToolId, definition: &Fingerprint) -> Option<DefinitionState> {
        if let Some(approved) = self.approved.get(tool) {
            return match (approved == definition, self.settings.changes) {
                (_, DefinitionChanges::Off) => None,
                (true, _) => Some(DefinitionState::Same),
                (false, DefinitionChanges::Flag) => Some(DefinitionState::Changed),
                (false, DefinitionChanges::Quarantine) => Some(DefinitionState::Withheld),
            };
        }
        let Some(known) = self.known.get(&tool.server).and_then(|known| known.get(&tool.name)) else {
            // The tool is not remembered, so its definition may have changed.
            return (self.withholds() && self.is_beyond(tool)).then_some(DefinitionState::Withheld);
        };
        Some(match (known.fingerprint == *definition, self.settings.changes) {
            (_, DefinitionChanges::Off) => return None,
            (_, _) if known.is_new && self.settings.new == NewDefinitions::Quarantine => DefinitionState::Withheld,
            (true, _) if known.is_new => DefinitionState::New,
            (true, _) => DefinitionState::Same,
            (false, DefinitionChanges::Flag) => DefinitionState::Changed,
            (false, DefinitionChanges::Quarantine) => DefinitionState::Withheld,
        })
    }
}

/// Formats a tool, server or prompt for the log.
pub(super) fn shown(id: &ToolId) -> String {
    match (&*id.name, prompt_of(&id.name)) {
        (SERVER_KEY, _) => format!("{} (title and instructions)", id.server),
        (_, Some(prompt)) => format!("{} (prompt {})", id.server, visible(prompt)),
        _ => visible(&id.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::State;
    use crate::domain::catalog::tool::ToolId;
    use crate::domain::text::canonical::Fingerprint;
    use crate::service::catalog::definitions::DefinitionState;
    use crate::settings::{DefinitionChanges, DefinitionSettings};

    #[test]
    fn an_approval_in_a_file_decides_alone() {
        let (tool, approved, other) = (ToolId::new("one", "send"), Fingerprint::of_text("approved"), Fingerprint::of_text("other"));
        let settings = DefinitionSettings { changes: DefinitionChanges::Quarantine, ..DefinitionSettings::default() };
        let mut state = State { settings, file: "toolsieve.toml".into(), ..State::default() };
        assert_eq!(state.compare(&tool, &other), None);
        state.approved.insert(tool.clone(), approved);
        assert_eq!(state.compare(&tool, &approved), Some(DefinitionState::Same));
        assert_eq!(state.compare(&tool, &other), Some(DefinitionState::Withheld));
        assert!(!state.is_new(&tool, &other) && state.lacks_approved(&tool));
        state.settings.changes = DefinitionChanges::Off;
        assert_eq!(state.compare(&tool, &other), None);
        assert_eq!(
            state.check_given(&tool).unwrap_err().to_string(),
            "the approval of one/send is managed in toolsieve.toml: change it there"
        );
        assert!(state.check_given(&ToolId::new("one", "echo")).is_ok());
    }

    /// Regression: a definition that no settings file approves was withheld without a line in the log.
    #[test]
    fn what_a_file_does_not_approve_is_logged_once() {
        let (tool, approved, listed) = (ToolId::new("one", "send"), Fingerprint::of_text("approved"), Fingerprint::of_text("listed"));
        let settings = DefinitionSettings { changes: DefinitionChanges::Quarantine, ..DefinitionSettings::default() };
        let mut state = State { settings, ..State::default() };
        state.approved.insert(tool.clone(), approved);
        assert_eq!(state.newly_unapproved(), [], "it isn't listed yet");
        let list = |state: &mut State, listed| {
            let present = state.present.entry(tool.server.clone()).or_default();
            present.fingerprints.insert(tool.name.clone(), listed);
        };
        list(&mut state, listed);
        assert_eq!(state.newly_unapproved(), [(tool.clone(), (listed, approved))]);
        assert_eq!(state.newly_unapproved(), [], "once");
        // Another approval in the file.
        state.approved.insert(tool.clone(), Fingerprint::of_text("other"));
        assert_eq!(state.newly_unapproved().len(), 1);
        state.approved.insert(tool.clone(), listed);
        assert_eq!(state.newly_unapproved(), []);
        list(&mut state, approved);
        assert_eq!(state.newly_unapproved(), [(tool.clone(), (approved, listed))]);
        list(&mut state, listed);
        state.settings.changes = DefinitionChanges::Off;
        list(&mut state, approved);
        assert_eq!(state.newly_unapproved(), [], "nothing is compared");
    }

    #[test]
    fn with_a_tool_goes_what_its_name_is_read_as() {
        let mut state = State::default();
        let [one, other] = ["one", "other"].map(|server| ToolId::new(server, "send"));
        state.note_alike(&one);
        state.note_alike(&other);
        state.forget(&one);
        assert_eq!(state.alike.values().map(BTreeSet::len).collect::<Vec<_>>(), [1]);
        state.forget(&other);
        assert!(state.alike.is_empty());
    }
}
