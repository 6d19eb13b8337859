//! Files returned by tools: stores them temporarily and serves them to anyone with a signed link.
//!
//! A link grants access by itself: it contains the file's id and its expiry, and only this service can sign it. So pages and
//! people that receive a link from a model need no key.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use url::Url;
use uuid::Uuid;

use crate::domain::access::signature::Signer;
use crate::service::ports::{FileStore, FileStoreError, StoredFile};

pub(crate) struct Files {
    store: Arc<dyn FileStore>,
    signer: Signer,
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
    /// Links are valid only as long as the signer's key stays the same, even after a restart.
    #[must_use]
    pub(crate) fn new(store: Arc<dyn FileStore>, signer: Signer, public_url: &Url, lifetime: Duration) -> Self {
        Self { store, signer, public_url: public_url.as_str().trim_end_matches('/').to_owned(), lifetime }
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
        let signature = self.signer.sign(&signed(id, seconds)).ok_or(KeepError::Key)?;
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
        let is_signed = self.signer.verifies(&signed(id, expires), signature);
        if !is_signed || UNIX_EPOCH + Duration::from_secs(expires) <= now {
            return Ok(None);
        }
        Ok(self.store.read(id).await?.filter(|file| file.expires > now))
    }
}

/// The message that a link's signature covers.
fn signed(id: Uuid, expires: u64) -> String {
    format!("file\n{}\n{expires}", id.simple())
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
        Files::new(Arc::clone(store) as _, Signer::new(key.to_vec().into()), &url, lifetime)
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
