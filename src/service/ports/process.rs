//! What the process uses.

/// What this process uses, as the system tells it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessState {
    pub cpu_seconds: f64,
    pub resident_bytes: u64,
    pub virtual_bytes: u64,
    pub threads: u64,
    pub open_files: u64,
    /// `None`: as many as it likes.
    pub most_files: Option<u64>,
    /// Since 1970.
    pub started_seconds: f64,
}
