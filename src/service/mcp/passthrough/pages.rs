//! Collects the pages of a server's list of prompts or resources.

use std::collections::HashSet;

use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::domain::text::json;

/// Maximum number of pages per server and list.
const PAGES: usize = 1_000;
/// Maximum number of entries per server and list.
const ENTRIES: usize = 10_000;
/// Maximum size of the parsed pages per server and list, in bytes.
const SIZE: usize = 64 * 1024 * 1024;

#[derive(Default)]
pub(super) struct Pages {
    entries: Vec<Value>,
    count: usize,
    size: usize,
    cursor: Option<String>,
    known: HashSet<String>,
    /// Why the rest of the list is missing.
    cut: Option<&'static str>,
}

impl Pages {
    /// The parameters of the request for the next page.
    pub(super) fn next(&self) -> Value {
        self.cursor.as_ref().map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }))
    }

    /// Adds a page, whose entries are in this member. Returns whether another page follows.
    pub(super) fn add(&mut self, page: &RawValue, member: &str) -> bool {
        self.size = self.size.saturating_add(json::parsed_size(page.get()));
        if self.size > SIZE {
            self.cut = Some("it is too large");
            self.cursor = None;
            return false;
        }
        let mut page: Value = serde_json::from_str(page.get()).unwrap_or_default();
        if let Some(Value::Array(more)) = page.get_mut(member).map(Value::take) {
            self.entries.extend(more);
        }
        self.count += 1;
        let follows = page.get("nextCursor").and_then(Value::as_str).filter(|cursor| !cursor.is_empty()).map(str::to_owned);
        if self.entries.len() > ENTRIES || (self.entries.len() == ENTRIES && follows.is_some()) {
            self.entries.truncate(ENTRIES);
            self.cut = Some("it has more than 10,000 entries");
        } else if follows.as_ref().is_some_and(|cursor| !self.known.insert(cursor.clone())) {
            self.cut = Some("a cursor repeats");
        } else if self.count >= PAGES && follows.is_some() {
            self.cut = Some("it has more than 1,000 pages");
        }
        self.cursor = follows.filter(|_| self.cut.is_none());
        self.cursor.is_some()
    }

    /// Ends a list whose next page is late. Returns `false` if there is no page at all.
    pub(super) fn end_late(&mut self) -> bool {
        self.cut = Some("the server takes too long to list it");
        self.count > 0
    }

    /// The entries, and why the rest of the list is missing.
    pub(super) fn listed(self) -> (Vec<Value>, Option<&'static str>) {
        (self.entries, self.cut)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::to_raw_value;

    use super::{ENTRIES, PAGES, Pages, SIZE};

    /// Lists so many entries in pages of this size, with a cursor each.
    fn list(entries: usize, size: usize) -> (usize, Option<&'static str>) {
        let mut pages = Pages::default();
        for start in (0..).step_by(size) {
            assert_eq!(pages.next(), if start == 0 { json!({}) } else { json!({"cursor": start.to_string()}) });
            let page: Vec<_> = (start..entries.min(start + size)).map(|number| json!({ "uri": number })).collect();
            let next = (start + size < entries).then(|| (start + size).to_string());
            if !pages.add(&to_raw_value(&json!({"resources": page, "nextCursor": next})).unwrap(), "resources") {
                break;
            }
        }
        let (entries, cut) = pages.listed();
        assert!(entries.iter().enumerate().all(|(number, entry)| entry["uri"] == number));
        (entries.len(), cut)
    }

    #[test]
    fn a_list_has_so_many_entries_on_so_many_pages() {
        assert_eq!(list(0, 10), (0, None));
        assert_eq!(list(1_150, 10), (1_150, None), "more than fifty pages");
        assert_eq!(list(PAGES, 1), (PAGES, None));
        assert_eq!(list(ENTRIES, 100), (ENTRIES, None));
        for (entries, size, kept) in [(PAGES + 1, 1, PAGES), (ENTRIES + 1, 100, ENTRIES), (ENTRIES + 50, 300, ENTRIES)] {
            let (listed, cut) = list(entries, size);
            assert!(listed == kept && cut.is_some(), "{entries}: {listed}, {cut:?}");
        }
    }

    #[test]
    fn a_list_that_is_too_large_is_cut_before_it_is_parsed() {
        let mut pages = Pages::default();
        let page =
            |filling: String| to_raw_value(&json!({"prompts": [{"name": filling}], "nextCursor": filling.len().to_string()})).unwrap();
        assert!(pages.add(&page("a".to_owned()), "prompts"));
        assert!(pages.add(&page("a".repeat(SIZE / 2)), "prompts"));
        assert!(!pages.add(&page("a".repeat(SIZE / 2)), "prompts"));
        let (entries, cut) = pages.listed();
        assert_eq!((entries.len(), cut), (2, Some("it is too large")));
        let mut pages = Pages::default();
        let nested = vec![json!([0]); 1 << 18];
        assert!(!pages.add(&to_raw_value(&json!({"prompts": [{"name": "a", "x": nested}], "nextCursor": "b"})).unwrap(), "prompts"));
        assert_eq!(pages.listed(), (Vec::new(), Some("it is too large")));
    }

    #[test]
    fn a_list_without_an_end_ends() {
        let mut pages = Pages::default();
        assert!(!pages.end_late(), "nothing is known of it");
        let mut pages = Pages::default();
        let page = to_raw_value(&json!({"prompts": [{"name": "a"}], "nextCursor": "again"})).unwrap();
        assert!(pages.add(&page, "prompts") && !pages.add(&page, "prompts"));
        assert_eq!(pages.listed(), (vec![json!({"name": "a"}), json!({"name": "a"})], Some("a cursor repeats")));
    }
}
