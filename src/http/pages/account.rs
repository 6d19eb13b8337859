//! A person's own page: sign-ins, the switch of the selection, what was learned from the person, and secrets. It contains no scripts, and
//! every text of a server or a person is escaped.

use std::collections::BTreeSet;
use std::time::SystemTime;

use jiff::Timestamp;
use maud::{Markup, html};

use crate::domain::catalog::hidden_text::visible;
use crate::domain::catalog::tool::ToolId;
use crate::http::pages::connections::{Pages, form};
use crate::service::access::connections::{KnownConnection, PAGE};
use crate::service::access::secrets::{KnownSecret, SecretState};
use crate::service::learning::shown::LearnedTool;

/// Number of tools in the list.
const TOOLS: usize = 100;
/// Maximum length of a tool's name in the list, in characters.
const NAME: usize = 150;

/// What a person's page shows.
pub(in crate::http) struct Account<'a> {
    pub(in crate::http) person: &'a str,
    pub(in crate::http) form_token: &'a str,
    pub(in crate::http) known: &'a [KnownConnection],
    /// `None` if the page belongs to an administrator, for all users.
    pub(in crate::http) own: Option<Own<'a>>,
    /// What was done: `saved`, `removed`, `forgotten`, or anything else for nothing.
    pub(in crate::http) done: &'a str,
}

/// What belongs to one person.
pub(in crate::http) struct Own<'a> {
    /// Whether the selection is on for the person.
    pub(in crate::http) selects: bool,
    /// What was learned from the person; `None` if learning is off.
    pub(in crate::http) learned: Option<Vec<LearnedTool>>,
    /// Those of the learned tools that the person may see now. The page names no others.
    pub(in crate::http) usable: BTreeSet<ToolId>,
    /// Whether something is stored that the person taught.
    pub(in crate::http) is_stored: bool,
    /// The secrets without their values; `None` if the service can store none.
    pub(in crate::http) secrets: Option<Vec<KnownSecret>>,
    /// The server and the name of a secret that was not stored, and why.
    pub(in crate::http) refused: Option<(&'a str, &'a str, &'a str)>,
}

