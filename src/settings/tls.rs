//! The certificate and the private key for HTTPS. A reload renews both if their files have changed.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::settings::values::Reader;

const CERTIFICATE: &str = "http.tls_certificate";
const KEY: &str = "http.tls_key";

/// A certificate and its key, which have been read and checked. Copies share them.
#[derive(Clone)]
pub struct Tls {
    certificate: PathBuf,
    key: PathBuf,
    pair: Arc<Pair>,
    pub config: Arc<ServerConfig>,
}

/// The certificate and the key for new connections.
#[derive(Debug)]
struct Pair(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Pair {
    fn resolve(&self, _client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tls").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

impl Tls {
    /// Takes over the certificate and the key that were read again, if both come from the same files. Returns whether the certificate
    /// has changed. Only new connections use it.
    pub(crate) fn renew(&self, read_again: &Self) -> bool {
        let is_same_place = self.certificate == read_again.certificate && self.key == read_again.key;
        let newer = read_again.pair.0.load_full();
        let is_renewed = is_same_place && self.pair.0.load().cert != newer.cert;
        if is_renewed {
            self.pair.0.store(newer);
        }
        is_renewed
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (certificate, key) = match (reader.optional_text(CERTIFICATE), reader.optional_text(KEY)) {
            (Some(certificate), Some(key)) => (PathBuf::from(certificate), PathBuf::from(key)),
            (None, None) => return None,
            (Some(_), None) => {
                reader.problem(
                    CERTIFICATE,
                    "a certificate without its private key",
                    "set the key's file too: --ssl-keyfile or http.tls_key",
                );
                return None;
            }
            (None, Some(_)) => {
                let remedy = "set the certificate's file too: --ssl-certfile or http.tls_certificate";
                reader.problem(KEY, "a private key without its certificate", remedy);
                return None;
            }
        };
        reader.watch(&certificate);
        reader.watch(&key);
        let chain = certificates(reader, &certificate);
        let private = private_key(reader, &key);
        let provider = Arc::new(ring::default_provider());
        let (chain, private) = (chain?, private?);
        let made = CertifiedKey::from_der(chain, private, &provider).and_then(|pair| {
            let pair = Arc::new(Pair(ArcSwap::from_pointee(pair)));
            let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
            Ok((builder.with_no_client_auth().with_cert_resolver(Arc::<Pair>::clone(&pair)), pair))
        });
        match made {
            Ok((config, pair)) => Some(Self { certificate, key, pair, config: Arc::new(config) }),
            Err(error) => {
                let remedy = "use the key of the certificate, and put the server's own certificate first in its file";
                reader.problem(CERTIFICATE, format!("can't be used with its key: {error}"), remedy);
                None
            }
        }
    }
}

fn certificates(reader: &mut Reader<'_>, path: &Path) -> Option<Vec<CertificateDer<'static>>> {
    let pem = contents(reader, CERTIFICATE, path)?;
    match CertificateDer::pem_slice_iter(&pem).collect::<Result<Vec<_>, _>>() {
        Ok(chain) if !chain.is_empty() => Some(chain),
        _ => {
            let remedy = "give a file with -----BEGIN CERTIFICATE----- blocks";
            reader.problem(CERTIFICATE, format!("{} contains no certificate in PEM format", path.display()), remedy);
            None
        }
    }
}

fn private_key(reader: &mut Reader<'_>, path: &Path) -> Option<PrivateKeyDer<'static>> {
    let pem = contents(reader, KEY, path)?;
    if let Ok(key) = PrivateKeyDer::from_pem_slice(&pem) {
        return Some(key);
    }
    let remedy = "give a file with a -----BEGIN PRIVATE KEY----- block; remove a passphrase with: openssl pkey -in key.pem -out plain.pem";
    reader.problem(KEY, format!("{} contains no private key in PEM format", path.display()), remedy);
    None
}

fn contents(reader: &mut Reader<'_>, key: &str, path: &Path) -> Option<Vec<u8>> {
    fs::read(path)
        .map_err(|error| reader.problem(key, format!("{} can't be read: {error}", path.display()), "check the path and its access rights"))
        .ok()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::Tls;
    use crate::settings::{Overrides, Settings, Sources};

    const ONE: &str = include_str!("../../tests/data/tls/one.pem");
    const TWO: &str = include_str!("../../tests/data/tls/two.pem");

    fn sources(certificate: &Path, key: &Path) -> Sources {
        let text = |path: &Path| Some(path.display().to_string());
        let overrides = Overrides { tls_certificate: text(certificate), tls_key: text(key), ..Overrides::default() };
        Sources { overrides, ..Sources::default() }
    }

    fn read(certificate: &Path, key: &Path) -> Tls {
        Settings::load(&sources(certificate, key)).unwrap().0.start.http.tls.unwrap()
    }

    #[test]
    fn the_same_files_renew_the_certificate_of_all_copies() {
        let folder = tempfile::tempdir().unwrap();
        let (file, other) = (folder.path().join("tls.pem"), folder.path().join("other.pem"));
        std::fs::write(&file, ONE).unwrap();
        std::fs::write(&other, TWO).unwrap();
        let own = read(&file, &file);
        let copy = own.clone();
        let first = copy.pair.0.load().cert.clone();
        assert!(!own.renew(&read(&file, &file)), "nothing has changed");
        assert!(!own.renew(&read(&other, &other)), "other files need a restart");
        std::fs::write(&file, TWO).unwrap();
        assert!(own.renew(&read(&file, &file)));
        assert_ne!(copy.pair.0.load().cert, first);
    }

    #[test]
    fn both_files_are_watched_even_if_they_do_not_match() {
        let folder = tempfile::tempdir().unwrap();
        let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        std::fs::write(&certificate, ONE).unwrap();
        std::fs::write(&key, ONE).unwrap();
        let settings = Settings::load(&sources(&certificate, &key)).unwrap().0;
        assert!([&certificate, &key].iter().all(|file| settings.files.contains(file)), "{:?}", settings.files);
        assert!(!settings.start.processes.files.contains(&certificate), "a certificate is not secret");
        std::fs::write(&key, TWO).unwrap();
        let errors = Settings::load(&sources(&certificate, &key)).unwrap_err();
        assert!([&certificate, &key].iter().all(|file| errors.files.contains(file)), "{:?}", errors.files);
    }
}
