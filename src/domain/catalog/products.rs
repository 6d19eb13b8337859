//! The products that servers are for, and that messages name ("do the same in Jira").
//!
//! A message that names a product wants its tools, even if those of another product match the conversation as well. Products have no list
//! of their own: their names are the words of a server's name, and the words with which several names of its tools begin, and of no other
//! server's (`jira_…` of a server `atlassian`). A word that many servers have in common, and a verb (`create_…`), name none of them.

use std::collections::{BTreeSet, HashMap};

use ahash::RandomState;

use crate::domain::text::folding::clean;
use crate::domain::text::names::names_in;
use crate::domain::text::negation::is_negated;
use crate::domain::text::words::split_identifier;

/// Minimum number of letters of a product's name.
const SHORTEST: usize = 3;
/// A word of more servers than this names none of them.
const MOST_SERVERS: usize = 3;
/// Minimum number of tools of a server whose names begin with a word, so that it names the server.
const FEWEST_TOOLS: usize = 3;
/// Maximum number of letters beside the name in a message that only corrects which product was meant: "Je voulais dire".
const MOST_OTHER_LETTERS: usize = 16;
/// Verbs with which the names of tools begin.
const VERBS: [&str; 48] = [
    "add", "ask", "cancel", "check", "clear", "close", "convert", "copy", "count", "create", "delete", "describe", "download", "edit",
    "execute", "export", "fetch", "find", "generate", "get", "import", "insert", "list", "load", "make", "manage", "merge", "move", "open",
    "post", "put", "query", "read", "remove", "rename", "reply", "run", "save", "search", "send", "set", "show", "start", "stop", "update",
    "upload", "view", "write",
];
/// Parts of servers' names that name no product.
const GENERIC: [&str; 14] =
    ["api", "app", "client", "data", "legacy", "local", "mcp", "official", "remote", "server", "service", "test", "the", "tools"];

/// The products that a message names, as the places of their servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedProducts {
    pub wanted: BTreeSet<u32>,
    /// Those that the message names only to rule them out: Linear in "in Jira, not in Linear". Empty if it wants no other one.
    pub ruled_out: BTreeSet<u32>,
    /// Number of letters and digits that belong to no name.
    other_letters: usize,
}

impl NamedProducts {
    /// Whether the message does hardly more than naming another product than an earlier one ("no, in Jira").
    pub fn corrects(&self, message: &str, earlier: &BTreeSet<u32>) -> bool {
        let is_question = message.trim_end().ends_with(['?', '？', '؟']);
        let is_other = !self.wanted.is_empty() && !earlier.is_empty() && self.wanted.is_disjoint(earlier);
        is_other && !is_question && self.other_letters <= MOST_OTHER_LETTERS
    }
}

type PlacesOf = HashMap<String, BTreeSet<u32>, RandomState>;

/// Servers by the names of their products.
#[derive(Debug, Default)]
pub struct Products(HashMap<Box<str>, Box<[u32]>, RandomState>);

