//! Replaces the contents of a data folder at once, although a mounted folder can't be renamed.
//!
//! 1. `restore.new` contains the new contents until they are complete. A crash leaves the old contents.
//! 2. `restore.ready` is the same folder, once it is complete. The old contents move aside.
//! 3. `restore.placing` is the same folder, once the old contents have moved. The new contents move to their places.
//!
//! From step 2 on, whoever next locks the data folder continues. So everybody sees the old contents or the new ones.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::{DATABASE_FILE, FILES_FOLDER, INSTALLATION_FILE, LOCK_FILE, OAUTH_FOLDER, SPOOL_FOLDER};
use crate::adapters::private_files::create_private_folder;

const NEW: &str = "restore.new";
const READY: &str = "restore.ready";
const PLACING: &str = "restore.placing";
/// The file among the new contents that names the folder for the old ones.
const ASIDE: &str = "aside";
/// The database's log, which belongs to one state of the database.
const LOGS: [&str; 2] = ["toolsieve.db-wal", "toolsieve.db-shm"];
/// What is replaced. The index is a cache, and sandboxes belong to the servers.
const CONTENTS: [&str; 7] = [DATABASE_FILE, LOGS[0], LOGS[1], INSTALLATION_FILE, FILES_FOLDER, OAUTH_FOLDER, SPOOL_FOLDER];
/// Folders that a file system creates by itself.
const FOREIGN: [&str; 1] = ["lost+found"];

/// The names in the folder, except for the lock and unfinished new contents.
pub(super) fn present(folder: &Path) -> io::Result<Vec<String>> {
    let names = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()));
    let mut names: Vec<String> = names.collect::<io::Result<_>>()?;
    names.retain(|name| name != LOCK_FILE && name != NEW && !FOREIGN.contains(&name.as_str()));
    names.sort_unstable();
    Ok(names)
}

/// Whether a replacement was interrupted after its contents were complete.
pub(super) fn is_interrupted(folder: &Path) -> bool {
    [READY, PLACING].iter().any(|name| folder.join(name).exists())
}

/// Creates an empty folder for the new contents.
pub(super) fn begin(folder: &Path) -> io::Result<PathBuf> {
    discard(folder)?;
    let new = folder.join(NEW);
    create_private_folder(&new)?;
    Ok(new)
}

/// Deletes new contents that are not complete.
pub(super) fn discard(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder.join(NEW)) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Declares the new contents complete: from now on, they apply.
pub(super) fn commit(folder: &Path) -> io::Result<()> {
    let (owner, new) = (fs::metadata(folder)?, folder.join(NEW));
    for name in CONTENTS {
        if fs::symlink_metadata(folder.join(name)).is_ok_and(|found| found.dev() != owner.dev()) {
            return Err(io::Error::other(format!("{name} is on another file system: move its contents into the data folder")));
        }
    }
    fs::write(new.join(ASIDE), free_name(folder))?;
    // If root restores a backup, the service's account must still own its files.
    adopt(&folder.join(LOCK_FILE), &owner)?;
    adopt(&new, &owner)?;
    fs::rename(&new, folder.join(READY))?;
    sync(folder)
}

/// Moves the contents to their places. Does nothing without complete new contents. Returns the folder that contains the old
/// contents, if there were any.
pub(super) fn finish(folder: &Path) -> io::Result<Option<PathBuf>> {
    let (ready, placing) = (folder.join(READY), folder.join(PLACING));
    if ready.is_dir() {
        let aside = folder.join(fs::read_to_string(ready.join(ASIDE))?);
        for name in CONTENTS {
            move_if_present(&folder.join(name), &aside, name)?;
        }
        // If this fails, the folder is only harder to read or delete.
        if aside.is_dir()
            && let Err(error) = fs::metadata(folder).and_then(|owner| give(&aside, &owner))
        {
            tracing::warn!(%error, folder = %aside.display(), "could not give the former contents to the owner of the data folder");
        }
        sync(folder)?;
        fs::rename(&ready, &placing)?;
        sync(folder)?;
    }
    if !placing.is_dir() {
        return Ok(None);
    }
    // The name is missing if the folder was being removed.
    let aside = fs::read_to_string(placing.join(ASIDE)).ok().map(|name| folder.join(name));
    if placing.join(DATABASE_FILE).exists() {
        // Of a process that has opened the missing database in the meantime.
        for name in LOGS {
            let _ = fs::remove_file(folder.join(name));
        }
    }
    for name in CONTENTS {
        move_if_present(&placing.join(name), folder, name)?;
    }
    sync(folder)?;
    fs::remove_dir_all(&placing)?;
    Ok(aside.filter(|aside| aside.is_dir()))
}

