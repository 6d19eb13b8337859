//! Files and folders that only their owner can use.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Creates a folder, and the missing folders above it. Existing folders stay as they are.
pub(crate) fn create_private_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Creates a file for writing. Fails if it exists.
pub(crate) fn create_private_file(path: &Path) -> io::Result<File> {
    private_options().write(true).create_new(true).open(path)
}

/// Options for other ways to open a file. The mode applies if they create it.
pub(crate) fn private_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}