impl Products {
    /// The products of servers, each with its name and those of its tools. A server is known by its place.
    pub fn of<'a, T: Iterator<Item = &'a str>>(servers: impl Iterator<Item = (&'a str, T)>) -> Self {
        let (mut places, mut prefixed) = (PlacesOf::default(), PlacesOf::default());
        for (place, (server, tools)) in (0..).zip(servers) {
            let mut first: HashMap<String, usize, RandomState> = HashMap::default();
            for tool in tools {
                if let Some(word) = split_identifier(tool).split(' ').next() {
                    *first.entry(word.to_lowercase()).or_default() += 1;
                }
            }
            for (word, _) in first.into_iter().filter(|(word, tools)| *tools >= FEWEST_TOOLS && !VERBS.contains(&word.as_str())) {
                prefixed.entry(word).or_default().insert(place);
            }
            for word in split_identifier(server).to_lowercase().split(' ').filter(|word| !GENERIC.contains(word)) {
                places.entry(word.to_owned()).or_default().insert(place);
            }
        }
        for (word, of) in prefixed.into_iter().filter(|(_, places)| places.len() == 1) {
            places.entry(word).or_default().extend(of);
        }
        let is_name = |word: &str| word.len() >= SHORTEST && word.bytes().any(|byte| byte.is_ascii_alphabetic());
        let named = places.into_iter().filter(|(word, places)| places.len() <= MOST_SERVERS && is_name(word));
        Self(named.map(|(word, places)| (word.into(), places.into_iter().collect())).collect())
    }

    /// The products that a message names.
    pub fn named_in(&self, message: &str) -> NamedProducts {
        let text = clean(message);
        // Where each name begins and ends, with the places of its servers.
        let mut names: Vec<(usize, usize, Vec<u32>)> = Vec::new();
        let mut add = |name: &str, places: Vec<u32>| {
            if !places.is_empty() {
                let start = name.as_ptr().addr() - text.as_ptr().addr();
                names.push((start, start + name.len(), places));
            }
        };
        for word in latin_words(&text) {
            add(word, self.0.get(word.to_lowercase().as_str()).map(|places| places.to_vec()).unwrap_or_default());
        }
        for (name, english) in names_in(&text) {
            add(name, english.split(' ').filter_map(|word| self.0.get(word)).flatten().copied().collect());
        }
        names.sort_unstable();
        let letters = |text: &str| text.chars().filter(|character| character.is_alphanumeric()).count();
        let mut named = NamedProducts { other_letters: letters(&text), ..NamedProducts::default() };
        for (at, (start, end, places)) in names.iter().enumerate() {
            let next = names.get(at + 1).map_or(text.len(), |(next, ..)| (*next).max(*end));
            let is_ruled_out = is_negated(&text[..*start], &text[*end..next]);
            if is_ruled_out { &mut named.ruled_out } else { &mut named.wanted }.extend(places);
            named.other_letters = named.other_letters.saturating_sub(letters(&text[*start..*end]));
        }
        if named.wanted.is_empty() {
            named.wanted = std::mem::take(&mut named.ruled_out);
        }
        named.ruled_out.retain(|place| !named.wanted.contains(place));
        named
    }
}

/// The words in Latin letters and digits. Other scripts, such as Chinese and Korean, write names without spaces around them.
fn latin_words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !(character.is_alphanumeric() && u32::from(character) < 0x250)).filter(|word| word.len() >= SHORTEST)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Products;

    #[test]
    fn messages_name_products() {
        let servers: [(&str, &[&str]); 6] = [
            ("atlassian", &["jira_create_issue", "jira_search", "jira_get_issue", "confluence_get_page"]),
            ("github-legacy", &["create_issue", "create_branch", "create_fork", "search_code"]),
            ("gitlab", &["create_issue", "create_group", "create_note"]),
            ("linear", &["linear_createIssue"]),
            ("mcp-grafana", &["create_alert", "create_dashboard", "create_folder"]),
            ("TwilioApiV2010", &["TwilioApiV2010--CreateMessage"]),
        ];
        let products = Products::of(servers.iter().map(|(server, tools)| (*server, tools.iter().copied())));
        let named =
            |message: &str| products.named_in(message).wanted.into_iter().map(|place| servers[place as usize].0).collect::<Vec<_>>();
        assert_eq!(named("Do the same on GitHub, please"), ["github-legacy"]);
        assert_eq!(named("nein, in jira nicht in linear"), ["atlassian"]);
        assert_eq!(named("nicht in linear?"), ["linear"]);
        assert_eq!(named("也在Jira里建一个"), ["atlassian"]);
        assert_eq!(named("aynısını gitlab'da yap"), ["gitlab"]);
        assert_eq!(named("by Twilio"), ["TwilioApiV2010"]);
        assert_eq!(named("and grafana alerts?"), ["mcp-grafana"]);
        assert_eq!(named("создай задачу в джире"), ["atlassian"]);
        assert_eq!(named("ギットラボにも作って"), ["gitlab"]);
        assert_eq!(named("지라에 이슈 만들어줘, 깃허브 말고"), ["atlassian"]);
        assert_eq!(named("지라에 깃랩 말고 만들어줘"), ["atlassian"]);
        assert_eq!(products.named_in("forget Linear, use GitLab").ruled_out, BTreeSet::from([3]));
        for message in ["create an issue", "the legacy API", "confluence", "jiraffe", "", "作成して"] {
            assert!(named(message).is_empty(), "{message}");
        }
    }

    #[test]
    fn a_short_message_that_names_another_product_corrects() {
        let servers: [(&str, [&str; 0]); 2] = [("linear", []), ("jira", [])];
        let products = Products::of(servers.iter().map(|(server, tools)| (*server, tools.iter().copied())));
        let (linear, jira, none) = (BTreeSet::from([0]), BTreeSet::from([1]), BTreeSet::new());
        let corrects = |message: &str, earlier: &BTreeSet<u32>| products.named_in(message).corrects(message, earlier);
        for message in ["no, Jira", "I meant Jira", "never mind, use Jira", "Je voulais dire Jira", "джира!", "Jira, not Linear"] {
            assert!(corrects(message, &linear), "{message}");
            assert!(!corrects(message, &jira) && !corrects(message, &none), "{message}");
        }
        for message in ["what is Jira?", "thanks", "we wrote about it in Jira a year ago"] {
            assert!(!corrects(message, &linear), "{message}");
        }
    }
}
