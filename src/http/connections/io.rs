//! The byte stream of a connection. It reports all reads and writes to [`Connection`].
//!
//! For an unauthenticated peer, it passes the headers of one request at a time to the server. Otherwise the server
//! would parse all requests that the peer has sent, keep them all in memory, and answer even a peer that doesn't read.
//! The remaining input waits here, in small parts.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Connection;

/// Number of bytes to read at once from an unauthenticated peer.
const PART: usize = 2_048;
/// Number of discarded bytes to read at once, and how many such reads happen before other tasks get a turn.
const UNWANTED: usize = 8_192;
const UNWANTED_PARTS: usize = 16;

/// A stream whose reads and writes are tracked.
pub(crate) struct Io<S> {
    stream: S,
    connection: Arc<Connection>,
    /// Input after the current request's headers, from an unauthenticated peer.
    kept: BytesMut,
    head: Head,
}

impl<S> Io<S> {
    pub(crate) fn new(stream: S, connection: Arc<Connection>) -> Self {
        Self { stream, connection, kept: BytesMut::new(), head: Head::default() }
    }

    pub(crate) fn connection(&self) -> &Arc<Connection> {
        &self.connection
    }

    fn written(&self, written: &Poll<io::Result<usize>>) {
        match written {
            Poll::Ready(_) => self.connection.was_written(),
            Poll::Pending => self.connection.was_blocked(),
        }
    }
}

impl<S: AsyncRead + Unpin> Io<S> {
    fn read_of_stranger(&mut self, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.connection.has_to_wait(context) {
            return Poll::Pending;
        }
        if self.kept.is_empty() {
            let mut part = [0; PART];
            let mut read = ReadBuf::new(&mut part);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut read))?;
            self.kept.extend_from_slice(read.filled());
        }
        let length = self.kept.len().min(buffer.remaining());
        let form = self.connection.form_left();
        if form > 0 {
            let part = self.kept.split_to(length.min(form));
            self.connection.form_was_read(part.len());
            buffer.put_slice(&part);
            return Poll::Ready(Ok(()));
        }
        let end = self.head.end(&self.kept[..length]);
        buffer.put_slice(&self.kept.split_to(end.unwrap_or(length)));
        if end.is_some() {
            self.connection.was_asked();
        }
        Poll::Ready(Ok(()))
    }

    /// Reads and discards the peer's input, so that the peer can receive the response.
    fn read_unwanted(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.kept = BytesMut::new();
        let mut part = [0; UNWANTED];
        for _ in 0..UNWANTED_PARTS {
            let mut read = ReadBuf::new(&mut part);
            ready!(Pin::new(&mut self.stream).poll_read(context, &mut read))?;
            if read.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Io<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = match (self.connection.is_known(), self.kept.is_empty()) {
            _ if self.connection.is_ending() => self.read_unwanted(context),
            (false, _) => self.read_of_stranger(context, buffer),
            (true, true) => Pin::new(&mut self.stream).poll_read(context, buffer),
            (true, false) => {
                let length = self.kept.len().min(buffer.remaining());
                buffer.put_slice(&self.kept.split_to(length));
                Poll::Ready(Ok(()))
            }
        };
        if buffer.filled().len() > before {
            self.connection.was_read();
        }
        read
    }
}

/// How much of a request's headers has been read. An empty line ends the headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Head {
    /// Nothing but line breaks so far.
    #[default]
    Before,
    InLine,
    /// At the start of a line other than the first one, possibly after a carriage return.
    AtLine,
}

