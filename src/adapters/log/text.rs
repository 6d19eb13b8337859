//! Formats fields and messages for the text format, so that untrusted text can't break out of its line.
//!
//! Names of tools and users, paths, and output of servers are untrusted. They are escaped here, so that no log statement can
//! forget it.

use std::fmt::{self, Debug, Write};

use tracing::field::Field;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{Writer, debug_fn};

use crate::domain::catalog::hidden_text::is_unseen;

/// Formats `message name=value …`, like `tracing-subscriber`.
pub(super) fn fields() -> impl for<'writer> FormatFields<'writer> + Send + Sync + 'static {
    debug_fn(write_field).delimited(" ")
}

fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    let name = field.name();
    if name != "message" {
        let name = name.strip_prefix("r#").unwrap_or(name);
        if writer.has_ansi_escapes() {
            write!(writer, "\u{1b}[3m{name}\u{1b}[0m\u{1b}[2m=\u{1b}[0m")?;
        } else {
            write!(writer, "{name}=")?;
        }
    }
    write!(Escaped(writer), "{value:?}")
}

/// Escapes all characters that could end the line, move the cursor or hide text, as `\n`, `\u{1b}` etc.
struct Escaped<'a, 'w>(&'a mut Writer<'w>);

impl Write for Escaped<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut written = 0;
        for (position, character) in text.char_indices() {
            if !(' '..='~').contains(&character) && is_unseen(character) {
                self.0.write_str(&text[written..position])?;
                write!(self.0, "{}", character.escape_default())?;
                written = position + character.len_utf8();
            }
        }
        self.0.write_str(&text[written..])
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::fields;

    /// The log output of `work`.
    fn logged(is_colored: bool, work: impl FnOnce()) -> String {
        #[derive(Clone, Default)]
        struct Out(Arc<Mutex<Vec<u8>>>);
        impl std::io::Write for Out {
            fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
                self.0.lock().extend_from_slice(text);
                Ok(text.len())
            }
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
        let out = Out::default();
        let writer = out.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .fmt_fields(fields())
            .with_ansi(is_colored)
            .without_time()
            .with_target(false)
            .finish();
        tracing::subscriber::with_default(subscriber, work);
        let text = out.0.lock();
        String::from_utf8(text.clone()).unwrap()
    }

    #[test]
    fn what_others_wrote_makes_no_line_of_its_own_and_moves_no_cursor() {
        let name = "x\n2026-11-22T14:30:00Z  INFO API key revoked\r\u{1b}[2J\0\u{202e}\u{200b}\u{2028}\u{85}";
        let text = logged(false, || {
            tracing::info!(tool = %name, user = name, "called {name}");
            tracing::warn!(error = &std::io::Error::other(name) as &dyn std::error::Error, "grün 工具");
        });
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(
            !text.trim_end_matches('\n').chars().any(|c| "\r\n\0\u{1b}\u{202e}\u{200b}\u{2028}\u{85}".contains(c) && c != '\n'),
            "{text:?}"
        );
        let first = text.lines().next().unwrap();
        assert!(
            first.starts_with(r" INFO called x\n2026")
                && first.contains(r"tool=x\n2026-11-22T14:30:00Z  INFO API key revoked\r\u{1b}[2J\u{0}\u{202e}")
        );
        assert!(text.contains("WARN grün 工具 error=x\\n2026"), "what can be seen stays as it is: {text}");
    }

    #[test]
    fn a_line_looks_as_it_did() {
        let log = || tracing::info!(graceful = true, server = %"a b", text = "c\"d", "stopping");
        assert_eq!(logged(false, log), " INFO stopping graceful=true server=a b text=\"c\\\"d\"\n");
        let colored = logged(true, || tracing::info!(server = %"a\u{1b}[2J", "x"));
        assert!(colored.ends_with("x \u{1b}[3mserver\u{1b}[0m\u{1b}[2m=\u{1b}[0ma\\u{1b}[2J\n"), "{colored:?}");
    }
}
