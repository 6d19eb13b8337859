use std::collections::BTreeSet;

use super::super::language::Language;
use super::{GLOSSARY, LONGEST_FORM, TABLES, for_each_gloss, normal};

fn english(text: &str) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    for_each_gloss(text, Language::of(text), |gloss| {
        found.insert(gloss.english);
    });
    found
}

#[track_caller]
fn has(text: &str, words: &[&str]) {
    let found = english(text);
    for word in words {
        assert!(found.contains(word), "{text}: no {word} in {found:?}");
    }
}

#[test]
fn the_tables_are_well_formed() {
    let mut words: BTreeSet<&str> = BTreeSet::new();
    for (code, table) in TABLES {
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines.len() >= 1_800, "{code:?} has {} lines", lines.len());
        let mut previous = "";
        for line in lines {
            let (english, forms) = line.split_once('\t').unwrap_or_else(|| panic!("{code:?}: {line}"));
            assert!(previous < english, "{code:?}: {english} after {previous}");
            previous = english;
            words.insert(english);
            assert!(english.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'), "{code:?}: {line}");
            for form in forms.split('|') {
                let stem = form.strip_suffix('*').unwrap_or(form);
                assert!(!stem.is_empty() && !stem.contains('*') && stem.trim() == stem, "{code:?}: {line}");
                assert!((1..=LONGEST_FORM).contains(&normal(stem).len()), "{code:?}: {form}");
            }
        }
    }
    assert!((2_500..4_000).contains(&words.len()), "{}", words.len());
}

#[test]
fn the_table_is_small() {
    assert!(GLOSSARY.entries.len() >= 120_000, "{}", GLOSSARY.entries.len());
    assert!(size_of::<super::Entry>() == 8);
}

#[test]
fn words_become_english_in_every_script() {
    has("Bitte lösche die alten Karten in meinem Kalender", &["delete", "card", "calendar"]);
    has("bitte loesche mir die karten", &["delete", "card"]);
    has("Wann ist mein nächster Kalendereintrag?", &["calendar", "entry"]);
    has("удали старые файлы из папки", &["delete", "file", "folder"]);
    has("видали старі файли з папки", &["delete", "file", "folder"]);
    has("احذف الملفات القديمة من المجلد", &["delete", "file", "folder"]);
    has("תמחק את הקבצים הישנים", &["delete", "file"]);
    has("古いファイルを削除して", &["delete", "file"]);
    has("把这个文件删除", &["delete", "file"]);
    has("파일을 삭제해 줘", &["delete", "file"]);
    has("ช่วยลบการประชุมพรุ่งนี้", &["delete", "meeting"]);
    has("इस फ़ाइल को हटा दो", &["delete", "file"]);
    has("διάγραψε το αρχείο", &["delete", "file"]);
    has("poista tämä tiedosto ja lähetä viesti", &["delete", "file", "send", "message"]);
}

#[test]
fn everyday_words_become_english() {
    has("Druck mir den Mietvertrag aus", &["print", "contract"]);
    has("Kiedy odbiorą śmieci z naszej ulicy?", &["waste", "street"]);
    has("Mikä on kylpyhuoneen kosteus?", &["humidity"]);
    has("Çamaşır makinesini yarım saat sonra başlat", &["start", "later"]);
    has("скільки вологість у підвалі", &["humidity"]);
    has("متى ينتهي ضمان الغسالة", &["warranty"]);
    has("洗濯機の保証はいつまで", &["warranty"]);
    has("保修期到什么时候", &["warranty"]);
    has("세탁기 보증 기간", &["washing_machine", "guarantee"]);
}

/// Frequent words that begin with a form's letters, or differ only in accents.
#[test]
fn function_words_are_no_words_of_tools() {
    for (text, word) in [
        ("Můžeš mi opravdu poradit, co dát?", "museum"),
        ("у меня пусть будет так", "change"),
        ("şu çok iyi", "water"),
        ("aquilo que nós temos no grupo", "node"),
        ("من أجل الغرفة التي", "machine"),
    ] {
        assert!(!english(text).contains(word), "{text}: {:?}", english(text));
    }
}

#[test]
fn japanese_without_kana_is_read_unless_it_is_chinese() {
    has("削除", &["delete"]);
    has("天気予報", &["forecast"]);
    has("API 会議予約", &["meeting", "booking"]);
    assert!(!english("所有日历").contains("own"), "the Chinese table has 日历");
}

#[test]
fn words_of_arabic_dialects_become_english() {
    has("ابعتلي الفاتورة", &["send", "invoice"]);
    has("امسح الفايل من الفولدر", &["delete", "file", "folder"]);
    has("وريني مواعيد بكرا", &["show", "tomorrow"]);
    has("دورلي على ايميلات الزبون", &["search", "email", "customer"]);
}

/// The longest form of a word counts.
#[test]
fn a_word_of_knowledge_is_no_word_of_a_tool() {
    for (text, word) in [
        ("Erkläre mir bitte die Fotosynthese", "photo"),
        ("Was ist ein Suchtverhalten und woher kommt es?", "search"),
        ("Was bedeutet das Summenzeichen in der Formel?", "sum"),
    ] {
        assert!(!english(text).contains(word), "{text}: {:?}", english(text));
    }
    has("Zeig mir bitte die Fotos und die Summe", &["photo", "sum"]);
}

#[test]
fn english_stays_as_it_is() {
    assert!(english("please delete the files that are in my folder").is_empty());
    assert!(english("").is_empty());
}

#[test]
fn long_and_strange_texts_are_bounded() {
    for text in ["karta ".repeat(50_000), "ファイル".repeat(50_000), "ва".repeat(100_000), "\u{5d5}".repeat(1_000)] {
        let mut count = 0;
        for_each_gloss(&text, None, |_| count += 1);
        assert!(count < 20_000, "{count}");
    }
}
