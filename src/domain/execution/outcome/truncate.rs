//! Truncates results that exceed the configured limit and adds a notice.

use crate::domain::execution::outcome::Part;
use crate::domain::text::json::{self, quoted};

/// The first files and links of a result are never dropped.
const FIRST_FILES: usize = 10;

/// The maximum size of a result's text, and the name of the setting.
#[derive(Clone, Copy, Debug)]
pub struct TextLimit<'a> {
    pub bytes: usize,
    /// The setting's name, which the notice mentions.
    pub setting: &'a str,
}

impl TextLimit<'_> {
    /// Truncates the part that exceeds the limit and drops later texts. Images stay. Descriptions of files and links are dropped as a whole
    /// where they are too long together.
    pub(super) fn apply<'p>(&self, mut parts: Vec<Part<'p>>) -> Vec<Part<'p>> {
        let dropped = self.drop_files(&mut parts);
        let mut parts = self.cut_texts(parts);
        if dropped > 0 {
            parts.push(Part::Json(quoted(&self.notice_of_files(dropped)).into()));
        }
        parts
    }

    /// Returns the number of dropped descriptions.
    fn drop_files(&self, parts: &mut Vec<Part<'_>>) -> usize {
        let before = parts.len();
        let (mut files, mut bytes) = (0, 0);
        parts.retain(|part| {
            let Part::File(text) = part else { return true };
            files += 1;
            bytes += text.len();
            files <= FIRST_FILES || bytes <= self.bytes
        });
        before - parts.len()
    }

    fn cut_texts<'p>(&self, parts: Vec<Part<'p>>) -> Vec<Part<'p>> {
        let written: usize = parts.iter().map(|part| if let Part::Json(text) = part { text.len() } else { 0 }).sum();
        if written <= self.bytes {
            return parts;
        }
        // The size of a string is that of its content, the size of other values that of their JSON.
        let words = |part: &Part<'_>| match part {
            Part::Json(text) => json::text(text).unwrap_or_else(|| text.clone().into_owned()),
            Part::Image(_) | Part::Binary(_) | Part::File(_) => String::new(),
        };
        let parts: Vec<(String, Part<'p>)> = parts.into_iter().map(|part| (words(&part), part)).collect();
        let total: usize = parts.iter().map(|(words, _)| words.len()).sum();
        if total <= self.bytes {
            return parts.into_iter().map(|(_, part)| part).collect();
        }
        let is_alone = parts.len() == 1;
        let (mut kept, mut is_full, mut out) = (0, false, Vec::with_capacity(parts.len() + 1));
        for (words, part) in parts {
            let fits = kept + words.len() <= self.bytes;
            if words.is_empty() || (fits && !is_full) {
                kept += words.len();
                out.push(part);
            } else if !is_full {
                is_full = true;
                let cut = &words[..words.floor_char_boundary(self.bytes - kept)];
                kept += cut.len();
                let text = if is_alone { format!("{cut}\n\n{}", self.notice(kept, total)) } else { cut.to_owned() };
                out.push(Part::Json(quoted(&text).into()));
            }
        }
        if !is_alone {
            out.push(Part::Json(quoted(&self.notice(kept, total)).into()));
        }
        out
    }

    fn notice_of_files(&self, dropped: usize) -> String {
        format!(
            "[Cut by Toolsieve: {dropped} files and links are left out, the limit is {} bytes ({}). For less, ask the tool for a part: a \
             filter, a range, a page. For more, an administrator can raise the limit.]",
            self.bytes, self.setting
        )
    }

    fn notice(&self, kept: usize, total: usize) -> String {
        format!(
            "[Cut by Toolsieve: {} of {total} bytes are left out, the limit is {} ({}). For less, ask the tool for a part: a \
             filter, a range, a page. For more, an administrator can raise the limit.]",
            total - kept,
            self.bytes,
            self.setting
        )
    }
}
