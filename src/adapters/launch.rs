//! Launches the program of an MCP server. A copy of this binary makes sure that it ends with the service, enters the sandbox and
//! executes the program. The new process must do all of this itself. Doing it between `fork` and `exec` would need unsafe code.

use std::ffi::OsString;
use std::fmt::Display;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// The first argument of a launched copy of this binary.
pub(crate) const WORD: &str = "launch-mcp-server";
const PARENT: &str = "--parent";
const SANDBOX: &str = "--sandbox";
const READ: &str = "--read";
const WRITE: &str = "--write";
const PROGRAM: &str = "--";
/// The exit code that shells use if a program can't be executed.
const NOT_EXECUTED: u8 = 126;

/// A program to launch, and its restrictions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Launch {
    /// The id of the process with which this one ends.
    pub parent: u32,
    pub sandbox: Option<Grants>,
    pub program: PathBuf,
    /// The program's `argv`, starting with its name.
    pub name: OsString,
    pub args: Vec<OsString>,
}

/// The files and folders that a sandboxed process may access.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grants {
    pub read: Vec<PathBuf>,
    pub write: Vec<PathBuf>,
}

impl Launch {
    /// The command-line arguments that make this binary launch the program.
    pub(crate) fn words(self) -> Vec<OsString> {
        let mut words = vec![WORD.into(), PARENT.into(), self.parent.to_string().into()];
        if let Some(Grants { read, write }) = self.sandbox {
            words.push(SANDBOX.into());
            words.extend(read.into_iter().flat_map(|path| [READ.into(), path.into()]));
            words.extend(write.into_iter().flat_map(|path| [WRITE.into(), path.into()]));
        }
        words.extend([PROGRAM.into(), self.program.into(), self.name]);
        words.extend(self.args);
        words
    }

    /// Parses the arguments of a launch; `None` for other arguments.
    pub(crate) fn read(words: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let mut words = words.into_iter();
        words.next().filter(|word| word == WORD)?;
        let mut launch = Self::default();
        loop {
            let word = words.next()?;
            match word.to_str()? {
                PARENT => launch.parent = words.next()?.to_str()?.parse().ok()?,
                SANDBOX => launch.sandbox = Some(Grants::default()),
                READ => launch.sandbox.as_mut()?.read.push(words.next()?.into()),
                WRITE => launch.sandbox.as_mut()?.write.push(words.next()?.into()),
                PROGRAM => break,
                _ => return None,
            }
        }
        (launch.program, launch.name) = (words.next()?.into(), words.next()?);
        launch.args = words.collect();
        Some(launch)
    }

    /// Executes the program. Returns only on failure, after reporting it.
    pub(crate) fn run(self) -> ExitCode {
        let name = self.name.to_string_lossy().into_owned();
        let why = self.execute();
        // The service reads the server's standard error, so the message reaches it.
        let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("`{name}` was not started: {why}\n").as_bytes());
        ExitCode::from(NOT_EXECUTED)
    }

    fn execute(self) -> String {
        let Self { parent, sandbox, program, name, args } = self;
        if let Err(why) = end_with(parent) {
            return why;
        }
        if let Some(grants) = &sandbox
            && let Err(why) = enter(grants)
        {
            return format!("no sandbox: {why}");
        }
        let error = Command::new(program).arg0(name).args(args).exec();
        if sandbox.is_some() && error.kind() == std::io::ErrorKind::PermissionDenied {
            return format!("{error}; if it needs an interpreter or libraries, add their folders to `read` in `sandbox`");
        }
        error.to_string()
    }
}

/// Makes the kernel kill this process, or the program that has replaced it, when the parent process ends.
#[cfg(target_os = "linux")]
fn end_with(parent: u32) -> Result<(), String> {
    use nix::sys::prctl::set_pdeathsig;
    use nix::sys::signal::Signal;

    set_pdeathsig(Signal::SIGKILL).map_err(|error| format!("it can't be tied to the service process: {error}"))?;
    // The parent may already have ended.
    if std::os::unix::process::parent_id() == parent { Ok(()) } else { Err("the service has ended".to_owned()) }
}

#[cfg(not(target_os = "linux"))]
fn end_with(_parent: u32) -> Result<(), String> {
    Ok(())
}

/// Enters the sandbox irrevocably, using Landlock (`landlock(7)`).
#[cfg(target_os = "linux")]
fn enter(grants: &Grants) -> Result<(), String> {
    use landlock::{
        ABI, Access, AccessFs, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr,
        RulesetError, Scope,
    };

    /// The first version that restricts truncation. With older ones, a process could empty a file that it can't open.
    const LEAST: ABI = ABI::V3;

    let unsupported = |error: &dyn Display| format!("it requires Landlock of Linux 6.2 or later, enabled in the kernel ({error})");
    let created = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(LEAST))
        .map_err(|error| unsupported(&error))?
        // If the kernel supports it, also block signals to outside processes, and their abstract sockets.
        .set_compatibility(CompatLevel::BestEffort)
        .scope(Scope::from_all(ABI::V6))
        .and_then(Ruleset::create)
        .map_err(|error| unsupported(&error))?;
    let allow = |created: RulesetCreated, path: &PathBuf, access| {
        let refused = |error: &dyn Display| format!("{}: {error}", path.display());
        let file = PathFd::new(path).map_err(|error| refused(&error))?;
        let access = if path.is_dir() { access } else { access & AccessFs::from_file(LEAST) };
        let rule = PathBeneath::new(file, access);
        created.add_rule(rule).map_err(|error: RulesetError| refused(&error))
    };
    let (read, all) = (AccessFs::from_read(LEAST), AccessFs::from_all(LEAST));
    let created = grants.read.iter().try_fold(created, |created, path| allow(created, path, read))?;
    let created = grants.write.iter().try_fold(created, |created, path| allow(created, path, all))?;
    created.restrict_self().map(|_| ()).map_err(|error| unsupported(&error))
}

#[cfg(not(target_os = "linux"))]
fn enter(_grants: &Grants) -> Result<(), String> {
    Err("it requires Linux".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let words = |list: &[&str]| list.iter().map(OsString::from).collect::<Vec<_>>();
        let plain =
            Launch { parent: 7, program: "/bin/echo".into(), name: "echo".into(), args: words(&["--read", "--", ""]), ..Launch::default() };
        let grants = Grants { read: vec!["/usr".into(), "--write".into()], write: vec!["/tmp/ä".into()] };
        for launch in
            [plain.clone(), Launch { sandbox: Some(Grants::default()), ..plain.clone() }, Launch { sandbox: Some(grants), ..plain }]
        {
            assert_eq!(Launch::read(launch.clone().words()), Some(launch));
        }
        for other in
            [&["serve"][..], &[WORD], &[WORD, "--", "/bin/echo"], &[WORD, "--read", "/", "--", "a", "a"], &[WORD, "--odd", "--", "a", "a"]]
        {
            assert_eq!(Launch::read(words(other)), None, "{other:?}");
        }
    }
}
