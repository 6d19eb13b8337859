//! Whether the disk has room for a generation.
//!
//! The engine maps its files, and a page of a mapped file for which there is no room ends the process. So it is asked for before, with
//! much to spare: others write there meanwhile.

use std::io;
use std::path::Path;

use nix::sys::statvfs::statvfs;

use super::contents::CanonicalContents;
use super::generation::LARGE;

const MIB: u64 = 1 << 20;
/// What loading a complete generation writes: the heads of its log.
pub(super) const TO_LOAD: u64 = 4 * MIB;
/// What is left to others.
const SPARE: u64 = 16 * MIB;
/// Of the files of an empty generation.
const EMPTY: u64 = 8 * MIB;
/// A number of a vector in the log and in its place.
const NUMBER: u64 = 12;
/// A term of a document, likewise.
const TERM: u64 = 40;
/// What a point has beside its vectors.
const POINT: u64 = 1 << 10;

/// The most that a build takes at a time, in bytes. 2,000 tools of 384 dimensions take 8 MiB when they are there, and twice that while
/// they are built.
pub(super) fn to_build(contents: &CanonicalContents) -> u64 {
    let length = |vectors: usize| (vectors * contents.dimension) as u64 * NUMBER;
    let documents = contents.documents.iter().map(|document| length(document.dense.len()) + document.sparse.indices.len() as u64 * TERM);
    let servers = contents.servers.iter().map(|server| length(server.dense.len()));
    let points = documents.chain(servers).sum::<u64>() + contents.points() as u64 * POINT;
    // A graph is built beside what it is made of.
    EMPTY + if contents.points() > LARGE { 3 * points } else { points }
}

/// # Errors
/// `StorageFull` where there is less room, and those of the file system.
pub(super) fn check(folder: &Path, needed: u64) -> io::Result<()> {
    let disk = statvfs(folder)?;
    let free = disk.blocks_available().saturating_mul(disk.fragment_size());
    if free >= needed + SPARE { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
}
