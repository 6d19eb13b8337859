//! The language of a text, as far as words depend on it: function words, which carry no meaning, and the stem of a word.
//!
//! A script with one stemmer needs no detection. The language of Latin text is detected by its function words, because texts here
//! are too short for statistics over letters. In doubt, a text has no language, because a wrong stem is worse than none.
//!
//! Function words are stored without accents. The lists contain articles, prepositions, pronouns, auxiliary verbs, and words of
//! requests ("please"). Words that name what tools do are absent.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use ahash::RandomState;
use rust_stemmers::{Algorithm, Stemmer};

use super::folding::fold;

/// A language with the Latin script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    English,
    German,
    Dutch,
    Swedish,
    Danish,
    Norwegian,
    French,
    Spanish,
    Portuguese,
    Italian,
    Romanian,
    Polish,
    Czech,
    Finnish,
    Hungarian,
    Turkish,
}

/// Maximum number of words by which a language is detected.
const COUNTED_WORDS: usize = 64;
/// Minimum number of function words of a language. One may be a coincidence.
const SURE: u32 = 2;
/// One in so many words of a text is a function word of its language. In prose, it is every second or third.
const SHARE: u32 = 6;

impl Language {
    /// All languages in the order of the enum, with their function words.
    const FUNCTION_WORDS: [(Language, &'static str); 16] = [
        (Language::English, ENGLISH),
        (Language::German, GERMAN),
        (Language::Dutch, DUTCH),
        (Language::Swedish, SWEDISH),
        (Language::Danish, DANISH),
        (Language::Norwegian, NORWEGIAN),
        (Language::French, FRENCH),
        (Language::Spanish, SPANISH),
        (Language::Portuguese, PORTUGUESE),
        (Language::Italian, ITALIAN),
        (Language::Romanian, ROMANIAN),
        (Language::Polish, POLISH),
        (Language::Czech, CZECH),
        (Language::Finnish, FINNISH),
        (Language::Hungarian, HUNGARIAN),
        (Language::Turkish, TURKISH),
    ];

    /// The language of a text, if its function words leave no doubt: two different ones, more than of any other language, and a
    /// sixth of the words. On a tie with English, it is English.
    pub fn of(text: &str) -> Option<Self> {
        let mut counts = [Count::default(); Self::FUNCTION_WORDS.len()];
        let mut all = 0;
        let mut folded = String::new();
        let words = text.split(|character: char| !character.is_alphanumeric()).filter(|word| word.len() > 1);
        for word in words.take(COUNTED_WORDS) {
            all += 1;
            if word.len() > LONGEST_FUNCTION_WORD {
                continue;
            }
            fold(word, &mut folded);
            let Some(&FunctionWord { mut languages, id }) = FUNCTION_WORDS.get(folded.as_str()) else { continue };
            while languages != 0 {
                counts[languages.trailing_zeros() as usize].add(id);
                languages &= languages - 1;
            }
        }
        let most = counts.iter().map(|count| count.words).max().filter(|most| *most >= SURE && *most * SHARE >= all)?;
        let mut best = Self::FUNCTION_WORDS.iter().zip(counts).filter(|(_, count)| count.words == most);
        let ((language, _), count) = best.next()?;
        let english = counts[Self::English as usize].words;
        let is_sure = count.differ && (*language == Self::English || (best.next().is_none() && (english == 0 || most > english + 1)));
        is_sure.then_some(*language)
    }

    /// Whether a word, in lower case and without accents, is a function word of this language.
    pub(super) fn has_function_word(self, word: &str) -> bool {
        word.len() <= LONGEST_FUNCTION_WORD && FUNCTION_WORDS.get(word).is_some_and(|known| known.languages & self.bit() != 0)
    }

    fn bit(self) -> u32 {
        1 << self as u32
    }

    /// The stem of a word in lower case. `None` for English, whose stems all words have.
    pub(super) fn stem(self, word: &str) -> Option<Cow<'_, str>> {
        let algorithm = match self {
            Self::English => return None,
            Self::Polish => return Some(without_ending(word, POLISH_ENDINGS, 4).into()),
            Self::Czech => return Some(without_ending(word, CZECH_ENDINGS, 4).into()),
            Self::German => Algorithm::German,
            Self::Dutch => Algorithm::Dutch,
            Self::Swedish => Algorithm::Swedish,
            Self::Danish => Algorithm::Danish,
            Self::Norwegian => Algorithm::Norwegian,
            Self::French => Algorithm::French,
            Self::Spanish => Algorithm::Spanish,
            Self::Portuguese => Algorithm::Portuguese,
            Self::Italian => Algorithm::Italian,
            Self::Romanian => Algorithm::Romanian,
            Self::Finnish => Algorithm::Finnish,
            Self::Hungarian => Algorithm::Hungarian,
            Self::Turkish => Algorithm::Turkish,
        };
        let word = if self == Self::German { with_umlauts(word) } else { Cow::Borrowed(word) };
        Some(Cow::Owned(Stemmer::create(algorithm).stem(&word).into_owned()))
    }
}

