//! Finds tools that searches rarely find, and proposes a better text.
//!
//! A message finds a tool by what its text says. The paper on Dynamic `ReAct` (2025) reports that richer descriptions put more of the right
//! tools among the first ten. So a description needs a verb, and has to say what the parameters mean. The proposal contains only what the
//! tool's own definition says.

use std::collections::{BTreeSet, HashSet};
use std::sync::LazyLock;

use ahash::RandomState;
use serde::Serialize;

use super::ToolText;
use crate::domain::catalog::texts::summary;
use crate::domain::text::analysis::Analyzer;
use crate::domain::text::language::Language;

/// A description with fewer words, without function words, says little.
const FEWEST_WORDS: usize = 4;
/// A description with more characters dilutes what the tool does.
const MOST_CHARACTERS: usize = 2_000;
/// The minimum Jaccard index at which a message hardly tells two tools of a server apart.
const ALIKE: f32 = 0.75;
/// Maximum number of tools with which a tool is compared.
const MOST_COMPARED: usize = 500;
/// Maximum number of parameters in a proposal.
const PARAMETERS: usize = 8;
/// Maximum length of a parameter's description in a proposal, in characters.
const PARAMETER_CHARACTERS: usize = 80;

/// What tools do, in English. Without a verb, the first sentence doesn't say what happens.
const VERB_LIST: &str = "abort accept access activate add aggregate allocate analyze analyse annotate answer append apply approve archive \
    arrange ask assign attach audit authenticate authorize backup begin block book browse build calculate call cancel capture cast change \
    check choose classify clean clear click clone close collect combine commit compare compile complete compress compute configure confirm \
    connect convert copy count crawl create crop cut debug decode decrypt delete deploy describe detach detect determine diff disable \
    disconnect discover display download draft draw drop dump duplicate edit embed emit enable encode encrypt end enrich ensure enter \
    estimate evaluate examine execute expand explain explore export extend extract fetch fill filter find fix flag flush follow forecast \
    format forward generate get give grant group handle hide highlight hold identify import index infer inform initialize insert inspect \
    install interact invite invoke issue join kill label launch leave link list listen load locate lock log look lookup make manage map \
    mark match measure merge migrate modify monitor mount move mute navigate notify obtain open optimize order organize parse patch pause \
    perform pick pin ping play plot poll post predict prepare press preview print process produce promote provide publish pull purge push \
    put query queue quote rate read rebase rebuild receive recommend reconcile record recover redirect reduce refresh register reject \
    release reload remove rename render repair repeat replace reply report request reschedule reserve reset resize resolve respond restart \
    restore resume retrieve return revert review revoke roll rotate run sample save scale scan schedule score scrape scroll search select \
    send set share shift show shuffle shut sign simulate skip sleep solve sort split start stash stop store stream submit subscribe suggest \
    summarize summarise suspend swap switch sync synchronize tag take tell terminate test think track train transfer transform translate \
    trigger trim truncate type unarchive unassign unblock undo uninstall unlock unpin unsubscribe update upgrade upload use validate verify \
    view visit vote wait walk watch withdraw wrap write zip zoom";

static VERBS: LazyLock<HashSet<&str, RandomState>> = LazyLock::new(|| VERB_LIST.split_ascii_whitespace().collect());

/// Why a tool is hard to find.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "reason", rename_all = "snake_case")]
pub(crate) enum Weakness {
    /// The description has only a few words, or repeats the name.
    Short,
    /// The description is so long that the words about the tool's purpose count little.
    Long,
    /// Neither the name nor the first sentence says what the tool does.
    NoVerb,
    /// Another tool of the server has nearly the same text.
    LikeSibling { tool: String },
}

/// What makes a tool hard to find, and a text that may help.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct HardToFind {
    pub reasons: Vec<Weakness>,
    /// A description that says what the tool does and what it needs. `null` if the definition contains nothing else to say.
    pub proposal: Option<String>,
}

/// The tools of one server, prepared for comparisons.
pub(crate) struct Siblings<'a> {
    tools: Vec<(&'a str, BTreeSet<u32>)>,
    analyzer: &'a Analyzer,
}

impl<'a> Siblings<'a> {
    pub(crate) fn of(analyzer: &'a Analyzer, tools: impl Iterator<Item = ToolText<'a>>) -> Self {
        let tools = tools.take(MOST_COMPARED).map(|tool| (tool.name, terms(analyzer, &tool)));
        Self { tools: tools.collect(), analyzer }
    }