impl Head {
    /// Finds the end of the headers in these bytes, which continue the bytes of earlier calls.
    fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        for (index, byte) in bytes.iter().enumerate() {
            *self = match (*self, byte) {
                (Self::AtLine, b'\n') => {
                    *self = Self::Before;
                    return Some(index + 1);
                }
                (Self::Before, b'\r' | b'\n') => Self::Before,
                (Self::InLine, b'\n') | (Self::AtLine, b'\r') => Self::AtLine,
                _ => Self::InLine,
            };
        }
        None
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Io<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(&written);
        written
    }

    fn poll_write_vectored(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.written(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Weak};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::{Connection, Head, Io};

    #[test]
    fn a_head_ends_with_an_empty_line_however_it_is_cut() {
        for (bytes, expected) in [
            ("GET / HTTP/1.1\r\nA: b\r\n\r\nrest", Some(24)),
            ("GET / HTTP/1.1\nA: b\n\nrest", Some(21)),
            ("\r\n\r\nGET / HTTP/1.1\r\n\r\nrest", Some(22)),
            ("GET / HTTP/1.1\r\nA: b\r\n", None),
            ("\r\n\r\n", None),
        ] {
            assert_eq!(Head::default().end(bytes.as_bytes()), expected, "{bytes:?}");
            let (mut head, mut passed) = (Head::default(), 0);
            let end = bytes.as_bytes().chunks(1).find_map(|byte| {
                let end = head.end(byte).map(|end| passed + end);
                passed += 1;
                end
            });
            assert_eq!(end, expected, "{bytes:?} byte by byte");
        }
    }

    /// Otherwise, 64 requests in one packet would occupy memory as 64 parsed requests, on each of 2,000 connections.
    #[tokio::test]
    async fn a_stranger_is_read_head_by_head_and_a_known_caller_as_it_comes() {
        const HEAD: &[u8] = b"GET / HTTP/1.1\r\n\r\n";
        let (mut peer, stream) = duplex(1 << 16);
        let connection = Arc::new(Connection::new(0, Weak::new()));
        let mut io = Io::new(stream, Arc::clone(&connection));
        peer.write_all(&HEAD.repeat(5)).await.unwrap();
        let mut bytes = [0; 4_096];
        assert_eq!(io.read(&mut bytes).await.unwrap(), HEAD.len());
        assert!(futures::poll!(std::pin::pin!(io.read(&mut bytes))).is_pending(), "it is not answered yet");
        drop(connection.answer());
        assert_eq!(io.read(&mut bytes).await.unwrap(), HEAD.len());
        connection.know();
        assert_eq!(io.read(&mut bytes).await.unwrap(), 3 * HEAD.len(), "what was kept is handed out");
        peer.write_all(&HEAD.repeat(2)).await.unwrap();
        assert_eq!(io.read(&mut bytes).await.unwrap(), 2 * HEAD.len());
    }

    #[tokio::test]
    async fn a_stranger_may_send_one_form_of_the_length_that_it_has() {
        let (mut peer, stream) = duplex(1 << 12);
        let connection = Arc::new(Connection::new(0, Weak::new()));
        let mut io = Io::new(stream, Arc::clone(&connection));
        let head = b"POST /ui/me/enter HTTP/1.1\r\nContent-Length: 6\r\n\r\n";
        let mut bytes = [0; 4_096];
        for _ in 0..2 {
            peer.write_all(&[head, b"link=1".as_slice(), b"GET / HTTP/1.1\r\n\r\n"].concat()).await.unwrap();
            let answering = connection.answer();
            assert_eq!(io.read(&mut bytes).await.unwrap(), head.len());
            assert!(futures::poll!(std::pin::pin!(io.read(&mut bytes))).is_pending(), "nobody wants the body yet");
            connection.take_form(6);
            assert_eq!(io.read(&mut bytes).await.unwrap(), 6);
            assert!(futures::poll!(std::pin::pin!(io.read(&mut bytes))).is_pending(), "the next request waits");
            drop(answering);
            assert_eq!(io.read(&mut bytes).await.unwrap(), b"GET / HTTP/1.1\r\n\r\n".len());
            drop(connection.answer());
        }
    }

    /// The rest of a rejected body may still arrive. If it were passed on, it would stay in memory while its sender
    /// waits.
    #[tokio::test]
    async fn what_nobody_wants_is_taken_and_not_handed_out() {
        let (mut peer, stream) = duplex(1 << 12);
        let connection = Arc::new(Connection::new(0, Weak::new()));
        let mut io = Io::new(stream, Arc::clone(&connection));
        let head = b"POST / HTTP/1.1\r\nContent-Length: 9\r\n\r\n";
        peer.write_all(head).await.unwrap();
        let mut bytes = [0; 8_192];
        assert_eq!(io.read(&mut bytes).await.unwrap(), head.len());
        connection.end_after_answer();
        let sending = async {
            peer.write_all(&vec![b'x'; 1 << 16]).await.unwrap();
            peer.shutdown().await.unwrap();
        };
        let (read, ()) = futures::join!(io.read(&mut bytes), sending);
        assert_eq!(read.unwrap(), 0, "nothing but the end");
    }
}