fn move_if_present(from: &Path, folder: &Path, name: &str) -> io::Result<()> {
    if fs::symlink_metadata(from).is_err() {
        return Ok(());
    }
    create_private_folder(folder)?;
    fs::rename(from, folder.join(name))
}

/// A name for the folder of the old contents that is not in use.
fn free_name(folder: &Path) -> String {
    let name = format!("before-restore-{}", Timestamp::now().strftime("%Y%m%d-%H%M%S"));
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    std::iter::once(name.clone()).chain(numbered).find(|name| !folder.join(name).exists()).unwrap_or(name)
}

/// Gives the lock to the owner of the data folder.
pub(super) fn adopt_lock(folder: &Path) -> io::Result<()> {
    give(&folder.join(LOCK_FILE), &fs::metadata(folder)?)
}

/// Gives the database and the lock to the owner of the data folder.
pub(super) fn adopt_database(folder: &Path) -> io::Result<()> {
    let owner = fs::metadata(folder)?;
    for name in [DATABASE_FILE, LOGS[0], LOGS[1], LOCK_FILE] {
        let path = folder.join(name);
        if path.exists() {
            adopt(&path, &owner)?;
        }
    }
    Ok(())
}

/// Gives a file of root, or a folder with all its contents, to the owner of the data folder, and flushes it to disk. Files of other
/// accounts stay theirs: the folder may be a volume that belongs to root, and that the service's group may write.
fn adopt(path: &Path, owner: &fs::Metadata) -> io::Result<()> {
    give(path, owner)?;
    if fs::symlink_metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            adopt(&entry?.path(), owner)?;
        }
    }
    sync(path)
}

/// Gives a single file of root to the owner of the data folder.
fn give(path: &Path, owner: &fs::Metadata) -> io::Result<()> {
    if fs::symlink_metadata(path)?.uid() == 0 && owner.uid() != 0 {
        lchown(path, Some(owner.uid()), Some(owner.gid()))?;
    }
    Ok(())
}

fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;
    use std::collections::BTreeMap;

    use super::*;

    /// The folder's files that matter, with their contents, and the old ones that were moved aside.
    fn contents(folder: &Path) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
        let read = |folder: &Path| -> BTreeMap<String, String> {
            let names = CONTENTS.iter().filter_map(|name| Some(((*name).to_owned(), read(&folder.join(name))?)));
            names.collect()
        };
        let aside = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let aside = aside.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("before-restore-"));
        (read(folder), aside.flat_map(|path| read(&path)).collect())
    }

    /// The text of a file, or of the file `a` in a folder.
    fn read(path: &Path) -> Option<String> {
        let path = if path.is_dir() { path.join("a") } else { path.to_owned() };
        fs::read_to_string(path).ok()
    }

    fn fill(folder: &Path, text: &str, names: &[&str]) {
        for name in names {
            let path = folder.join(name);
            if [FILES_FOLDER, OAUTH_FOLDER].contains(name) {
                fs::create_dir_all(&path).unwrap();
                fs::write(path.join("a"), text).unwrap();
            } else {
                fs::write(path, text).unwrap();
            }
        }
    }

    fn expected(text: &str, names: &[&str]) -> BTreeMap<String, String> {
        names.iter().map(|name| ((*name).to_owned(), text.to_owned())).collect()
    }

    const OLD: [&str; 4] = [DATABASE_FILE, LOGS[0], INSTALLATION_FILE, FILES_FOLDER];
    const RESTORED: [&str; 3] = [DATABASE_FILE, FILES_FOLDER, OAUTH_FOLDER];

    fn prepared() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fill(folder.path(), "old", &OLD);
        fs::write(folder.path().join(LOCK_FILE), "").unwrap();
        let new = begin(folder.path()).unwrap();
        fill(&new, "new", &RESTORED);
        folder
    }

    #[test]
    fn the_old_contents_move_aside_and_nothing_else_moves() {
        let folder = prepared();
        fs::create_dir(folder.path().join("index")).unwrap();
        commit(folder.path()).unwrap();
        assert!(is_interrupted(folder.path()));
        let aside = finish(folder.path()).unwrap().unwrap();
        assert_eq!(contents(folder.path()), (expected("new", &RESTORED), expected("old", &OLD)));
        assert!(folder.path().join("index").is_dir() && aside.is_dir() && !is_interrupted(folder.path()));
        assert_eq!(finish(folder.path()).unwrap(), None, "once is enough");
        // Within the same second, a second one gets a folder of its own.
        fill(&begin(folder.path()).unwrap(), "third", &[DATABASE_FILE]);
        commit(folder.path()).unwrap();
        assert_ne!(finish(folder.path()).unwrap().unwrap(), aside);
        assert_eq!(contents(folder.path()).0, expected("third", &[DATABASE_FILE]));
        assert_eq!(read(&aside.join(DATABASE_FILE)).unwrap(), "old");
    }

    /// Only root can give files away.
    #[test]
    fn the_owner_of_the_folder_gets_the_database() {
        let folder = tempfile::tempdir().unwrap();
        if fs::metadata(folder.path()).unwrap().uid() != 0 {
            return;
        }
        fill(folder.path(), "root's", &[DATABASE_FILE, LOCK_FILE, INSTALLATION_FILE]);
        lchown(folder.path(), Some(12_345), Some(12_346)).unwrap();
        adopt_database(folder.path()).unwrap();
        let owner = |name: &str| fs::metadata(folder.path().join(name)).map(|found| (found.uid(), found.gid())).unwrap();
        assert_eq!((owner(DATABASE_FILE), owner(LOCK_FILE)), ((12_345, 12_346), (12_345, 12_346)));
        assert_eq!(owner(INSTALLATION_FILE).0, 0);
        lchown(folder.path(), Some(0), Some(0)).unwrap();
        adopt_database(folder.path()).unwrap();
        assert_eq!(owner(DATABASE_FILE), (12_345, 12_346), "a volume of root");
    }

    /// Only root can give files away.
    #[test]
    fn the_owner_of_the_folder_gets_the_folder_with_the_old_contents() {
        let folder = prepared();
        if fs::metadata(folder.path()).unwrap().uid() != 0 {
            return;
        }
        lchown(folder.path(), Some(12_345), Some(12_346)).unwrap();
        commit(folder.path()).unwrap();
        let aside = fs::metadata(finish(folder.path()).unwrap().unwrap()).unwrap();
        assert_eq!((aside.uid(), aside.gid()), (12_345, 12_346));
    }

    #[test]
    fn an_empty_folder_gets_no_folder_for_old_contents() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(LOCK_FILE), "").unwrap();
        fs::create_dir(folder.path().join("lost+found")).unwrap();
        fill(&begin(folder.path()).unwrap(), "new", &RESTORED);
        assert_eq!(present(folder.path()).unwrap(), Vec::<String>::new());
        commit(folder.path()).unwrap();
        assert_eq!(finish(folder.path()).unwrap(), None);
        assert_eq!(present(folder.path()).unwrap(), ["files", "oauth", "toolsieve.db"]);
    }

    #[test]
    fn an_interruption_before_the_contents_are_complete_changes_nothing() {
        let folder = prepared();
        assert_eq!(finish(folder.path()).unwrap(), None);
        assert_eq!(contents(folder.path()).0, expected("old", &OLD));
        assert!(begin(folder.path()).unwrap().read_dir().unwrap().next().is_none(), "the next restore begins anew");
    }

    /// The state of the folder after each step of `finish`, from which another process continues.
    #[test]
    fn an_interruption_at_any_later_step_ends_with_the_new_contents() {
        for steps in 0..=OLD.len() + 1 + RESTORED.len() {
            let folder = prepared();
            let path = folder.path();
            commit(path).unwrap();
            let aside = path.join(fs::read_to_string(path.join(READY).join(ASIDE)).unwrap());
            for step in 0..steps {
                match step.cmp(&OLD.len()) {
                    Ordering::Less => move_if_present(&path.join(OLD[step]), &aside, OLD[step]).unwrap(),
                    Ordering::Equal => fs::rename(path.join(READY), path.join(PLACING)).unwrap(),
                    Ordering::Greater => {
                        let name = RESTORED[step - OLD.len() - 1];
                        move_if_present(&path.join(PLACING).join(name), path, name).unwrap();
                    }
                }
            }
            assert_eq!(finish(path).unwrap(), Some(aside), "after {steps} steps");
            assert_eq!(contents(path), (expected("new", &RESTORED), expected("old", &OLD)), "after {steps} steps");
        }
    }
}
