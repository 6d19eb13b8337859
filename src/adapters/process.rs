//! Resource usage and hardening of this process. Resource usage comes from `/proc`, which other systems lack.

use std::io;

use crate::service::ports::ProcessState;

/// Prevents other processes of this user, including MCP servers, from reading this process's memory and environment, which
/// contain keys. Also disables core dumps. Only root can still read and debug the process (`prctl(2)`, `PR_SET_DUMPABLE`).
pub(crate) fn hide() -> io::Result<()> {
    #[cfg(target_os = "linux")]
    nix::sys::prctl::set_dumpable(false)?;
    Ok(())
}

/// The current usage; `None` if the system does not report it.
pub(crate) fn read() -> Option<ProcessState> {
    #[cfg(target_os = "linux")]
    {
        linux().inspect_err(|error| tracing::debug!(%error, "could not read the resource usage")).ok()
    }
    #[cfg(not(target_os = "linux"))]
    None
}

#[cfg(target_os = "linux")]
fn linux() -> Result<ProcessState, procfs::ProcError> {
    use procfs::process::{LimitValue, Process};

    let process = Process::myself()?;
    let stat = process.stat()?;
    let ticks = procfs::ticks_per_second();
    let seconds = |in_ticks: u64| in_ticks as f64 / ticks as f64;
    Ok(ProcessState {
        cpu_seconds: seconds(stat.utime + stat.stime),
        resident_bytes: stat.rss * procfs::page_size(),
        virtual_bytes: stat.vsize,
        threads: u64::try_from(stat.num_threads).unwrap_or_default(),
        open_files: process.fd_count()? as u64,
        most_files: match process.limits()?.max_open_files.soft_limit {
            LimitValue::Value(most) => Some(most),
            LimitValue::Unlimited => None,
        },
        started_seconds: procfs::boot_time_secs()? as f64 + seconds(stat.starttime),
    })
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn a_process_uses_something() {
        let state = super::read().unwrap();
        assert!(state.resident_bytes > 1 << 20 && state.virtual_bytes >= state.resident_bytes, "{state:?}");
        assert!(state.open_files >= 3 && state.threads >= 1, "{state:?}");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        assert!((0.0..3_600.0 * 24.0).contains(&(now - state.started_seconds)), "{state:?}");
    }
}
