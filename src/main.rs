//! The command line; everything else is the library.

use std::process::ExitCode;

/// Returns freed memory to the system, which the default allocator does not after a burst.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    toolsieve::cli::run()
}
