//! Files returned by tools: stores them temporarily and serves them to anyone with a signed link.
//!
//! A link grants access by itself: it contains the file's id and its expiry, and only this service can sign it. So pages and
//! people that receive a link from a model need no key.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretSlice};
use sha2::Sha256;
use url::Url;
use uuid::Uuid;

use crate::service::ports::{FileStore, FileStoreError, StoredFile};

/// Length of a signature, in bytes. As short as is safe, because models copy links letter by letter.
const SIGNATURE_BYTES: usize = 16;

pub(crate) struct Files {
    store: Arc<dyn FileStore>,
    key: SecretSlice<u8>,
    public_url: String,
    lifetime: Duration,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum KeepError {
    #[error(transparent)]
    Store(#[from] FileStoreError),
    #[error("no signature can be made with this key")]
    Key,
}

impl Files {
    /// `key` is a secret of this service. Links are valid only as long as it stays the same, even after a restart.
    #[must_use]
    pub(crate) fn new(store: Arc<dyn FileStore>, key: SecretSlice<u8>, public_url: &Url, lifetime: Duration) -> Self {
        Self { store, key, public_url: public_url.as_str().trim_end_matches('/').to_owned(), lifetime }
    }

    /// How long a link is valid.
    #[must_use]
    pub(crate) fn lifetime(&self) -> Duration {
        self.lifetime
    }

    /// Stores a file and returns its link.
    ///
    /// # Errors
    /// [`KeepError`] if the file can't be stored.
    pub(crate) async fn keep(&self, mime_type: &str, name: Option<&str>, bytes: Vec<u8>) -> Result<String, KeepError> {
        let id = Uuid::new_v4();
        let end = SystemTime::now() + self.lifetime;
        let seconds = end.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let signature = URL_SAFE_NO_PAD.encode(&self.mac(id, seconds)?.finalize().into_bytes()[..SIGNATURE_BYTES]);
        let file = StoredFile {
            mime_type: mime_type.to_owned(),
            name: name.map(str::to_owned),
            expires: UNIX_EPOCH + Duration::from_secs(seconds),
            bytes: Bytes::from(bytes),
        };
        self.store.save(id, file).await?;
        Ok(format!("{}/v1/files/{}?expires={seconds}&signature={signature}", self.public_url, id.simple()))
    }

    /// The file behind a link; `None` if the link is invalid or has expired.
    ///
    /// # Errors
    /// [`FileStoreError`] if the file can't be read.
    pub(crate) async fn open(&self, id: &str, expires: u64, signature: &str) -> Result<Option<StoredFile>, FileStoreError> {
        let now = SystemTime::now();
        let Ok(id) = Uuid::try_parse(id) else { return Ok(None) };
        let is_signed = URL_SAFE_NO_PAD.decode(signature).is_ok_and(|signature| {
            signature.len() == SIGNATURE_BYTES && self.mac(id, expires).is_ok_and(|mac| mac.verify_truncated_left(&signature).is_ok())
        });
        if !is_signed || UNIX_EPOCH + Duration::from_secs(expires) <= now {
            return Ok(None);
        }
        Ok(self.store.read(id).await?.filter(|file| file.expires > now))
    }

    fn mac(&self, id: Uuid, expires: u64) -> Result<Hmac<Sha256>, KeepError> {
        let mut message = String::from("file\n");
        let _ = write!(message, "{}\n{expires}", id.simple());
        Hmac::<Sha256>::new_from_slice(self.key.expose_secret()).map_err(|_| KeepError::Key).map(|mac| mac.chain_update(message))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Mutex;

    use async_trait::async_trait;

    use super::*;

    #[derive(Default)]
    struct Memory(Mutex<HashMap<Uuid, StoredFile>>);

    #[async_trait]
    impl FileStore for Memory {
        async fn save(&self, id: Uuid, file: StoredFile) -> Result<(), FileStoreError> {
            self.0.lock().unwrap().insert(id, file);
            Ok(())
        }

        async fn read(&self, id: Uuid) -> Result<Option<StoredFile>, FileStoreError> {
            Ok(self.0.lock().unwrap().get(&id).cloned())
        }
    }

    fn files(key: &[u8], lifetime: Duration, store: &Arc<Memory>) -> Files {
        let url = "https://tools.example.org/base/".parse().unwrap();
        Files::new(Arc::clone(store) as _, SecretSlice::from(key.to_vec()), &url, lifetime)
    }

    /// The id, the expiry and the signature in a link.
    fn parts(link: &str) -> (String, u64, String) {
        let link: Url = link.parse().unwrap();
        let query: HashMap<_, _> = link.query_pairs().into_owned().collect();
        (link.path().rsplit('/').next().unwrap().to_owned(), query["expires"].parse().unwrap(), query["signature"].clone())
    }

    #[tokio::test]
    async fn only_a_link_that_was_not_touched_opens_the_file_and_only_in_time() {
        let store = Arc::<Memory>::default();
        let hour = files(b"key", Duration::from_hours(1), &store);
        let link = hour.keep("audio/wav", Some("a.wav"), vec![1, 2, 3]).await.unwrap();
        assert!(link.starts_with("https://tools.example.org/base/v1/files/"), "{link}");
        let (id, expires, signature) = parts(&link);
        let file = hour.open(&id, expires, &signature).await.unwrap().unwrap();
        assert_eq!((&*file.bytes, file.mime_type.as_str(), file.name.as_deref()), (&[1, 2, 3][..], "audio/wav", Some("a.wav")));

        let (other, ..) = parts(&hour.keep("audio/wav", None, vec![4]).await.unwrap());
        let foreign = files(b"another", Duration::from_hours(1), &store);
        assert!(hour.open(&id, expires + 1, &signature).await.unwrap().is_none(), "a later end");
        assert!(hour.open(&other, expires, &signature).await.unwrap().is_none(), "another file");
        assert!(hour.open(&id, expires, &signature[..21]).await.unwrap().is_none(), "a part of the signature");
        assert!(hour.open(&id, expires, "").await.unwrap().is_none(), "no signature");
        assert!(hour.open("../x", expires, &signature).await.unwrap().is_none(), "no id");
        assert!(foreign.open(&id, expires, &signature).await.unwrap().is_none(), "another key");

        let none = files(b"key", Duration::ZERO, &store);
        let (id, expires, signature) = parts(&none.keep("audio/wav", None, vec![1]).await.unwrap());
        assert!(none.open(&id, expires, &signature).await.unwrap().is_none(), "its time is over");
    }
}
