//! Files that hold one secret each: for keys whose settings name a file, for `${file:PATH}`, for variables whose names end with
//! `_FILE`, and for the credentials that systemd hands over.

use std::io;
use std::path::Path;

/// What a file holds.
pub(super) struct SecretFile {
    /// Without the line break at its end.
    pub(super) text: String,
    /// Whether people can read it who are not its owner.
    pub(super) is_open: bool,
}

/// Why there is no secret.
#[derive(Debug, thiserror::Error)]
pub(super) enum SecretFileError {
    #[error("can't be read: {0}")]
    Unreadable(#[source] io::Error),
    #[error("is no text")]
    NoText,
    #[error("is empty")]
    Empty,
}

/// What is said of a file that others can read, and what to do.
pub(super) const OPEN: &str = "others on this machine can read it";
pub(super) const CLOSE: &str = "take that right away: chmod 600";

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
