//! Recognises a text in a message that is to be translated, rephrased or proofread.
//!
//! Such a text is no request, whatever it says: "rewrite politely: move the file to my folder". So only the words before it count. A text
//! with something behind its quotation marks stays ("translate "…" and save it as es.md"), and so does one that names a file or an address.

use unicode_normalization::char::is_combining_mark;

use super::resource::names_resource;
use crate::domain::text::word_list::word_list;

/// Verbs of many languages that always ask to work on a text, in the forms of requests and in lower case. Verbs that also ask to change,
/// to repair or to sum up other things are missing.
const VERBS: &[&str] = word_list!(
    "translate rephrase reword paraphrase proofread \
     übersetze übersetz übersetzen umformulieren \
     traduis traduisez traduire reformule reformulez reformuler \
     traduce tradúceme traducir parafrasea traduci traducimi tradurre traduz traduza traduzir \
     vertaal vertalen herformuleer przetłumacz sparafrazuj přelož přeformuluj \
     переведи переведите перефразируй переклади перекладіть перефразуй \
     översätt översätta oversæt oversett tercüme \
     μετάφρασε תרגם תרגמי ترجم ترجمي ترجملي अनुवाद anuvad terjemahkan"
);
/// Verbs that ask for it only together with one of [`MANNERS`].
const BROAD_VERBS: &[&str] = word_list!(
    "rewrite formuliere formulier çevir çevirir käännä \
     reescribe reescríbeme reescribir réécris réécrivez réécrire riscrivi riscrivimi riscrivere reescreve reescreva reescrever \
     herschrijf herschrijven przepisz перепиши перепишите перепишіть"
);
const MANNERS: &[&str] = word_list!(
    "politely formally nicely professionally \
     höflich höflicher freundlicher förmlicher formeller professioneller \
     educado educada educadamente amable amablemente cortés formalmente \
     poli polie poliment educato educata gentile gentilmente cortese \
     beleefd beleefder netjes netter formeel professioneel grzecznie grzeczniej uprzejmie uprzejmiej formalnie \
     вежливо вежливее официально официальнее формально ввічливо ввічливіше офіційно офіційніше \
     ingilizceye almancaya fransızcaya türkçeye ispanyolcaya italyancaya rusçaya arapçaya japoncaya \
     englanniksi ruotsiksi suomeksi saksaksi ranskaksi venäjäksi espanjaksi"
);
/// The same for scripts whose words can't be split at spaces: anywhere in the words before the text, and at their end.
const PARTS: [&str; 11] =
    ["訳して", "言い換えて", "翻译成", "翻译为", "翻译一下", "翻譯成", "改写成", "润色一下", "번역해", "แปลเป็น", "แปลให้"];
const LAST_PARTS: [&str; 10] = ["翻訳", "言い換え", "翻译", "翻譯", "改写", "改寫", "润色", "潤色", "번역", "แปล"];
/// Maximum number of characters before the text in such scripts.
const LONGEST_HEAD_OF_PARTS: usize = 14;
/// The words among which the verb must be.
const FIRST_WORDS: usize = 3;
/// Words that begin a further request after the text.
const MORE: &[&str] = word_list!(
    "send save post email mail schick schicke sende speichere poste envoie enregistre envía envia manda guarda invia salva stuur wyślij \
     отправь сохрани"
);
/// Maximum number of words before the text, and of characters.
const LONGEST_HEAD: usize = 10;
const LONGEST_HEAD_CHARACTERS: usize = 90;
/// Maximum number of words before a text that begins on a new line: after more, the line may continue the request.
const LONGEST_LINE: usize = 5;
/// What stands before the text, beside an opening quotation mark.
const MARKS: [char; 3] = [':', '：', '\n'];
const QUOTES: [char; 6] = ['"', '“', '„', '«', '「', '『'];
const CLOSING: [char; 6] = ['"', '”', '“', '»', '」', '』'];

/// The words before a text that is to be worked on; `None` if there is no such text.
pub(super) fn before_quoted(message: &str) -> Option<&str> {
    let (at, mark) = message.char_indices().find(|(_, character)| MARKS.contains(character) || QUOTES.contains(character))?;
    let (head, text) = (message[..at].trim(), message[at + mark.len_utf8()..].trim());
    let most = if mark == '\n' { LONGEST_LINE } else { LONGEST_HEAD };
    if !asks_for_text_work(head, most) || !text.contains(char::is_alphanumeric) || names_resource(text) {
        return None;
    }
    let is_quoted = QUOTES.contains(&mark) || text.starts_with(QUOTES);
    if !is_quoted && (orders_more(text) || mark == '\n' && text.starts_with(char::is_lowercase)) {
        return None;
    }
    let end = text.rfind(CLOSING).filter(|_| is_quoted);
    let has_more = end.is_some_and(|end| text[end..].contains(char::is_alphanumeric));
    (!has_more).then_some(head)
}

