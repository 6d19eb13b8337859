//! The tools by which a model finds, describes and chooses tools.

pub mod describe;
pub mod find;
pub mod smart_select;
