//! A disk that fails when it is told to, for the built binary: `failing_disk.c`, loaded in front of the C library.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// What the disk does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disk {
    Works,
    /// Nothing can be written, and there is no room.
    Full,
    /// What is written can't be flushed.
    NoFlush,
    /// The process ends at this write or flush, from 1.
    Ends(i32),
    /// It is full from this write on, from 1.
    Fills(i32),
}

/// How a process ends at [`Disk::Ends`].
pub(crate) const ENDED: i32 = 86;

/// The disk of one folder.
pub(crate) struct FailingDisk {
    folder: PathBuf,
    path: PathBuf,
    control: File,
}

impl FailingDisk {
    /// It works. What is below the folder is meant.
    pub(crate) fn new(folder: &Path) -> Self {
        let folder = fs::canonicalize(folder).unwrap();
        let path = folder.with_extension("control");
        fs::write(&path, [0; 64]).unwrap();
        let control = File::options().read(true).write(true).open(&path).unwrap();
        Self { folder, path, control }
    }

    /// A process that is started so has its files here, but for those whose path holds `except`.
    pub(crate) fn under(&self, command: &mut Command, except: Option<&str>) {
        if let Some(except) = except {
            command.env("FAILING_DISK_EXCEPT", except);
        }
        command.env("LD_PRELOAD", library()).env("FAILING_DISK_CONTROL", &self.path).env("FAILING_DISK_FOLDER", &self.folder);
    }

    pub(crate) fn is(&self, disk: Disk) {
        let (mode, steps) = match disk {
            Disk::Works => (0, 0),
            Disk::Full => (1, 0),
            Disk::NoFlush => (2, 0),
            Disk::Ends(steps) => (3, steps),
            Disk::Fills(steps) => (4, steps),
        };
        // The steps first: from the mode on they count.
        self.control.write_all_at(&i32::to_ne_bytes(0), 0).unwrap();
        self.control.write_all_at(&i32::to_ne_bytes(steps), 4).unwrap();
        self.control.write_all_at(&i32::to_ne_bytes(mode), 0).unwrap();
    }

    /// How often it failed.
    pub(crate) fn hits(&self) -> i32 {
        let mut bytes = [0; 4];
        self.control.read_exact_at(&mut bytes, 8).unwrap();
        i32::from_ne_bytes(bytes)
    }
}

/// Compiled once for a run of the tests.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let folder = tempfile::Builder::new().prefix("failing-disk-").tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap().keep();
        let (source, library) = (folder.join("failing_disk.c"), folder.join("failing_disk.so"));
        fs::write(&source, include_str!("failing_disk.c")).unwrap();
        let built = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(&source).arg("-ldl").status();
        assert!(built.expect("a C compiler").success(), "{} does not compile", source.display());
        library
    })
}
