//! The file that makes a generation folder complete. It is written last and synchronised to disk.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::contents::CanonicalContents;
use super::directory::{Point, ServerPoint, points};
use crate::domain::text::canonical::Fingerprint;

/// Raised when an older release could misread the folder, or when this one could misread an older folder.
const FORMAT: u32 = 3;

const FILE: &str = "generation.json";

/// What a generation holds: enough to search it without asking the engine for anything but scores.
#[derive(Serialize, Deserialize)]
pub(super) struct Marker {
    format: u32,
    /// Hexadecimal [`super::contents::CanonicalContents::fingerprint`].
    pub(super) contents: String,
    pub(super) model: String,
    pub(super) dimension: usize,
    /// The position is the id of the point in the engine.
    pub(super) points: Vec<Point>,
    /// Their positions follow.
    pub(super) servers: Vec<ServerPoint>,
}

impl Marker {
    pub(super) fn of(contents: &CanonicalContents) -> Self {
        let (points, servers) = points(contents);
        Self {
            format: FORMAT,
            contents: contents.fingerprint.to_string(),
            model: contents.model.to_string(),
            dimension: contents.dimension,
            points,
            servers,
        }
    }

    /// Reads the marker of a generation folder. The first line of the file is the SHA-256 of the rest: a damaged list
    /// of tools would answer with the wrong tool, and it would never be built again because its contents hash fits.
    ///
    /// # Errors
    /// `NotFound` when there is none, `InvalidData` when it is damaged or of another format.
    pub(super) fn read(folder: &Path) -> io::Result<Self> {
        let text = fs::read_to_string(folder.join(FILE))?;
        let invalid = |reason: &'static str| io::Error::new(io::ErrorKind::InvalidData, reason);
        let (checksum, body) = text.split_once('\n').ok_or_else(|| invalid("no checksum"))?;
        if Fingerprint::of_text(body).to_string() != checksum {
            return Err(invalid("the checksum is wrong"));
        }
        let marker: Self = serde_json::from_str(body)?;
        if marker.format != FORMAT {
            return Err(invalid("another format"));
        }
        Ok(marker)
    }

    /// Writes the marker so that it is there completely or not at all, whatever happens meanwhile.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        let body = serde_json::to_string(self)?;
        let draft = folder.join("generation.json.new");
        let mut file = File::create(&draft)?;
        writeln!(file, "{}", Fingerprint::of_text(&body))?;
        file.write_all(body.as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, folder.join(FILE))?;
        File::open(folder)?.sync_all()
    }

    /// Takes the marker away, so that a folder whose removal is cut short is never taken for a complete one.
    ///
    /// # Errors
    /// Those of the file system, but not that there is none.
    pub(super) fn remove(folder: &Path) -> io::Result<()> {
        match fs::remove_file(folder.join(FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}
