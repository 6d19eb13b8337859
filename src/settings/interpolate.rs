//! Replaces `${VAR}` in the values of both configuration files.
//!
//! - `${VAR}`: the value of the variable.
//! - `${VAR:-text}`: `text` if the variable is unset or empty.
//! - `$${`: a literal `${`.
//! - `${env:VAR}`: the same as `${VAR}`, for files from editors.
//! - `${file:PATH}`: the contents of the file, without a line break at the end.
//! - `${file:PATH:-text}`: `text` if the file doesn't exist.
//!
//! The inserted text is not interpolated again.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::settings::secret_file::{self, SecretFileError};

/// The environment variables that the configuration may use. This type has no `Debug`, because values may be secret.
#[derive(Clone, Default)]
pub struct Environment {
    variables: BTreeMap<String, String>,
    /// The names of variables whose values are not valid Unicode.
    unreadable: BTreeSet<String>,
}

impl Environment {
    /// The variables of this process. Values that are not valid Unicode count as unset, except for settings, where they are a problem.
    pub fn of_process() -> Self {
        Self::of(std::env::vars_os())
    }

    pub(super) fn of(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let mut environment = Self::default();
        for (name, value) in variables {
            let Ok(name) = name.into_string() else { continue };
            if let Ok(value) = value.into_string() {
                environment.variables.insert(name, value);
            } else {
                environment.unreadable.insert(name);
            }
        }
        environment
    }

    pub fn variable(&self, name: &str) -> Option<&str> {
        self.get(name)
    }

    /// Sets one variable.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    pub(super) fn unreadable(&self) -> impl Iterator<Item = &str> {
        self.unreadable.iter().map(String::as_str)
    }
}

impl FromIterator<(String, String)> for Environment {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(variables: T) -> Self {
        Self { variables: variables.into_iter().collect(), ..Self::default() }
    }
}

/// Why a `${…}` can't be replaced.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InterpolationError {
    #[error("the environment variable {0} is not set")]
    Missing(String),
    #[error("`${{` without `}}`")]
    Unclosed,
    #[error("`${{…}}` does not contain a variable name")]
    NotAName,
    #[error("`${{input:…}}` asks the user of an editor for the value, which is not supported here")]
    Input,
    #[error("nested `${{…}}`")]
    Nested,
    #[error("`${{file:}}` does not contain a path")]
    NoPath,
    #[error("{path} {reason}")]
    File { path: String, reason: String, remedy: &'static str },
}

impl InterpolationError {
    pub(super) fn remedy(&self) -> String {
        match self {
            Self::Missing(name) => {
                format!("set {name} before the start, or write a default: ${{{name}:-value}}")
            }
            Self::Unclosed => "close it, or write $${ for a literal ${".to_owned(),
            Self::NotAName | Self::Input => "name an environment variable as in ${VAR}, or write $${ for a literal ${".to_owned(),
            Self::NoPath => "name a file as in ${file:/run/secrets/token}".to_owned(),
            Self::Nested => "use a plain text after `:-`".to_owned(),
            Self::File { remedy, .. } => (*remedy).to_owned(),
        }
    }
}

/// A text whose variables have been replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interpolated {
    pub(super) text: String,
    /// Files in the text that other users can read.
    pub(super) open_files: Vec<String>,
}

pub(super) fn has_variables(text: &str) -> bool {
    text.contains("${")
}

/// Replaces all variables in a text. If any can't be replaced, returns all errors. Adds the files that the text names to
/// `files`, including missing ones.
pub(super) fn interpolate(
    text: &str,
    environment: &Environment,
    files: &mut BTreeSet<PathBuf>,
) -> Result<Interpolated, Vec<InterpolationError>> {
    let mut out = String::with_capacity(text.len());
    let mut open_files = Vec::new();
    let mut errors = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, from_mark) = rest.split_at(start);
        let inside = &from_mark[2..];
        if let Some(plain) = before.strip_suffix('$') {
            out.push_str(plain);
            out.push_str("${");
            rest = inside;
            continue;
        }
        out.push_str(before);
        let Some(end) = inside.find('}') else {
            errors.push(InterpolationError::Unclosed);
            rest = "";
            break;
        };
        match replace(&inside[..end], environment, files, &mut open_files) {
            Ok(value) => out.push_str(&value),
            Err(error) => errors.push(error),
        }
        rest = &inside[end + 1..];
    }
    out.push_str(rest);
    if errors.is_empty() { Ok(Interpolated { text: out, open_files }) } else { Err(errors) }
}

