//! Texts with placeholders for attributes of the caller: `{{user.id}}`, `{{user.email}}`, `{{user.name}}`, `{{user.groups}}` and
//! `{{secret.NAME}}`.
//!
//! The values come from callers, so they must not affect the text around them. Control characters are rejected. Characters that
//! could make two values look the same are percent-encoded. Any other `{{…}}` is plain text.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

use secrecy::{ExposeSecret, SecretString};

use crate::domain::access::principal::Principal;
use crate::domain::access::secret::SecretName;
use crate::domain::catalog::hidden_text::is_unseen;

/// The name of each field in a placeholder.
pub(crate) const FIELDS: [(&str, UserField); 4] =
    [("user.id", UserField::Id), ("user.email", UserField::Email), ("user.name", UserField::Name), ("user.groups", UserField::Groups)];
const USER: &str = "user";
const SECRET: &str = "secret";

/// A field of the user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum UserField {
    Id,
    Email,
    Name,
    /// All group names in order, separated by commas.
    Groups,
}

/// A text that contains at least one placeholder.
#[derive(Clone)]
pub struct Template(Vec<Part>);

#[derive(Clone)]
enum Part {
    /// Plain text. It may come from a secret variable of the configuration.
    Text(SecretString),
    User(UserField),
    Secret(SecretName),
}

/// The kind of place where a value is inserted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// An HTTP header: ASCII only.
    Header,
    /// An environment variable of a process.
    Variable,
}

/// The result of parsing a text.
#[derive(Clone, Debug, Default)]
pub struct Parsed {
    /// The template; `None` if the text contains no known placeholder.
    pub template: Option<Template>,
    /// The content of unknown placeholders, `{{…}}`.
    pub others: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("`{{{{{0}}}}}` is not a known field of a user")]
    UnknownField(String),
    #[error("`{{{{{0}}}}}` does not contain the name of a secret")]
    NoSecretName(String),
    #[error("`{{{{user.…` or `{{{{secret.…` without `}}}}`")]
    Unclosed,
}

/// The reason why a text can't be filled in for a caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FillError {
    #[error("the request does not identify a user")]
    NoUser,
    #[error("the user's e-mail address is unknown")]
    NoEmail,
    #[error("the user's name is unknown")]
    NoName,
    #[error("the secret `{0}` is missing")]
    NoSecret(SecretName),
    #[error("{0} contains a control character or an invisible one")]
    Invisible(&'static str),
    #[error("the secret `{0}` contains what a header can't carry: line breaks, control characters or non-ASCII characters")]
    Secret(SecretName),
}

impl Template {
    /// Finds the placeholders in a text.
    ///
    /// # Errors
    /// [`TemplateError`] for a malformed `user` or `secret` placeholder.
    pub fn parse(text: &str) -> Result<Parsed, TemplateError> {
        let (mut parts, mut others, mut plain, mut rest) = (Vec::new(), Vec::new(), String::new(), text);
        while let Some(start) = rest.find("{{") {
            let inside = &rest[start + 2..];
            let end = inside.find("}}");
            let content = inside[..end.unwrap_or(inside.len())].trim();
            let head = content.split('.').next().unwrap_or_default();
            if head != USER && head != SECRET {
                // In `{{{user.id}}`, the placeholder starts one character later.
                let skipped = if inside.starts_with('{') { 1 } else { 2 };
                if let Some(end) = end.filter(|_| skipped == 2) {
                    others.push(inside[..end].trim().to_owned());
                }
                plain.push_str(&rest[..start + skipped]);
                rest = &rest[start + skipped..];
                continue;
            }
            let Some(end) = end else { return Err(TemplateError::Unclosed) };
            plain.push_str(&rest[..start]);
            if !plain.is_empty() {
                parts.push(Part::Text(SecretString::from(std::mem::take(&mut plain))));
            }
            parts.push(part(content)?);
            rest = &inside[end + 2..];
        }
        if parts.is_empty() {
            return Ok(Parsed { template: None, others });
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Text(SecretString::from(plain)));
        }
        Ok(Parsed { template: Some(Self(parts)), others })
    }

    /// The names of the secrets in the template.
    pub fn secrets(&self) -> BTreeSet<SecretName> {
        self.0.iter().filter_map(|part| if let Part::Secret(name) = part { Some(name.clone()) } else { None }).collect()
    }

    /// Whether the template contains a field of the user.
    pub fn names_user(&self) -> bool {
        self.0.iter().any(|part| matches!(part, Part::User(_)))
    }

    /// Fills in the text for a caller.
    ///
    /// # Errors
    /// All values that are missing or can't be inserted.
    pub fn fill(
        &self,
        slot: Slot,
        caller: &Principal,
        secrets: &BTreeMap<SecretName, SecretString>,
    ) -> Result<SecretString, Vec<FillError>> {
        let (mut text, mut errors) = (String::new(), Vec::new());
        for part in &self.0 {
            let filled = match part {
                Part::Text(plain) => Ok(plain.expose_secret().to_owned()),
                Part::User(field) => field.of(caller, slot),
                Part::Secret(name) => match secrets.get(name) {
                    None => Err(FillError::NoSecret(name.clone())),
                    Some(value) if !fits(value, slot) => Err(FillError::Secret(name.clone())),
                    Some(value) => Ok(value.expose_secret().to_owned()),
                },
            };
            match filled {
                Ok(filled) => text.push_str(&filled),
                Err(error) => errors.push(error),
            }
        }
        if errors.is_empty() { Ok(SecretString::from(text)) } else { Err(errors) }
    }
}

