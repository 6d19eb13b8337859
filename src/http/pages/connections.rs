//! The pages on which people sign in to MCP servers, without scripts. Every text of a server or a person is escaped.

use actix_web::http::header::HeaderValue;
use maud::{Markup, html};
use url::Url;

use crate::http::pages::dress::Page;
use crate::service::access::connections::{ConnectionState, KnownConnection, PAGE};

/// The policy for these pages: the style sheet, and forms that go to this service.
pub(in crate::http) const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
);

fn page(base: &str, title: &str, body: &Markup) -> String {
    page_with(base, title, &html! {}, body)
}

fn page_with(base: &str, title: &str, more: &Markup, body: &Markup) -> String {
    let page = Page { base, language: "en", of: "Toolsieve", title, skip: "Skip to the content" };
    page.with(more, &html! {}, body).into_string()
}

/// A form with one button. `fields` are hidden.
fn form(action: &str, fields: &[(&str, &str)], button: &str) -> Markup {
    html! {
        form.buttons method="post" action=(action) {
            @for (name, value) in fields { input type="hidden" name=(name) value=(value); }
            button { (button) }
        }
    }
}

/// Asks the person to confirm that the link is theirs, before it is used. So a program that follows links doesn't use it up, and
/// somebody who got another person's link sees that.
pub(in crate::http) fn confirm(base: &str, person: &str, server: Option<&str>, link: &str) -> String {
    let body = html! {
        @match server {
            Some(server) => p { "Sign in to " strong { (server) } ", so that Toolsieve can call its tools for you." },
            None => p { "See and change which services Toolsieve may use for you." },
        }
        p {
            "This link belongs to " strong { (person) } ". If that is not you, close this page: otherwise the other person would get access \
             to your account."
        }
        (form(&format!("{base}/ui/me/enter"), &[("link", link)], "Continue"))
    };
    page(base, "Is this you?", &body)
}

/// Lists the services with their state.
pub(in crate::http) fn list(base: &str, person: &str, known: &[KnownConnection], form_token: &str) -> String {
    let body = html! {
        p { "Signed in as " strong { (person) } }
        @if known.is_empty() { p { "There is no service to sign in to." } }
        @for connection in known { (item(base, connection, form_token)) }
    };
    page(base, "Your connections", &body)
}

fn item(base: &str, connection: &KnownConnection, form_token: &str) -> Markup {
    let server = connection.server.as_str();
    let fields = [("csrf", form_token), ("server", server)];
    let (state, class, again) = match connection.state {
        ConnectionState::Ready => ("connected", "good", "Sign in again"),
        ConnectionState::SignIn => ("not connected", "quiet", "Connect"),
    };
    let issuer = connection.issuer.as_ref().filter(|_| connection.state == ConnectionState::Ready);
    html! {
        section.change {
            h2 { (server) }
            p { span class=(class) { (state) } }
            @if let Some(reason) = &connection.reason { p.quiet { (reason) } }
            @if let Some(issuer) = issuer {
                p.quiet { "Signed in at " (issuer) }
                @if !connection.scopes.is_empty() { p.quiet { "Permissions: " (connection.scopes.join(", ")) } }
            }
            div.buttons {
                (form(&format!("{base}/ui/me/connect"), &fields, again))
                @if connection.issuer.is_some() { (form(&format!("{base}/ui/me/disconnect"), &fields, "Disconnect")) }
            }
        }
    }
}

/// Sends the person to the authorization server. A redirect would be blocked, because the page's policy allows forms only to this
/// service.
pub(in crate::http) fn go_on(base: &str, server: &str, to: &Url) -> String {
    let address = to.as_str();
    let refresh = html! { meta http-equiv="refresh" content={ "0; url=" (address) }; };
    let body = html! {
        p { "To use " strong { (server) } ", sign in at " strong { (to.origin().ascii_serialization()) } "." }
        p { a href=(address) { "Continue there" } }
    };
    page_with(base, "Sign in", &refresh, &body)
}

/// Says what happened. `back` is set if there is a list to return to.
pub(in crate::http) fn message(base: &str, title: &str, text: &str, back: bool) -> String {
    let body = html! {
        p { (text) }
        @if back { p { a href={ (base) (PAGE) } { "Your connections" } } }
    };
    page(base, title, &body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::catalog::tool::ServerName;

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
        for page in
            [confirm("", evil, Some(evil), evil), list("", evil, &[known], evil), go_on("", evil, &to), message("", evil, evil, true)]
        {
            assert!(!page.contains("<script") && !page.contains(evil), "{page}");
        }
    }
}
