//! Words that refer to something earlier ("close it then"), by language.
//!
//! The lists contain pronouns, demonstratives, and words for "there", "same", "again", "instead", "also" and "other". Articles and common
//! conjunctions are absent, even where they are also pronouns (German "die", Italian "la"), and so are polite forms (German "Sie"):
//! complete messages contain them too. Of the messages of 7 to 14 words in `assets/training/languages_more.jsonl`, 31 % of the English
//! ones refer by this rule, and at most 28 % of those in any other language.

use std::borrow::Cow;
use std::iter;

use unicode_segmentation::UnicodeSegmentation;

use crate::domain::text::language::Language;
use crate::domain::text::word_list::word_list;

/// Whether a message contains a word that refers to something earlier.
pub(crate) fn refers(message: &str) -> bool {
    let language = Language::of(message);
    let is_english = language.is_none_or(|language| language == Language::English);
    let listed = language.map_or(ANY_LATIN, words_of);
    message.unicode_word_indices().any(|(at, word)| {
        let word = in_lower_case(word);
        let is_listed = |part: &str| has(listed, part) || has(OTHER_SCRIPTS, part) || ends_with_pronoun(part, language);
        (is_english && has(ENGLISH, &word))
            || word.split(['\'', '’']).any(is_listed)
            || (message[..at].ends_with('-') && has_after_hyphen(listed, &word))
            || KOREAN_BEGINNINGS.iter().any(|beginning| word.starts_with(beginning))
    }) || if message.chars().any(|character| is_hiragana(character) || is_katakana(character)) {
        JAPANESE.iter().any(|word| has_japanese(message, word))
    } else {
        CHINESE.iter().any(|word| message.contains(word))
    }
}

fn in_lower_case(word: &str) -> Cow<'_, str> {
    if word.chars().any(char::is_uppercase) { word.to_lowercase().into() } else { word.into() }
}

fn is_hiragana(character: char) -> bool {
    ('ぁ'..='ゖ').contains(&character)
}

fn is_katakana(character: char) -> bool {
    ('ァ'..='ヺ').contains(&character)
}

fn has(list: &[&str], word: &str) -> bool {
    list.binary_search(&word).is_ok()
}

/// Whether a list has this word with a hyphen before it.
fn has_after_hyphen(list: &[&str], word: &str) -> bool {
    list.binary_search_by(|listed| listed.bytes().cmp(iter::once(b'-').chain(word.bytes()))).is_ok()
}

/// Whether a word ends with an object pronoun: an infinitive or a gerund (`enviarlo`, `mandarla`), a Spanish imperative, which then has an
/// accent (`búscala`), or two pronouns (`mandaglielo`). In Arabic, any word may. `word` is in lower case.
fn ends_with_pronoun(word: &str, language: Option<Language>) -> bool {
    let stems = |pronouns: &'static [&str]| pronouns.iter().filter_map(|pronoun| word.strip_suffix(pronoun));
    // Shorter words are nouns: perla, charlas.
    let is_infinitive = |stem: &str| stem.chars().count() >= 5 && ["ar", "er", "ir"].iter().any(|ending| stem.ends_with(ending));
    match language {
        Some(Language::Spanish) => stems(&["lo", "la", "los", "las"]).any(|stem| {
            let is_gerund = ["ando", "ándo", "iendo", "iéndo"].iter().any(|ending| stem.ends_with(ending));
            is_infinitive(stem) || is_gerund || (stem.ends_with(['a', 'e']) && stem.contains(['á', 'é', 'í', 'ó', 'ú']))
        }),
        Some(Language::Italian) => stems(&["lo", "la", "li", "le"]).any(|stem| is_infinitive(stem) || stem.ends_with("glie")),
        _ => word.strip_suffix("ها").is_some_and(|stem| stem.chars().count() >= 3),
    }
}

/// Whether a Japanese word occurs where a word may begin: not within one in Hiragana (`みその`, `どこの`).
fn has_japanese(message: &str, word: &str) -> bool {
    message.match_indices(word).any(|(at, _)| {
        let previous = message[..at].chars().next_back();
        let begins = previous.is_none_or(|previous| !is_hiragana(previous) || PARTICLE_ENDS.contains(previous));
        begins && !message[at..].starts_with("それぞれ")
    })
}

fn words_of(language: Language) -> &'static [&'static str] {
    match language {
        Language::English => &[],
        Language::German => GERMAN,
        Language::Dutch => DUTCH,
        Language::Swedish => SWEDISH,
        Language::Danish => DANISH,
        Language::Norwegian => NORWEGIAN,
        Language::French => FRENCH,
        Language::Spanish => SPANISH,
        Language::Portuguese => PORTUGUESE,
        Language::Italian => ITALIAN,
        Language::Romanian => ROMANIAN,
        Language::Polish => POLISH,
        Language::Czech => CZECH,
        Language::Finnish => FINNISH,
        Language::Hungarian => HUNGARIAN,
        Language::Turkish => TURKISH,
    }
}

