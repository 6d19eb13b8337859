//! The skeleton of the pages for browsers, with their style sheet.

use maud::{DOCTYPE, Markup, html};

/// The style sheet and the icon, which the console serves.
pub(in crate::http) const STYLE_SHEET: &str = "/ui/static/style.css";
pub(in crate::http) const ICON: &str = "/ui/static/icon.svg";

/// A page. `base` is the path below which browsers reach the service.
pub(in crate::http) struct Page<'a> {
    pub(in crate::http) base: &'a str,
    pub(in crate::http) language: &'a str,
    /// The name of the whole, for the window and the page's head.
    pub(in crate::http) of: &'a str,
    pub(in crate::http) title: &'a str,
    /// The link to the contents, for people who use the keyboard.
    pub(in crate::http) skip: &'a str,
}

impl Page<'_> {
    /// The whole document. `more` is added to its head, and `navigation` to the head of the page.
    pub(in crate::http) fn with(&self, more: &Markup, navigation: &Markup, body: &Markup) -> Markup {
        let Self { base, language, of, title, skip } = self;
        html! {
            (DOCTYPE)
            html lang=(language) {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    title { (title) " – " (of) }
                    link rel="stylesheet" href={ (base) (STYLE_SHEET) };
                    link rel="icon" type="image/svg+xml" href={ (base) (ICON) };
                    (more)
                }
                body {
                    header { a.skip href="#content" { (skip) } strong { (of) } (navigation) }
                    main #content { h1 { (title) } (body) }
                }
            }
        }
    }
}
