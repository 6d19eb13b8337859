//! The access log: one line for each rejected or failed request, with the request's id. At level `debug`, or if the settings say so, it
//! contains every request.
//!
//! The log contains the route instead of the path, because paths contain session ids and callers' text, and query strings may contain
//! secrets. By default, a flood of rejected requests must not flood the log. So lines at level `info` are rate-limited, and the next line
//! contains the number of dropped lines.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use actix_web::http::{Method, StatusCode};
use tracing::Level;

use crate::domain::access::rate::{Pace, Pacer};
use crate::settings::AccessLines;

/// Lines per minute at level `info`, and the number of lines in a burst.
const LINES: (u32, u32) = (600, 200);

/// How a request ended.
pub(super) struct Access<'a> {
    pub(super) method: &'a Method,
    /// The route's template; `none` if no route matches.
    pub(super) route: &'a str,
    pub(super) status: StatusCode,
    /// The error's code in the response.
    pub(super) code: Option<&'static str>,
    pub(super) request_id: Option<&'a str>,
    pub(super) client: Option<IpAddr>,
    /// The id of the principal; `None` if the caller was not authenticated.
    pub(super) principal: Option<&'a str>,
    pub(super) trace_id: Option<&'a str>,
    pub(super) took: Duration,
}

pub(crate) struct AccessLog {
    lines: AccessLines,
    started: Instant,
    /// `None` means no rate limit.
    pacer: Option<Pacer>,
    left_out: AtomicU64,
}

/// Writes a line with the fields of an access, and further arguments of the macro in front of them.
macro_rules! line {
    ($write:ident, $access:expr, $($rest:tt)*) => {{
        let Access { method, route, status, code, request_id, client, principal, trace_id, took } = $access;
        let (status, took_ms) = (status.as_u16(), u64::try_from(took.as_millis()).unwrap_or(u64::MAX));
        tracing::$write!(
            $($rest)*
            %method,
            route,
            status,
            code,
            request_id,
            client = client.map(tracing::field::display),
            principal,
            trace_id,
            took_ms,
            "request"
        );
    }};
}

impl AccessLog {
    pub(crate) fn new(lines: AccessLines) -> Self {
        Self { lines, started: Instant::now(), pacer: Pace::new(LINES.0, LINES.1).map(Pacer::new), left_out: AtomicU64::new(0) }
    }

    /// Whether each request has a line, so that each response needs an id.
    pub(super) fn contains_all(&self) -> bool {
        self.lines == AccessLines::All
    }

    /// Whether a request with this status may have a line.
    pub(super) fn contains(&self, status: StatusCode) -> bool {
        match self.lines {
            AccessLines::Off => false,
            AccessLines::All => true,
            AccessLines::Failures => is_failure(status) || tracing::enabled!(Level::DEBUG),
        }
    }

    pub(super) fn write(&self, access: &Access<'_>) {
        if self.contains_all() {
            // The logger shows this target at any level of the settings.
            line!(info, access, target: "toolsieve::access",);
            return;
        }
        if !is_failure(access.status) {
            line!(debug, access,);
            return;
        }
        if self.pacer.as_ref().is_some_and(|pacer| pacer.take(self.started.elapsed()).is_err()) {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let left_out = Some(self.left_out.swap(0, Ordering::Relaxed)).filter(|count| *count > 0);
        line!(info, access, left_out,);
    }
}

fn is_failure(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}