const ENGLISH: &[&str] = word_list!(
    "\
    it its that those this these them they he him she her there one ones same too also again instead then other another both else"
);

/// For messages whose language is unknown: words that belong to one language only, and Hindi in Latin letters. None is English.
const ANY_LATIN: &[&str] = word_list!(
    "\
    ihn dorthin davon dafür darauf darüber nochmal stattdessen diesen dieses diesem dasselbe dieselbe ervan ermee eraan eraf erbij daarvan \
    daarmee dezelfde hetzelfde opnieuw nogmaals honom henne också istället samma hende også igjen ça cela celui ceux celles aquel aquello \
    allí ahí también tambien entonces isso disso nisso aquilo daquele desse nesse também aí questo questa questi queste quello quella \
    quelli quelle invece acesta aceasta acestea acolo jemu jego jej niego niej nią ją tego tej tych tę tym tamten też także znowu ponownie \
    jeho jejich také znovu tohle tento sitä siitä siihen niitä tämä tämän tätä tästä uudelleen myös azt ezt azok ezek azokat ezeket róla \
    újra onu onun ondan onunla onları onlara bunu buna bunun bundan bunları şunu oraya oradan orada aynı yine tekrar isko usko iska uska \
    iski uski iske uske wahan dobara"
);

const GERMAN: &[&str] = word_list!(
    "\
    es ihn ihm dies diese diesen dieser dieses diesem dort dorthin davon dafür dafuer dazu darin darauf daran daraus darüber darueber \
    dahin nochmal nochmals erneut stattdessen ebenfalls dann derselbe dieselbe dasselbe dieselben denselben demselben beide beiden andere \
    anderen anderer anderes anderem auch"
);

const DUTCH: &[&str] = word_list!(
    "\
    hem hij ze zij hen dit deze daar daarvan daarmee daarin daarop daaraan daarvoor daarna daarbij daarheen ervan ermee erin erop eraan \
    ervoor erbij eraf eruit dezelfde hetzelfde opnieuw nogmaals ook andere beide"
);

const SWEDISH: &[&str] = word_list!(
    "\
    han hon honom henne dem denna detta dessa dess dit därifrån därefter också igen istället samma andra båda"
);

const DANISH: &[&str] = word_list!(
    "\
    han hun ham hende dem denne dette disse dens dets derhen derfra derefter også igen stedet samme andre begge"
);

const NORWEGIAN: &[&str] = word_list!(
    "\
    han hun ham henne dem denne dette disse dit derfra deretter også igjen isteden istedenfor samme andre begge"
);

/// Those with a hyphen follow a verb: `envoie-le`.
const FRENCH: &[&str] = word_list!(
    "\
    lui leur leurs elle elles ils ça ca cela ceci celui celle ceux celles cet cette ces là dedans dessus plutôt plutot aussi autre autres \
    -le -la -les -lui -leur -en -y"
);

const SPANISH: &[&str] = word_list!(
    "\
    él ella ellos ellas este ese esa esos esas eso esto aquel aquella aquello aquellos aquellas allí alli allá ahí ahi misma mismos mismas \
    también tambien otro otra otros otras entonces ambos ambas"
);

const PORTUGUESE: &[&str] = word_list!(
    "\
    ele ela eles elas dele dela deles delas nele nela isso isto aquilo disso disto nisso nisto esse essa esses essas este estes desse dessa \
    desses dessas nesse nessa nesses nessas aquele aquela aqueles aquelas daquele daquela lá ali aí também tambem mesma mesmos mesmas outro \
    outra outros outras então entao ambos ambas lhe lhes novamente -lo -la -los -las -lhe -lhes -o -os"
);

const ITALIAN: &[&str] = word_list!(
    "\
    lui lei loro esso essa questo questa questi queste quello quella quelli quelle quel quei ciò lì là stesso stessa stessi stesse anche \
    altro altra altri altre invece allora entrambi entrambe"
);

const ROMANIAN: &[&str] = word_list!(
    "\
    el ele lor asta ăsta ăla aia acesta aceasta acestea aceștia acela aceea acelea acolo același aceeași altul alta altele ambele ambii -l \
    -le"
);

const POLISH: &[&str] = word_list!(
    "\
    go ją jej jego jemu mu niego niej nim nią nich im ich on ona oni one ten tego tej temu tym tych te tę tamten tamta tamtą tamto tamte tam \
    też także znowu znów ponownie wtedy inny inna inne innego innej inną oba obie"
);