impl Pages<'_> {
    /// The whole page.
    pub(in crate::http) fn account(&self, account: &Account<'_>) -> String {
        let (texts, token) = (self.texts, account.form_token);
        let done = match account.done {
            "saved" => Some(&texts.saved),
            "removed" => Some(&texts.removed_),
            "forgotten" => Some(&texts.forgotten),
            _ => None,
        };
        let body = html! {
            p { (texts.signed_in_as) strong { (account.person) } }
            @if let Some(done) = done { p.good role="status" { (done) } }
            h2 { (texts.connections) }
            (self.services(account.known, token))
            @if let Some(own) = &account.own {
                h2 { (texts.selection) }
                (self.selection(own.selects, token))
                h2 { (texts.learned) }
                (self.learned(own))
                @if let Some(secrets) = &own.secrets {
                    h2 { (texts.secrets) }
                    (self.secrets(secrets, own.refused, token))
                }
            }
        };
        self.page(&texts.account, &body)
    }

    fn selection(&self, selects: bool, token: &str) -> Markup {
        let (texts, action) = (self.texts, format!("{}/ui/me/selection", self.base));
        let on = (&texts.selection_on, "off", &texts.switch_off);
        let (state, to, button) = if selects { on } else { (&texts.selection_off, "on", &texts.switch_on) };
        html! {
            p.quiet { (texts.selection_hint) }
            p { (state) }
            (form(&action, &[("csrf", token), ("selection", to)], button))
        }
    }

    fn learned(&self, own: &Own<'_>) -> Markup {
        let (texts, is_stored) = (self.texts, own.is_stored);
        let count = |tool: &LearnedTool, is_meant: fn(f32) -> bool| -> usize {
            tool.kinds.iter().filter(|(kind, _)| is_meant(kind.weight())).map(|(_, count)| count).sum()
        };
        html! {
            p.quiet { (texts.learned_hint) }
            @match own.learned.as_deref() {
                None => {
                    p { (texts.learned_off) }
                    @if is_stored { p { (texts.learned_stored) } }
                },
                Some([]) if is_stored => p { (texts.learned_stored) },
                Some([]) => p { (texts.learned_nothing) },
                Some(tools) => {
                    div.wide tabindex="0" role="group" aria-label=(texts.learned) {
                        table {
                            thead { tr {
                                th scope="col" { (texts.tool) }
                                th.number scope="col" { (texts.for_it) }
                                th.number scope="col" { (texts.against_it) }
                                th scope="col" { (texts.last_used) }
                            } }
                            tbody {
                                @for tool in tools.iter().take(TOOLS) {
                                    tr {
                                        th scope="row" {
                                            @if own.usable.contains(&tool.tool) { (name_of(tool)) } @else { (texts.hidden_tool) }
                                        }
                                        td.number { (count(tool, |weight| weight > 0.0)) }
                                        td.number { (count(tool, |weight| weight < 0.0)) }
                                        td { (day(tool.newest)) }
                                    }
                                }
                            }
                        }
                    }
                    @if tools.len() > TOOLS { p.quiet { (tools.len() - TOOLS) " " (texts.more_tools) } }
                },
            }
            p { a href={ (self.base) "/ui/me/forget" } { (texts.forget) } }
        }
    }

    /// Asks whether to forget what was learned from the person.
    pub(in crate::http) fn forget(&self, person: &str, form_token: &str) -> String {
        let texts = self.texts;
        let body = html! {
            p { (texts.signed_in_as) strong { (person) } }
            p { (texts.forget_hint) }
            div.buttons {
                (form(&format!("{}/ui/me/forget", self.base), &[("csrf", form_token)], &texts.forget))
                a href={ (self.base) (PAGE) } { (texts.cancel) }
            }
        };
        self.page(&format!("{}: {}", texts.forget, texts.learned), &body)
    }

    fn secrets(&self, secrets: &[KnownSecret], refused: Option<(&str, &str, &str)>, token: &str) -> Markup {
        let texts = self.texts;
        html! {
            p.quiet { (texts.secrets_hint) }
            @if secrets.is_empty() { p { (texts.no_secrets) } }
            @for (number, secret) in secrets.iter().enumerate() {
                @let error = refused.filter(|(server, name, _)| secret.server.as_str() == *server && secret.name.as_str() == *name);
                (self.secret(secret, number, error.map(|(.., reason)| reason), token))
            }
        }
    }

    fn secret(&self, secret: &KnownSecret, number: usize, error: Option<&str>, token: &str) -> Markup {
        let (texts, base) = (self.texts, self.base);
        let (server, name) = (secret.server.as_str(), secret.name.as_str());
        let (state, class) = match secret.state {
            SecretState::Set => (&texts.secret_set, "good"),
            SecretState::Missing => (&texts.secret_missing, "bad"),
            SecretState::Unreadable => (&texts.secret_unreadable, "bad"),
        };
        let (field, described) = (format!("secret-{number}"), format!("secret-{number}-about"));
        let is_stored = secret.state != SecretState::Missing;
        let describes = (is_stored || error.is_some()).then_some(described.as_str());
        html! {
            section.change {
                h3 { (server) ": " (name) }
                p {
                    span class=(class) { (state) }
                    @if let Some(at) = secret.updated_at { small.quiet { (texts.set_at) (day(at)) } }
                }
                @if secret.is_taken {
                    form.buttons method="post" action={ (base) "/ui/me/secret" } {
                        input type="hidden" name="csrf" value=(token);
                        input type="hidden" name="server" value=(server);
                        input type="hidden" name="name" value=(name);
                        div {
                            label for=(field) { (texts.new_value) ": " (name) }
                            input id=(field) name="value" type="password" autocomplete="off" required aria-describedby=[describes]
                                aria-invalid=[error.map(|_| "true")];
                            @match error {
                                Some(error) => p.bad id=(described) role="alert" { (error) },
                                None if is_stored => p.quiet id=(described) { (texts.value_hint) },
                                None => {},
                            }
                        }
                        button { (texts.save) }
                    }
                } @else { p.quiet { (texts.secret_unused) } }
                @if is_stored {
                    (form(&format!("{base}/ui/me/secret/remove"), &[("csrf", token), ("server", server), ("name", name)], &texts.remove))
                }
            }
        }
    }
}

