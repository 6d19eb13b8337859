//! Rules, toolsets and names of tools in the settings that match nothing in the catalog, for `toolsieve check --tools`.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::cli::catalog::Known;
use crate::domain::access::policy::{CompiledToolsets, MATCHES_NO_TOOL, Matchable, Policy, Tagging, unknown_callers, warnings};
use crate::domain::access::toolset::Toolset;
use crate::domain::catalog::catalog::Catalog;
use crate::domain::catalog::definition::NO_TOOL;
use crate::domain::catalog::hidden_text::visible;
use crate::domain::catalog::tool::ToolId;
use crate::domain::text::similar::did_you_mean;
use crate::settings::Settings;

/// A part of the settings, and why it has no effect.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Unmatched {
    pub(super) of: String,
    pub(super) reason: String,
}

pub(super) fn unmatched(settings: &Settings, known: &Known) -> Vec<Unmatched> {
    // Withheld tools count too: rules for them have an effect as soon as they are approved.
    let catalog = with_withheld(known);
    let servers: BTreeSet<&str> = catalog.servers().iter().map(|server| server.name.as_str()).collect();
    let servers: BTreeSet<&str> = servers.into_iter().chain(settings.live.servers.iter().map(|server| server.name.as_str())).collect();
    let servers: Vec<&str> = servers.into_iter().collect();
    let matchable = Matchable { servers: &servers, catalog: &catalog };
    let mut found = of_rules(settings, matchable);
    found.extend(of_toolsets(settings, matchable));
    found.extend(of_tags(settings, matchable));
    found.extend(of_names(settings, &catalog, known));
    for Unmatched { reason, .. } in &mut found {
        // The suggestions are names that servers have chosen.
        *reason = visible(reason);
    }
    found
}

fn with_withheld(known: &Known) -> Catalog {
    let mut servers = known.catalog.servers().to_vec();
    for server in &mut servers {
        server.tools.extend(known.withheld.iter().filter(|tool| tool.id.server == server.name).cloned());
    }
    Catalog::new(servers)
}

fn note(of: String) -> impl Fn(String) -> Unmatched {
    move |reason| Unmatched { of: of.clone(), reason }
}

fn of_rules(settings: &Settings, known: Matchable<'_>) -> Vec<Unmatched> {
    let live = &settings.live;
    let toolsets = CompiledToolsets::new(live.toolsets.defined.iter().cloned(), live.toolsets.published.clone());
    let policy = Policy::new(live.policy.default, live.policy.rules.clone()).with_toolsets(toolsets.into());
    let (mut found, mut explained) = (Vec::new(), BTreeSet::new());
    for rule in policy.rules() {
        let unmatched = rule.rule.unmatched(known);
        // A toolset may have been created over the API. The others are warned about whenever the settings are read.
        if !unmatched.is_empty() || !rule.rule.toolsets.is_empty() {
            explained.insert(rule.place.number);
        }
        found.extend(unmatched.into_iter().map(note(rule.place.to_string())));
    }
    let said_before = unknown_callers(policy.rules());
    let others = warnings(&policy, known.catalog).into_iter().filter(|warning| !said_before.contains(warning));
    let others = others.filter(|warning| warning.reason != MATCHES_NO_TOOL || !explained.contains(&warning.place.number));
    found.extend(others.map(|warning| note(warning.place.to_string())(warning.reason)));
    found
}

fn of_toolsets(settings: &Settings, known: Matchable<'_>) -> Vec<Unmatched> {
    let toolsets = CompiledToolsets::new(settings.live.toolsets.defined.iter().cloned(), settings.live.toolsets.published.clone());
    let empty = toolsets.empty(known.catalog);
    let of_one = |toolset: &Toolset| {
        let mut reasons = toolset.definition.unmatched(known);
        if reasons.is_empty() && empty.contains(&&toolset.name) {
            reasons.push(MATCHES_NO_TOOL.to_owned());
        }
        reasons.into_iter().map(note(format!("toolset {}", toolset.name))).collect::<Vec<_>>()
    };
    settings.live.toolsets.defined.iter().flat_map(of_one).collect()
}

fn of_tags(settings: &Settings, known: Matchable<'_>) -> Vec<Unmatched> {
    let mut found = Vec::new();
    for (number, rule) in (1..).zip(&settings.live.tags) {
        let mut reasons = rule.conditions.unmatched(known);
        let tagging = Tagging::new(std::slice::from_ref(rule));
        let mut tools = known.catalog.tools().iter().chain(known.catalog.disabled());
        if reasons.is_empty() && !tools.any(|tool| tagging.of(&tool.id, &tool.operation_id, &tool.hints).next().is_some()) {
            reasons.push(MATCHES_NO_TOOL.to_owned());
        }
        found.extend(reasons.into_iter().map(note(format!("[[tag]] {number} ({})", rule.tag))));
    }
    found
}