/// Whether at least half of a text's letters are Arabic.
pub(crate) fn is_arabic(text: &str) -> bool {
    let letters = || text.chars().filter(|character| character.is_alphabetic());
    let arabic = letters().filter(|letter| matches!(letter, '\u{0600}'..='\u{06FF}')).count();
    arabic > 0 && 2 * arabic >= letters().count()
}

/// German without umlauts and without their ASCII spelling: `für` and `fuer` become `fur`. "ue" after a vowel or q is no umlaut.
pub(super) fn with_umlauts(word: &str) -> Cow<'_, str> {
    if !["ae", "oe", "ue"].iter().any(|spelled| word.contains(spelled)) {
        return Cow::Borrowed(word);
    }
    let mut plain = String::with_capacity(word.len());
    let mut previous = ' ';
    let mut characters = word.chars().peekable();
    while let Some(character) = characters.next() {
        plain.push(character);
        let is_umlaut = match character {
            'a' | 'o' => true,
            'u' => !matches!(previous, 'a' | 'e' | 'i' | 'o' | 'u' | 'q' | 'ä' | 'ö' | 'ü'),
            _ => false,
        };
        if is_umlaut && characters.peek() == Some(&'e') {
            characters.next();
        }
        previous = character;
    }
    Cow::Owned(plain)
}

/// The stem of a word of a script with one stemmer. `None` for other scripts.
pub(super) fn stem_by_script(word: &str) -> Option<Cow<'_, str>> {
    let algorithm = match word.chars().next()? {
        '\u{0400}'..='\u{052F}' => Algorithm::Russian,
        '\u{0370}'..='\u{03FF}' | '\u{1F00}'..='\u{1FFF}' => Algorithm::Greek,
        '\u{0620}'..='\u{06FF}' => Algorithm::Arabic,
        '\u{05D0}'..='\u{05EA}' => return Some(hebrew(word).into()),
        '\u{0900}'..='\u{097F}' => return Some(without_ending(word, HINDI_ENDINGS, 2).into()),
        _ => return None,
    };
    Some(Cow::Owned(Stemmer::create(algorithm).stem(word).into_owned()))
}

/// A word without its longest ending, if at least `least` characters remain.
fn without_ending<'a>(word: &'a str, endings: &[&str], least: usize) -> &'a str {
    let stems = endings.iter().filter_map(|ending| word.strip_suffix(ending));
    stems.filter(|stem| stem.chars().nth(least - 1).is_some()).min_by_key(|stem| stem.len()).unwrap_or(word)
}

/// A Hebrew word without article, conjunctions, prepositions and plural ending. At least three letters remain.
fn hebrew(word: &str) -> &str {
    let has = |word: &str, least: usize| word.chars().nth(least).is_some();
    let mut stem = word;
    while let Some(rest) = stem.strip_prefix(['ה', 'ו', 'ב', 'ל', 'מ', 'ש', 'כ']).filter(|_| has(stem, 3)) {
        stem = rest;
    }
    ["ים", "ות", "ה", "י", "ת"].iter().find_map(|ending| stem.strip_suffix(ending).filter(|rest| has(rest, 2))).unwrap_or(stem)
}

/// Of the function words of a language in a text: how many there are, and whether two of them differ.
#[derive(Clone, Copy, Default)]
struct Count {
    words: u32,
    first: u16,
    differ: bool,
}

