//! Embedders beside the built-in one: models in folders, and endpoints at the wire.

mod endpoint;
mod folder;
mod server;
mod service;
