//! `toolsieve openapi`: the description of our own routes.

use std::fs;
use std::path::PathBuf;

use clap::Args;

use crate::cli::{Failure, Outcome};
use crate::http;

#[derive(Args)]
pub(super) struct Openapi {
    /// Compare with this file instead of printing; exit code 1 if they differ
    #[arg(long, value_name = "FILE")]
    check: Option<PathBuf>,
}

impl Openapi {
    pub(super) fn run(self) -> Outcome {
        let document = http::service_document();
        let Some(path) = self.check else {
            println!("{document}");
            return Ok(());
        };
        let committed = fs::read_to_string(&path).map_err(|error| Failure::invalid(format!("error: {}: {error}", path.display())))?;
        if committed.trim_end() == document {
            return Ok(());
        }
        Err(Failure::failed(format!("{} is not what the routes say. Write it anew: toolsieve openapi > {0}", path.display())))
    }
}
