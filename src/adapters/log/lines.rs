//! A queue of log lines with a limited size, read by a writer thread.
//!
//! If the reader of the log is slow, stuck or gone, lines are dropped and counted, but no caller blocks. (`tracing-appender` has
//! such a queue too, but reports its own errors with `eprintln!`, which blocks or panics in these cases.)

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Maximum size of the queue, in bytes.
const ROOM: usize = 1 << 20;

pub(super) struct Lines {
    queue: Mutex<Queue>,
    filled: Condvar,
    emptied: Condvar,
    dropped: AtomicU64,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<u8>,
    is_writing: bool,
    /// Number of lines dropped since the last queued one.
    unsaid: u64,
}

impl Lines {
    pub(super) fn start(out: impl Write + Send + 'static) -> Arc<Self> {
        let lines = Arc::new(Self { queue: Mutex::default(), filled: Condvar::new(), emptied: Condvar::new(), dropped: AtomicU64::new(0) });
        let writer = Arc::clone(&lines);
        // If the thread can't start, all lines are dropped, but the service runs.
        let _ = thread::Builder::new().name("log".to_owned()).spawn(move || writer.write(out));
        lines
    }

    /// Queues one or more lines, or drops them if the queue is full.
    pub(super) fn push(&self, text: &[u8]) {
        let mut queue = self.queue.lock();
        if queue.waiting.len() + text.len() <= ROOM {
            queue.waiting.extend_from_slice(text);
            self.filled.notify_one();
        } else {
            queue.unsaid += 1;
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Waits until everything is written, but at most for `limit`.
    pub(super) fn flush(&self, limit: Duration) {
        let deadline = Instant::now() + limit;
        let mut queue = self.queue.lock();
        while !queue.waiting.is_empty() || queue.is_writing {
            if self.emptied.wait_until(&mut queue, deadline).timed_out() {
                return;
            }
        }
    }

    fn write(&self, mut out: impl Write) {
        let mut batch = Vec::new();
        loop {
            let unsaid = self.take(&mut batch);
            if out.write_all(&batch).and_then(|()| out.flush()).is_err() {
                let lines = batch.split(|byte| *byte == b'\n').count() - 1;
                self.dropped.fetch_add(lines as u64, Ordering::Relaxed);
            }
            if unsaid > 0 {
                tracing::warn!(lines = unsaid, "dropped log lines: the reader of the log is too slow");
            }
        }
    }

    /// Waits for lines and moves them to `batch`. Returns the number of lines dropped before them.
    fn take(&self, batch: &mut Vec<u8>) -> u64 {
        batch.clear();
        let mut queue = self.queue.lock();
        queue.is_writing = false;
        self.emptied.notify_all();
        while queue.waiting.is_empty() {
            self.filled.wait(&mut queue);
        }
        queue.is_writing = true;
        std::mem::swap(batch, &mut queue.waiting);
        std::mem::take(&mut queue.unsaid)
    }
}

/// Collects and queues one log line.
pub(super) struct Line<'a>(pub(super) Option<&'a Lines>);

impl Write for Line<'_> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        if let Some(lines) = self.0 {
            lines.push(text);
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    /// A reader that reads only when the test allows it.
    struct Reader {
        allowed: mpsc::Receiver<bool>,
        seen: mpsc::Sender<Vec<u8>>,
    }

    impl Write for Reader {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            if !self.allowed.recv().unwrap() {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            self.seen.send(text.to_owned()).unwrap();
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_is_stuck_costs_lines_and_no_time_and_one_that_is_gone_costs_them_too() {
        let ((allow, allowed), (seen, written)) = (mpsc::channel(), mpsc::channel());
        let lines = Lines::start(Reader { allowed, seen });
        lines.push(b"first\n");
        while !lines.queue.lock().is_writing {
            thread::yield_now();
        }
        let line = [b"x".repeat(99), b"\n".to_vec()].concat();
        let fits = (ROOM / line.len()) as u64;
        for _ in 0..fits + 7 {
            lines.push(&line);
        }
        assert_eq!(lines.dropped(), 7);
        lines.flush(Duration::from_millis(1));
        allow.send(true).unwrap();
        assert_eq!(written.recv().unwrap(), b"first\n");
        allow.send(true).unwrap();
        assert_eq!(written.recv().unwrap().len() as u64, fits * 100);
        lines.push(b"lost\nlost\n");
        allow.send(false).unwrap();
        lines.flush(Duration::from_mins(1));
        assert_eq!(lines.dropped(), 9, "what could not be written");
        lines.push(b"again\n");
        allow.send(true).unwrap();
        assert_eq!(written.recv().unwrap(), b"again\n");
    }
}
