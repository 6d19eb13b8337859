//! The passage of a server to embed: its own description and the names of its tools.
//!
//! A task for several tools is about a server before it is about a tool. The right servers stand out in a comparison with
//! such a passage, and a fraction of that match is added to the scores of their tools.

use super::dense::{PASSAGE_CHARACTERS, cap, join, squeeze};
use crate::domain::text::words::split_identifier;

/// Characters of the server's own description; the rest of the passage is for its tools' names.
pub(crate) const ABOUT_CHARACTERS: usize = 250;

/// The texts of one server.
#[derive(Debug, Clone, Default)]
pub struct ServerText<'a> {
    /// Name of the server as configured, for instance `google-calendar`.
    pub name: &'a str,
    /// The server's own title, if any.
    pub title: Option<&'a str>,
    /// The server's instructions, possibly Markdown of many lines.
    pub instructions: Option<&'a str>,
    /// Names of its tools, in catalog order.
    pub tools: Vec<&'a str>,
}

/// The passage of a server: `name words: title. instructions tool words, tool words, …`.
pub fn server_passage(server: &ServerText<'_>) -> String {
    let texts = [server.title, server.instructions].into_iter().flatten().map(str::trim).filter(|text| !text.is_empty());
    let about = squeeze(&texts.collect::<Vec<_>>().join(". "), ABOUT_CHARACTERS);
    let names: Vec<String> = server.tools.iter().map(|name| split_identifier(name)).filter(|name| !name.is_empty()).collect();
    let body = format!("{about} {}", names.join(", "));
    cap(&join(&[&split_identifier(server.name)], body.trim()), PASSAGE_CHARACTERS)
}

#[cfg(test)]
mod tests {
    use super::{ServerText, server_passage};

    #[test]
    fn name_texts_and_names_of_tools_follow_each_other() {
        let server = ServerText {
            name: "google-calendar",
            title: Some("Calendar"),
            instructions: Some("Keeps  your\n\nappointments."),
            tools: vec!["list-events", "createEvent", "__", "get_HTTPStatus"],
        };
        assert_eq!(
            server_passage(&server),
            "google calendar: Calendar. Keeps your appointments. list events, create Event, get HTTP Status"
        );
    }

    #[test]
    fn what_is_not_there_leaves_no_gap() {
        let bare = ServerText { name: "time", tools: vec!["now"], ..ServerText::default() };
        assert_eq!(server_passage(&bare), "time: now");
        let blank = ServerText { title: Some(" "), instructions: Some("\n"), ..bare.clone() };
        assert_eq!(server_passage(&blank), "time: now");
        assert_eq!(server_passage(&ServerText { tools: Vec::new(), title: Some("Clock"), ..bare }), "time: Clock");
    }

    #[test]
    fn long_instructions_leave_room_for_names_and_the_end_is_a_word() {
        let instructions = "chapter ".repeat(100);
        let names: Vec<String> = (0..200).map(|number| format!("read_page_{number}")).collect();
        let server = ServerText {
            name: "books",
            instructions: Some(&instructions),
            tools: names.iter().map(String::as_str).collect(),
            ..ServerText::default()
        };
        let passage = server_passage(&server);
        // At most 31 words of eight characters, with spaces, fit into 250.
        assert_eq!(passage.matches("chapter").count(), 31);
        assert!(passage.contains("chapter read page 0, read page 1,"), "{passage}");
        let length = passage.chars().count();
        assert!((580..=600).contains(&length), "{length}");
        let last = passage.rsplit(' ').next().unwrap();
        assert!(["read", "page"].contains(&last) || last.ends_with(',') || last.parse::<u32>().is_ok(), "{passage}");
    }
}
