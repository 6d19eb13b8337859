//! `toolsieve secrets`: creates the key that encrypts users' secrets, and lists and deletes users' secrets.

use clap::Subcommand;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use secrecy::ExposeSecret;
use serde_json::Value;

use crate::cli::admin::{ServiceAccess, Shown};
use crate::cli::table::cell as text;
use crate::cli::{Outcome, print, table};
use crate::domain::access::secret::{KEY_BYTES, SecretKey};

/// Number of secrets in the list.
const MOST: usize = 1_000;

#[derive(Subcommand)]
pub(super) enum Secrets {
    /// Print a new key for `secrets.key` (`TOOLSIEVE_SECRETS_KEY`), or for the file in `secrets.key_file`
    NewKey,
    /// List the secrets that users and named keys have stored, without their values
    List {
        #[command(flatten)]
        shown: Shown,
    },
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
            Self::List { shown } => shown.get(&format!("/v1/admin/secrets?limit={MOST}"), as_table),
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

fn as_table(answer: &Value) -> String {
    let secrets = &answer["secrets"];
    let table = table::of_list(&["Principal", "Server", "Name", "Changed"], secrets, |secret| {
        ["principal", "server", "name", "updated_at"].map(|member| text(&secret[member]))
    });
    let total = answer["total"].as_u64().unwrap_or_default();
    let shown = secrets.as_array().map_or(0, Vec::len) as u64;
    if total > shown { format!("{table}\nThese are the first {shown} of {total}.") } else { table }
}