fn part(content: &str) -> Result<Part, TemplateError> {
    if let Some((_, field)) = FIELDS.iter().find(|(name, _)| *name == content) {
        return Ok(Part::User(*field));
    }
    match content.split_once('.') {
        Some((SECRET, name)) => SecretName::new(name).map(Part::Secret).ok_or_else(|| TemplateError::NoSecretName(content.to_owned())),
        _ if content == SECRET => Err(TemplateError::NoSecretName(content.to_owned())),
        _ => Err(TemplateError::UnknownField(content.to_owned())),
    }
}

/// Whether a secret can be inserted without encoding.
pub(crate) fn fits(value: &SecretString, slot: Slot) -> bool {
    let value = value.expose_secret();
    match slot {
        Slot::Header => value.bytes().all(|byte| matches!(byte, b' '..=b'~')) && value.trim() == value,
        Slot::Variable => !value.contains('\0'),
    }
}

impl UserField {
    fn of(self, caller: &Principal, slot: Slot) -> Result<String, FillError> {
        let id = caller.user_id().ok_or(FillError::NoUser)?;
        let (what, texts): (_, Vec<&str>) = match self {
            Self::Id => ("the id of the user", vec![id]),
            Self::Email => ("the e-mail address of the user", vec![caller.email.as_deref().ok_or(FillError::NoEmail)?]),
            Self::Name => ("the name of the user", vec![caller.name.as_deref().ok_or(FillError::NoName)?]),
            Self::Groups => ("the name of a group of the user", caller.groups.iter().map(String::as_str).collect()),
        };
        if texts.iter().any(|text| text.chars().any(is_unseen)) {
            return Err(FillError::Invisible(what));
        }
        let is_list = self == Self::Groups;
        let texts: Vec<String> = texts.into_iter().map(|text| encoded(text, slot, is_list)).collect();
        Ok(texts.join(","))
    }
}

/// Percent-encodes a value so that different values stay different: non-ASCII bytes in a header, commas in a list, and `%`
/// wherever anything may be encoded.
fn encoded(text: &str, slot: Slot, is_list: bool) -> String {
    let in_header = slot == Slot::Header;
    let mut out = String::with_capacity(text.len());
    for (at, character) in text.char_indices() {
        let is_edge = at == 0 || at + character.len_utf8() == text.len();
        let is_encoded = match character {
            '%' => in_header || is_list,
            ',' => is_list,
            // Receivers trim whitespace at the ends.
            ' ' => in_header && is_edge,
            character => in_header && !character.is_ascii(),
        };
        if is_encoded {
            let mut bytes = [0; 4];
            for byte in character.encode_utf8(&mut bytes).bytes() {
                // Writing to a string can't fail.
                let _ = write!(out, "%{byte:02X}");
            }
        } else {
            out.push(character);
        }
    }
    out
}

/// Omits the plain text.
impl fmt::Debug for Template {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.0 {
            match part {
                Part::Text(_) => formatter.write_str("…")?,
                Part::User(field) => {
                    let name = FIELDS.iter().find(|(_, known)| known == field).map_or("", |(name, _)| name);
                    write!(formatter, "{{{{{name}}}}}")?;
                }
                Part::Secret(name) => write!(formatter, "{{{{{SECRET}.{name}}}}}")?,
            }
        }
        Ok(())
    }
}

impl PartialEq for Template {
    fn eq(&self, other: &Self) -> bool {
        let same = |pair: (&Part, &Part)| match pair {
            (Part::Text(one), Part::Text(other)) => one.expose_secret() == other.expose_secret(),
            (Part::User(one), Part::User(other)) => one == other,
            (Part::Secret(one), Part::Secret(other)) => one == other,
            _ => false,
        };
        self.0.len() == other.0.len() && self.0.iter().zip(&other.0).all(same)
    }
}

