//! The pages on which people sign in to MCP servers: plain HTML without scripts. Every text of a server or a person is escaped.

use std::fmt::Write as _;

use actix_web::http::header::HeaderValue;
use url::Url;

use crate::http::pages::plot::escape;
use crate::service::access::connections::{ConnectionState, KnownConnection};

/// The policy for these pages: their own style, and forms that go to this service.
pub(in crate::http) const POLICY: HeaderValue =
    HeaderValue::from_static("default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'");

const STYLE: &str = "
:root{color-scheme:light dark;--ink:#1d2433;--paper:#fff;--faint:#d9dee8;--key:#2856b8}
@media(prefers-color-scheme:dark){:root{--ink:#e6e9f0;--paper:#14171f;--faint:#333a4a;--key:#8fb0ff}}
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:44rem;margin:2rem auto;padding:0 1rem}
ul{list-style:none;padding:0}li{border-top:1px solid var(--faint);padding:.8rem 0;overflow-wrap:anywhere}
form{display:inline}button{font:inherit;padding:.3rem 1rem;border:1px solid var(--key);border-radius:.4rem;background:none;color:var(--key);cursor:pointer}
a{color:var(--key)}small{opacity:.75}
";

fn page(title: &str, body: &str, head: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
         content=\"width=device-width, initial-scale=1\"><title>{title}</title>{head}<style>{STYLE}</style></head>\n\
         <body><main><h1>{title}</h1>\n{body}</main></body></html>\n",
        title = escape(title)
    )
}

/// A form with one button. `fields` are hidden.
fn form(action: &str, fields: &[(&str, &str)], button: &str) -> String {
    let mut form = format!("<form method=\"post\" action=\"{}\">", escape(action));
    for (name, value) in fields {
        // Writing to a string can't fail.
        let _ = write!(form, "<input type=\"hidden\" name=\"{}\" value=\"{}\">", escape(name), escape(value));
    }
    let _ = write!(form, "<button>{}</button></form>", escape(button));
    form
}

/// Asks the person to confirm that the link is theirs, before it is used. So a program that follows links doesn't use it up, and
/// somebody who got another person's link sees that.
pub(in crate::http) fn confirm(base: &str, person: &str, server: Option<&str>, link: &str) -> String {
    let purpose = match server {
        Some(server) => format!("Sign in to <strong>{}</strong>, so that Toolsieve can call its tools for you.", escape(server)),
        None => "See and change which services Toolsieve may use for you.".to_owned(),
    };
    let body = format!(
        "<p>{purpose}</p>\n<p>This link belongs to <strong>{}</strong>. If that is not you, close this page: otherwise the other person \
         would get access to your account.</p>\n<p>{}</p>\n",
        escape(person),
        form(&format!("{base}/ui/me/enter"), &[("link", link)], "Continue")
    );
    page("Is this you?", &body, "")
}

/// Lists the services with their state.
pub(in crate::http) fn list(base: &str, person: &str, known: &[KnownConnection], csrf: &str) -> String {
    let mut items = String::new();
    for connection in known {
        let server = connection.server.as_str();
        let fields = [("csrf", csrf), ("server", server)];
        let (state, again) = match connection.state {
            ConnectionState::Ready => ("connected", "Sign in again"),
            ConnectionState::SignIn => ("not connected", "Connect"),
        };
        let mut details = String::new();
        if let Some(reason) = &connection.reason {
            let _ = write!(details, "<br><small>{}</small>", escape(reason));
        }
        if let (ConnectionState::Ready, Some(issuer)) = (connection.state, &connection.issuer) {
            let _ = write!(details, "<br><small>Signed in at {}</small>", escape(issuer));
            if !connection.scopes.is_empty() {
                let _ = write!(details, "<br><small>Permissions: {}</small>", escape(&connection.scopes.join(", ")));
            }
        }
        let mut forms = form(&format!("{base}/ui/me/connect"), &fields, again);
        if connection.issuer.is_some() {
            forms.push(' ');
            forms.push_str(&form(&format!("{base}/ui/me/disconnect"), &fields, "Disconnect"));
        }
        let _ = writeln!(items, "<li><strong>{}</strong>: {state}{details}<br>{forms}</li>", escape(server));
    }
    let list = if items.is_empty() { "<p>There is no service to sign in to.</p>".to_owned() } else { format!("<ul>\n{items}</ul>") };
    page("Your connections", &format!("<p>Signed in as <strong>{}</strong></p>\n{list}\n", escape(person)), "")
}

/// Sends the person to the authorization server. A redirect would be blocked, because the page's policy allows forms only to this
/// service.
pub(in crate::http) fn go_on(server: &str, to: &Url) -> String {
    let address = escape(to.as_str());
    let head = format!("<meta http-equiv=\"refresh\" content=\"0; url={address}\">");
    let body = format!(
        "<p>To use <strong>{}</strong>, sign in at <strong>{}</strong>.</p>\n<p><a href=\"{address}\">Continue there</a></p>\n",
        escape(server),
        escape(&to.origin().ascii_serialization())
    );
    page("Sign in", &body, &head)
}

/// Says what happened. `back` is set if there is a list to return to.
pub(in crate::http) fn message(base: &str, title: &str, text: &str, back: bool) -> String {
    let back = if back { format!("<p><a href=\"{}\">Your connections</a></p>\n", escape(&format!("{base}/ui/me"))) } else { String::new() };
    page(title, &format!("<p>{}</p>\n{back}", escape(text)), "")
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
        for page in [confirm("", evil, Some(evil), evil), list("", evil, &[known], evil), go_on(evil, &to), message("", evil, evil, true)] {
            assert!(!page.contains("<script") && !page.contains(evil), "{page}");
        }
    }
}