    /// What makes a tool of this server hard to find; `None` if nothing does.
    pub(crate) fn hard_to_find(&self, tool: &ToolText<'_>) -> Option<HardToFind> {
        let own = terms(self.analyzer, tool);
        let alike = self.tools.iter().filter(|(name, _)| *name != tool.name).map(|(name, terms)| (name, jaccard(&own, terms)));
        let sibling = alike.filter(|(_, index)| *index >= ALIKE).max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(name, _)| *name);
        let is_repeated = self.analyzer.terms(tool.description) == self.analyzer.terms(tool.name);
        let is_short = is_repeated || self.analyzer.terms(tool.description).len() < FEWEST_WORDS;
        let language = tool.language();
        // A short text doesn't tell its language.
        let may_be_english = language == Some(Language::English) || (language.is_none() && tool.description.is_ascii());
        let is_english = may_be_english && (language.is_some() || is_short);
        let reasons: Vec<Weakness> = [
            is_short.then_some(Weakness::Short),
            (tool.description.chars().count() > MOST_CHARACTERS).then_some(Weakness::Long),
            (is_english && !says_what_happens(tool)).then_some(Weakness::NoVerb),
            sibling.map(|name| Weakness::LikeSibling { tool: name.to_owned() }),
        ]
        .into_iter()
        .flatten()
        .collect();
        if reasons.is_empty() {
            return None;
        }
        let proposal = may_be_english.then(|| proposal(tool, is_repeated)).filter(|text| text.trim() != tool.description.trim());
        Some(HardToFind { reasons, proposal })
    }
}

/// The different terms of a tool's name, description and parameters.
fn terms(analyzer: &Analyzer, tool: &ToolText<'_>) -> BTreeSet<u32> {
    let parameters = tool.parameters.iter().flat_map(|(name, _)| analyzer.terms(name));
    analyzer.terms(tool.name).into_iter().chain(analyzer.terms(tool.description)).chain(parameters).collect()
}

fn jaccard(one: &BTreeSet<u32>, other: &BTreeSet<u32>) -> f32 {
    let common = one.intersection(other).count() as f32;
    common / (one.len() as f32 + other.len() as f32 - common).max(1.0)
}

/// Whether the name or the first sentence contains a verb.
fn says_what_happens(tool: &ToolText<'_>) -> bool {
    words(tool.name).iter().chain(&words(summary(tool.description))).any(|word| is_verb(word))
}

/// The words of a name or a text in lower case, split at identifier boundaries too.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut was_lower) = (Vec::new(), String::new(), false);
    for letter in text.chars() {
        if !letter.is_alphabetic() || (letter.is_uppercase() && was_lower) {
            words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
        }
        if letter.is_alphabetic() {
            word.extend(letter.to_lowercase());
        }
        was_lower = letter.is_lowercase();
    }
    words.extend((!word.is_empty()).then_some(word));
    words
}

fn is_verb(word: &str) -> bool {
    let stems = ["", "s", "es", "d", "ed", "ing"].into_iter().filter_map(|ending| word.strip_suffix(ending));
    let mut forms = stems.flat_map(|stem| {
        // Such as creat(ing), and stop(p)(ing).
        let doubled =
            stem.char_indices().next_back().filter(|(at, last)| stem[..*at].ends_with(*last)).map(|(at, _)| stem[..at].to_owned());
        [Some(stem.to_owned()), Some(format!("{stem}e")), doubled, word.strip_suffix("ies").map(|stem| format!("{stem}y"))]
    });
    forms.any(|form| form.is_some_and(|form| VERBS.contains(form.as_str())))
}

/// A description from a tool's own definition: what it does, its own text, and what it needs.
fn proposal(tool: &ToolText<'_>, is_repeated: bool) -> String {
    let name = words(tool.name);
    let mut sentences = Vec::new();
    if !says_what_happens(tool) || is_repeated {
        // A tool that is named after a thing returns or changes it; its parameters tell which.
        let subject = tool.title.map_or_else(|| name.join(" "), |title| words(title).join(" "));
        let verb = if name.iter().any(|word| is_verb(word)) { "" } else { "use " };
        sentences.push(format!("{verb}{subject} ({}).", words(tool.server).join(" ")));
    }
    let own = tool.description.trim();
    if !is_repeated && !own.is_empty() {
        // Of a long text, the first sentence says what the tool does.
        let own = if own.chars().count() > MOST_CHARACTERS { summary(own) } else { own };
        sentences.push(if own.ends_with(['.', '!', '?']) { own.to_owned() } else { format!("{own}.") });
    }
    let described: Vec<String> = tool
        .parameters
        .iter()
        .filter(|(name, _)| !name.is_empty())
        .take(PARAMETERS)
        .map(|(name, description)| {
            let summary = summary(description).trim_end_matches('.');
            let summary = whole_words(summary, PARAMETER_CHARACTERS);
            let name = words(name).join(" ");
            if summary.is_empty() { name } else { format!("{name} ({summary})") }
        })
        .collect();
    let is_said = described.iter().all(|parameter| own.contains(parameter.as_str()));
    if !described.is_empty() && !is_said {
        sentences.push(format!("Needs: {}.", described.join(", ")));
    }
    let mut text = sentences.join(" ");
    if let Some(first) = text.chars().next() {
        text.replace_range(..first.len_utf8(), &first.to_uppercase().to_string());
    }
    text
}

