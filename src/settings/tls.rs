//! The certificate and the private key for HTTPS.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::settings::values::Reader;

const CERTIFICATE: &str = "http.tls_certificate";
const KEY: &str = "http.tls_key";

/// A certificate and its key, which have been read and checked.
#[derive(Clone)]
pub struct Tls {
    certificate: PathBuf,
    pub config: Arc<ServerConfig>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Tls").field("certificate", &self.certificate).finish_non_exhaustive()
    }
}

impl Tls {
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
        let chain = certificates(reader, &certificate);
        let private = private_key(reader, &key);
        let provider = Arc::new(ring::default_provider());
        let (chain, private) = (chain?, private?);
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, private));
        match config {
            Ok(config) => Some(Self { certificate, config: Arc::new(config) }),
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
