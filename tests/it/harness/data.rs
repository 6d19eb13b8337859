//! What is no part of the repository: data and servers of others. A test that needs them is left out where they are missing, and says so.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::Mutex;

/// The folder with larger data, for the part of a test that this names.
pub(crate) fn shared(part: &str) -> Option<PathBuf> {
    named_by("TOOLSIEVE_SHARED", part)
}

/// The configuration of the installed servers of the quickstart, for the part of a test that this names.
pub(crate) fn quickstart(part: &str) -> Option<PathBuf> {
    named_by("TOOLSIEVE_QUICKSTART_CONFIG", part)
}

fn named_by(variable: &str, part: &str) -> Option<PathBuf> {
    let found = std::env::var_os(variable).filter(|path| !path.is_empty());
    if found.is_none() {
        left_out(part, &format!("{variable} is not set"));
    }
    found.map(PathBuf::from)
}

/// Says once that a part of the tests was left out. Past the buffer that the output of a test goes into, since a test that passes shows
/// nothing of it; `tests/run` counts these lines.
pub(crate) fn left_out(part: &str, why: &str) {
    static SAID: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let line = format!("left out: {part}: {why}");
    if SAID.lock().unwrap().insert(line.clone()) {
        let _ = writeln!(std::io::stderr(), "\n{line}");
    }
}
