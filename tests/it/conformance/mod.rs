//! What is published says what the servers said, and can be called.

mod instances;
mod laws;
mod lists;