impl Count {
    fn add(&mut self, id: u16) {
        self.differ |= self.words > 0 && self.first != id;
        self.first = id;
        self.words += 1;
    }
}

/// Whether this is a function word of English, which tools are mostly described in. It is one in every text.
pub(super) fn is_english_function_word(word: &str) -> bool {
    Language::English.has_function_word(word)
}

/// Maximum length of a function word in bytes.
const LONGEST_FUNCTION_WORD: usize = 12;

struct FunctionWord {
    /// The languages that have this word, one bit each.
    languages: u32,
    id: u16,
}

static FUNCTION_WORDS: LazyLock<HashMap<&'static str, FunctionWord, RandomState>> = LazyLock::new(|| {
    let mut table: HashMap<&'static str, FunctionWord, RandomState> = HashMap::default();
    let lists = Language::FUNCTION_WORDS.iter().flat_map(|(language, list)| list.split_ascii_whitespace().map(|word| (*language, word)));
    for ((language, word), id) in lists.zip(0..) {
        table.entry(word).or_insert(FunctionWord { languages: 0, id }).languages |= language.bit();
    }
    table
});

/// Function words and polite words of requests. Words that occur in tool names (`time`, `now`, `next`, `all`, `list`) are absent.
const ENGLISH: &str = "\
    a about after again also am an and any are aren as at be because been before being both but by can cannot could couldn d did \
    didn do does doesn doing don during each few for from further give had hadn has hasn have haven having he her here hers herself \
    him himself his how i if in into is isn it its itself just let like ll m may me might mine more most must my myself need no nor \
    not of off on only or other our ours ourselves out over own please pls re s same shall she should shouldn so some such t than \
    that the their theirs them themselves then there these they this those through to too under until up us ve very want was wasn \
    we were weren what when where which while who whom whose why will with won would wouldn you your yours yourself yourselves";

const GERMAN: &str = "\
    der die das den dem des ein eine einen einem einer eines und oder aber ist sind war waren sein hat habe haben hatte hab wird \
    werden wurde kann kannst konnte konnen koennen muss mussen muessen soll sollen will wollen mochte moechte ich du er sie es wir \
    ihr mich dich sich uns euch mir dir ihm ihn ihnen mein meine meinen meinem meiner dein deine deinen unser unsere unseren \
    unserem unserer nicht kein keine keinen nur noch schon auch mal bitte wie was wer wo wann warum welche welcher welches in im an \
    am auf aus bei beim mit nach von vom zu zum zur fur fuer uber ueber unter vor zwischen durch gegen ohne um bis seit als wenn \
    dass weil ob da dann hier dort so sehr mehr alle alles jetzt gerade doch ja denn";

const DUTCH: &str = "\
    de het een en of maar is zijn was waren ben heeft heb hebben had hadden wordt worden werd kan kun kunt kunnen kon moet moeten \
    wil willen zou zal zullen ik jij je hij zij ze wij we jullie hen hun mij me zich ons mijn jouw uw onze niet geen alleen nog al \
    ook even graag alsjeblieft aub hoe wat wie waar wanneer waarom welke in op aan uit bij met naar van voor tot over onder tussen \
    door tegen zonder om sinds als dat dit die deze er dan hier daar zo erg meer alle alles nu eens toch want naar";

const SWEDISH: &str = "\
    en ett den det de och eller men ar var vara varit har hade ha blir blev kan kunde maste ska skulle vill jag du han hon vi ni \
    mig dig sig oss er honom henne dem min mitt mina din ditt dina var vart vara inte ingen inga bara redan ocksa snalla tack hur \
    vad vem nar varfor vilken vilka vilket i pa av fran hos med till for om over under mellan genom mot utan innan sedan som att \
    dar har sa mycket mer alla allt nu da nagon nagot nagra";

const DANISH: &str = "\
    en et den det de og eller men er var vaere vaeret har havde have bliver blev kan kunne skal skulle vil ville jeg du han hun vi \
    i mig dig sig os jer ham hende dem min mit mine din dit dine vores ikke ingen kun allerede ogsa venligst tak hvordan hvad hvem \
    hvor hvornar hvorfor hvilken hvilke hvilket pa af fra hos med til for om over under mellem gennem mod uden siden som at der her \
    sa meget mere alle alt nu da noget nogen nogle";

