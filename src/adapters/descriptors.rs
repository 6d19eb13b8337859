//! How many files and sockets this process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::adapters::process;

/// Enough for everything here, and not so many that a child which goes through all of them takes long.
const ENOUGH: u64 = 65_536;
/// Where the system does not say how many are open.
const OPEN_AT_START: u64 = 64;

/// Descriptors of this process.
#[derive(Clone, Copy, Debug)]
pub struct Descriptors {
    pub most: u64,
    pub open: u64,
}

/// Takes as many as the system grants without asking; many systems start with far fewer.
#[must_use]
pub fn raised() -> Descriptors {
    let open = process::read().map_or(OPEN_AT_START, |state| state.open_files);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    // `None` is no limit.
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
