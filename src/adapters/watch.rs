//! Notifies when files may have changed.
//!
//! Watches folders instead of files, because editors replace files. Also watches symbolic links on the way to a file, because a
//! Kubernetes `ConfigMap` changes by swapping a link. If a watched folder itself is moved or deleted, looks for the files again.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// How long files must stay unchanged before a notification, because they are written in several steps.
const DEBOUNCE: Duration = Duration::from_millis(500);
/// Maximum delay of a notification.
const LONGEST: Duration = Duration::from_secs(3);
/// Maximum number of symbolic links followed per file. More mean a cycle.
const MAX_LINKS: usize = 40;

#[derive(Debug, thiserror::Error)]
pub(crate) enum WatchError {
    #[error("the system can't watch files: {0}")]
    NoWatcher(#[source] notify::Error),
    #[error("{} can't be watched: {source}", folder.display())]
    Folder { folder: PathBuf, source: notify::Error },
}

/// Watches the files until it is dropped.
pub(crate) struct FileWatch {
    watcher: RecommendedWatcher,
    files: Vec<PathBuf>,
    folders: BTreeSet<PathBuf>,
    /// The files, the symbolic links that lead to them, and the watched folders.
    entries: Arc<ArcSwap<BTreeSet<PathBuf>>>,
    touched: Arc<Notify>,
}

impl FileWatch {
    pub(crate) fn start(files: &[PathBuf]) -> Result<Self, WatchError> {
        let entries = Arc::new(ArcSwap::from_pointee(BTreeSet::new()));
        let touched = Arc::new(Notify::new());
        let (meant, touch) = (Arc::clone(&entries), Arc::clone(&touched));
        let watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
            let is_meant = match &event {
                Ok(event) if matches!(event.kind, EventKind::Access(_)) => false,
                Ok(event) => event.paths.is_empty() || event.paths.iter().any(|path| meant.load().contains(path)),
                // After an error, events may have been lost.
                Err(_) => true,
            };
            if is_meant {
                touch.notify_one();
            }
        });
        let watcher = watcher.map_err(WatchError::NoWatcher)?;
        let mut watch = Self { watcher, files: Vec::new(), folders: BTreeSet::new(), entries, touched };
        watch.follow(files);
        Ok(watch)
    }

    /// Watches these files instead of the former ones.
    pub(crate) fn follow(&mut self, files: &[PathBuf]) {
        self.files = files.iter().map(|file| std::path::absolute(file).unwrap_or_else(|_| file.clone())).collect();
        self.look();
    }

    /// Waits until a file has changed and then stays unchanged for a moment.
    pub(crate) async fn changed(&mut self) {
        self.touched.notified().await;
        let latest = Instant::now() + LONGEST;
        while timeout_at(latest.min(Instant::now() + DEBOUNCE), self.touched.notified()).await.is_ok() {}
        self.look();
    }

    /// Updates the watched folders. A folder that can't be watched doesn't affect the others.
    pub(crate) fn look(&mut self) {
        let mut entries = BTreeSet::new();
        for file in &self.files {
            follow(file, &mut entries, MAX_LINKS);
        }
        let folders: BTreeSet<PathBuf> = entries.iter().filter_map(|entry| entry.parent()).map(Path::to_owned).collect();
        // If a watched folder is moved or deleted, the system reports the folder itself.
        entries.extend(folders.iter().cloned());
        self.entries.store(Arc::new(entries));
        // Watch all folders anew, because one may have been replaced by another with the same name.
        for folder in std::mem::take(&mut self.folders) {
            // Ignore an error: the folder may be gone.
            let _ = self.watcher.unwatch(&folder);
        }
        for folder in folders {
            match self.watcher.watch(&folder, RecursiveMode::NonRecursive) {
                Ok(()) => {
                    self.folders.insert(folder);
                }
                Err(source) => {
                    let error = WatchError::Folder { folder, source };
                    tracing::warn!(%error, "a configuration file is not watched; SIGHUP still reloads it");
                }
            }
        }
    }
}

/// Records the path with its links resolved, and every link on the way. If a folder on the way is missing, records that folder
/// instead, because the file appears together with it.
fn follow(path: &Path, entries: &mut BTreeSet<PathBuf>, links: usize) {
    let mut present = PathBuf::new();
    let mut components = path.components();
    while let Some(component) = components.next() {
        present.push(component);
        let Ok(target) = present.read_link() else {
            if present.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
                break;
            }
            continue;
        };
        let parent = present.parent().unwrap_or(Path::new("/")).to_owned();
        entries.insert(present);
        if links > 0 {
            // An absolute target replaces the whole path.
            follow(&parent.join(target).join(components.as_path()), entries, links - 1);
        }
        return;
    }
    entries.insert(present);
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn entries(path: &Path) -> Vec<String> {
        let mut entries = BTreeSet::new();
        follow(path, &mut entries, MAX_LINKS);
        entries.iter().map(|entry| entry.file_name().unwrap().to_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn every_link_on_the_way_is_found_and_a_circle_ends() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        fs::create_dir(root.join("..one")).unwrap();
        fs::write(root.join("..one/mcp.json"), "").unwrap();
        symlink("..one", root.join("..data")).unwrap();
        symlink("..data/mcp.json", root.join("mcp.json")).unwrap();
        assert_eq!(entries(&root.join("mcp.json")), ["..data", "mcp.json", "mcp.json"]);
        assert_eq!(entries(&root.join("missing.json")), ["missing.json"]);
        assert_eq!(entries(&root.join("missing/deep/key")), ["missing"], "the folder that must appear first");
        symlink("circle", root.join("circle")).unwrap();
        assert_eq!(entries(&root.join("circle")), ["circle"]);
    }

    #[tokio::test]
    async fn a_folder_that_is_replaced_is_watched_again() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let (conf, new) = (root.join("conf"), root.join("new"));
        let create = |folder: &Path| {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join("mcp.json"), "").unwrap();
        };
        create(&conf);
        let mut watch = FileWatch::start(&[conf.join("mcp.json")]).unwrap();
        let mut noticed = async |what: &str| {
            tokio::time::timeout(Duration::from_secs(20), watch.changed()).await.unwrap_or_else(|_| panic!("not noticed: {what}"));
        };
        create(&new);
        fs::rename(&conf, root.join("old")).unwrap();
        fs::rename(&new, &conf).unwrap();
        noticed("another folder").await;
        fs::write(conf.join("mcp.json"), "1").unwrap();
        noticed("a file in the other folder").await;
        fs::rename(&conf, root.join("older")).unwrap();
        noticed("a folder that is gone").await;
        create(&conf);
        noticed("a folder that is back").await;
        fs::write(conf.join("mcp.json"), "2").unwrap();
        noticed("a file in the folder that is back").await;
    }
}