/// Names of single tools: `selection.pinned`, `[[tool]]` and `[[approval]]`.
fn of_names(settings: &Settings, catalog: &Catalog, known: &Known) -> Vec<Unmatched> {
    let live = &settings.live;
    let tools = || catalog.tools().iter().chain(catalog.disabled());
    let is_published = |name: &str| tools().any(|tool| tool.operation_id.as_str() == name);
    let pinned = live.selection.pinned.iter().filter(|name| !is_published(name)).map(|name| {
        let meant = did_you_mean(name, tools().map(|tool| tool.operation_id.as_str()));
        note("selection.pinned".to_owned())(format!("no tool has the public name `{name}`{meant}"))
    });
    let is_listed = |id: &ToolId| {
        let is_skipped = || known.skipped.iter().any(|(server, tool)| *server == id.server && tool.tool == *id.name);
        // The tools of other servers are unknown.
        catalog.server(id.server.as_str()).is_none() || tools().any(|tool| tool.id == *id) || is_skipped()
    };
    let described: BTreeSet<&ToolId> = live.tools.overrides.keys().chain(live.tools.enrichments.keys()).collect();
    let approved = live.tools.approvals.keys().filter(|id| !id.name.starts_with(NO_TOOL));
    let named = described.into_iter().map(|id| ("[[tool]]", id)).chain(approved.map(|id| ("[[approval]]", id)));
    let named = named.filter(|(_, id)| !is_listed(id)).map(|(table, id)| {
        let of_server = tools().filter(|tool| tool.id.server == id.server).map(|tool| &*tool.id.name);
        note(format!("{table} {id}"))(format!("the server has no such tool{}", did_you_mean(&id.name, of_server)))
    });
    pinned.chain(named).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::unmatched;
    use crate::cli::catalog::{Kept, known};
    use crate::domain::catalog::catalog::ServerListing;
    use crate::domain::text::json_text::JsonText;
    use crate::settings::{Settings, Sources};

    fn listing(server: &str, tools: &[&str]) -> ServerListing {
        let tool = |name: &&str| JsonText::of(&json!({"name": name, "inputSchema": {"type": "object"}}));
        let tools = tools.iter().map(tool).collect();
        ServerListing { server: server.into(), title: None, program: None, version: None, instructions: None, tools, skipped: Vec::new() }
    }

    fn found(settings: &str) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("toolsieve.toml");
        fs::write(&file, settings).unwrap();
        let (settings, _) = Settings::load(&Sources { settings: Some(file), ..Sources::default() }).unwrap();
        let listings = [listing("git", &["git_log", "git_reset"]), listing("time", &["get_current_time"])];
        let known = known(&listings, Vec::new(), &settings, &Kept::default());
        unmatched(&settings, &known).into_iter().map(|found| format!("{}: {}", found.of, found.reason)).collect()
    }

    /// Regression: the settings file could name tools that no server has, and nothing said so.
    #[test]
    fn every_name_that_matches_nothing_is_found() {
        let settings = r#"
            [selection]
            pinned = ["time_get_current_time", "git__git_log"]
            [toolsets.code]
            servers = ["giit"]
            [toolsets.both]
            servers = ["git"]
            tools = ["get_current_time"]
            always = ["git__nope"]
            [toolsets.neither]
            servers = ["git"]
            tools = ["get_current_time"]
            [[policy]]
            effect = "block"
            tools = ["git/git_reset"]
            [[policy]]
            effect = "block"
            servers = ["gti*"]
            [[policy]]
            effect = "block"
            servers = ["git"]
            tools = ["get_current_time"]
            [[policy]]
            effect = "allow"
            toolsets = ["of_the_api"]
            [[tag]]
            tag = "writes"
            tools = ["git_comit"]
            [[tag]]
            tag = "reads"
            tools = ["*_log"]
            [[tool]]
            server = "git"
            tool = "git_lgo"
            pinned = true
            [[tool]]
            server = "elsewhere"
            tool = "x"
            pinned = true
            [[approval]]
            server = "time"
            tool = "nosuchtool"
            fingerprint = "0000000000000000000000000000000000000000000000000000000000000000"
        "#;
        let expected = [
            "rule 1 of the settings: tools: `git/git_reset` matches no current tool; did you mean `git__git_reset`?",
            "rule 2 of the settings: servers: `gti*` matches no server",
            "rule 3 of the settings: it matches no current tool",
            "toolset code: servers: `giit` matches no server; did you mean `git`?",
            "toolset both: always: `git__nope` matches no current tool",
            "toolset neither: it matches no current tool",
            "[[tag]] 1 (writes): tools: `git_comit` matches no current tool",
            "selection.pinned: no tool has the public name `time_get_current_time`; did you mean `time__get_current_time`?",
            "[[tool]] git/git_lgo: the server has no such tool; did you mean `git_log`?",
            "[[approval]] time/nosuchtool: the server has no such tool",
        ];
        let mut found = found(settings);
        found.sort();
        let mut expected = expected.to_vec();
        expected.sort_unstable();
        assert_eq!(found, expected);
    }

    #[test]
    fn tools_that_are_withheld_or_switched_off_exist() {
        let settings = r#"
            [selection]
            pinned = ["git__git_log"]
            [definitions]
            changes = "quarantine"
            [[policy]]
            effect = "block"
            tools = ["git_log", "git_reset"]
            [[tool]]
            server = "git"
            tool = "git_reset"
            shape = { disabled = true }
            [[approval]]
            server = "git"
            tool = "git_log"
            fingerprint = "0000000000000000000000000000000000000000000000000000000000000000"
        "#;
        assert_eq!(found(settings), [""; 0]);
    }
}
