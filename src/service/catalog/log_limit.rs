//! Limits the log lines about the parts of one list, because a server may list tens of thousands of tools, and new ones every minute.

use crate::domain::catalog::hidden_text::visible;
use crate::domain::catalog::tool::ServerName;
use crate::domain::text::short::short;
use crate::service::ports::SkippedTool;

/// Maximum number of lines of one kind for one list.
const LINES: usize = 50;
/// Maximum length of a tool's name in such a line, in characters.
const LONGEST_NAME: usize = 200;

/// The number of lines so far, and of those that were not written.
#[derive(Debug, Default)]
pub(super) struct LogLimit {
    taken: usize,
    more: usize,
}

impl LogLimit {
    /// Whether to write another line.
    pub(super) fn take(&mut self) -> bool {
        let is_taken = self.taken < LINES;
        *(if is_taken { &mut self.taken } else { &mut self.more }) += 1;
        is_taken
    }

    /// The number of lines that were not written, if there are any.
    pub(super) fn more(&self) -> Option<usize> {
        Some(self.more).filter(|more| *more > 0)
    }
}

/// Logs the tools of a list that are left out.
pub(super) fn log_skipped<'a>(server: &ServerName, skipped: impl IntoIterator<Item = &'a SkippedTool>) {
    let mut limit = LogLimit::default();
    for skipped in skipped {
        if limit.take() {
            let tool = visible(&short(&skipped.tool, LONGEST_NAME));
            tracing::warn!(%server, tool, reason = skipped.reason, "tool left out");
        }
    }
    if let Some(more) = limit.more() {
        tracing::warn!(%server, more, "more tools left out");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_lines_are_written_and_the_others_counted() {
        let mut limit = LogLimit::default();
        assert_eq!(((0..LINES).filter(|_| limit.take()).count(), limit.more()), (LINES, None));
        assert_eq!(((0..1000).filter(|_| limit.take()).count(), limit.more()), (0, Some(1000)));
    }
}
