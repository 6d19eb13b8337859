//! Exchanges one JSON-RPC message per line over a child process's standard input and output.
//!
//! rmcp's own transport hangs forever on a line that is too long or not JSON. Here such a line is skipped, or fails its call.
//! Long lines are never buffered.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use rmcp::RoleClient;
use rmcp::model::ServerResult;
use rmcp::service::{RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::process::ChildStdout;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::adapters::mcp::exchange::{Answering, Exchange, Inbound, Ticket, batch, cancels_unsent, encode};
use crate::adapters::mcp::process::child::Streams;
use crate::adapters::mcp::process::cutoff::Cutoff;
use crate::adapters::mcp::transport::lines::{Line, Lines, READ_BUFFER};
use crate::domain::catalog::tool::ServerName;

/// Length of the queue to the child process.
const QUEUE: usize = 256;
/// Maximum number of lines that are not messages, in one burst and per second. Each KiB counts as a further line. A process with
/// more is no MCP server.
const JUNK: (f64, f64) = (10_000.0, 1_000.0);
/// Maximum number of notifications, in one burst and per second.
const NOTIFICATIONS: (f64, f64) = (200_000.0, 20_000.0);
/// Maximum number of requests, in one burst and per second. Each KiB of those that are dropped counts as a further one.
const REQUESTS: (f64, f64) = JUNK;
/// Maximum line length in bytes that counts towards these limits.
const LONGEST: usize = 1 << 20;

pub(in crate::adapters::mcp) struct StdioTransport {
    server: ServerName,
    exchange: Arc<Exchange>,
    lines: Lines<ChildStdout>,
    /// The messages of a batch that were not received yet.
    unpacked: VecDeque<Vec<u8>>,
    junk: Borne,
    notifications: Borne,
    requests: Borne,
    cutoff: Cutoff,
    /// The queue to the writer; `None` once closed. The writer then ends and closes the child's standard input.
    outgoing: Option<mpsc::Sender<Outgoing>>,
}

impl StdioTransport {
    pub(in crate::adapters::mcp) fn new(server: ServerName, exchange: Arc<Exchange>, streams: Streams, limit: usize) -> Self {
        let Streams { stdin, stdout, cutoff } = streams;
        let (sender, receiver) = mpsc::channel(QUEUE);
        tokio::spawn(write(stdin, receiver));
        let (junk, notifications, requests) = (Borne::new(JUNK), Borne::new(NOTIFICATIONS), Borne::new(REQUESTS));
        let (lines, unpacked) = (Lines::new(stdout, limit), VecDeque::new());
        Self { server, exchange, lines, unpacked, junk, notifications, requests, cutoff, outgoing: Some(sender) }
    }

    /// Counts a line that is not a message. Returns `false` if there were too many.
    fn take_junk(&mut self, bytes: usize) -> bool {
        if self.junk.is_first() {
            tracing::debug!(server = %self.server, "a line on standard output is not a message");
        }
        let is_bearable = self.junk.take(bytes, Instant::now());
        if !is_bearable {
            self.cutoff.because("its standard output contains too many lines that are not messages".to_owned());
        }
        is_bearable
    }

    /// Counts a notification. Returns `false` if there were too many.
    fn take_notification(&mut self, bytes: usize) -> bool {
        let is_bearable = self.notifications.take(bytes, Instant::now());
        if !is_bearable {
            self.cutoff.because("it floods its standard output with notifications".to_owned());
        }
        is_bearable
    }

    /// Counts a request of the server. Returns `false` if there were too many.
    fn take_request(&mut self, bytes: usize) -> bool {
        let is_bearable = self.requests.take(bytes, Instant::now());
        if !is_bearable {
            self.cutoff.because("it floods its standard output with requests".to_owned());
        }
        is_bearable
    }
}

/// A rate limit for lines.
struct Borne {
    most: f64,
    per_second: f64,
    left: f64,
    at: Instant,
}

impl Borne {
    fn new((most, per_second): (f64, f64)) -> Self {
        Self { most, per_second, left: most, at: Instant::now() }
    }

    /// Whether no line was counted recently.
    fn is_first(&self) -> bool {
        self.left >= self.most
    }

    fn take(&mut self, bytes: usize, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        self.left = (self.left + passed * self.per_second).min(self.most) - 1.0 - bytes.min(LONGEST) as f64 / 1024.0;
        self.left >= 0.0
    }
}

struct Outgoing {
    /// Empty if the ticket has it.
    line: Vec<u8>,
    ticket: Option<Ticket>,
    answering: Option<Answering>,
}

/// Writes queued messages in order, in as few writes as possible.
async fn write(mut stdin: impl AsyncWrite + Unpin, mut queue: mpsc::Receiver<Outgoing>) {
    let (mut batch, mut tickets, mut answers) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(first) = queue.recv().await {
        batch.clear();
        tickets.clear();
        let mut next = Some(first);
        while let Some(Outgoing { line, ticket, answering }) = next {
            answers.extend(answering);
            let line = ticket.as_ref().map_or(Some(line), Ticket::start_sending);
            if let Some(line) = line {
                batch.extend_from_slice(&line);
                tickets.extend(ticket);
            }
            next = if batch.len() < READ_BUFFER { queue.try_recv().ok() } else { None };
        }
        let begun = stdin.write(&batch).await;
        for ticket in &tickets {
            ticket.sent(begun.is_ok());
        }
        // The reader also notices when the child ends, and unsent requests can be retried.
        let Ok(begun) = begun else { return };
        if stdin.write_all(&batch[begun..]).await.is_err() || stdin.flush().await.is_err() {
            return;
        }
        answers.clear();
    }
}

/// Ensures that a message is one line. Arguments are forwarded unchanged, so a line break between two tokens would end the
/// message and let the caller inject another one. JSON strings contain no raw line breaks.
fn one_line(message: &mut Vec<u8>) {
    for byte in message.iter_mut().filter(|byte| matches!(byte, b'\n' | b'\r')) {
        *byte = b' ';
    }
    message.push(b'\n');
}

impl Transport<RoleClient> for StdioTransport {
    type Error = io::Error;

    fn send(&mut self, mut item: TxJsonRpcMessage<RoleClient>) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let ticket = self.exchange.outbound(&mut item);
        let queued = encode(&item).map_err(io::Error::from).and_then(|mut line| {
            if cancels_unsent(&item) {
                return Ok(None);
            }
            one_line(&mut line);
            if let Some(ticket) = &ticket {
                ticket.keep(std::mem::take(&mut line));
            }
            let queue = self.outgoing.clone().ok_or(io::ErrorKind::BrokenPipe)?;
            let answering = self.exchange.answering(&item);
            // Queue here instead of in the future, because rmcp runs these futures concurrently and the order matters.
            match queue.try_send(Outgoing { line, ticket, answering }) {
                Ok(()) => Ok(None),
                Err(mpsc::error::TrySendError::Full(outgoing)) => Ok(Some((queue, outgoing))),
                Err(mpsc::error::TrySendError::Closed(_)) => Err(io::ErrorKind::BrokenPipe.into()),
            }
        });
        async move {
            match queued? {
                None => Ok(()),
                Some((queue, outgoing)) => queue.send(outgoing).await.map_err(|_| io::ErrorKind::BrokenPipe.into()),
            }
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let line = if let Some(message) = self.unpacked.pop_front() {
                Line::Message(message)
            } else {
                tokio::select! {
                    biased;
                    () = self.cutoff.reached() => return None,
                    line = self.lines.next() => line,
                }
            };
            if let Line::Message(line) = &line
                && let Some(messages) = batch(line)
            {
                self.unpacked.extend(messages);
                continue;
            }
            let (inbound, bytes) = match line {
                Line::End => return None,
                Line::Message(line) if line.trim_ascii().is_empty() => (Inbound::Junk, line.len()),
                Line::Message(line) => (self.exchange.inbound(&line), line.len()),
                Line::TooLong { head, tail, length } => {
                    tracing::warn!(server = %self.server, length, "a message is too large");
                    (self.exchange.fail_oversized(&head, &tail), length)
                }
                Line::Endless { length } => {
                    self.cutoff.because(format!("a line on its standard output exceeds {} MiB", length >> 20));
                    return None;
                }
            };
            match inbound {
                Inbound::Junk if !self.take_junk(bytes) => return None,
                Inbound::Consumed if !self.take_notification(bytes) => return None,
                Inbound::Dropped if !self.take_request(bytes) => return None,
                // A question may contain images.
                Inbound::Forward(_) if !self.take_request(0) => return None,
                Inbound::Answered { id } => return Some(RxJsonRpcMessage::<RoleClient>::response(ServerResult::empty(()), id)),
                Inbound::Forward(message) => {
                    if let Ok(message) = serde_json::from_value(message) {
                        return Some(message);
                    }
                    tracing::debug!(server = %self.server, "ignored an invalid message");
                }
                Inbound::Consumed | Inbound::Dropped | Inbound::Junk => {}
            }
        }
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.outgoing = None;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_lines_that_are_no_messages_are_borne_and_a_flood_of_them_is_not() {
        let (mut junk, begun) = (Borne::new(JUNK), Instant::now());
        let bearable = (0..20_000).take_while(|_| junk.take(10, begun)).count();
        assert!((9_900..=10_000).contains(&bearable), "{bearable}");
        let (mut junk, mut now) = (Borne::new(JUNK), begun);
        for _ in 0..100_000 {
            now += std::time::Duration::from_millis(2);
            assert!(junk.take(10, now), "a few hundred a second");
        }
        let long = (0..20).take_while(|_| junk.take(16 << 20, now)).count();
        assert_eq!(long, 9, "long ones count for many");
    }
}
