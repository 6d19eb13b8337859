//! Checks disk space before a generation is built or loaded.
//!
//! The engine maps its files, and writing to a mapped page on a full disk kills the process. So space is checked beforehand, with
//! a large margin for other writers.

use std::io;
use std::path::Path;

use nix::sys::statvfs::statvfs;

use super::building::LARGE;
use super::contents::CanonicalContents;

const MIB: u64 = 1 << 20;
/// Bytes needed to load a complete generation: the start of the log of each layer.
pub(super) const TO_LOAD: u64 = 8 * MIB;
/// Bytes to leave for other writers.
const SPARE: u64 = 16 * MIB;
/// Size of an empty generation, in bytes.
const EMPTY: u64 = 8 * MIB;
/// Bytes per element of a vector, in log and storage together.
const NUMBER: u64 = 12;
/// Bytes per term of a document, in log and storage together.
const TERM: u64 = 40;
/// Bytes per point without its vectors.
const POINT: u64 = 1 << 10;

/// The peak disk usage of a build, in bytes. With 384 dimensions, 2,000 tools need 16 MiB during the build and 8 MiB afterwards.
pub(super) fn to_build(contents: &CanonicalContents) -> u64 {
    let length = |vectors: usize| (vectors * contents.dimension) as u64 * NUMBER;
    let documents = contents.documents.iter().map(|document| length(document.dense.len()) + document.sparse.indices.len() as u64 * TERM);
    let servers = contents.servers.iter().map(|server| length(server.dense.len()));
    let points = documents.chain(servers).sum::<u64>() + contents.points() as u64 * POINT;
    // During its construction, a graph needs space besides its input.
    EMPTY + if contents.points() > LARGE { 3 * points } else { points }
}
/// Checks that the folder's file system has at least `needed` bytes to spare.
///
/// # Errors
/// `StorageFull` if there is not enough space, or an error of the file system.
pub(super) fn check(folder: &Path, needed: u64) -> io::Result<()> {
    let disk = statvfs(folder)?;
    let free = disk.blocks_available().saturating_mul(disk.fragment_size());
    if free >= needed + SPARE { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
}
