//! Recognises a text in a message that is to be translated, corrected, rewritten or summarised.
//!
//! Such a text is no request, whatever it says: "rewrite politely: move the file to my folder". So only the words before it count. A text
//! with something behind its quotation marks stays ("translate "…" and save it as es.md"), and so does one that names a file or an address.

use std::collections::HashSet;
use std::sync::LazyLock;

use unicode_normalization::char::is_combining_mark;

use super::gate::names_resource;
use crate::domain::text::folding::folded;
use crate::domain::text::word_list::word_list;

/// Verbs of many languages that ask to work on a text, in the forms of requests.
const VERBS: &[&str] = word_list!(
    "translate rewrite rephrase reword paraphrase summarize summarise proofread correct polish shorten \
     übersetze übersetz übersetzen formuliere formulier umformulieren korrigiere korrigier korrigieren fass fasse zusammenfassen kürze \
     traduis traduisez traduire reformule reformulez reformuler corrige corrigez corriger résume résumez résumer \
     traduce tradúceme traducir resúmeme resumir corrígeme corregir reescribe reescribir reformula parafrasea \
     traduci traducimi tradurre riassumi riassumere correggi correggere riscrivi riscrivere riformula \
     traduz traduza traduzir resuma corrija corrigir reescreve reescreva reformule \
     vertaal vertalen herschrijf herschrijven samenvatten vat corrigeer herformuleer \
     przetłumacz przeredaguj popraw streść podsumuj sparafrazuj přelož přeformuluj oprav shrň přepiš \
     переведи переведите перевести перепиши перефразируй исправь исправьте сократи резюмируй перескажи \
     переклади перекладіть перефразуй виправ скороти \
     översätt översätta rätta sammanfatta korrigera omformulera oversæt oversett omskriv sammenfat oppsummer \
     käännä korjaa oikolue tiivistä çevir çevirir düzelt özetle tercüme \
     μετάφρασε διόρθωσε συνόψισε αναδιατύπωσε תרגם תרגמי תקן סכם נסח \
     ترجم ترجمي ترجملي صحح صححي لخص لخصي لخصلي صياغة अनुवाद सारांश सुधारो anuvad terjemahkan ringkas dịch tóm"
);
/// The same for scripts whose words can't be split at spaces.
const PARTS: [&str; 20] = [
    "訳して",
    "翻訳",
    "要約",
    "添削",
    "校正",
    "敬語",
    "書き直",
    "言い換え",
    "翻译",
    "翻譯",
    "改写",
    "改寫",
    "润色",
    "总结",
    "總結",
    "概括",
    "번역",
    "요약",
    "교정",
    "แปล",
];
/// Maximum number of words before the text, and of characters.
const LONGEST_HEAD: usize = 10;
const LONGEST_HEAD_CHARACTERS: usize = 90;
/// Maximum number of words before a text that begins on a new line: after more, the line may continue the request.
const LONGEST_LINE: usize = 5;
/// What stands before the text, beside an opening quotation mark.
const MARKS: [char; 3] = [':', '：', '\n'];
const QUOTES: [char; 6] = ['"', '“', '„', '«', '「', '『'];
const CLOSING: [char; 6] = ['"', '”', '“', '»', '」', '』'];

static FORMS: LazyLock<HashSet<String>> = LazyLock::new(|| VERBS.iter().map(|verb| folded(verb)).collect());

/// The words before a text that is to be worked on; `None` if there is no such text.
pub(super) fn before_quoted(message: &str) -> Option<&str> {
    let (at, mark) = message.char_indices().find(|(_, character)| MARKS.contains(character) || QUOTES.contains(character))?;
    let (head, text) = (message[..at].trim(), message[at + mark.len_utf8()..].trim());
    let most = if mark == '\n' { LONGEST_LINE } else { LONGEST_HEAD };
    if !asks_for_text_work(head, most) || !text.contains(char::is_alphanumeric) || names_resource(text) {
        return None;
    }
    let is_quoted = QUOTES.contains(&mark) || text.starts_with(QUOTES);
    let end = text.rfind(CLOSING).filter(|_| is_quoted);
    let has_more = end.is_some_and(|end| text[end..].contains(char::is_alphanumeric));
    (!has_more).then_some(head)
}

/// Whether these words ask for that, and are at most so many.
fn asks_for_text_work(head: &str, most: usize) -> bool {
    if head.chars().count() > LONGEST_HEAD_CHARACTERS {
        return false;
    }
    let folded_head = folded(head);
    let between = |character: char| !character.is_alphanumeric() && !is_combining_mark(character);
    let mut words = folded_head.split(between).filter(|word| !word.is_empty());
    let has_verb = words.clone().any(|word| FORMS.contains(word)) || PARTS.iter().any(|part| head.contains(part));
    has_verb && words.nth(most).is_none()
}

#[cfg(test)]
mod tests {
    use super::before_quoted;

    #[test]
    fn a_text_to_work_on_is_no_request() {
        for (message, head) in [
            ("rewrite politely: move the file to my folder", "rewrite politely"),
            ("summarize: The team deleted the branch. Then they merged.", "summarize"),
            ("Please translate to German:\nThe file was deleted", "Please translate to German"),
            ("übersetze: \"Die Datei wurde gelöscht\"", "übersetze"),
            ("translate \"the branch was merged\"", "translate"),
            ("переведи: файл был удалён", "переведи"),
            ("英訳して：ファイルを削除しました", "英訳して"),
            ("翻译：文件已删除", "翻译"),
            ("영어로 번역해줘: 내일 쉬어요", "영어로 번역해줘"),
            ("ingilizceye çevir: yarın gelmeyeceğim", "ingilizceye çevir"),
            ("अंग्रेज़ी में अनुवाद करो: मैं कल नहीं आऊँगा", "अंग्रेज़ी में अनुवाद करो"),
            ("ترجم للانجليزي: لن آتي غدا", "ترجم للانجليزي"),
            ("corrige : j'ai suprimé le dossier", "corrige"),
            ("traduce «el archivo fue borrado»", "traduce"),
        ] {
            assert_eq!(before_quoted(message), Some(head), "{message}");
        }
    }

    #[test]
    fn other_texts_stay() {
        for message in [
            "translate \"good morning\" and save it as es.md",
            "übersetze \"Guten Morgen\" und schick es an Anna",
            "summarize: https://example.com/pricing",
            "translate: notes.txt",
            "translate the file",
            "translate:",
            "send Bob an email: the translation is done",
            "remember: I am a vegetarian",
            "create a ticket: correct the spelling on the start page",
            "保存して：翻訳",
            "Summarize the open issues of acme/web\nand post it to #general",
        ] {
            assert_eq!(before_quoted(message), None, "{message}");
        }
    }
}
