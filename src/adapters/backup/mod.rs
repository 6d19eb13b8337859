//! Backups: single files with a consistent copy of a data folder, made while the service runs.
//!
//! A backup is a tar archive, compressed with gzip. It contains the database, the installation's id, the files that tools returned
//! with the key for their links, and the tokens for MCP servers. It doesn't contain the index, which is a cache, the folders of
//! sandboxed servers, which belong to these servers, and the key that encrypts users' secrets, which is not in the data folder.

mod archive;
mod restoring;
mod saving;

pub use restoring::{RestoreError, Restored, restore};
pub use saving::{SaveError, Saved, save};
