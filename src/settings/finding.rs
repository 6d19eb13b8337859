//! Problems and warnings in the configuration, each with its location, a message and a suggested fix.
//!
//! Messages never quote a value, because the value may be a secret or come from a variable.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use crate::domain::text::similar::nearest;

/// Where in the configuration a finding is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// The file, environment variable or command-line flag.
    pub source: String,
    /// Line number, counted from 1.
    pub line: Option<usize>,
    /// Column in bytes, counted from 1; only known for syntax errors.
    pub column: Option<usize>,
    /// Path of the key in the file, such as `mcpServers.github.env.TOKEN` or `http.port`.
    pub key: Option<String>,
}

/// A problem or a warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub place: Location,
    pub message: String,
    /// How to fix it.
    pub remedy: String,
}

/// All problems in the configuration. With such an error, the program exits with code 2.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", report(.problems))]
pub struct SettingsErrors {
    pub problems: Vec<Finding>,
    /// Warnings that were found before the configuration was rejected.
    pub warnings: Vec<Finding>,
    /// All files that the configuration consists of or names, including missing ones.
    pub files: Vec<PathBuf>,
}

impl fmt::Display for Location {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.source)?;
        for number in [self.line, self.column].into_iter().flatten() {
            write!(formatter, ":{number}")?;
        }
        match &self.key {
            Some(key) => write!(formatter, ": {key}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}\n    {}", self.place, self.message, self.remedy)
    }
}

fn report(problems: &[Finding]) -> String {
    let mut text = match problems {
        [_] => "1 problem in the configuration".to_owned(),
        _ => format!("{} problems in the configuration", problems.len()),
    };
    for problem in problems {
        text.push_str("\n\n");
        text.push_str(&problem.to_string());
    }
    text
}

/// Collects problems and warnings while the configuration is read.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) problems: Vec<Finding>,
    pub(super) warnings: Vec<Finding>,
    /// The files with values that were read or are missing.
    pub(super) files: BTreeSet<PathBuf>,
    /// Further files that a reload reads again. They may be public.
    pub(super) watched: BTreeSet<PathBuf>,
}

impl Findings {
    pub(super) fn problem(&mut self, place: Location, message: impl Into<String>, remedy: impl Into<String>) {
        self.problems.push(Finding { place, message: message.into(), remedy: remedy.into() });
    }

    /// The problems and the warnings. Sources are in the order of their appearance, and findings within a source are
    /// sorted by line.
    pub(super) fn in_order(mut self) -> (Vec<Finding>, Vec<Finding>) {
        for findings in [&mut self.problems, &mut self.warnings] {
            let sources: Vec<String> = findings.iter().map(|finding| finding.place.source.clone()).collect();
            findings.sort_by_cached_key(|finding| {
                let source = sources.iter().position(|source| *source == finding.place.source);
                (source, finding.place.line, finding.place.column)
            });
        }
        (self.problems, self.warnings)
    }

    pub(super) fn warning(&mut self, place: Location, message: impl Into<String>, remedy: impl Into<String>) {
        self.warnings.push(Finding { place, message: message.into(), remedy: remedy.into() });
    }
}

/// Suggests a similar known name, as in ``did you mean `port`?``, or lists all known names.
pub(super) fn suggestion(wrong: &str, known: &[&str]) -> String {
    match nearest(wrong, known.iter().copied()) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("known: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::suggestion;

    #[test]
    fn a_near_name_is_suggested_and_else_all_are_listed() {
        let known = ["host", "port", "api_key"];
        assert_eq!(suggestion("prot", &known), "did you mean `port`?");
        assert_eq!(suggestion("apikey", &known), "did you mean `api_key`?");
        assert_eq!(suggestion("zzz", &known), "known: host, port, api_key");
    }
}
