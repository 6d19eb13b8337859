//! Event streams (WHATWG HTML, "Server-sent events").

use std::fmt::Write as _;
use std::time::Duration;

use actix_web::http::header;
use actix_web::web::Bytes;
use actix_web::{HttpResponse, HttpResponseBuilder};

pub(in crate::http) const EVENT_STREAM: &str = "text/event-stream";
/// How often an idle stream sends a comment, so that the connection stays open.
pub(in crate::http) const KEEP_ALIVE: Duration = Duration::from_secs(15);
pub(in crate::http) const ALIVE: &[u8] = b": alive\n\n";

/// An event. Every line of `data` becomes a line of the event. Without a name, it is a `message`.
pub(in crate::http) fn event(id: Option<u64>, name: Option<&str>, data: &str) -> Bytes {
    let mut event = String::with_capacity(data.len() + 32);
    if let Some(id) = id {
        let _ = writeln!(event, "id: {id}");
    }
    if let Some(name) = name {
        let _ = writeln!(event, "event: {name}");
    }
    // A single carriage return ends a line, too.
    for line in data.lines().flat_map(|line| line.split('\r')) {
        let _ = writeln!(event, "data: {line}");
    }
    event.push('\n');
    event.into()
}

/// The headers of a stream.
pub(in crate::http) fn streaming() -> HttpResponseBuilder {
    let mut builder = HttpResponse::Ok();
    builder.insert_header((header::CONTENT_TYPE, EVENT_STREAM)).insert_header((header::CACHE_CONTROL, "no-cache"));
    // Keeps proxies from buffering the stream.
    builder.insert_header(("x-accel-buffering", "no"));
    builder
}

#[cfg(test)]
mod tests {
    use super::event;

    #[test]
    fn a_text_is_one_event() {
        assert_eq!(event(None, None, "{\"a\":1}"), "data: {\"a\":1}\n\n");
        assert_eq!(event(None, None, "{\n\"a\":1}"), "data: {\ndata: \"a\":1}\n\n");
        assert_eq!(
            event(Some(3), Some("lagged"), "a\r\nb\r\revent: x"),
            "id: 3\nevent: lagged\ndata: a\ndata: b\ndata: \ndata: event: x\n\n"
        );
    }
}
