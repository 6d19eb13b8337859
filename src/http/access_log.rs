//! The access log: one line for each rejected or failed request, with the request's id. At level `debug`, it contains
//! every request.
//!
//! The log contains the route instead of the path, because paths contain session ids and callers' text. A flood of
//! rejected requests must not flood the log. So lines at level `info` are rate-limited, and the next line contains the
//! number of dropped lines.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use actix_web::http::{Method, StatusCode};

use crate::domain::access::rate::{Pace, Pacer};

/// Lines per minute at level `info`, and the number of lines in a burst.
const LINES: (u32, u32) = (600, 200);

/// How a request ended.
pub(super) struct Access<'a> {
    pub(super) method: &'a Method,
    /// The route's template; `none` if no route matches.
    pub(super) route: &'a str,
    pub(super) status: StatusCode,
    pub(super) request_id: Option<&'a str>,
    pub(super) took: Duration,
}

pub(crate) struct AccessLog {
    started: Instant,
    /// `None` means no rate limit.
    pacer: Option<Pacer>,
    left_out: AtomicU64,
}

impl Default for AccessLog {
    fn default() -> Self {
        Self { started: Instant::now(), pacer: Pace::new(LINES.0, LINES.1).map(Pacer::new), left_out: AtomicU64::new(0) }
    }
}

impl AccessLog {
    pub(super) fn write(&self, access: &Access<'_>) {
        let Access { method, route, status, request_id, took } = access;
        let (status, took_ms) = (status.as_u16(), took.as_millis());
        if status < StatusCode::BAD_REQUEST.as_u16() {
            tracing::debug!(%method, route, status, request_id, took_ms, "request");
            return;
        }
        if self.pacer.as_ref().is_some_and(|pacer| pacer.take(self.started.elapsed()).is_err()) {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let left_out = Some(self.left_out.swap(0, Ordering::Relaxed)).filter(|count| *count > 0);
        tracing::info!(%method, route, status, request_id, took_ms, left_out, "request");
    }
}
