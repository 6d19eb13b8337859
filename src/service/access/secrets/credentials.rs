//! The credentials that a server receives with a caller's call.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderMap;
use secrecy::SecretString;
use serde_json::value::RawValue;
use tokio::time::Instant;

use crate::domain::access::authorization::Challenge;
use crate::domain::access::principal::Principal;
use crate::domain::access::secret::{SecretName, SecretOpenError};
use crate::domain::access::template::FillError;
use crate::domain::catalog::tool::ServerName;
use crate::service::access::connections::ConnectionError;
use crate::service::access::secrets::{Secrets, Taken};
use crate::service::ports::{CallContext, CallError, Credentials, Parting, StoreError};

/// The reason why a server can't be called on behalf of a caller.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CredentialError {
    #[error(
        "`{0}` is called on behalf of a user, and this request names none: let Open WebUI forward its users \
         (ENABLE_FORWARD_USER_INFO_HEADERS=True there, a key that is trusted here)"
    )]
    NoUser(ServerName),
    #[error(
        "`{0}` needs secrets of a user or a named key, and this request belongs to neither: send a key created with \
         `toolsieve keys create`, or name the user with a trusted key"
    )]
    Nobody(ServerName),
    #[error("`{0}` needs secrets of its users, and the service has no key to seal them: an administrator must set `secrets.key`")]
    NoKey(ServerName),
    #[error("`{server}` can't be called for you: {}", problem_list(.server, .problems))]
    Unfilled { server: ServerName, problems: Vec<CredentialProblem> },
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CredentialProblem {
    Fill(FillError),
    Open(SecretName, SecretOpenError),
}

