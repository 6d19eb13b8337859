//! Notifications to MCP clients that a list or a resource has changed.

use std::sync::Arc;

use indexmap::IndexSet;
use serde_json::json;

/// Maximum number of queued notifications per client; the oldest are then dropped. A client that far behind reads everything
/// again.
const MOST_QUEUED: usize = 1_000;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum News {
    Tools,
    Prompts,
    Resources,
    /// A resource has changed. Contains the URI by which the client knows the resource.
    Updated(Arc<str>),
}

impl News {
    /// Formats the notification as a JSON-RPC message.
    pub(crate) fn message(&self) -> String {
        let list = |of: &str| json!({"jsonrpc": "2.0", "method": format!("notifications/{of}/list_changed")});
        let message = match self {
            Self::Tools => list("tools"),
            Self::Prompts => list("prompts"),
            Self::Resources => list("resources"),
            Self::Updated(uri) => json!({"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": uri}}),
        };
        message.to_string()
    }
}

/// Queued notifications, without duplicates.
#[derive(Debug, Default)]
pub(super) struct NewsQueue(IndexSet<News>);

impl NewsQueue {
    pub(super) fn add(&mut self, news: News) {
        if self.0.len() >= MOST_QUEUED && !self.0.contains(&news) {
            self.remove_first();
        }
        self.0.insert(news);
    }

    pub(super) fn first(&self) -> Option<&News> {
        self.0.first()
    }

    pub(super) fn remove_first(&mut self) {
        self.0.shift_remove_index(0);
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST_QUEUED, News, NewsQueue};

    #[test]
    fn news_are_notifications() {
        assert_eq!(News::Prompts.message(), r#"{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}"#);
        assert_eq!(
            News::Updated("a\"b".into()).message(),
            r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a\"b"}}"#
        );
    }

    #[test]
    fn a_slow_client_misses_the_oldest() {
        let mut queue = NewsQueue::default();
        (0..=MOST_QUEUED).for_each(|number| queue.add(News::Updated(number.to_string().into())));
        queue.add(News::Updated("1".into()));
        assert_eq!((queue.0.len(), queue.first()), (MOST_QUEUED, Some(&News::Updated("1".into()))));
    }
}
