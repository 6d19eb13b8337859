//! `[toolsets.NAME]` and `[presets]`: the configured toolsets, and those that the service publishes.

use std::collections::{BTreeMap, BTreeSet};

use crate::domain::access::toolset::{PublishedToolsets, Toolset};
use crate::domain::access::toolset_name::ToolsetName;
use crate::settings::finding::{Findings, Location, suggestion};
use crate::settings::values::Values;

/// The toolsets in the settings, and the effect of the command-line flags.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolsetSettings {
    /// The configured toolsets, in the order of the file.
    pub defined: Vec<Toolset>,
    /// The toolsets of every preset, by its name.
    pub presets: BTreeMap<String, Vec<String>>,
    /// The toolsets that `--toolsets`, `--exclude` and `--preset` select.
    pub published: PublishedToolsets,
}

/// Command-line flags that name configured toolsets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolsetFlags {
    /// The values of `--toolsets`.
    pub toolsets: Vec<String>,
    /// The values of `--exclude`.
    pub exclude: Vec<String>,
    /// The value of `--preset`.
    pub preset: Option<String>,
}

impl ToolsetSettings {
    pub(super) fn read(values: &Values, flags: &ToolsetFlags, findings: &mut Findings) -> Self {
        let mut defined = Vec::new();
        for (name, value, place) in &values.toolsets {
            match Toolset::read(name, value) {
                Ok(toolset) => defined.push(toolset),
                Err(problem) => findings.problem(place.clone(), problem.reason, REMEDY),
            }
        }
        // Includes invalid toolsets, so that each mistake is reported only once.
        let known: Vec<&str> = values.toolsets.iter().map(|(name, ..)| name.as_str()).collect();
        let presets: BTreeMap<&str, &(Vec<String>, Location)> =
            values.presets.iter().map(|(name, preset)| (name.as_str(), preset)).collect();
        for (names, place) in presets.values() {
            check(names, &known, place, findings);
        }
        let flag = |flag: &str| Location { source: flag.to_owned(), ..Location::default() };
        check(&flags.toolsets, &known, &flag("--toolsets"), findings);
        check(&flags.exclude, &known, &flag("--exclude"), findings);
        let mut wanted: Vec<&String> = flags.toolsets.iter().collect();
        if let Some(name) = &flags.preset {
            match presets.get(name.as_str()) {
                Some((toolsets, _)) => wanted.extend(toolsets),
                None if presets.is_empty() => findings.problem(flag("--preset"), format!("there is no preset `{name}`"), NO_PRESETS),
                None => {
                    let known: Vec<&str> = presets.keys().copied().collect();
                    findings.problem(flag("--preset"), format!("there is no preset `{name}`"), suggestion(name, &known));
                }
            }
        }
        let names = |names: &mut dyn Iterator<Item = &String>| -> BTreeSet<ToolsetName> {
            names.map(|name| ToolsetName::from(name.as_str())).collect()
        };
        let published = PublishedToolsets { toolsets: names(&mut wanted.into_iter()), exclude: names(&mut flags.exclude.iter()) };
        let presets = presets.into_iter().map(|(name, (toolsets, _))| (name.to_owned(), toolsets.clone())).collect();
        Self { defined, presets, published }
    }
}

const REMEDY: &str = "write a toolset as described at [toolsets.NAME] in the commented defaults";
const NO_PRESETS: &str = "define presets in a section [presets] of the settings file, as in work = [\"mail\", \"calendar\"]";
const NO_TOOLSETS: &str = "define toolsets in sections [toolsets.NAME] of the settings file";

fn check(names: &[String], known: &[&str], place: &Location, findings: &mut Findings) {
    for name in names.iter().filter(|name| !known.contains(&name.as_str())) {
        let remedy = if known.is_empty() { NO_TOOLSETS.to_owned() } else { suggestion(name, known) };
        findings.problem(place.clone(), format!("there is no toolset `{name}` in the settings"), remedy);
    }
}
