//! Reads files that contain one secret each, for `*_file` keys, `${file:PATH}`, `_FILE` variables and systemd
//! credentials.

use std::io;
use std::path::Path;

/// A secret that was read from a file.
pub(super) struct SecretFile {
    /// The contents, without the line break at the end.
    pub(super) text: String,
    /// Whether users other than the owner can read the file.
    pub(super) is_open: bool,
}

/// Why a file contains no usable secret.
#[derive(Debug, thiserror::Error)]
pub(super) enum SecretFileError {
    #[error("can't be read: {0}")]
    Unreadable(#[source] io::Error),
    /// For example a named pipe, which would wait for a writer.
    #[error("is not a regular file")]
    NotAFile,
    #[error("is not text")]
    NoText,
    #[error("is empty")]
    Empty,
}

/// The warning about a file that other users can read.
pub(super) const OPEN: &str = "other users of this machine can read it";
/// How to fix this.
pub(super) const CLOSE: &str = "restrict access: chmod 600";

pub(super) fn read(path: &Path) -> Result<SecretFile, SecretFileError> {
    if !std::fs::metadata(path).map_err(SecretFileError::Unreadable)?.is_file() {
        return Err(SecretFileError::NotAFile);
    }
    let bytes = std::fs::read(path).map_err(SecretFileError::Unreadable)?;
    let text = String::from_utf8(bytes).map_err(|_| SecretFileError::NoText)?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() {
        return Err(SecretFileError::Empty);
    }
    Ok(SecretFile { text: text.to_owned(), is_open: is_open(path) })
}

impl SecretFileError {
    pub(super) fn remedy(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "check the path and its access rights",
            Self::NotAFile => "name a regular file, or a link to one",
            Self::NoText | Self::Empty => "write the secret into it, and nothing else",
        }
    }
}

#[cfg(unix)]
fn is_open(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    std::fs::metadata(path).is_ok_and(|metadata| is_open_to_others(metadata.mode(), (metadata.uid(), metadata.gid()), own))
}

/// Whether others can read a file with this mode, owner and group. `own` is the process's own user and group. If another
/// user owns the file, such as root for a Secret in Kubernetes, the process itself needs the access of its group.
#[cfg(unix)]
fn is_open_to_others(mode: u32, (owner, group): (u32, u32), own: (u32, u32)) -> bool {
    let needs_group = owner != own.0 && group == own.1;
    mode & 0o004 != 0 || (mode & 0o040 != 0 && !needs_group)
}

#[cfg(not(unix))]
fn is_open(_path: &Path) -> bool {
    false
}

#[cfg(all(test, unix))]
mod tests {
    use super::{SecretFileError, is_open_to_others, read};

    #[test]
    fn the_group_counts_as_others_unless_the_process_needs_it() {
        let own = (10001, 10001);
        assert!(!is_open_to_others(0o100_600, own, own));
        assert!(is_open_to_others(0o100_640, own, own));
        assert!(!is_open_to_others(0o100_440, (0, 10001), own));
        assert!(is_open_to_others(0o100_444, (0, 10001), own));
        assert!(is_open_to_others(0o100_440, (0, 100), own));
    }

    /// A named pipe made `toolsieve check` wait for a writer.
    #[test]
    fn only_regular_files_and_links_to_them_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::write(path("file"), "secret\n").unwrap();
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        assert_eq!(read(&path("link")).unwrap().text, "secret");
        nix::unistd::mkfifo(&path("pipe"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        std::os::unix::fs::symlink("pipe", path("link_to_pipe")).unwrap();
        for name in ["pipe", "link_to_pipe", "."] {
            assert!(matches!(read(&path(name)), Err(SecretFileError::NotAFile)), "{name}");
        }
        assert!(matches!(read(&path("missing")), Err(SecretFileError::Unreadable(_))));
    }
}
