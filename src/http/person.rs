//! Reads the user on whose behalf a trusted caller makes a request, from the headers or the body.
//!
//! Unreadable user data is an error, because the rights of the key alone could exceed those of the user. Rules don't
//! use a user's display name, so a long one is truncated.

use std::borrow::Cow;
use std::collections::BTreeSet;

use actix_web::http::header::HeaderMap;
use percent_encoding::percent_decode_str;
use serde_json::Value;

use crate::domain::access::principal::User;
use crate::http::problem::Problem;

/// Maximum length of an id, an email address, a group and a model name. Display names are truncated to this length.
pub(crate) const MAX_BYTES: usize = 256;
/// Maximum number of groups that a user can have.
pub(crate) const MAX_GROUPS: usize = 512;

const USER_ID: &str = "x-openwebui-user-id";
const USER_EMAIL: &str = "x-openwebui-user-email";
/// The header with the user's display name, which Open WebUI percent-encodes.
const USER_NAME: &str = "x-openwebui-user-name";
const USER_ROLE: &str = "x-openwebui-user-role";
const USER_GROUPS: &str = "x-openwebui-user-groups";

/// How far a caller is believed when its headers name a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NamesUser {
    Freely,
    /// Only with a signature. The user's groups need none.
    Signed,
    Never,
}

/// Reads the user from the headers. Without a user, Open WebUI sends empty headers or none. When an administrator tests a connection
/// there, Open WebUI sends only the connection's own headers, so groups without an id are ignored.
///
/// # Errors
/// `Code::InvalidRequest` if a header is invalid, or if others than the id name a user.
pub(crate) fn of_headers(headers: &HeaderMap) -> Result<Option<User>, Problem> {
    let Some(id) = text(headers, USER_ID, MAX_BYTES)? else {
        return match named_by(headers) {
            Some(name) => Err(Problem::invalid(USER_ID, format!("The header {name} names a user, but {USER_ID} is missing or empty."))),
            None => Ok(None),
        };
    };
    let groups = groups(headers)?;
    let name =
        headers.get(USER_NAME).map(|name| percent_decode_str(&String::from_utf8_lossy(name.as_bytes())).decode_utf8_lossy().into_owned());
    let user = User { id, email: text(headers, USER_EMAIL, MAX_BYTES)?, name, groups };
    bounded(user).map(Some).map_err(|what| Problem::invalid(USER_ID, format!("The user in the headers can't be read: {what}.")))
}

/// The header that names a user, other than by groups.
pub(crate) fn named_by(headers: &HeaderMap) -> Option<&'static str> {
    let is_given = |name: &&str| headers.get(*name).is_some_and(|value| !value.as_bytes().trim_ascii().is_empty());
    [USER_ID, USER_EMAIL, USER_NAME].into_iter().find(is_given)
}

/// The headers about a user that this caller's requests must not carry to servers.
pub(crate) fn unproved(names_user: NamesUser) -> &'static [&'static str] {
    match names_user {
        NamesUser::Freely => &[],
        NamesUser::Signed => &[USER_ID, USER_EMAIL, USER_NAME, USER_ROLE],
        NamesUser::Never => &[USER_ID, USER_EMAIL, USER_NAME, USER_ROLE, USER_GROUPS],
    }
}

/// Removes from the header all groups to which the user doesn't belong here, because the caller's key or the signed identity has other
/// groups. A server behind this service would believe them.
pub(crate) fn keep_groups(headers: &mut http::HeaderMap, groups: &BTreeSet<String>) {
    let mut sent = headers.get_all(USER_GROUPS).iter();
    let (Some(first), others) = (sent.next(), sent.count()) else { return };
    let first = String::from_utf8_lossy(first.as_bytes()).into_owned();
    let (kept, dropped): (Vec<&str>, Vec<&str>) =
        first.split(',').map(str::trim).filter(|group| !group.is_empty()).partition(|group| groups.contains(with_letters(group).as_ref()));
    if dropped.is_empty() && others == 0 {
        return;
    }
    headers.remove(USER_GROUPS);
    if let (false, Ok(value)) = (kept.is_empty(), http::HeaderValue::from_bytes(kept.join(",").as_bytes())) {
        headers.insert(USER_GROUPS, value);
    }
}

