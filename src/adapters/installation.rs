//! The file beside the store that contains the id of the installation.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use uuid::Uuid;

use crate::adapters::private_files::private_options;
use crate::domain::installation::Installation;

/// The file `installation` in the data folder.
#[derive(Clone, Debug)]
pub struct InstallationFile(PathBuf);

impl InstallationFile {
    pub(super) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Reads the record; `None` if the file does not exist.
    ///
    /// # Errors
    /// An error of the file system, or `InvalidData`.
    pub fn read(&self) -> io::Result<Option<Installation>> {
        match fs::read(&self.0) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the record atomically and flushes it to disk.
    pub fn write(&self, installation: &Installation) -> io::Result<()> {
        let draft = self.0.with_extension("new");
        let mut file = private_options().write(true).create(true).truncate(true).open(&draft)?;
        writeln!(file, "{}", serde_json::to_string(installation)?)?;
        file.sync_all()?;
        fs::rename(&draft, &self.0)?;
        self.0.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    }
}

/// Marks in the file that the store contains access-relevant data, before the first such data is stored.
#[derive(Debug)]
pub struct AccessMark {
    file: InstallationFile,
    id: Uuid,
    is_set: AtomicBool,
}

impl AccessMark {
    pub fn new(file: InstallationFile, id: Uuid, is_set: bool) -> Self {
        Self { file, id, is_set: AtomicBool::new(is_set) }
    }

    /// The id to store before the mark is set; `None` if the mark is already set.
    pub(super) fn missing(&self) -> Option<Uuid> {
        (!self.is_set.load(Ordering::Relaxed)).then_some(self.id)
    }
    pub(super) fn set(&self) -> io::Result<()> {
        self.file.write(&Installation { id: self.id, had_rules_or_keys: true })?;
        self.is_set.store(true, Ordering::Relaxed);
        Ok(())
    }
}