const NORWEGIAN: &str = "\
    en et ei den det de og eller men er var vaere vaert har hadde ha blir ble kan kunne skal skulle vil ville jeg du han hun vi \
    dere meg deg seg oss ham henne dem min mitt mine din ditt dine var vart ikke ingen bare allerede ogsa vennligst takk hvordan \
    hva hvem hvor nar hvorfor hvilken hvilke hvilket pa av fra hos med til for om over under mellom gjennom mot uten siden som at \
    der her sa mye mer alle alt na da noe noen";

const FRENCH: &str = "\
    le la les l un une des du de d et ou mais est sont etait etaient etre suis es ai as a ont avait avoir sera fait faire peux peut \
    peuvent pouvez pourrais dois doit faut veux veut voudrais je tu il elle on nous vous ils elles me te se lui leur moi toi eux \
    mon ma mes ton ta tes son sa ses notre nos votre vos leurs ne pas n plus aucun aucune que qu qui quoi dont ou quand \
    pourquoi combien quel quelle quels quelles ce cet cette ces c cela ca dans en sur sous avec sans pour par chez vers entre \
    depuis avant apres au aux y si comme aussi tres deja encore tout tous toute toutes merci stp svp j s m t ici";

const SPANISH: &str = "\
    el la los las lo un una unos unas del de y e o u pero es son era fue ser estoy esta estan estaba estar soy he ha han habia hay \
    haber tengo tiene tienen puedo puedes puede pueden podrias debo debe quiero quiere quisiera yo tu el ella nosotros ustedes \
    ellos me te se nos le les mi mis tu tus su sus nuestro nuestra nuestros nuestras no ni que quien cual cuales donde cuando como \
    cuanto cuantos cuantas este esta estos estas ese esa esos esas eso esto en a al con sin por para sobre entre desde hasta segun \
    si tambien muy mas ya aun todo todos toda todas aqui ahi porque favor";

const PORTUGUESE: &str = "\
    o a os as um uma uns umas do da dos das de e ou mas eh sao era foi ser estou esta estao estava estar sou tem temos tenho tinha \
    ha pode podes podem posso devo deve quero quer queria eu tu ele ela nos voce voces eles elas me te se lhe meu minha meus minhas \
    teu tua seu sua seus suas nosso nossa nossos nossas nao nem que quem qual quais onde quando como quanto quantos quantas este \
    esta estes estas esse essa esses essas isso isto aquele aquela em no na nos nas ao aos com sem por pelo pela para pra pro sobre \
    entre desde ate se tambem muito muita mais ja ainda tudo todo todos toda todas aqui ai la porque favor";

const ITALIAN: &str = "\
    il lo la i gli le l un uno una del dello della dei degli delle di e ed o ma e sono era erano essere sei sta stanno ho hai ha \
    abbiamo hanno aveva avere posso puoi puo possono potresti devo deve voglio vuole vorrei io tu lui lei noi voi loro mi ti si ci \
    vi mio mia miei mie tuo tua tuoi tue suo sua suoi sue nostro nostra nostri nostre non ne che chi cui quale quali dove quando \
    come quanto quanti quante perche questo questa questi queste quello quella quelli in nel nella nei nelle a al allo alla ai agli \
    alle da dal dalla dai con senza per su sul sulla sui tra fra se anche molto piu gia ancora tutto tutti tutta tutte qui favore";

const ROMANIAN: &str = "\
    un o unei unui si sau dar este e sunt era erau fi fost am ai are avem au avea pot poti poate putem trebuie vreau vrea as eu tu \
    el ea noi voi ei ele ma te se ne va imi iti isi mi ti meu mea mei mele tau ta sau sa noastra nostru nu nici ce cine care unde \
    cand cum cat cate de la din in pe cu fara pentru prin peste intre despre pana spre acest aceasta acesta aceste acel acea asta \
    foarte mai deja inca tot toate toti aici acolo daca ca sa rog";