const CZECH: &[&str] = word_list!(
    "\
    ho jí jej jeho jejich mu ním ní nich jim on ona oni ten tento tato toto tohoto této tuto tyto těchto tenhle tahle tohle tyhle tam také \
    taky znovu stejný stejná stejné stejnou jiný jiná jiné jinou oba obě"
);

const FINNISH: &[&str] = word_list!(
    "\
    se sen sitä siitä siinä siihen sille siltä sillä ne niitä niistä niihin niille hän hänet hänelle häntä heille tämä tämän tätä tästä \
    tähän tässä tuo tuon tuota sinne sieltä siellä myös taas uudestaan uudelleen sama saman samaa samat molemmat"
);

const HUNGARIAN: &[&str] = word_list!(
    "\
    azt ezt azok ezek azokat ezeket őt neki nekik ott oda onnan róla róluk belőle benne hozzá vele velük rajta arra erre ebben abban ehhez \
    ahhoz ebből abból újra megint szintén ugyanaz ugyanazt helyette akkor mindkettő"
);

const TURKISH: &[&str] = word_list!(
    "\
    o onu ona onun ondan onda onunla onlar onları onlara onların bu bunu buna bunun bundan bunlar bunları bunlara şunu şuna şunun şundan \
    şunları oraya orada oradan orası aynı aynısı yine tekrar yerine diğer diğeri diğerini başka öyle"
);

/// Words in Cyrillic (Russian, Ukrainian), Arabic, Devanagari (Hindi) and Hangul.
const OTHER_SCRIPTS: &[&str] = word_list!(
    "\
    это этот эту эта эти этого этой этому этим этих его её ее ей ему им их он она они оно нём нем ней него неё нее ними там туда оттуда тот \
    ту те того той тех тогда тоже также снова опять другой другую другие другое другого оба обе \
    це цей цю ця ці цього цієї цьому цим цих його її їй йому їм їх він вона вони воно ньому неї нього туди звідти тоді теж знову інший іншу \
    інші інше обидва обидві тієї тих \
    هذا هذه هذي ذلك تلك ذاك هناك هنالك هؤلاء هو هي هم له لها لهم منه منها منهم فيه فيها عليه عليها عليهم به بها بهم عنه عنها عنهم إليه \
    إليها معه معها معهم أيضا أيضاً ايضا كذلك نفسه نفسها نفس مجددا أخرى كمان برضه برضو ده دي \
    इसे उसे इसको उसको इन्हें उन्हें इनको उनको वह वो वे यह ये इसका इसकी इसके उसका उसकी उसके उनका उनकी उनके इनका इनकी इनके इसमें उसमें इससे \
    उससे उनसे इस उस इन उन वहाँ वहां वही वहीं यही उसी इसी भी फिर दोबारा दुबारा दूसरा दूसरी दूसरे \
    그 그게 그건 이게 이건 그럼 그러면 그중 다시 또 아까 똑같이 대신 그대로"
);

/// Particles follow these within the word.
const KOREAN_BEGINNINGS: &[&str] = word_list!("그거 그것 그걸 이거 이것 이걸 저거 거기 그녀 그들 걔");

/// Wherever they occur. 这 and 那 alone are absent, because they mostly point to what the same message names.
const CHINESE: &[&str] = word_list!(
    "\
    它 她 他们 他們 给他 給他 把他 让他 讓他 跟他 那就 那再 那边 那邊 那儿 那些 这些 這些 这样 這樣 刚才 剛才 同样 同樣 一样 一樣 另外 再 也"
);

const JAPANESE: &[&str] = word_list!("それ その そこ そちら そっち この さっき 先ほど もう一度 もう一回 同じ 代わり 彼");

