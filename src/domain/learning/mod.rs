//! Learning from use: what helped messages like this one.
//!
//! A use is evidence for or against a tool, and belongs to a message. The next message like it takes this evidence into account, and
//! the fused scores of tools rise or fall. A user's own messages count at once, by what the ranking got wrong. Messages of others count
//! only if enough different people agree, and each person has one voice.

pub mod arguments;
pub mod evidence;
pub mod scope;
pub mod vector;
pub mod verdict;
mod stake;
mod fit;
mod row;
mod roster;
pub mod memory;
pub mod votes;
mod people;
pub mod replay;
pub mod boost;
pub mod co_use;
pub mod proposals;
pub mod quality;
