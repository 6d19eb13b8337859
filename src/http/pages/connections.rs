//! The pages on which people sign in to MCP servers, without scripts. Every text of a server or a person is escaped.

use std::sync::LazyLock;

use actix_web::http::header::{HeaderMap, HeaderValue};
use maud::{Markup, html};
use url::Url;

use crate::http::pages::dress::Page;
use crate::http::pages::texts::{Languages, declare};
use crate::service::access::connections::{ConnectionState, KnownConnection, PAGE};

declare! {
    language skip is_this_you sign_in_to sign_in_to_end see_and_change link_belongs_to link_belongs_to_end continue_ connections
    signed_in_as no_service connected not_connected sign_in_again connect disconnect signed_in_at permissions sign_in to_use to_use_end
    continue_there done done_text not_done outdated invalid_link invalid_link_text not_signed_in nothing_stored
    account saved removed_ forgotten selection selection_hint selection_on selection_off switch_on switch_off
    learned learned_hint learned_off learned_nothing learned_stored tool hidden_tool for_it against_it last_used more_tools
    forget forget_hint cancel
    secrets secrets_hint no_secrets secret_set secret_missing secret_unreadable secret_unused set_at new_value value_hint save remove
}

const FILES: [(&str, &str); 2] = [("en", include_str!("texts/en.toml")), ("de", include_str!("texts/de.toml"))];

static LANGUAGES: LazyLock<Languages<Texts>> = LazyLock::new(|| Languages::new(&FILES));

/// The texts in the language of the browser, if there are such, otherwise in English.
pub(in crate::http) fn texts(headers: &HeaderMap) -> &'static Texts {
    LANGUAGES.of(headers)
}

/// What all these pages need: the path below which browsers reach the service, and the texts.
#[derive(Clone, Copy)]
pub(in crate::http) struct Pages<'a> {
    pub(in crate::http) base: &'a str,
    pub(in crate::http) texts: &'a Texts,
}

/// The policy for these pages: the style sheet, and forms that go to this service.
pub(in crate::http) const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
);

/// A form with one button. `fields` are hidden.
pub(super) fn form(action: &str, fields: &[(&str, &str)], button: &str) -> Markup {
    html! {
        form.buttons method="post" action=(action) {
            @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
            button { (button) }
        }
    }
}

impl Pages<'_> {
    pub(super) fn page(&self, title: &str, body: &Markup) -> String {
        self.page_with(title, &html! {}, body)
    }

    fn page_with(&self, title: &str, more: &Markup, body: &Markup) -> String {
        let Texts { language, skip, .. } = self.texts;
        Page { base: self.base, language, of: "Toolsieve", title, skip }.with(more, &html! {}, body).into_string()
    }

    /// Asks the person to confirm that the link is theirs, before it is used. So a program that follows links doesn't use it up, and
    /// somebody who got another person's link sees that.
    pub(in crate::http) fn confirm(&self, person: &str, server: Option<&str>, link: &str) -> String {
        let texts = self.texts;
        let body = html! {
            @match server {
                Some(server) => p { (texts.sign_in_to) strong { (server) } (texts.sign_in_to_end) },
                None => p { (texts.see_and_change) },
            }
            p { (texts.link_belongs_to) strong { (person) } (texts.link_belongs_to_end) }
            (form(&format!("{}/ui/me/enter", self.base), &[("link", link)], &texts.continue_))
        };
        self.page(&texts.is_this_you, &body)
    }

    /// The services with their state.
    pub(super) fn services(&self, known: &[KnownConnection], form_token: &str) -> Markup {
        html! {
            @if known.is_empty() { p { (self.texts.no_service) } }
            @for connection in known { (self.item(connection, form_token)) }
        }
    }

    fn item(&self, connection: &KnownConnection, form_token: &str) -> Markup {
        let (texts, base) = (self.texts, self.base);
        let server = connection.server.as_str();
        let fields = [("csrf", form_token), ("server", server)];
        let (state, class, again) = match connection.state {
            ConnectionState::Ready => (&texts.connected, "good", &texts.sign_in_again),
            ConnectionState::SignIn => (&texts.not_connected, "quiet", &texts.connect),
        };
        let issuer = connection.issuer.as_ref().filter(|_| connection.state == ConnectionState::Ready);
        html! {
            section.change {
                h3 { (server) }
                p { span class=(class) { (state) } }
                @if let Some(reason) = &connection.reason { p.quiet { (reason) } }
                @if let Some(issuer) = issuer {
                    p.quiet { (texts.signed_in_at) (issuer) }
                    @if !connection.scopes.is_empty() { p.quiet { (texts.permissions) (connection.scopes.join(", ")) } }
                }
                div.buttons {
                    (form(&format!("{base}/ui/me/connect"), &fields, again))
                    @if connection.issuer.is_some() { (form(&format!("{base}/ui/me/disconnect"), &fields, &texts.disconnect)) }
                }
            }
        }
    }

    /// Sends the person to the authorization server. A redirect would be blocked, because the page's policy allows forms only to this
    /// service.
    pub(in crate::http) fn go_on(&self, server: &str, to: &Url) -> String {
        let (texts, address) = (self.texts, to.as_str());
        let refresh = html! { meta http-equiv="refresh" content={ "0; url=" (address) }; };
        let body = html! {
            p { (texts.to_use) strong { (server) } (texts.to_use_end) strong { (to.origin().ascii_serialization()) } }
            p { a href=(address) { (texts.continue_there) } }
        };
        self.page_with(&texts.sign_in, &refresh, &body)
    }

    /// Says that the person is connected to this server.
    pub(in crate::http) fn done(&self, server: &str) -> String {
        let text = self.texts.done_text.replace("{server}", server);
        self.message(&self.texts.done, &text, true)
    }

    /// Says what happened. `back` is set if there is a list to return to.
    pub(in crate::http) fn message(&self, title: &str, text: &str, back: bool) -> String {
        let body = html! {
            p { (text) }
            @if back { p { a href={ (self.base) (PAGE) } { (self.texts.account) } } }
        };
        self.page(title, &body)
    }
}

#[cfg(test)]
mod tests {
    use actix_web::http::header;

    use super::*;
    use crate::domain::catalog::tool::ServerName;
    use crate::http::pages::texts::check;

    #[test]
    fn every_language_has_every_text() {
        check::<Texts>(&FILES);
    }

    #[test]
    fn pages_are_in_the_language_of_the_browser() {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_LANGUAGE, HeaderValue::from_static("de-AT,de;q=0.9,en;q=0.5"));
        let page = Pages { base: "", texts: texts(&headers) }.done("jira");
        assert!(page.contains("<html lang=\"de\">") && page.contains("Sie sind mit jira verbunden."), "{page}");
    }

    #[test]
    fn texts_of_others_stay_texts() {
        let evil = "<script>alert(1)</script>\"'";
        let known = KnownConnection {
            server: ServerName::new(evil),
            state: ConnectionState::Ready,
            reason: Some(evil.to_owned()),
            issuer: Some(evil.to_owned()),
            scopes: vec![evil.to_owned()],
            connected_at: None,
        };
        let to = Url::parse("https://a.example/?q=\"><script>alert(1)</script>").unwrap();
        let pages = Pages { base: "", texts: texts(&HeaderMap::new()) };
        for page in [
            pages.confirm(evil, Some(evil), evil),
            pages.services(&[known], evil).into_string(),
            pages.go_on(evil, &to),
            pages.done(evil),
            pages.message(evil, evil, true),
        ] {
            assert!(!page.contains("<script") && !page.contains(evil), "{page}");
        }
    }
}