/// Gives a user whose signed identity contains no groups those in the header.
///
/// # Errors
/// `Code::InvalidRequest` if the header is invalid.
pub(crate) fn with_groups(headers: &HeaderMap, user: User) -> Result<User, Problem> {
    let user = User { groups: groups(headers)?, ..user };
    bounded(user).map_err(|what| Problem::invalid(USER_GROUPS, format!("The user's groups can't be read: {what}.")))
}

fn groups(headers: &HeaderMap) -> Result<BTreeSet<String>, Problem> {
    // Adds one byte per group for the comma.
    let groups = text(headers, USER_GROUPS, MAX_GROUPS * (MAX_BYTES + 1))?.unwrap_or_default();
    Ok(groups.split(',').map(str::trim).filter(|group| !group.is_empty()).map(str::to_owned).collect())
}

/// Reads the user from a request body.
///
/// # Errors
/// `Code::InvalidRequest` if a member is invalid.
pub(crate) fn of_body(user: &Value) -> Result<User, Problem> {
    let read = || {
        let user = user.as_object().ok_or("it is not an object")?;
        let text = |key: &str| match user.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone()).filter(|text| !text.is_empty())),
            Some(_) => Err(format!("{key} is not a text")),
        };
        let groups = match user.get("groups") {
            None | Some(Value::Null) => &[],
            Some(Value::Array(groups)) => groups.as_slice(),
            Some(_) => return Err("groups is not an array".to_owned()),
        };
        let groups: Option<BTreeSet<String>> = groups.iter().map(|group| group.as_str().map(str::to_owned)).collect();
        let groups = groups.ok_or("a group is not a text")?;
        bounded(User { id: text("id")?.unwrap_or_default(), email: text("email")?, name: text("name")?, groups })
    };
    read().map_err(|what| Problem::invalid("user", format!("user can't be read: {what}.")))
}

/// Checks all fields that rules can use, drops groups without a name, and truncates the display name.
///
/// # Errors
/// A description of the field that exceeds its limit or has control characters.
pub(crate) fn bounded(mut user: User) -> Result<User, String> {
    if user.id.is_empty() {
        return Err("it has no id".to_owned());
    }
    user.groups.remove("");
    let groups = user.groups.iter().map(|group| ("a group", group));
    for (what, text) in [("id", &user.id)].into_iter().chain(user.email.iter().map(|email| ("email", email))).chain(groups) {
        if text.len() > MAX_BYTES {
            return Err(format!("{what} has {} bytes; the maximum is {MAX_BYTES}", text.len()));
        }
        if text.contains(char::is_control) {
            return Err(format!("{what} contains a control character"));
        }
    }
    if user.groups.len() > MAX_GROUPS {
        return Err(format!("it has {} groups; the maximum is {MAX_GROUPS}", user.groups.len()));
    }
    if let Some(name) = &mut user.name {
        name.truncate(name.floor_char_boundary(MAX_BYTES));
    }
    Ok(user)
}

/// Reads a header of limited length, with the letters that Open WebUI has escaped. An empty header counts as absent.
///
/// # Errors
/// `Code::InvalidRequest` if the header is too long or not UTF-8.
pub(crate) fn text(headers: &HeaderMap, name: &'static str, longest: usize) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    // Nothing is trimmed after decoding: an address that begins with an escaped space is another address.
    match std::str::from_utf8(value.as_bytes()).map(|text| with_letters(text.trim())) {
        Ok(text) if text.len() <= longest => Ok(Some(text.into_owned()).filter(|text| !text.is_empty())),
        Ok(text) => Err(Problem::invalid(name, format!("The header {name} has {} bytes; the maximum is {longest}.", text.len()))),
        Err(_) => Err(Problem::invalid(name, format!("The header {name} is not valid UTF-8."))),
    }
}