/// Returns the value of the expression between the braces.
fn replace<'a>(
    inside: &'a str,
    environment: &'a Environment,
    files: &mut BTreeSet<PathBuf>,
    open_files: &mut Vec<String>,
) -> Result<Cow<'a, str>, InterpolationError> {
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    if default.is_some_and(has_variables) {
        return Err(InterpolationError::Nested);
    }
    if name.starts_with("input:") {
        return Err(InterpolationError::Input);
    }
    if let Some(path) = name.strip_prefix("file:") {
        if path.is_empty() {
            return Err(InterpolationError::NoPath);
        }
        files.insert(PathBuf::from(path));
        return contents(path, default, open_files);
    }
    let name = name.strip_prefix("env:").unwrap_or(name);
    if !is_name(name) {
        return Err(InterpolationError::NotAName);
    }
    match (environment.get(name), default) {
        (None | Some(""), Some(default)) => Ok(default.into()),
        (Some(value), _) => Ok(value.into()),
        (None, None) => Err(InterpolationError::Missing(name.to_owned())),
    }
}

fn contents<'a>(path: &str, default: Option<&'a str>, open_files: &mut Vec<String>) -> Result<Cow<'a, str>, InterpolationError> {
    match (secret_file::read(Path::new(path)), default) {
        (Ok(file), _) => {
            if file.is_open {
                open_files.push(path.to_owned());
            }
            Ok(file.text.into())
        }
        (Err(SecretFileError::Unreadable(error)), Some(default)) if error.kind() == std::io::ErrorKind::NotFound => Ok(default.into()),
        (Err(error), _) => Err(InterpolationError::File { path: path.to_owned(), reason: error.to_string(), remedy: error.remedy() }),
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|first: char| first.is_ascii_digit())
        && text.chars().all(|character| character.is_ascii_alphanumeric() || character == '_')
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::PathBuf;

    use super::{Environment, InterpolationError, interpolate};

    fn with(text: &str) -> Result<String, Vec<InterpolationError>> {
        let variables = [("A", "1"), ("EMPTY", ""), ("TRICKY", "${A} $${A} }")];
        let environment: Environment = variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        interpolate(text, &environment, &mut BTreeSet::new()).map(|interpolated| interpolated.text)
    }

    #[test]
    fn variables_defaults_and_escapes() {
        for (text, expected) in [
            ("", ""),
            ("plain $A $ {A} $", "plain $A $ {A} $"),
            ("x${A}y${A}", "x1y1"),
            ("${env:A}", "1"),
            ("${B:-two}", "two"),
            ("${EMPTY:-two}", "two"),
            ("${B:-}", ""),
            ("[${EMPTY}]", "[]"),
            ("${A:-two}", "1"),
            ("$${A}", "${A}"),
            ("$$${A}", "$${A}"),
            ("é${A}é", "é1é"),
        ] {
            assert_eq!(with(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_file_gives_what_it_holds() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a key");
        let path = path.to_str().unwrap();
        for (contents, expected) in [("k\n", "<k>"), ("k\r\n\n", "<k>"), (" k ", "< k >"), ("${A}\n", "<${A}>")] {
            std::fs::write(path, contents).unwrap();
            assert_eq!(with(&format!("<${{file:{path}}}>")).as_deref(), Ok(expected));
        }
        let reason = |path: &str| match with(&format!("${{file:{path}}}")).unwrap_err().remove(0) {
            InterpolationError::File { path: reported, reason, .. } if reported == path => reason,
            other => panic!("{other:?}"),
        };
        std::fs::write(path, "\n").unwrap();
        assert_eq!(reason(path), "is empty");
        std::fs::write(path, [0xff]).unwrap();
        assert_eq!(reason(path), "is not text");
        std::fs::remove_file(path).unwrap();
        assert!(reason(path).starts_with("can't be read: "));
        assert_eq!(with(&format!("${{file:{path}:-two}}")).as_deref(), Ok("two"));
    }

    #[test]
    fn every_file_is_reported_even_a_missing_one() {
        let mut files = BTreeSet::new();
        let text = "${file:/nowhere/a} ${file:/nowhere/b:-b} ${file:/nowhere/a}";
        assert_eq!(interpolate(text, &Environment::default(), &mut files).unwrap_err().len(), 2);
        assert_eq!(files.into_iter().collect::<Vec<_>>(), [PathBuf::from("/nowhere/a"), PathBuf::from("/nowhere/b")]);
    }

    #[test]
    fn what_is_inserted_is_not_looked_at_again() {
        assert_eq!(with("<${TRICKY}>").as_deref(), Ok("<${A} $${A} }>"));
    }

    #[test]
    fn everything_wrong_is_reported() {
        use InterpolationError::{Input, Missing, Nested, NoPath, NotAName, Unclosed};
        for (text, expected) in [
            ("${B} ${C}", vec![Missing("B".into()), Missing("C".into())]),
            ("${A", vec![Unclosed]),
            ("${}", vec![NotAName]),
            ("${1A}", vec![NotAName]),
            ("${file:}", vec![NoPath]),
            ("${a b}", vec![NotAName]),
            ("${input:token}", vec![Input]),
            ("${B:-${A}}", vec![Nested]),
        ] {
            assert_eq!(with(text), Err(expected), "{text}");
        }
    }
}
