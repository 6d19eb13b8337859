//! Splits a byte stream into lines of bounded length.

use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};

pub(in crate::adapters::mcp) const READ_BUFFER: usize = 64 * 1024;

pub(in crate::adapters::mcp) enum Line {
    Message(Vec<u8>),
    TooLong {
        head: Vec<u8>,
        tail: Vec<u8>,
        length: usize,
    },
    /// An unfinished line that exceeds the limit many times.
    Endless {
        length: usize,
    },
    End,
}

/// Reads a stream line by line. [`Lines::next`] is cancel-safe.
pub(in crate::adapters::mcp) struct Lines<R> {
    reader: BufReader<R>,
    limit: usize,
    line: Vec<u8>,
    /// The start and the length so far of an oversized line; `line` then contains only its end.
    too_long: Option<(Vec<u8>, usize)>,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    /// A line is endless if it is this many times longer than the longest message.
    pub(in crate::adapters::mcp) const ENDLESS: usize = 8;
    /// Bytes kept of each end of an oversized line, to identify its request.
    pub(in crate::adapters::mcp) const EXCERPT: usize = 512;

    pub(in crate::adapters::mcp) fn new(reader: R, limit: usize) -> Self {
        Self { reader: BufReader::with_capacity(READ_BUFFER, reader), limit, line: Vec::new(), too_long: None }
    }

    pub(in crate::adapters::mcp) async fn next(&mut self) -> Line {
        loop {
            let Ok(available) = self.reader.fill_buf().await else { return Line::End };
            if available.is_empty() {
                return if self.line.is_empty() { Line::End } else { self.finish() };
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let part = &available[..end.unwrap_or(available.len())];
            let used = end.map_or(part.len(), |end| end + 1);
            self.line.extend_from_slice(part);
            if let Some((_, length)) = &mut self.too_long {
                *length += part.len();
                let length = *length;
                self.line.drain(..self.line.len().saturating_sub(Self::EXCERPT));
                if end.is_none() && length / Self::ENDLESS > self.limit {
                    self.reader.consume(used);
                    return Line::Endless { length };
                }
            } else if self.line.len() > self.limit {
                let head = self.line[..Self::EXCERPT.min(self.line.len())].to_vec();
                self.too_long = Some((head, self.line.len()));
                self.line = self.line.split_off(self.line.len().saturating_sub(Self::EXCERPT));
            }
            self.reader.consume(used);
            if end.is_some() {
                return self.finish();
            }
        }
    }

    fn finish(&mut self) -> Line {
        let line = std::mem::take(&mut self.line);
        match self.too_long.take() {
            Some((head, length)) => Line::TooLong { head, tail: line, length },
            None => Line::Message(line),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(text: &[u8], limit: usize) -> Vec<String> {
        let mut lines = Lines::new(text, limit);
        let mut found = Vec::new();
        loop {
            match lines.next().await {
                Line::End => return found,
                Line::Message(line) => found.push(String::from_utf8_lossy(&line).into_owned()),
                Line::TooLong { length, .. } => found.push(format!("<{length}>")),
                Line::Endless { .. } => {
                    found.push("endless".to_owned());
                    return found;
                }
            }
        }
    }

    #[tokio::test]
    async fn a_long_line_is_skipped_and_the_next_one_read() {
        let mut text = b"one\n".to_vec();
        text.extend(vec![b'x'; 7_000]);
        text.extend(b"\ntwo\n\nlast");
        assert_eq!(all(&text, 1000).await, ["one", "<7000>", "two", "", "last"]);
        text.extend(vec![b'x'; 200_000]);
        assert_eq!(all(&text, 1000).await, ["one", "<7000>", "two", "", "endless"]);
    }
}
