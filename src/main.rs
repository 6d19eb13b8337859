//! Runs the command line; everything else is in the library.

use std::process::ExitCode;

/// This allocator returns freed memory to the system. The default allocator keeps it after a burst.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    toolsieve::cli::run()
}
