//! Opens a web page for the person who started a command, if they sit at a desktop of this machine.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};
use std::{env, thread};

/// Variables that are set in CI, over SSH, and in containers.
const ELSEWHERE: [&str; 6] = ["CI", "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY", "KUBERNETES_SERVICE_HOST", "container"];
/// Files that container runtimes create.
const CONTAINER_FILES: [&str; 2] = ["/.dockerenv", "/run/.containerenv"];
/// Variables of a graphical session. Only Linux and other Unix systems need one.
const SESSIONS: [&str; 2] = ["DISPLAY", "WAYLAND_DISPLAY"];
/// Variables that the browser doesn't inherit, in addition to `TOOLSIEVE_*`: they contain secrets.
const SECRETS: [&str; 5] = ["CREDENTIALS_DIRECTORY", "DATABASE_URL", "EMBEDDER_API_KEY", "OPENWEBUI_TOKEN", "QDRANT_API_KEY"];

/// Whether this process runs on a desktop, where a browser can open.
pub(crate) fn is_here() -> bool {
    let is_container = CONTAINER_FILES.into_iter().any(|file| Path::new(file).exists());
    is_desktop(|name| env::var_os(name).is_some_and(|value| !value.is_empty()), env::consts::OS, is_container)
}

/// Opens the page in the browser, and returns immediately. If no browser starts, nothing happens.
pub(crate) fn open(url: &str) {
    let commands = open::commands(url);
    // A thread waits for the end of the command, which would otherwise remain as a zombie.
    drop(thread::Builder::new().name("browser".to_owned()).spawn(move || run(commands)));
}

/// Runs the first of these commands that succeeds.
fn run(commands: Vec<Command>) {
    for mut command in commands {
        without_secrets(&mut command, env::vars_os().map(|(name, _)| name));
        // In its own process group, the browser survives Ctrl-C.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
        if status.is_ok_and(|status| status.success()) {
            return;
        }
    }
}

/// Removes the service's own variables from those that the command inherits.
fn without_secrets(command: &mut Command, inherited: impl Iterator<Item = OsString>) {
    let is_secret = |name: &str| name.starts_with("TOOLSIEVE_") || SECRETS.contains(&name);
    for name in inherited.filter(|name| name.to_str().is_some_and(is_secret)) {
        command.env_remove(name);
    }
}

fn is_desktop(is_set: impl Fn(&str) -> bool, system: &str, is_container: bool) -> bool {
    let is_elsewhere = is_container || ELSEWHERE.into_iter().any(&is_set);
    let has_session = matches!(system, "macos" | "windows") || SESSIONS.into_iter().any(&is_set);
    !is_elsewhere && has_session
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    fn desktop(set: &[&str], system: &str) -> bool {
        is_desktop(|name| set.contains(&name), system, false)
    }

    #[test]
    fn a_desktop_has_a_graphical_session() {
        assert!(desktop(&["DISPLAY"], "linux") && desktop(&["WAYLAND_DISPLAY"], "linux") && desktop(&["DISPLAY"], "freebsd"));
        assert!(!desktop(&[], "linux"));
        assert!(desktop(&[], "macos") && desktop(&[], "windows"));
    }

    #[test]
    fn no_page_opens_where_nobody_sits() {
        for elsewhere in ["CI", "SSH_CONNECTION", "SSH_CLIENT", "SSH_TTY", "KUBERNETES_SERVICE_HOST", "container"] {
            assert!(!desktop(&["DISPLAY", elsewhere], "linux") && !desktop(&[elsewhere], "macos"), "{elsewhere}");
        }
        assert!(!is_desktop(|name| name == "DISPLAY", "linux", true), "in a container");
    }

    #[cfg(unix)]
    #[test]
    fn the_first_browser_that_starts_is_the_only_one() {
        let folder = tempfile::tempdir().unwrap();
        let shell = |script: &str| {
            let mut command = Command::new("/bin/sh");
            command.args(["-c", script]).current_dir(folder.path());
            command
        };
        run(vec![Command::new("no-such-browser-here"), shell("exit 3"), shell("touch first"), shell("touch second")]);
        assert!(folder.path().join("first").exists() && !folder.path().join("second").exists());
    }

    #[test]
    fn a_browser_inherits_no_secrets() {
        let mut command = Command::new("browser");
        let inherited = ["HOME", "TOOLSIEVE_API_KEY", "DISPLAY", "OPENWEBUI_TOKEN"];
        without_secrets(&mut command, inherited.into_iter().map(OsString::from));
        let removed: Vec<&OsStr> = command.get_envs().filter(|(_, value)| value.is_none()).map(|(name, _)| name).collect();
        assert_eq!(removed, ["OPENWEBUI_TOKEN", "TOOLSIEVE_API_KEY"]);
    }
}
