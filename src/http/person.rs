//! The user that a trusted caller acts for, from headers or from the body.
//!
//! Unreadable data is rejected with the reason. It never falls back to the key alone. A display name decides nothing, so a long one
//! is cut.

use std::collections::BTreeSet;

use actix_web::http::header::HeaderMap;
use percent_encoding::percent_decode_str;
use serde_json::Value;

use crate::domain::access::principal::User;
use crate::http::problem::Problem;

/// Longest id, address, group and model name; the cut length of a display name.
pub(crate) const MAX_BYTES: usize = 256;
/// Maximum number of groups of a user.
pub(crate) const MAX_GROUPS: usize = 512;

const USER_ID: &str = "x-openwebui-user-id";
const USER_EMAIL: &str = "x-openwebui-user-email";
/// Percent-encoded, as Open WebUI sends it.
const USER_NAME: &str = "x-openwebui-user-name";
const USER_GROUPS: &str = "x-openwebui-user-groups";

/// The user in the headers; the id is required.
///
/// # Errors
/// `Code::InvalidRequest`.
pub(crate) fn of_headers(headers: &HeaderMap) -> Result<Option<User>, Problem> {
    let Some(id) = text(headers, USER_ID, MAX_BYTES)? else { return Ok(None) };
    // The separator adds a comma per group.
    let groups = text(headers, USER_GROUPS, MAX_GROUPS * (MAX_BYTES + 1))?.unwrap_or_default();
    let groups = groups.split(',').map(str::trim).filter(|group| !group.is_empty()).map(str::to_owned).collect();
    let name =
        headers.get(USER_NAME).map(|name| percent_decode_str(&String::from_utf8_lossy(name.as_bytes())).decode_utf8_lossy().into_owned());
    let user = User { id, email: text(headers, USER_EMAIL, MAX_BYTES)?, name, groups };
    bounded(user).map(Some).map_err(|what| Problem::invalid(USER_ID, format!("The user in the headers can't be read: {what}.")))
}

/// The user in a body.
///
/// # Errors
/// `Code::InvalidRequest`.
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

/// The same user if all fields that rules can use are within their limits, with the name cut.
///
/// # Errors
/// The field that is not.
pub(crate) fn bounded(mut user: User) -> Result<User, String> {
    let is_long = |text: &String| text.len() > MAX_BYTES;
    if user.id.is_empty() {
        return Err("it has no id".to_owned());
    }
    let named = [("id", Some(&user.id)), ("email", user.email.as_ref()), ("a group", user.groups.iter().find(|group| is_long(group)))];
    if let Some((what, text)) = named.into_iter().find_map(|(what, text)| Some((what, text.filter(|text| is_long(text))?))) {
        return Err(format!("{what} has {} bytes, at most {MAX_BYTES} are taken", text.len()));
    }
    if user.groups.len() > MAX_GROUPS {
        return Err(format!("it has {} groups, at most {MAX_GROUPS} are taken", user.groups.len()));
    }
    if let Some(name) = &mut user.name {
        name.truncate(name.floor_char_boundary(MAX_BYTES));
    }
    Ok(user)
}

/// The value of a non-empty header within the length limit.
///
/// # Errors
/// `Code::InvalidRequest`.
pub(crate) fn text(headers: &HeaderMap, name: &'static str, longest: usize) -> Result<Option<String>, Problem> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    match std::str::from_utf8(value.as_bytes()) {
        Ok(text) if text.len() <= longest => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
        Ok(text) => Err(Problem::invalid(name, format!("The header {name} has {} bytes, at most {longest} are taken.", text.len()))),
        Err(_) => Err(Problem::invalid(name, format!("The header {name} is no text."))),
    }
}
