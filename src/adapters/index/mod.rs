//! The vector index: which tools lie nearest to a message.
//!
//! [`EmbeddedIndex`] is Qdrant Edge in this process. Its files are a cache: the truth is the catalog and the vectors
//! in the store, so a folder that can't be read is thrown away and built again, and nothing here is ever repaired.
//! [`RemoteIndex`] is a Qdrant server or cluster, which several replicas of this service share.
//!
//! | module | job |
//! | --- | --- |
//! | `announced` | the port over another one: what that does not hold yet is found by its words |
//! | `embedded` | the port: which generation answers, when a new one replaces it |
//! | `generation` | one folder: build it, load it, search it, remove it |
//! | `marker` | the file that makes a folder complete |
//! | `engine` | the only module that names a type of `qdrant-edge`; a newer release is a change of this file |
//! | `remote` | the port, on a cluster; the only folder that names types of `qdrant-client` |
//! | `contents` | the documents in one canonical order, and the hash of them |
//! | `directory` | which tools and servers there are and who may see them |
//! | `room` | whether the disk has room for a generation |
//! | `lists` | the lexical half in memory: for the weights of terms, for what the index lacks, and for when there is nothing else |
//! | `merged` | the lists of all texts of a search, by tool |
//!
//! A server is a point like a tool, with a vector of another name: what is asked for tools never meets it.
//!
//! Deliberately absent: changes of single tools in a live generation or collection. The engine has no replay of its log
//! and loses or doubles points when it is killed at the wrong moment, and a new generation of 2,000 tools takes a
//! fraction of a second.

mod announced;
mod contents;
mod directory;
mod embedded;
mod engine;
mod generation;
mod lists;
mod marker;
mod merged;
mod remote;
mod room;

pub use announced::AnnouncedIndex;
pub use embedded::{EmbeddedIndex, EmbeddedIndexOptions, IndexProgress};
pub use remote::{RemoteIndex, RemoteIndexOptions, Spread, Timing};
