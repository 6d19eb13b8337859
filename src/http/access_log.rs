//! The access log: one line per rejected or failed request, with the id in its answer. Level `debug` logs every request.
//!
//! It logs the route and never the path, because paths contain session ids and callers' words. A flood of rejected requests must
//! not become a flood of lines. So lines at level `info` are rate-limited, and the next line counts the omitted ones.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use actix_web::http::{Method, StatusCode};

use crate::domain::access::rate::{Pace, Pacer};

/// Lines per minute at level `info`, and the size of a burst.
const LINES: (u32, u32) = (600, 200);

/// How a request ended.
pub(super) struct Access<'a> {
    pub(super) method: &'a Method,
    /// The template of the route; `none` without a matching route.
    pub(super) route: &'a str,
    pub(super) status: StatusCode,
    pub(super) request_id: Option<&'a str>,
    pub(super) took: Duration,
}

pub(crate) struct AccessLog {
    started: Instant,
    /// `None`: no limit.
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
