//! Learning from use: what helped messages like this one.
//!
//! A use is evidence for or against a tool, and belongs to a message. The next message like it takes this evidence into account:
//! the most similar remembered messages vote, and their votes raise or lower the fused scores of tools. A user's own messages
//! count at once. Messages of others count only if enough different people agree, and each person has one voice.

pub mod evidence;
pub mod scope;
pub mod vector;
pub mod memory;
pub mod votes;
pub mod boost;