fn name_of(tool: &LearnedTool) -> String {
    let name = visible(&tool.tool.to_string());
    match name.char_indices().nth(NAME) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name,
    }
}

/// A day in UTC.
fn day(at: SystemTime) -> String {
    Timestamp::try_from(at).map_or_else(|_| String::new(), |at| at.strftime("%Y-%m-%d").to_string())
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::SystemTime;

    use actix_web::http::header::HeaderMap;

    use super::{Account, Own};
    use crate::domain::access::secret::SecretName;
    use crate::domain::catalog::tool::{ServerName, ToolId};
    use crate::domain::learning::evidence::EvidenceKind;
    use crate::http::pages::connections::{Pages, texts};
    use crate::service::access::secrets::{KnownSecret, SecretState};
    use crate::service::learning::shown::LearnedTool;

    #[test]
    fn texts_of_others_stay_texts() {
        let evil = "<script>alert(1)</script>\"'";
        let at = SystemTime::UNIX_EPOCH;
        let kinds = BTreeMap::from([(EvidenceKind::Called, 3), (EvidenceKind::Wrong, 2)]);
        let learned = LearnedTool { tool: ToolId::new(evil, evil), kinds, callers: 1, since: at, newest: at };
        let server = ServerName::new(evil);
        let name = SecretName::new("token").unwrap();
        let secret = KnownSecret { server, name, state: SecretState::Set, is_taken: true, updated_at: Some(at) };
        let own = Own {
            selects: false,
            usable: BTreeSet::from([learned.tool.clone()]),
            learned: Some(vec![learned]),
            is_stored: true,
            secrets: Some(vec![secret]),
            refused: Some((evil, "token", evil)),
        };
        let account = Account { person: evil, form_token: evil, known: &[], own: Some(own), done: evil };
        let pages = Pages { base: "", texts: texts(&HeaderMap::new()) };
        for page in [pages.account(&account), pages.forget(evil, evil)] {
            assert!(!page.contains("<script") && !page.contains(evil), "{page}");
        }
        let page = pages.account(&account);
        assert!(page.contains(">3<") && page.contains(">2<") && page.contains("role=\"alert\""), "{page}");
    }

    /// Regression test: the page named a tool that the person was no longer allowed to know.
    #[test]
    fn only_usable_tools_are_named() {
        let at = SystemTime::UNIX_EPOCH;
        let learned = ["push", "log"].map(|tool| {
            let kinds = BTreeMap::from([(EvidenceKind::Called, 3)]);
            LearnedTool { tool: ToolId::new("git", tool), kinds, callers: 1, since: at, newest: at }
        });
        let usable = BTreeSet::from([ToolId::new("git", "log")]);
        let own = Own { selects: true, learned: Some(learned.to_vec()), usable, is_stored: true, secrets: None, refused: None };
        let account = Account { person: "anna", form_token: "", known: &[], own: Some(own), done: "" };
        let page = Pages { base: "", texts: texts(&HeaderMap::new()) }.account(&account);
        assert!(page.contains("git/log") && !page.contains("git/push"), "{page}");
        assert!(page.contains("a tool that you can't use at present") && page.matches(">3<").count() == 2, "{page}");
    }

    /// Regression test: the page denied that anything was stored, and so that there is something to forget.
    #[test]
    fn nothing_was_learned_only_if_nothing_is_stored() {
        let pages = Pages { base: "", texts: texts(&HeaderMap::new()) };
        for (learned, is_stored, is_denied) in [(Some(vec![]), true, false), (Some(vec![]), false, true), (None, true, false)] {
            let own = Own { selects: true, learned, usable: BTreeSet::new(), is_stored, secrets: None, refused: None };
            let account = Account { person: "anna", form_token: "", known: &[], own: Some(own), done: "" };
            let page = pages.account(&account);
            assert_eq!(page.contains("Nothing was learned from you yet."), is_denied);
            assert_eq!(page.contains("is stored."), is_stored, "{page}");
        }
    }
}
