#![doc = include_str!("../ARCHITECTURE.md")]

pub mod adapters;
pub mod app;
pub mod cli;
pub mod domain;
pub mod http;
pub mod service;
pub mod settings;
