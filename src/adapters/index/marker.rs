//! The file that marks a folder as complete. It is written last and flushed to disk.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::contents::CanonicalContents;
use super::directory::{Point, ServerPoint, points};
use super::lists::Frequencies;
use crate::domain::text::canonical::Fingerprint;

/// Version of the format. Increase it if an older release could misread a new folder, or this release an older one.
const FORMAT: u32 = 4;

const FILE: &str = "generation.json";

/// The contents of the file. They include all tools and servers of the folder, so that a search requests only scores from the
/// engine.
#[derive(Serialize, Deserialize)]
pub(super) struct Marker {
    format: u32,
    /// [`super::contents::CanonicalContents::fingerprint`] of the whole contents, in hexadecimal.
    pub(super) contents: String,
    pub(super) model: String,
    pub(super) dimension: usize,
    /// The folder with all other points; `None` if this one has all points.
    pub(super) base: Option<Base>,
    /// The tools. Their positions are the ids of their points in the engine.
    pub(super) points: Vec<Point>,
    /// The servers. Their positions follow those of the tools.
    pub(super) servers: Vec<ServerPoint>,
    /// [`super::contents::CanonicalContents::hashes`] of these points.
    pub(super) hashes: Vec<u64>,
    /// The frequencies of the terms in the whole contents.
    pub(super) terms: Frequencies,
}

/// The folder that an overlay changes.
#[derive(Serialize, Deserialize)]
pub(super) struct Base {
    /// Its name.
    pub(super) folder: String,
    /// The hash of its contents, in hexadecimal.
    pub(super) contents: String,
    /// Its points that are gone or replaced, ascending.
    pub(super) removed: Vec<u32>,
}

impl Marker {
    /// The marker of a folder with these points of the whole contents.
    pub(super) fn of(part: &CanonicalContents, whole: &CanonicalContents, base: Option<Base>) -> Self {
        let (points, servers) = points(part);
        Self {
            format: FORMAT,
            contents: whole.fingerprint.to_string(),
            model: whole.model.to_string(),
            dimension: whole.dimension,
            base,
            points,
            servers,
            hashes: part.hashes.clone(),
            terms: Frequencies::of(&whole.documents),
        }
    }

    /// Reads the marker of a folder. The first line of the file is the SHA-256 of the rest. Without this checksum,
    /// a damaged list would return wrong tools. It would never be rebuilt, because the hash of its contents still matches.
    ///
    /// # Errors
    /// `NotFound` if there is no marker; `InvalidData` if it is damaged or has another format.
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

    /// Writes the marker atomically.
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

    /// Removes the marker, so that a partly removed folder is never considered complete.
    ///
    /// # Errors
    /// Errors of the file system, except for a missing marker.
    pub(super) fn remove(folder: &Path) -> io::Result<()> {
        match fs::remove_file(folder.join(FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}
