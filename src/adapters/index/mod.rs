//! The vector index: finds the tools nearest to a message.
//!
//! [`EmbeddedIndex`] is Qdrant Edge in this process. Its files are a cache of the catalog and of the vectors in the store; an
//! unreadable folder is deleted and rebuilt, never repaired. [`RemoteIndex`] is a Qdrant server or cluster, which several
//! replicas of this service can share.
//!
//! | module | job |
//! | --- | --- |
//! | `announced` | wraps an index: makes tools searchable by words before the index contains them |
//! | `embedded` | the port in this process: chooses the generation to search, and replaces it |
//! | `generation` | what is searched: one layer, or a large one with an overlay |
//! | `overlay` | a small change of a large layer, and the search over both |
//! | `layer` | one folder: build, load, remove |
//! | `marker` | the file that marks a folder as complete |
//! | `engine` | the only module that uses types of `qdrant-edge`, so an upgrade changes only this file |
//! | `remote` | the port on a cluster; the only folder that uses types of `qdrant-client` |
//! | `building` | what all builds share |
//! | `contents` | documents in canonical order, and their hash |
//! | `directory` | the tools and servers in the index, and their visibility |
//! | `room` | disk space for a generation |
//! | `lists` | the weights of terms, and lexical search in memory: tools that the index lacks, and a fallback |
//! | `merged` | the candidate lists of all texts of a search, by tool |
//!
//! A server is a point like a tool. Its vector has another name, so searches for tools never match it.
//!
//! Deliberately absent: changes to single tools in a live generation or collection. The engine does not replay its log, so it
//! would lose or duplicate points if it is killed at the wrong moment. Building a new generation of 2,000 tools takes only a
//! fraction of a second. With more than 10,000, a small change becomes an overlay: a further folder, which is complete or ignored,
//! like any other.

mod building;
mod contents;
mod merged;
mod directory;
mod engine;
mod lists;
mod marker;
mod layer;
mod overlay;
mod generation;
mod room;
mod embedded;
mod remote;
mod announced;

pub use announced::AnnouncedIndex;
pub use building::IndexProgress;
pub use embedded::{EmbeddedIndex, EmbeddedIndexOptions};
pub use remote::{RemoteIndex, RemoteIndexOptions, Spread, Timing};