/// Whether these words ask for that, and are at most so many.
fn asks_for_text_work(head: &str, most: usize) -> bool {
    let length = head.chars().count();
    if length > LONGEST_HEAD_CHARACTERS {
        return false;
    }
    // A capital İ becomes two characters.
    let lower = head.to_lowercase().replace('\u{307}', "");
    let between = |character: char| !character.is_alphanumeric() && !is_combining_mark(character);
    let words: Vec<&str> = lower.split(between).filter(|word| !word.is_empty()).collect();
    let has_manner = words.iter().any(|word| MANNERS.contains(word));
    // German separates "umformulieren". In Portuguese, "um" is an article.
    let is_separated = |word: &str| word.starts_with("formulier") && words.contains(&"um");
    let is_verb = |word: &&str| VERBS.contains(word) || is_separated(word) || has_manner && BROAD_VERBS.contains(word);
    let has_part = || PARTS.iter().any(|part| head.contains(part)) || LAST_PARTS.iter().any(|part| head.ends_with(part));
    words.len() <= most && (words.iter().take(FIRST_WORDS).any(is_verb) || length <= LONGEST_HEAD_OF_PARTS && has_part())
}

/// Whether a later sentence of a text begins with a word that asks for more.
fn orders_more(text: &str) -> bool {
    let first = |sentence: &str| sentence.split_whitespace().next().map(str::to_lowercase);
    text.split(['.', '!', '?', '\n']).skip(1).filter_map(first).any(|word| MORE.contains(&word.as_str()))
}

#[cfg(test)]
mod tests {
    use super::before_quoted;

    #[test]
    fn a_text_to_work_on_is_no_request() {
        for (message, head) in [
            ("rewrite politely: move the file to my folder", "rewrite politely"),
            ("paraphrase: The team deleted the branch. Then they merged.", "paraphrase"),
            ("formuliere höflicher um: schick mir die Datei", "formuliere höflicher um"),
            ("Please translate to German:\nThe file was deleted", "Please translate to German"),
            ("übersetze: \"Die Datei wurde gelöscht\"", "übersetze"),
            ("translate \"the branch was merged\"", "translate"),
            ("переведи: файл был удалён", "переведи"),
            ("英訳して：ファイルを削除しました", "英訳して"),
            ("翻译：文件已删除", "翻译"),
            ("영어로 번역해줘: 내일 쉬어요", "영어로 번역해줘"),
            ("İngilizceye çevir: yarın gelmeyeceğim", "İngilizceye çevir"),
            ("अंग्रेज़ी में अनुवाद करो: मैं कल नहीं आऊँगा", "अंग्रेज़ी में अनुवाद करो"),
            ("ترجم للانجليزي: لن آتي غدا", "ترجم للانجليزي"),
            ("reformule : j'ai supprimé le dossier", "reformule"),
            ("แปลเป็นไทย: closed tomorrow", "แปลเป็นไทย"),
            ("traduce «el archivo fue borrado»", "traduce"),
            ("formuliere höflicher: lösch den Ordner", "formuliere höflicher"),
            ("formuliere diesen Satz um: lösch den Ordner", "formuliere diesen Satz um"),
            ("reescribe más educado: borra la carpeta", "reescribe más educado"),
            ("réécris de façon polie : supprime le dossier", "réécris de façon polie"),
            ("riscrivi in modo più cortese: cancella la cartella", "riscrivi in modo più cortese"),
            ("reescreve de forma educada: apaga a pasta", "reescreve de forma educada"),
            ("herschrijf beleefder: verwijder de map", "herschrijf beleefder"),
            ("przepisz uprzejmiej: usuń folder", "przepisz uprzejmiej"),
            ("перепиши вежливее: удали папку", "перепиши вежливее"),
            ("перепиши ввічливіше: видали теку", "перепиши ввічливіше"),
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
            "kurze Frage: wie viele offene Tickets habe ich?",
            "Ich bitte dich: lege einen Termin an",
            "send Tom: the meeting moved to 3pm",
            "Update my resume: add the new job",
            "Find Polish restaurants in Berlin: vegan ones",
            "Create an invoice plus VAT: 200 euros",
            "Yes, that's correct\nPlease send it to Anna",
            "Correct: delete both branches",
            "исправь баг: логин не работает",
            "corrige el error: no carga",
            "oprav chybu: přihlášení nefunguje",
            "แปลงสกุลเงิน: 100 USD",
            "会議の要約をSlackに送って：明日は休み",
            "summarize\nmy unread mails and post the result to #general",
            "translate to German\nmy notes of today",
            "create a ticket in translate: the button is missing",
            "创建翻译任务：首页",
            "dosyayı PDF'e çevir: rapor",
            "rewrite the login page: use React",
            "перепиши страницу входа: на React",
            "réécris le fichier : ajoute une ligne",
            "reescreve um teste: usa pytest",
            "riscrivi il profilo professionale: aggiungi il nuovo lavoro",
            "übersetze: wir kommen später. Schick das an Anna",
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
