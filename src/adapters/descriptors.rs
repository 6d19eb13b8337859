//! Raises this process's limit on open files and sockets.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::adapters::process;

/// The desired limit: enough for this service, but low enough for child processes that loop over all descriptors.
const ENOUGH: u64 = 65_536;
/// Estimated number of open descriptors at the start, if the system does not report it.
const OPEN_AT_START: u64 = 64;

/// The file descriptors of this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptors {
    pub most: u64,
    pub open: u64,
}

/// Raises the soft limit as far as the system allows; many systems start with a low one.
pub(crate) fn raised() -> Descriptors {
    let open = process::read().map_or(OPEN_AT_START, |state| state.open_files);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // `None` means no limit.
    let (current, possible) = (current.unwrap_or(ENOUGH), maximum.unwrap_or(ENOUGH).min(ENOUGH));
    let raised = Rlimit { current: Some(possible), maximum };
    let most = if current < possible && setrlimit(Resource::Nofile, raised).is_ok() { possible } else { current };
    Descriptors { most, open }
}

#[cfg(test)]
mod tests {
    #[test]
    fn there_are_some_left() {
        let descriptors = super::raised();
        assert!(descriptors.most >= 64 && descriptors.open < descriptors.most, "{descriptors:?}");
    }
}
