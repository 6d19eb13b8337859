//! `toolsieve secrets`: creates the key that encrypts users' secrets, and deletes a user's secrets.

use clap::Subcommand;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use secrecy::ExposeSecret;

use crate::cli::admin::ServiceAccess;
use crate::cli::{Outcome, print};
use crate::domain::access::secret::{KEY_BYTES, SecretKey};

#[derive(Subcommand)]
pub(super) enum Secrets {
    /// Print a new key for `secrets.key` (`TOOLSIEVE_SECRETS_KEY`), or for the file in `secrets.key_file`
    NewKey,
    /// Delete all secrets of a user or a named key, end and revoke its sign-ins to MCP servers, delete the sums of its usage, and forget
    /// what its messages taught
    Forget {
        /// Owner of the secrets: user:ID or key:NAME
        principal: String,
        #[command(flatten)]
        access: ServiceAccess,
    },
}

impl Secrets {
    pub(super) fn run(self) -> Outcome {
        match self {
            Self::NewKey => {
                eprintln!("Keep this key safe: without it, nobody can decrypt the stored secrets.");
                print(SecretKey::write(&rand::random::<[u8; KEY_BYTES]>()).expose_secret())
            }
            Self::Forget { principal, access } => {
                let path = format!("/v1/admin/secrets/{}", utf8_percent_encode(&principal, NON_ALPHANUMERIC));
                let answer = access.ask(Method::DELETE, &path, None)?;
                let (secrets, sign_ins) = (&answer["removed"], &answer["sign_ins"]);
                let (sums, learned) = (&answer["usage_removed"], &answer["learned"]);
                print(&format!(
                    "Removed {secrets} secrets, {sign_ins} sign-ins, {sums} sums of usage and {learned} learned uses of {principal}."
                ))
            }
        }
    }
}