const POLISH: &str = "\
    i a oraz lub albo ale jest sa byl byla bylo byly byc jestem mam masz ma mamy maja bedzie beda moge mozesz moze mozna musze musi \
    chce chcesz ja ty on ona my wy oni mnie mi mna ciebie ci sie nam nas was go jej jego ich im moj moja moje moich mojego mojej \
    twoj nasz nasza nasze naszego naszej naszym nie tak tylko juz jeszcze tez takze prosze jak co kto gdzie kiedy dlaczego ktory \
    ktora ktore ktorych w we na z ze do od o po przy przez za dla bez nad pod miedzy przed u ten ta to te tego tej tym tych bo zeby \
    czy jesli gdy tu tam bardzo wszystko wszystkie wszystkich teraz";

const CZECH: &str = "\
    a i nebo ale je jsou byl byla bylo byly byt jsem jsi jsme mam mas ma mame maji bude budou muzu muzes muze mohu musim musi chci \
    chces ja ty on ona my vy oni me mi mne te ti se si nam nas vas ho ji jeho jejich jim muj moje moji mou tvuj nas nase nasi \
    nasem nasich ne ano jen uz jeste taky take prosim jak co kdo kde kdy proc ktery ktera ktere kterych v ve na z ze do od o po pri \
    pres za pro bez nad pod mezi pred u ten ta to ty toho te tom tech tim protoze aby jestli kdyz tady tam velmi vsechno vsechny \
    vsech ted";

const FINNISH: &str = "\
    ja tai mutta on ovat oli olivat olla olen olet olemme onko ei en et eivat ole voi voin voit voiko voisitko pitaa pitaisi \
    haluan haluaisin mina sina han me te he mun sun minun sinun hanen meidan teidan heidan minulle mulle minulla mulla minut \
    meille meilla se ne sen sita siita siella siina sille taa tama taman tassa tasta tahan nama noi tuo ne mita mika mitka missa \
    mista mihin milloin miksi kuka kenen miten kuinka paljonko moniko jos kun koska etta kuin kanssa ilman jalkeen ennen kautta \
    vain myos viela jo nyt sitten siis kaikki kaikkia joka jotka joku jotain kiitos";

const HUNGARIAN: &str = "\
    a az egy es vagy de van vannak volt voltak lesz legyen vagyok nincs nem ne is csak mar meg kell lehet tud tudsz tudom szeretnem \
    akarom en te o mi ti ok engem nekem neked neki nekunk minket ezt azt ez ezek azok ami amit aki akik ahol mikor mit ki kinek hol \
    hogyan hogy miert melyik mennyi hany ha mert mint utan elott kozott nelkul altal szerint alatt felett ezen azon minden most \
    itt ott nagyon meg kerlek koszonom";

const TURKISH: &str = "\
    ve veya ama bir bu su o bunu sunu onu bunlar ben sen biz siz onlar bana sana ona bize size beni seni bizi benim senin bizim \
    sizin onun var yok degil mi mu midir icin ile gibi kadar gore daha en cok az da de ki ne nasil neden nerede kim kimin hangi \
    kac zaman olarak olan oldu olsun olur olup ise her hic tum butun sonra once simdi lutfen iste burada orada diye hem ya";

/// Endings of cases and persons, without accents.
const POLISH_ENDINGS: &[&str] = &[
    "ami", "ach", "owi", "ow", "om", "em", "ie", "ego", "emu", "ymi", "ych", "ym", "ej", "iej", "a", "e", "i", "o", "u", "y", "ia", "ie",
    "ac", "ic", "yc", "al", "il", "aj", "uje", "owac",
];

const CZECH_ENDINGS: &[&str] = &[
    "ami", "emi", "ech", "ach", "ich", "ovi", "ove", "ou", "um", "em", "im", "am", "eho", "emu", "ymi", "ych", "ym", "a", "e", "i", "o",
    "u", "y", "at", "it", "et", "ovat", "uje", "al", "il",
];

const HINDI_ENDINGS: &[&str] = &[
    "ो",
    "े",
    "ू",
    "ु",
    "ी",
    "ि",
    "ा",
    "ों",
    "ें",
    "ां",
    "ीं",
    "ियों",
    "ियां",
    "ाओं",
    "ुओं",
    "ाएं",
    "ना",
    "ने",
    "नी",
    "ता",
    "ते",
    "ती",
    "कर",
    "ाना",
    "ाने",
    "ाया",
    "ाई",
    "ाए",
    "ाओ",
    "ेगा",
    "ेगी",
    "ेंगे",
    "ोगे",
    "ूंगा",
];