impl Eq for Template {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::access::principal::{GroupTable, User};

    fn anna() -> Principal {
        let groups = ["Süd", "a,b", "50%"].map(str::to_owned).into();
        let user = User { id: "u1".into(), email: Some("Anna@example.org".into()), name: Some("Änna %C3 B.".into()), groups };
        Principal::service_key().on_behalf_of(user, &GroupTable::default())
    }

    fn fill(text: &str, slot: Slot, caller: &Principal) -> Result<String, Vec<FillError>> {
        let secrets = [("token", "t-1"), ("pem", "-----\nline\n"), ("space", " x")];
        let secrets = secrets.map(|(name, value)| (SecretName::new(name).unwrap(), SecretString::from(value))).into();
        let template = Template::parse(text).unwrap().template.unwrap();
        template.fill(slot, caller, &secrets).map(|text| text.expose_secret().to_owned())
    }

    #[test]
    fn placeholders_are_filled_in_so_that_no_two_values_look_alike() {
        for (text, in_header, in_variable) in [
            ("Bearer {{secret.token}}", "Bearer t-1", "Bearer t-1"),
            ("{{ user.id }}/{{user.email}}", "u1/anna@example.org", "u1/anna@example.org"),
            ("{{user.name}}", "%C3%84nna %25C3 B.", "Änna %C3 B."),
            ("{{user.groups}}", "50%25,S%C3%BCd,a%2Cb", "50%25,Süd,a%2Cb"),
            ("{{x}} {{{user.id}} {{", "{{x}} {u1 {{", "{{x}} {u1 {{"),
        ] {
            assert_eq!(fill(text, Slot::Header, &anna()).as_deref(), Ok(in_header), "{text}");
            assert_eq!(fill(text, Slot::Variable, &anna()).as_deref(), Ok(in_variable), "{text}");
        }
        let with_space = Principal { id: crate::domain::access::principal::PrincipalId::new("user:u1 "), ..anna() };
        assert_eq!(fill("{{user.id}}", Slot::Header, &with_space).as_deref(), Ok("u1%20"));
    }

    #[test]
    fn what_is_missing_or_would_leave_its_place_is_refused() {
        let missing = fill("{{user.id}}{{secret.other}}", Slot::Header, &Principal::service_key()).unwrap_err();
        assert_eq!(missing, [FillError::NoUser, FillError::NoSecret(SecretName::new("other").unwrap())]);
        let nameless = Principal { email: None, name: None, ..anna() };
        assert_eq!(fill("{{user.email}}{{user.name}}", Slot::Header, &nameless).unwrap_err(), [FillError::NoEmail, FillError::NoName]);
        for name in ["a\r\nX-Admin: 1", "a\u{0}", "a\u{202e}b", "a\u{7f}"] {
            let caller = Principal { name: Some(name.into()), ..anna() };
            for slot in [Slot::Header, Slot::Variable] {
                assert_eq!(fill("{{user.name}}", slot, &caller).unwrap_err(), [FillError::Invisible("the name of the user")]);
            }
        }
        assert_eq!(fill("{{secret.pem}}", Slot::Variable, &anna()).as_deref(), Ok("-----\nline\n"));
        for name in ["pem", "space"] {
            let expected = FillError::Secret(SecretName::new(name).unwrap());
            assert_eq!(fill(&format!("{{{{secret.{name}}}}}"), Slot::Header, &anna()).unwrap_err(), [expected]);
        }
    }

    #[test]
    fn intended_placeholders_differ_from_plain_text() {
        assert!(Template::parse("plain {x} }} {").is_ok_and(|parsed| parsed.template.is_none() && parsed.others.is_empty()));
        assert_eq!(Template::parse("{{USER_ID}}{{ a }}").unwrap().others, ["USER_ID", "a"]);
        for (text, error) in [
            ("{{user.mail}}", TemplateError::UnknownField("user.mail".into())),
            ("{{user}}", TemplateError::UnknownField("user".into())),
            ("{{secret.}}", TemplateError::NoSecretName("secret.".into())),
            ("{{secret.a b}}", TemplateError::NoSecretName("secret.a b".into())),
            ("x{{user.id", TemplateError::Unclosed),
        ] {
            assert_eq!(Template::parse(text).unwrap_err(), error, "{text}");
        }
        let template = Template::parse("hunter22{{user.id}}").unwrap().template.unwrap();
        assert_eq!(format!("{template:?}"), "…{{user.id}}");
    }
}
