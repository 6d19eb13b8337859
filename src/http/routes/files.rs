//! Files that tools have returned, behind signed links.

use actix_web::http::header;
use actix_web::{HttpResponse, get, web};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::http::problem::{Answer, Code, Problem};
use crate::http::state::State;
use crate::service::ports::{FileStoreError, StoredFile};

/// Types of files that browsers may display, because they can't contain code. All other files are downloaded.
const SHOWN: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// The Content-Security-Policy for files, which keeps a file from running or loading anything.
const POLICY: &str = "default-src 'none'; media-src 'self'; img-src 'self'; sandbox";
const LONGEST_NAME: usize = 100;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct Link {
    /// When the link expires, in seconds since 1970.
    expires: u64,
    /// The service's signature. With it, the link needs no key.
    signature: String,
}

/// Returns a file from a tool's result, until the link expires.
#[utoipa::path(
    tag = "files",
    params(("id" = String, Path, description = "The file's id, from the link"), Link),
    responses(
        (status = 200, description = "The file", content_type = "application/octet-stream", body = String),
        (status = 404, description = "The link is invalid or expired")
    ),
    security(())
)]
#[get("/v1/files/{id}")]
pub async fn file(state: web::Data<State>, id: web::Path<String>, link: Option<web::Query<Link>>) -> Answer {
    let found = match (&state.files, link) {
        (Some(files), Some(link)) => files.open(&id, link.expires, &link.signature).await.map_err(|error| match error {
            FileStoreError::Store(error) => Problem::from(error),
            error => Problem::new(Code::Internal, error.to_string()),
        })?,
        _ => None,
    };
    let gone = || Problem::new(Code::NotFound, "The link is invalid or expired. Call the tool again for a new one.");
    let StoredFile { mime_type, name, bytes, .. } = found.ok_or_else(gone)?;
    Ok(HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, mime_type.as_str()))
        .insert_header((header::CONTENT_DISPOSITION, disposition(&mime_type, name.as_deref())))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((header::CONTENT_SECURITY_POLICY, POLICY))
        .insert_header((header::CACHE_CONTROL, "private, no-store"))
        .body(bytes))
}

/// Decides how browsers handle the file: they display audio, video and simple images, and download other files under
/// their names (RFC 6266).
fn disposition(mime_type: &str, name: Option<&str>) -> String {
    let is_shown = SHOWN.contains(&mime_type) || mime_type.starts_with("audio/") || mime_type.starts_with("video/");
    let kind = if is_shown { "inline" } else { "attachment" };
    let Some(name) = name.map(|name| name.chars().filter(|letter| !letter.is_control()).take(LONGEST_NAME).collect::<String>()) else {
        return kind.to_owned();
    };
    let plain: String =
        name.chars().map(|letter| if letter.is_ascii_alphanumeric() || "-_. ".contains(letter) { letter } else { '_' }).collect();
    let encoded = percent_encoding::utf8_percent_encode(&name, percent_encoding::NON_ALPHANUMERIC);
    format!("{kind}; filename=\"{plain}\"; filename*=UTF-8''{encoded}")
}

#[cfg(test)]
mod tests {
    use super::disposition;

    #[test]
    fn what_could_run_is_saved_and_no_name_breaks_the_header() {
        assert_eq!(disposition("audio/wav", None), "inline");
        for active in ["text/html", "image/svg+xml", "application/pdf", "text/xml"] {
            assert_eq!(disposition(active, None), "attachment", "{active}");
        }
        let named = disposition("application/zip", Some("a\"b\r\n;é.zip"));
        assert_eq!(named, "attachment; filename=\"a_b__.zip\"; filename*=UTF-8''a%22b%3B%C3%A9%2Ezip");
    }
}