/// The first words of a text that have at most `most` characters. A text without spaces is cut between characters.
fn whole_words(text: &str, most: usize) -> &str {
    let Some((end, next)) = text.char_indices().nth(most) else { return text };
    let cut = &text[..end];
    let words = if next.is_whitespace() { Some(cut) } else { cut.rfind(char::is_whitespace).map(|at| &cut[..at]) };
    words.map_or(cut, |words| words.trim_end_matches(|character: char| character.is_whitespace() || character == ','))
}

#[cfg(test)]
mod tests {
    use super::{HardToFind, Siblings, Weakness, is_verb, whole_words};
    use crate::domain::catalog::texts::ToolText;
    use crate::domain::text::analysis::Analyzer;

    fn text(name: &'static str, description: &'static str) -> ToolText<'static> {
        ToolText { server: "shop", name, description, ..ToolText::default() }
    }

    fn of(tool: &ToolText<'static>, others: &[ToolText<'static>]) -> Option<HardToFind> {
        let analyzer = Analyzer::default();
        Siblings::of(&analyzer, others.iter().chain([tool]).cloned()).hard_to_find(tool)
    }

    #[test]
    fn verbs_are_known_in_their_forms() {
        for word in ["get", "gets", "fetches", "created", "creating", "stopping", "applies", "searches", "listing"] {
            assert!(is_verb(word), "{word}");
        }
        for word in ["order42", "invoice", "weather", "the", "", "s"] {
            assert!(!is_verb(word), "{word}");
        }
    }

    #[test]
    fn a_good_description_has_no_mark() {
        assert_eq!(of(&text("get_weather", "Returns the weather forecast for a city and a day."), &[]), None);
        assert_eq!(of(&text("wetter", "Liefert die Vorhersage für die nächsten Tage in einer Stadt und ihrer Umgebung."), &[]), None);
    }

    #[test]
    fn marks_name_what_is_missing_and_the_proposal_says_it() {
        let tool = ToolText {
            parameters: vec![("orderId".into(), "The number on the invoice.".into()), ("currency".into(), "".into())],
            ..text("invoice_total", "invoice_total")
        };
        let found = of(&tool, &[]).unwrap();
        assert_eq!(found.reasons, [Weakness::Short, Weakness::NoVerb]);
        assert_eq!(found.proposal.as_deref(), Some("Use invoice total (shop). Needs: order id (The number on the invoice), currency."));
        let tool = ToolText { parameters: vec![("city".into(), "Name of the city.".into())], ..text("getWeather", "Weather.") };
        let found = of(&tool, &[]).unwrap();
        assert_eq!(found.reasons, [Weakness::Short]);
        assert_eq!(found.proposal.as_deref(), Some("Weather. Needs: city (Name of the city)."));
        assert_eq!(
            of(&text("list_all", Box::leak("Lists all of it. ".repeat(200).into_boxed_str())), &[]).unwrap().reasons,
            [Weakness::Long]
        );
    }

    #[test]
    fn long_texts_of_parameters_end_with_a_word() {
        let texts =
            [("local or all branches", 99), ("local or all branches", 15), ("local, remote or", 8), ("one two", 3), ("東京の現在時刻", 3)];
        assert_eq!(texts.map(|(text, most)| whole_words(text, most)), ["local or all branches", "local or all", "local", "one", "東京の"]);
    }

    #[test]
    fn siblings_with_the_same_text_are_named() {
        let others = [text("search_orders_old", "Searches the orders of a customer by their date and state.")];
        let found = of(&text("search_orders", "Searches the orders of a customer by their date and state."), &others).unwrap();
        assert_eq!(found.reasons, [Weakness::LikeSibling { tool: "search_orders_old".to_owned() }]);
        assert_eq!(found.proposal, None, "the definition contains nothing that tells them apart");
        assert_eq!(of(&text("delete_customer", "Deletes a customer with all addresses for good."), &others), None);
    }
}