/// Lists the problems with their remedies.
fn problem_list(server: &ServerName, problems: &[CredentialProblem]) -> String {
    let mut texts: Vec<String> = Vec::new();
    for problem in problems {
        let text = match problem {
            CredentialProblem::Fill(error @ FillError::NoSecret(name)) => {
                format!("{error}; set it with PUT /v1/secrets/{server}/{name} and the body {{\"value\": \"…\"}}")
            }
            CredentialProblem::Fill(error @ FillError::Secret(name)) => {
                format!("{error}; set another one with PUT /v1/secrets/{server}/{name}")
            }
            CredentialProblem::Fill(error @ (FillError::NoEmail | FillError::NoName)) => {
                format!("{error}; the request must contain it (X-OpenWebUI-User-Email, X-OpenWebUI-User-Name, or the signed user)")
            }
            CredentialProblem::Fill(error) => error.to_string(),
            CredentialProblem::Open(name, error) => format!(
                "the secret `{name}` can't be read: {error}; set it again with PUT /v1/secrets/{server}/{name}, or ask an administrator \
                 to check secrets.former_keys"
            ),
        };
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts.join(". ")
}

type Opened = (BTreeMap<SecretName, SecretString>, Vec<CredentialProblem>, Option<Parting>);

impl Secrets {
    /// Whether a server's calls need the caller's headers, because one of them contains a token to exchange.
    pub(crate) fn exchanges(&self, server: &ServerName) -> bool {
        self.connections.exchanges(server)
    }

    /// The credentials for a server; `None` if it receives none from its callers. `headers` are those of the request.
    pub(crate) async fn credentials(
        &self,
        caller: &Principal,
        headers: &HeaderMap,
        server: &ServerName,
    ) -> Result<Option<Arc<Credentials>>, CredentialError> {
        let taken = self.taken.load().get(server).filter(|taken| !taken.settings.is_empty()).cloned();
        let Some(taken) = taken else { return Ok(None) };
        let read_at = Instant::now();
        // Without its token, the other values are of no use, and the user can get it by a click.
        let token = self.connections.token(caller, headers, server).await?;
        if taken.settings.names_user() && caller.user_id().is_none() {
            return Err(CredentialError::NoUser(server.clone()));
        }
        if !taken.settings.templates.is_empty() && !caller.is_somebody() {
            return Err(CredentialError::Nobody(server.clone()));
        }
        let (secrets, mut problems, parting) = self.opened(&taken, caller, server).await?;
        if let Some(parting) = parting {
            // Another service has changed them. Connections end that were opened before now, so these values are read once more.
            self.servers.disconnect(&caller.id, Some(server), parting);
            return Box::pin(self.credentials(caller, headers, server)).await;
        }
        let mut values = BTreeMap::new();
        for (name, template) in &taken.settings.templates {
            match template.fill(taken.slot, caller, &secrets) {
                Ok(value) => drop(values.insert(name.clone(), value)),
                Err(errors) => problems.extend(errors.into_iter().map(CredentialProblem::Fill)),
            }
        }
        if problems.is_empty() {
            return Ok(Some(Arc::new(Credentials::new(values, token, read_at))));
        }
        // An unreadable secret must not be reported as missing too.
        let unreadable: Vec<SecretName> = problems
            .iter()
            .filter_map(|problem| if let CredentialProblem::Open(name, _) = problem { Some(name.clone()) } else { None })
            .collect();
        problems.retain(|problem| !matches!(problem, CredentialProblem::Fill(FillError::NoSecret(name)) if unreadable.contains(name)));
        Err(CredentialError::Unfilled { server: server.clone(), problems })
    }

    /// Sends a request with the context's credentials. If the server rejects the token of the sign-in, sends it once more with another
    /// one. If only that one shows that the call needs more permissions, sends it with a third one, which has them.
    ///
    /// # Errors
    /// The error of the request. Or no other token can help, so that the caller must sign in again.
    pub(crate) async fn send<E, F>(
        &self,
        server: &ServerName,
        context: CallContext,
        send: impl Fn(CallContext) -> F,
    ) -> Result<Box<RawValue>, E>
    where
        E: From<CallError> + From<CredentialError>,
        F: Future<Output = Result<Box<RawValue>, CallError>>,
    {
        // Only servers that people sign in to answer with a challenge, so other requests need no copies.
        let credentials = context.credentials.clone();
        let Some((rejected, token)) = credentials.as_deref().and_then(|credentials| Some((credentials, credentials.token()?))) else {
            return Ok(send(context).await?);
        };
        let (mut token, mut former, mut next) = (token.clone(), None::<Box<Challenge>>, context.clone());
        loop {
            let challenge = match send(next).await {
                Err(CallError::Challenged(challenge)) => challenge,
                answered => return Ok(answered?),
            };
            let is_last = former.as_ref().is_some_and(|former| former.lacks_scope || !challenge.lacks_scope);
            let read_at = Instant::now();
            token = self.connections.challenged(&context, server, &token, &challenge, is_last).await.map_err(CredentialError::from)?;
            let renewed = Credentials::new(rejected.values().clone(), Some(token.clone()), read_at);
            next = CallContext { credentials: Some(Arc::new(renewed)), ..context.clone() };
            former = Some(challenge);
        }
    }

    /// The values of the caller's secrets, and how connections must end that were opened with others.
    async fn opened(&self, taken: &Taken, caller: &Principal, server: &ServerName) -> Result<Opened, CredentialError> {
        let (mut values, mut problems) = (BTreeMap::new(), Vec::new());
        if taken.secrets.is_empty() {
            return Ok((values, problems, None));
        }
        let keys = self.keys.as_ref().ok_or_else(|| CredentialError::NoKey(server.clone()))?;
        let secrets = self.store.secrets(&caller.id).await?;
        let of_server = secrets.iter().filter(|secret| secret.place.server == *server);
        let stand = taken.stand(of_server.map(|secret| (secret.place.name.clone(), secret.updated_at)));
        let parting = self.given.note_call(&caller.id, server, stand);
        for secret in secrets {
            let name = secret.place.name.clone();
            if secret.place.server == *server && taken.secrets.contains(&name) {
                match keys.open(&secret) {
                    Ok(value) => drop(values.insert(name, value)),
                    Err(error) => problems.push(CredentialProblem::Open(name, error)),
                }
            }
        }
        Ok((values, problems, parting))
    }
}
