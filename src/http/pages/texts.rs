//! Texts of pages, with one file per language.

use std::collections::BTreeMap;

use actix_web::http::header::{self, HeaderMap};

/// Declares a structure with texts, whose names are the keys of every file.
///
/// A derived `Deserialize` handles a missing or repeated field at each of hundreds of fields, with all others to drop. Compiling it took
/// longer than the rest of the crate.
macro_rules! declare {
    ($($name:ident)*) => {
        pub(in crate::http) struct Texts {
            $(pub(in crate::http) $name: String,)*
        }

        impl $crate::http::pages::texts::File for Texts {
            const NAMES: &[&str] = &[$(stringify!($name)),*];

            fn new(mut file: ::std::collections::BTreeMap<String, String>) -> Self {
                Self { $($name: $crate::http::pages::texts::take(&mut file, stringify!($name)),)* }
            }
        }
    };
}
pub(in crate::http) use declare;

/// The texts of one language.
pub(in crate::http) trait File {
    #[cfg_attr(not(test), expect(dead_code, reason = "tests compare the files with it"))]
    const NAMES: &[&str];

    /// Takes the texts from the contents of a file. A text that is absent is empty; a test finds it.
    fn new(file: BTreeMap<String, String>) -> Self;
}

#[inline(never)]
pub(in crate::http) fn take(file: &mut BTreeMap<String, String>, name: &str) -> String {
    file.remove(name).unwrap_or_default()
}

/// All languages of a page, by their codes. The first is the default.
pub(in crate::http) struct Languages<T>(Vec<(&'static str, T)>);

impl<T: File> Languages<T> {
    /// Reads the contents of the files.
    pub(in crate::http) fn new(files: &[(&'static str, &str)]) -> Self {
        Self(files.iter().map(|(code, file)| (*code, T::new(toml::from_str(file).unwrap_or_default()))).collect())
    }

    /// The texts in the first language of `Accept-Language` that there is a file for.
    pub(in crate::http) fn of(&self, headers: &HeaderMap) -> &T {
        let wanted = headers.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let mut wanted = wanted.split(',').filter_map(|range| range.split([';', '-']).next()).map(str::trim);
        let known = wanted.find_map(|code| self.0.iter().find(|(known, _)| known.eq_ignore_ascii_case(code)));
        &known.unwrap_or(&self.0[0]).1
    }
}

/// Fails if a file has other texts than `T`, or an empty one.
#[cfg(test)]
pub(in crate::http) fn check<T: File>(files: &[(&str, &str)]) {
    use std::collections::BTreeSet;
    let names: BTreeSet<&str> = T::NAMES.iter().copied().collect();
    assert_eq!(names.len(), T::NAMES.len());
    for (code, file) in files {
        let texts: BTreeMap<String, String> = toml::from_str(file).unwrap();
        assert_eq!(texts.keys().map(String::as_str).collect::<BTreeSet<_>>(), names, "{code}");
        assert!(texts.values().all(|text| !text.is_empty()), "{code}");
    }
}
