//! Resource usage of the process, and the space for its data.

/// Resource usage of this process, as reported by the system.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessState {
    pub cpu_seconds: f64,
    pub resident_bytes: u64,
    pub virtual_bytes: u64,
    pub threads: u64,
    pub open_files: u64,
    /// The limit on open files; `None` if unlimited.
    pub most_files: Option<u64>,
    /// Start time of the process, in seconds since 1970.
    pub started_seconds: f64,
}

/// Space of a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskSpace {
    /// What this process may still write.
    pub available_bytes: u64,
    pub size_bytes: u64,
}
