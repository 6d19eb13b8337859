//! Resource usage of the process.

/// Resource usage of this process, as the system reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessState {
    pub cpu_seconds: f64,
    pub resident_bytes: u64,
    pub virtual_bytes: u64,
    pub threads: u64,
    pub open_files: u64,
    /// `None`: unlimited.
    pub most_files: Option<u64>,
    /// Seconds since 1970.
    pub started_seconds: f64,
}
