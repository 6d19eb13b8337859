//! Files with one secret each: for `*_file` keys, `${file:PATH}`, `_FILE` variables and systemd credentials.

use std::io;
use std::path::Path;

/// The content of a file.
pub(super) struct SecretFile {
    /// Without the line break at its end.
    pub(super) text: String,
    /// Whether users other than the owner can read it.
    pub(super) is_open: bool,
}

/// Why a file yields no secret.
#[derive(Debug, thiserror::Error)]
pub(super) enum SecretFileError {
    #[error("can't be read: {0}")]
    Unreadable(#[source] io::Error),
    #[error("is not text")]
    NoText,
    #[error("is empty")]
    Empty,
}

/// The warning for a file that other users can read, and its remedy.
pub(super) const OPEN: &str = "other users of this machine can read it";
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