/// Hiragana with which a particle or a conjunction before a Japanese word ends.
const PARTICLE_ENDS: &str = "をにでがはともてらあ";

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use unicode_segmentation::UnicodeSegmentation;

    use super::{ENGLISH, has, refers};

    const REFER: [&str; 36] = [
        "Can you assign it to Mira and set it to high, please?",
        "put the one from yesterday back in the list please",
        "Kannst du es bitte Mira zuweisen und auf hoch setzen?",
        "und wie sieht das Wetter am Wochenende dort aus?",
        "schick ihm bitte gleich noch die Rechnung von Mai",
        "kun je hem ook naar mijn collega in Utrecht sturen",
        "zet er morgen een herinnering voor, ik vergeet hetzelfde altijd",
        "kan du skicka den till honom i morgon bitti",
        "kan du sende det til hende i morgen tidlig",
        "kan du sende det til henne i morgen tidlig",
        "tu peux lui envoyer un message pour demain matin",
        "au fait la porte d'entrée, verrouille-la, je suis déjà parti",
        "ahora dímelo como para contárselo a mi abuela",
        "y puedes enviarlo también a mi hermana por favor",
        "pode mandar isso para a Ana antes do almoço",
        "você pode enviá-lo para a equipe de vendas hoje",
        "e puoi mandarlo anche a mio fratello per favore",
        "e com'è il tempo lì nel fine settimana",
        "poți să îi trimiți asta și lui Andrei mâine",
        "możesz go przesunąć na piątek po południu proszę",
        "můžeš ho prosím přesunout na pátek odpoledne",
        "voitko siirtää sen perjantaille ja kertoa minulle",
        "át tudod tenni azt is péntek délutánra kérlek",
        "onu cuma gününe alıp bana da haber verir misin",
        "internet naklini de yaz oraya bir de saat ekle",
        "а можешь отправить его на почту директору до вечера",
        "а можеш надіслати його на пошту директору до вечора",
        "هل يمكنك أن ترسله إلى أحمد مع نفس الملاحظة اليوم",
        "क्या आप उसे कल शाम तक टीम को भेज सकते हैं",
        "poori details nikalo uski, kyun atka hai",
        "それをメールで田中さんにも届けておいてほしいです",
        "じゃあその18件のログを中身まで詳しく見たいです",
        "把它发给王总，顺便告诉他我们周五下午三点开会",
        "先不要发，等老大回来以后再放一遍给大家听听看",
        "그거 고객한테 메일로 보내주고 나한테도 알려줘",
        "거기에서 내일 아침 회의 일정도 하나 만들어줘",
    ];

    const COMPLETE: [&str; 28] = [
        "Create an issue for the login bug in the web project",
        "It's raining cats and dogs in the city of Oslo today",
        "Erstelle ein Ticket für den Fehler beim Anmelden im Webprojekt",
        "Können Sie mir die Rechnungen von Mai als Tabelle schicken?",
        "Also, welche Termine habe ich morgen im Büro in Köln?",
        "maak een taak aan voor de kapotte printer op kantoor",
        "skapa ett ärende för skrivaren på kontoret i Lund",
        "opret en opgave om printeren på kontoret i Aarhus",
        "crée un ticket pour le bug de connexion du site",
        "est-ce que la facture de mai est déjà payée",
        "crea un ticket para el fallo de inicio de sesión",
        "¿Qué película o artículo he guardado en la lista de la semana?",
        "he visto las perlas y las charlas de Carlos en la lista",
        "crie uma tarefa para o erro de login do site",
        "crea un ticket per il problema di accesso al sito",
        "le perle della collezione sono nella cartella delle foto",
        "utwórz zgłoszenie dla błędu logowania w projekcie sklepu",
        "vytvoř úkol pro chybu přihlášení v projektu obchodu",
        "luo tehtävä verkkokaupan kirjautumisen virheestä ja liitä loki",
        "yarın saat dokuzda her ekip ve oda için toplantı daveti gönder lütfen",
        "создай задачу про ошибку входа в проекте магазина",
        "створи завдання про помилку входу в проєкті крамниці",
        "أنشئ تذكرة عن خطأ تسجيل الدخول في مشروع المتجر",
        "दुकान के प्रोजेक्ट में लॉगिन की गड़बड़ी का टिकट बनाओ",
        "ウェブのログイン不具合を再現するチケットを作成してください",
        "柚子みそのレシピをきのこの鍋のフォルダに保存してください",
        "为网站登录失败的问题在商店项目里新建一个工单",
        "웹 프로젝트의 로그인 오류에 대한 티켓을 만들어줘",
    ];

    #[test]
    fn messages_refer_in_many_languages() {
        let missed: Vec<&str> = REFER.into_iter().filter(|message| !refers(message)).collect();
        assert!(missed.is_empty(), "{missed:#?}");
    }

    #[test]
    fn complete_messages_refer_to_nothing() {
        let wrong: Vec<&str> = COMPLETE.into_iter().filter(|message| refers(message)).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    /// The words of other languages change nothing for English messages, even if these are too short for a language.
    #[test]
    fn english_messages_refer_by_english_words_alone() {
        let messages = include_str!("../../../../assets/training/languages_more.jsonl").lines();
        let messages = messages.map(|line| serde_json::from_str::<Value>(line).unwrap()).filter(|message| message["lang"] == "en");
        let mut count = 0;
        for message in messages {
            let text = message["query"].as_str().unwrap();
            let is_listed = text.unicode_words().any(|word| has(ENGLISH, &word.to_lowercase()));
            assert_eq!(refers(text), is_listed, "{text}");
            count += 1;
        }
        assert!(count > 800, "{count}");
    }
}
