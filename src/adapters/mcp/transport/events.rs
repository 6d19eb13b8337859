//! Parses an event stream that carries all messages of a connection (WHATWG HTML, "Server-sent events").
//!
//! The parser for streamable HTTP reads one response per stream and stops at an unknown line or an oversized event. This parser
//! ignores unknown lines, as the standard requires. It skips oversized events without buffering them, because other requests wait
//! on the same stream.

use tokio::io::AsyncRead;

use crate::adapters::mcp::transport::lines::{Line, Lines};

#[derive(Debug, PartialEq, Eq)]
pub(in crate::adapters::mcp) enum Event {
    Whole {
        /// The event type; `message` if the server sent none.
        kind: String,
        data: Vec<u8>,
    },
    /// An oversized event, reduced to the start and the end of its data.
    TooLarge { head: Vec<u8>, tail: Vec<u8> },
}

/// The events of a stream. [`Events::next`] is cancel-safe.
pub(in crate::adapters::mcp) struct Events<R> {
    lines: Lines<R>,
    limit: usize,
    kind: Option<String>,
    data: Option<Vec<u8>>,
    too_large: Option<(Vec<u8>, Vec<u8>)>,
    /// Number of skipped bytes of an oversized event.
    skipped: usize,
    is_first: bool,
}

impl<R: AsyncRead + Unpin> Events<R> {
    pub(in crate::adapters::mcp) fn new(reader: R, limit: usize) -> Self {
        Self { lines: Lines::new(reader, limit), limit, kind: None, data: None, too_large: None, skipped: 0, is_first: true }
    }

    /// The next event with data; `None` at the end of the stream. An unfinished event at the end is dropped, and an endless event
    /// ends the stream.
    pub(in crate::adapters::mcp) async fn next(&mut self) -> Option<Event> {
        loop {
            match self.lines.next().await {
                Line::Message(line) => {
                    let line = line.strip_suffix(b"\r").unwrap_or(&line);
                    let is_first = std::mem::take(&mut self.is_first);
                    let line = if is_first { line.strip_prefix("\u{feff}".as_bytes()).unwrap_or(line) } else { line };
                    if !line.is_empty() {
                        self.skipped += if self.too_large.is_some() { line.len() } else { 0 };
                        if self.skipped / Lines::<R>::ENDLESS > self.limit {
                            return None;
                        }
                        self.field(line);
                    } else if let Some(event) = self.finish() {
                        return Some(event);
                    }
                }
                Line::End | Line::Endless { .. } => return None,
                Line::TooLong { head, tail, .. } => {
                    self.data = None;
                    self.too_large = Some((value(b"data", &head).unwrap_or(&head).to_vec(), tail));
                }
            }
        }
    }

    fn field(&mut self, line: &[u8]) {
        if let Some(kind) = value(b"event", line) {
            self.kind = Some(String::from_utf8_lossy(kind).into_owned());
        } else if self.too_large.is_none()
            && let Some(more) = value(b"data", line)
        {
            let data = match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data
                }
                none => none.insert(Vec::new()),
            };
            data.extend_from_slice(more);
            if data.len() > self.limit {
                self.too_large = self.data.take().map(|data| {
                    let excerpt = Lines::<R>::EXCERPT.min(data.len());
                    (data[..excerpt].to_vec(), data[data.len() - excerpt..].to_vec())
                });
            }
        }
    }

    fn finish(&mut self) -> Option<Event> {
        let kind = self.kind.take().filter(|kind| !kind.is_empty()).unwrap_or_else(|| "message".to_owned());
        if let Some((head, tail)) = self.too_large.take() {
            self.skipped = 0;
            return Some(Event::TooLarge { head, tail });
        }
        self.data.take().map(|data| Event::Whole { kind, data })
    }
}

/// The value, if the line has this field.
fn value<'a>(field: &[u8], line: &'a [u8]) -> Option<&'a [u8]> {
    let rest = line.strip_prefix(field)?;
    let Some(value) = rest.strip_prefix(b":") else { return rest.is_empty().then_some(rest) };
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(text: &str, limit: usize) -> Vec<String> {
        let mut events = Events::new(text.as_bytes(), limit);
        let mut found = Vec::new();
        while let Some(event) = events.next().await {
            found.push(match event {
                Event::Whole { kind, data } => format!("{kind}={}", String::from_utf8(data).unwrap()),
                Event::TooLarge { head, tail } => format!("{}…{}", &head.escape_ascii().to_string()[..4], tail.len()),
            });
        }
        found
    }

    #[tokio::test]
    async fn events_are_read_as_the_standard_has_them() {
        let text = "\u{feff}: hello\n\nevent: endpoint\r\ndata: /post?a=b\r\n\r\nid: 7\nretry: x\nunknown: 1\nno colon\n\
                    data:{\"a\":\ndata:  1}\n\nevent: empty\n\ndata\n\ndata: cut off";
        assert_eq!(all(text, 100).await, ["endpoint=/post?a=b", "message={\"a\":\n 1}", "message="]);
    }

    #[tokio::test]
    async fn an_event_that_is_too_large_is_skipped_and_the_next_one_read() {
        let long = "x".repeat(5000);
        let lines = "data: yyyy\n".repeat(500);
        let text = format!("data: {long}\ndata: more\n\ndata: one\n\n{lines}\nevent: e\ndata: two\n\n");
        assert_eq!(all(&text, 1000).await, ["xxxx…512", "message=one", "yyyy…512", "e=two"]);
    }

    #[tokio::test]
    async fn an_event_without_an_end_is_the_end() {
        for endless in ["x".repeat(200_000), "data: yyyy\n".repeat(5_000)] {
            let text = format!("data: one\n\ndata: {endless}\n\ndata: two\n\n");
            assert_eq!(all(&text, 1000).await, ["message=one"]);
        }
    }
}
