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
            Self::NoText | Self::Empty => "write the secret into it, and nothing else",
        }
    }
}

#[cfg(unix)]
fn is_open(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o044 != 0)
}

#[cfg(not(unix))]
fn is_open(_path: &Path) -> bool {
    false
}