/// Decodes the escapes with which Open WebUI sends letters outside ASCII in a connection's headers. All other escapes stay, because
/// Open WebUI doesn't escape `%`: a person wrote them, and `%61nna@example.org` must not count as `anna@example.org`.
fn with_letters(text: &str) -> Cow<'_, str> {
    if !text.contains('%') {
        return Cow::Borrowed(text);
    }
    let mut decoded = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('%') {
        let (before, escapes) = rest.split_at(start);
        decoded.push_str(before);
        let bytes: Vec<u8> = escapes.as_bytes().chunks_exact(3).map_while(escaped_byte).collect();
        let (mut escapes, after) = escapes.split_at(if bytes.is_empty() { 1 } else { 3 * bytes.len() });
        for part in bytes.utf8_chunks() {
            decoded.push_str(part.valid());
            let (invalid, others) = escapes.split_at(3 * part.valid().len()).1.split_at(3 * part.invalid().len());
            decoded.push_str(invalid);
            escapes = others;
        }
        decoded.push_str(escapes);
        rest = after;
    }
    decoded.push_str(rest);
    Cow::Owned(decoded)
}

/// The byte in an escape such as `%C3`; `None` if it belongs to ASCII.
fn escaped_byte(escape: &[u8]) -> Option<u8> {
    let &[b'%', high, low] = escape else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let byte = u8::try_from(16 * digit(high)? + digit(low)?).ok()?;
    (!byte.is_ascii()).then_some(byte)
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue};

    use super::{USER_EMAIL, USER_GROUPS, USER_ID, USER_NAME, keep_groups, of_headers, with_letters};

    #[test]
    fn only_groups_of_the_user_are_kept() {
        let groups = ["staff", "Zürich"].map(str::to_owned).into();
        for (sent, kept) in [
            (&["staff, Z%C3%BCrich"][..], Some("staff, Z%C3%BCrich")),
            (&["staff,boss, Z%C3%BCrich"], Some("staff,Z%C3%BCrich")),
            (&["boss"], None),
            (&["staff", "boss"], Some("staff")),
            (&[""], Some("")),
            (&[], None),
        ] {
            let mut headers = http::HeaderMap::new();
            for value in sent {
                headers.append(USER_GROUPS, http::HeaderValue::from_static(value));
            }
            keep_groups(&mut headers, &groups);
            let found: Vec<&str> = headers.get_all(USER_GROUPS).iter().map(|value| value.to_str().unwrap()).collect();
            assert_eq!(found, Vec::from_iter(kept), "{sent:?}");
        }
    }

    #[test]
    fn only_letters_outside_ascii_are_decoded() {
        for (sent, read) in [
            ("Zürich", "Zürich"),
            ("Z%C3%BCrich", "Zürich"),
            ("%e5%90%8d%F0%9F%8E%89", "名🎉"),
            ("%61nna%40example.org", "%61nna%40example.org"),
            ("100%", "100%"),
            ("%C3%BC%", "ü%"),
            ("50%%C3%BC%2C%C3%9F", "50%ü%2Cß"),
            // Not UTF-8: a byte that is missing, one that is too much, ASCII in two bytes, and a surrogate.
            ("%C3x%C3%", "%C3x%C3%"),
            ("%BCa%C3%BC%bc", "%BCaü%bc"),
            ("%C1%A1", "%C1%A1"),
            ("%ED%A0%80", "%ED%A0%80"),
            ("%+F%C3%G0%Cü", "%+F%C3%G0%Cü"),
        ] {
            assert_eq!(with_letters(sent), read, "{sent}");
        }
    }

    /// Regression: a user without an id had all rights of the key.
    #[test]
    fn a_user_has_an_id() {
        let read = |given: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in given {
                headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
            }
            of_headers(&headers).map(|user| user.map(|user| user.id)).map_err(|problem| problem.parameter.unwrap().into_owned())
        };
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&[(USER_ID, ""), (USER_EMAIL, " "), (USER_NAME, ""), (USER_GROUPS, "")]), Ok(None));
        assert_eq!(read(&[(USER_ID, "u1"), (USER_GROUPS, "staff")]), Ok(Some("u1".to_owned())));
        assert_eq!(read(&[(USER_GROUPS, "staff")]), Ok(None));
        for named in [(USER_EMAIL, "a@example.org"), (USER_NAME, "Anna")] {
            assert_eq!(read(&[named]), Err(USER_ID.to_owned()), "{named:?}");
            assert_eq!(read(&[(USER_ID, " "), named]), Err(USER_ID.to_owned()), "{named:?}");
        }
    }
}
