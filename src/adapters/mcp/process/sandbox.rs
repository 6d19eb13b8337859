//! The files that a sandboxed server may access: system folders, its program, its working directory, a folder of its own, and
//! additions from its settings. The service's own files are always excluded.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use crate::adapters::launch::Grants;
use crate::domain::catalog::tool::ServerName;
use crate::settings::SandboxSettings;

/// System folders that programs need, if they exist.
const SYSTEM: [&str; 13] = [
    "/bin",
    "/etc",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix/store",
    "/opt",
    "/proc",
    "/run/current-system",
    "/run/systemd/resolve",
    "/sbin",
    "/sys",
    "/usr",
];
/// Devices that store no data.
const DEVICES: [&str; 6] = ["/dev/full", "/dev/null", "/dev/random", "/dev/tty", "/dev/urandom", "/dev/zero"];

/// The folder for sandboxes, and the files excluded from all of them.
#[derive(Clone, Debug, Default)]
pub struct SandboxPlaces {
    /// Contains a folder for each server: its home and default working directory.
    pub folder: PathBuf,
    /// Files and folders of the service itself.
    pub private: Vec<PathBuf>,
}

/// The sandbox of one server.
pub(in crate::adapters::mcp) struct Sandbox {
    pub(in crate::adapters::mcp) home: PathBuf,
    pub(in crate::adapters::mcp) temporary: PathBuf,
    pub(in crate::adapters::mcp) grants: Grants,
}

#[derive(Debug, thiserror::Error)]
pub(in crate::adapters::mcp) enum SandboxError {
    #[error("the sandbox: {}: {source}; create it, or take it out of the server's `sandbox`", path.display())]
    Path { path: PathBuf, source: io::Error },
    #[error("the sandbox: {} is or contains files of Toolsieve itself; give the server another folder", .0.display())]
    Private(PathBuf),
}

impl Sandbox {
    pub(in crate::adapters::mcp) fn of(
        server: &ServerName,
        settings: &SandboxSettings,
        directory: Option<&Path>,
        program: &Path,
        places: &SandboxPlaces,
    ) -> Result<Self, SandboxError> {
        let home = places.folder.join(server.as_str());
        let temporary = home.join("tmp");
        DirBuilder::new().recursive(true).mode(0o700).create(&temporary).map_err(|source| failed(&temporary, source))?;
        let private: Vec<PathBuf> = places.private.iter().filter_map(|path| fs::canonicalize(path).ok()).collect();
        let mut grants = Grants { read: Vec::new(), write: vec![canonical(&home)?] };
        for path in settings.write.iter().map(PathBuf::as_path).chain(directory) {
            let path = canonical(path)?;
            if private.iter().any(|private| private.starts_with(&path) || path.starts_with(private)) {
                return Err(SandboxError::Private(path));
            }
            grants.write.push(path);
        }
        for path in &settings.read {
            let path = canonical(path)?;
            if private.iter().any(|private| path.starts_with(private)) {
                return Err(SandboxError::Private(path));
            }
            grants.read.extend(without(&private, path));
        }
        let known = |paths: &[&str]| paths.iter().filter_map(|path| fs::canonicalize(path).ok()).collect::<Vec<_>>();
        grants.read.extend(known(&SYSTEM).into_iter().flat_map(|path| without(&private, path)));
        grants.read.extend(without(&private, canonical(program)?));
        grants.write.extend(known(&DEVICES));
        Ok(Self { home, temporary, grants })
    }
}

fn canonical(path: &Path) -> Result<PathBuf, SandboxError> {
    fs::canonicalize(path).map_err(|source| failed(path, source))
}

fn failed(path: &Path, source: io::Error) -> SandboxError {
    SandboxError::Path { path: path.to_owned(), source }
}

/// The folder, or everything in it except private paths. Symbolic links are omitted in that case, because their targets need
/// their own permission.
fn without(private: &[PathBuf], path: PathBuf) -> Vec<PathBuf> {
    if private.iter().any(|private| path.starts_with(private)) {
        return Vec::new();
    }
    if !private.iter().any(|private| private.starts_with(&path)) {
        return vec![path];
    }
    let Ok(entries) = fs::read_dir(&path) else { return Vec::new() };
    let entries = entries.filter_map(Result::ok).filter(|entry| entry.file_type().is_ok_and(|kind| !kind.is_symlink()));
    entries.flat_map(|entry| without(private, entry.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sandbox(folder: &Path, settings: &SandboxSettings, directory: Option<&Path>) -> Result<Grants, String> {
        let places =
            SandboxPlaces { folder: folder.join("data/sandboxes"), private: vec![folder.join("data"), folder.join("etc/our/keys")] };
        let sandbox = Sandbox::of(&"server".into(), settings, directory, Path::new("/bin/sh"), &places);
        sandbox.map(|sandbox| sandbox.grants).map_err(|error| error.to_string())
    }

    #[test]
    fn our_own_files_are_in_no_sandbox() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = fs::canonicalize(temporary.path()).unwrap();
        for path in ["data", "etc/our/other", "etc/theirs", "work"] {
            fs::create_dir_all(folder.join(path)).unwrap();
        }
        for path in ["etc/our/keys", "etc/hosts"] {
            fs::write(folder.join(path), "").unwrap();
        }
        std::os::unix::fs::symlink(folder.join("data"), folder.join("etc/link")).unwrap();
        let settings = SandboxSettings { read: vec![folder.join("etc")], write: vec![folder.join("work")] };
        let Grants { mut read, write } = sandbox(&folder, &settings, None).unwrap();
        read.retain(|path| path.starts_with(&folder));
        read.sort();
        assert_eq!(read, ["etc/hosts", "etc/our/other", "etc/theirs"].map(|path| folder.join(path)));
        let own = folder.join("data/sandboxes/server");
        assert!(own.is_dir() && write[..2] == [own, folder.join("work")], "{write:?}");
        let reads = |path: &str| sandbox(&folder, &SandboxSettings { read: vec![folder.join(path)], ..SandboxSettings::default() }, None);
        let works_in = |path: &str| sandbox(&folder, &SandboxSettings::default(), Some(&folder.join(path)));
        for refused in [reads("etc/link"), reads("etc/our/keys"), works_in("data"), works_in("etc"), works_in("data/sandboxes/other")] {
            assert!(refused.is_err_and(|error| error.contains("itself") || error.contains("No such file")));
        }
        assert!(reads("nothing").is_err_and(|error| error.contains("nothing")), "a path that is not there is no grant that works later");
    }
}
