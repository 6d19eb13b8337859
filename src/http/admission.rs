//! Decides who sends a request, from its key and from the user whom a trusted caller names.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use actix_web::http::header::{self, HeaderMap};
use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;

use crate::domain::access::principal::{GroupTable, Principal, PrincipalKind, User};
use crate::domain::access::user_token::SignedUser;
use crate::domain::access::{api_key, user_token};
use crate::http::person::{self, MAX_BYTES, NamesUser};
use crate::http::problem::{Code, Problem};
use crate::service::access::keys::Keys;

const USER_TOKEN: &str = "x-openwebui-user-jwt";
const MODEL: &str = "x-openwebui-model-id";

/// Determines a request's principal from its key, and from the user whom a trusted caller names.
pub(crate) struct Admission {
    pub access: Access,
    pub keys: Arc<Keys>,
    /// Without an admin key, nobody is an administrator. If no keys are configured at all, callers on this machine are
    /// administrators.
    pub admin_key: Option<SecretString>,
    /// Whether callers with the service key may name the user on whose behalf they call.
    pub trust_users: bool,
    /// The secret for users' signed identities. If it is set, requests with an unsigned identity are refused.
    pub user_jwt_secret: Option<SecretString>,
    pub groups: ArcSwap<GroupTable>,
}

/// The trusted caller of a request whose user is signed without groups. Attached to the request, because its body may contain the groups.
#[derive(Clone)]
pub(crate) struct Ungrouped(Arc<Principal>);

/// Which callers may use the service.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// Callers with this key, a named key or the admin key. Without a service key, only the other two.
    Key(Option<SecretString>),
    /// As in mcpo: only calls need the key, and documents are public. With `strict`, documents need the key too.
    Mcpo { key: SecretString, strict: bool },
    /// Everybody on this machine who uses a loopback address.
    Loopback,
    /// Everybody who can reach the service, as the administrator requested.
    Everybody,
}

impl Admission {
    /// Authenticates the caller. All kinds of wrong keys get the same response.
    pub(super) fn decide(&self, credentials: &RequestCredentials<'_>) -> Result<(Principal, Option<Ungrouped>), Refusal> {
        let headers = credentials.headers;
        let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(credential);
        // Browsers attach Basic credentials to every request, even to requests from other sites' pages.
        let given = given.filter(|(scheme, _)| *scheme == Scheme::Bearer || credentials.takes_basic);
        let named = match &given {
            Some((_, key)) if self.is_admin_key(key) => Some(Principal::admin_key()),
            Some((_, key)) if self.access.is_key(key) => None,
            Some((_, key)) => match self.keys.find(key) {
                Some(found) => Some(Principal::api_key(&found)),
                None if key.starts_with(api_key::PREFIX) || self.keys.is_in_file(key) => {
                    return Err(Refusal::WrongKey(self.access.refused()));
                }
                None => None,
            },
            None => None,
        };
        let principal = if let Some(principal) = named {
            principal
        } else {
            let principal = by_configuration(self.access(), given, credentials)?;
            Principal { vouches: self.trust_users && principal.kind == PrincipalKind::ServiceKey, ..principal }
        };
        let (principal, ungrouped) = match self.user(&principal, headers)? {
            Some(NamedUser { user, lacks_groups }) => {
                (self.on_behalf_of(&principal, user), lacks_groups.then(|| Ungrouped(Arc::new(principal))))
            }
            None => (principal, None),
        };
        Ok((principal.with_model(person::text(headers, MODEL, MAX_BYTES)?), ungrouped))
    }

    /// Which callers may use the service now. Keys in the settings file close a service that was started without keys.
    fn access(&self) -> &Access {
        match &self.access {
            Access::Loopback | Access::Everybody if self.keys.are_required() => &Access::Key(None),
            access => access,
        }
    }

    /// Whether the `Authorization` header contains one of this service's keys, even if that key was rejected.
    pub(crate) fn brings_own_key(&self, headers: &HeaderMap) -> bool {
        let is_own =
            |key: &str| key.starts_with(api_key::PREFIX) || self.access.is_key(key) || self.is_admin_key(key) || self.keys.is_in_file(key);
        let values = headers.get_all(header::AUTHORIZATION).filter_map(|value| value.to_str().ok());
        values.map(str::trim).any(|value| is_own(value) || credential(value).is_some_and(|(_, key)| is_own(&key)))
    }

    /// Whether this is the admin key.
    pub(crate) fn is_admin_key(&self, given: &str) -> bool {
        self.admin_key.as_ref().is_some_and(|known| is_same(given, known))
    }

    pub(crate) fn has_admin_key(&self) -> bool {
        self.admin_key.is_some()
    }

    /// Whether people on this machine may do everything, because there are no keys.
    pub(crate) fn needs_no_key(&self) -> bool {
        self.admin_key.is_none() && matches!(self.access(), Access::Loopback)
    }

    /// Whether the caller has authenticated. If no key is configured, every caller counts as authenticated.
    pub(super) fn is_known(&self, principal: &Principal) -> bool {
        match principal.kind {
            PrincipalKind::Nobody => false,
            PrincipalKind::Anyone => !matches!(self.access, Access::Mcpo { .. }),
            _ => true,
        }
    }

    /// How far servers may believe the headers in which this caller names a user.
    pub(crate) fn names_user(&self, principal: &Principal) -> NamesUser {
        self.access.names_user(principal.kind, self.user_jwt_secret.is_some())
    }

    /// The user on whose behalf a trusted caller makes the request.
    fn user(&self, principal: &Principal, headers: &HeaderMap) -> Result<Option<NamedUser>, Problem> {
        if !principal.vouches {
            return Ok(None);
        }
        let token = headers.get(USER_TOKEN).filter(|token| !token.as_bytes().trim_ascii().is_empty());
        let Some(secret) = &self.user_jwt_secret else {
            let user = person::of_headers(headers)?;
            if user.is_none() && token.is_some() {
                let detail = "The user in X-OpenWebUI-User-Jwt can't be read, because access.user_jwt_secret is not set. Set it to the \
                              secret with which Open WebUI signs users (FORWARD_USER_INFO_HEADER_JWT_SECRET).";
                return Err(Problem::invalid(USER_TOKEN, detail));
            }
            return Ok(user.map(|user| NamedUser { user, lacks_groups: false }));
        };
        let Some(token) = token else {
            return person::named_by(headers).map_or(Ok(None), |name| Err(unsigned(&format!("The header {name}"))));
        };
        let signed = token.to_str().ok().and_then(|token| user_token::read(token, secret, SystemTime::now()));
        let invalid = "it is invalid or has expired. Set FORWARD_USER_INFO_HEADER_JWT_SECRET in Open WebUI to the value of \
                       access.user_jwt_secret, and check both clocks";
        let SignedUser { user, has_groups } = signed.ok_or_else(|| self.unreadable(invalid))?;
        let user = person::bounded(user).map_err(|what| self.unreadable(&what))?;
        let user = if has_groups { user } else { person::with_groups(headers, user)? };
        Ok(Some(NamedUser { lacks_groups: !has_groups && user.groups.is_empty(), user }))
    }

    /// The error for a signed user that can't be read. The caller's own key is right.
    fn unreadable(&self, why: &str) -> Problem {
        Problem::new(self.access.refused().code, format!("The user in X-OpenWebUI-User-Jwt can't be read: {why}."))
    }

    /// A user on whose behalf a caller acts, with the user's groups.
    pub(crate) fn on_behalf_of(&self, principal: &Principal, user: User) -> Principal {
        principal.on_behalf_of(user, &self.groups.load())
    }

    /// The user that a trusted caller names in a request body. If the headers name a user, the body can only add the groups that a signed
    /// identity lacks.
    ///
    /// # Errors
    /// `Code::InvalidRequest` if the user must be signed.
    pub(crate) fn for_user_in_body(
        &self,
        principal: &Principal,
        ungrouped: Option<&Ungrouped>,
        user: Option<User>,
    ) -> Result<Principal, Problem> {
        match (user, ungrouped) {
            (Some(_), _) if principal.vouches && self.user_jwt_secret.is_some() => Err(unsigned("`user`")),
            (Some(user), _) if principal.vouches => Ok(self.on_behalf_of(principal, user)),
            (Some(user), Some(Ungrouped(trusted))) if principal.user_id() == Some(user.id.as_str()) => {
                let user = User { email: principal.email.clone(), ..user };
                Ok(Principal { groups: self.on_behalf_of(trusted, user).groups, ..principal.clone() })
            }
            _ => Ok(principal.clone()),
        }
    }
}

/// The user whom a trusted caller names in the headers.
struct NamedUser {
    user: User,
    /// Whether the user is signed, and neither the token nor another header contains groups.
    lacks_groups: bool,
}

/// The error for a user without the required signature. Without the user, the request would have all rights of the key.
fn unsigned(what: &str) -> Problem {
    let detail = "names a user, but X-OpenWebUI-User-Jwt is missing. Set FORWARD_USER_INFO_HEADER_JWT_SECRET in Open WebUI to the value of \
                  access.user_jwt_secret. If it is set, look for errors in the log of Open WebUI.";
    Problem::invalid(USER_TOKEN, format!("{what} {detail}"))
}

/// The parts of a request that authentication needs.
pub(super) struct RequestCredentials<'a> {
    pub headers: &'a HeaderMap,
    pub reads_document: bool,
    /// Whether this request may use Basic authentication.
    pub takes_basic: bool,
    /// Whether the request comes from a program or from one of the service's own pages.
    pub is_own: bool,
}

/// Why a request was rejected.
pub(super) enum Refusal {
    /// The request contained a wrong key.
    WrongKey(Problem),
    Other(Problem),
}

impl Refusal {
    fn no_key() -> Self {
        Self::Other(Problem::new(Code::Unauthorized, "Send the key as `Authorization: Bearer <key>`."))
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self::Other(problem)
    }
}

/// Determines the principal by the configured keys.
fn by_configuration(access: &Access, given: Option<(Scheme, String)>, credentials: &RequestCredentials<'_>) -> Result<Principal, Refusal> {
    let reads_document = credentials.reads_document;
    match access {
        Access::Mcpo { strict: false, .. } if reads_document => Ok(Principal::anyone()),
        Access::Mcpo { .. } => match given {
            Some((scheme, given)) if scheme == Scheme::Bearer || reads_document => {
                if access.is_key(&given) {
                    Ok(Principal::service_key())
                } else {
                    Err(Refusal::WrongKey(access.refused()))
                }
            }
            _ => Err(Refusal::no_key()),
        },
        Access::Everybody => Ok(Principal::anyone()),
        // A local user may administer a service without keys. Pages of other sites may only do what the settings allow.
        Access::Loopback if is_local(credentials.headers) => Ok(Principal { administers: credentials.is_own, ..Principal::anyone() }),
        Access::Loopback => {
            let detail = "Without a key only this machine is served. Set an API key to serve other hosts.";
            Err(Problem::new(Code::ForeignOrigin, detail).into())
        }
        Access::Key(_) => match given {
            Some((_, given)) if access.is_key(&given) => Ok(Principal::service_key()),
            Some(_) => Err(Refusal::WrongKey(access.refused())),
            None => Err(Refusal::no_key()),
        },
    }
}

impl Access {
    /// How far a caller of this kind is believed, if users are signed or not. Where nobody needs a key of their own, as in mcpo, the
    /// servers' owner decides with `client_header_forwarding` alone.
    fn names_user(&self, kind: PrincipalKind, are_signed: bool) -> NamesUser {
        match kind {
            PrincipalKind::User if are_signed => NamesUser::Signed,
            PrincipalKind::User | PrincipalKind::Anyone => NamesUser::Freely,
            PrincipalKind::ServiceKey if matches!(self, Self::Mcpo { .. }) => NamesUser::Freely,
            PrincipalKind::ServiceKey | PrincipalKind::AdminKey | PrincipalKind::ApiKey | PrincipalKind::Nobody => NamesUser::Never,
        }
    }

    fn is_key(&self, given: &str) -> bool {
        match self {
            Self::Key(Some(key)) | Self::Mcpo { key, .. } => is_same(given, key),
            Self::Key(None) | Self::Loopback | Self::Everybody => false,
        }
    }

    /// The error for all wrong keys, regardless of the reason.
    fn refused(&self) -> Problem {
        match self {
            Self::Mcpo { .. } => Problem::new(Code::WrongKey, "Send the key that the service was started with."),
            _ => Problem::new(Code::Unauthorized, "The key is wrong."),
        }
    }
}

fn is_same(given: &str, key: &SecretString) -> bool {
    given.as_bytes().ct_eq(key.expose_secret().as_bytes()).into()
}

/// The authentication scheme (RFC 7235).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Bearer,
    Basic,
}

/// Extracts the key from `Bearer KEY` or `Basic base64(user:KEY)`.
fn credential(value: &str) -> Option<(Scheme, String)> {
    let (scheme, rest) = value.split_once(' ')?;
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some((Scheme::Bearer, rest.trim().to_owned()));
    }
    if scheme.eq_ignore_ascii_case("basic") {
        let decoded = String::from_utf8(STANDARD.decode(rest.trim()).ok()?).ok()?;
        return decoded.split_once(':').map(|(_, password)| (Scheme::Basic, password.to_owned()));
    }
    None
}

/// Whether the request was sent to a local host name. With DNS rebinding, another site's page can reach a loopback
/// address under the site's own host name, but the `Host` header still contains that name.
fn is_local(headers: &HeaderMap) -> bool {
    headers.get(header::HOST).is_none_or(|host| is_local_host(host.to_str().unwrap_or_default()))
}

fn is_local_host(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').filter(|(_, after)| is_port(after)).map(|(name, _)| name).unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether this text may follow an IPv6 address in brackets: it is empty or a port.
fn is_port(after: &str) -> bool {
    after.is_empty() || after.strip_prefix(':').is_some_and(|port| port.bytes().all(|digit| digit.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use actix_web::http::header::HeaderMap;

    use super::{Access, Refusal, RequestCredentials, Scheme, by_configuration, credential, is_local_host};
    use crate::domain::access::principal::PrincipalKind;
    use crate::http::person::{NamesUser, unproved};

    fn reading(headers: &HeaderMap) -> RequestCredentials<'_> {
        RequestCredentials { headers, reads_document: true, takes_basic: true, is_own: true }
    }

    #[test]
    fn keys_come_as_bearer_or_basic() {
        let bearer = |key: &str| Some((Scheme::Bearer, key.to_owned()));
        assert_eq!(credential("Bearer abc"), bearer("abc"));
        assert_eq!(credential("bearer  abc "), bearer("abc"));
        assert_eq!(credential("Basic dTphOmI="), Some((Scheme::Basic, "a:b".to_owned())));
        assert_eq!(credential("Basic ???"), None);
        assert_eq!(credential("abc"), None);
    }

    /// For all routes that mcpo also has, the status codes are those of mcpo 0.0.20.
    #[test]
    fn callers_of_mcpo_are_let_in_where_it_lets_them_in() {
        let decide = |strict, reads_document, authorization: Option<&'static str>| {
            let access = Access::Mcpo { key: "key".into(), strict };
            let given = authorization.and_then(credential);
            let headers = HeaderMap::new();
            by_configuration(&access, given, &RequestCredentials { reads_document, ..reading(&headers) })
                .map_or_else(|(Refusal::WrongKey(problem) | Refusal::Other(problem))| problem.code.status().as_u16(), |_| 200)
        };
        let (right, wrong) = (Some("Bearer key"), Some("Bearer kex"));
        let (basic, wrong_basic) = (Some("Basic dTprZXk="), Some("Basic dTprZXg="));
        for (strict, reads_document, authorization, status) in [
            (false, true, None, 200),
            (false, true, wrong, 200),
            (false, false, None, 401),
            (false, false, wrong, 403),
            (false, false, right, 200),
            (false, false, basic, 401),
            (true, true, None, 401),
            (true, true, wrong, 403),
            (true, true, right, 200),
            (true, true, basic, 200),
            (true, true, wrong_basic, 403),
            (true, true, Some("Basic ???"), 401),
            (true, false, basic, 401),
            (true, false, right, 200),
        ] {
            let case = (strict, reads_document, authorization);
            assert_eq!(decide(strict, reads_document, authorization), status, "{case:?}");
        }
        let headers = HeaderMap::new();
        let open = by_configuration(&Access::Mcpo { key: "key".into(), strict: false }, None, &reading(&headers));
        assert_ne!(open.ok().unwrap().kind, PrincipalKind::ServiceKey, "whoever reads a document has not shown the key");
    }

    #[test]
    fn servers_learn_of_users_only_from_who_may_name_them() {
        let (mcpo, own) = (Access::Mcpo { key: "key".into(), strict: false }, Access::Key(Some("key".into())));
        for (access, kind, unsigned, signed) in [
            (&own, PrincipalKind::User, NamesUser::Freely, NamesUser::Signed),
            (&own, PrincipalKind::ApiKey, NamesUser::Never, NamesUser::Never),
            (&own, PrincipalKind::ServiceKey, NamesUser::Never, NamesUser::Never),
            (&own, PrincipalKind::AdminKey, NamesUser::Never, NamesUser::Never),
            (&mcpo, PrincipalKind::ServiceKey, NamesUser::Freely, NamesUser::Freely),
            (&mcpo, PrincipalKind::ApiKey, NamesUser::Never, NamesUser::Never),
            (&Access::Loopback, PrincipalKind::Anyone, NamesUser::Freely, NamesUser::Freely),
        ] {
            assert_eq!((access.names_user(kind, false), access.names_user(kind, true)), (unsigned, signed), "{access:?} {kind:?}");
        }
        let named = ["x-openwebui-user-id", "x-openwebui-user-email", "x-openwebui-user-name", "x-openwebui-user-role"];
        assert_eq!(unproved(NamesUser::Signed), named, "groups need no signature");
        assert_eq!(unproved(NamesUser::Never), [&named[..], &["x-openwebui-user-groups"]].concat());
        assert!(unproved(NamesUser::Freely).is_empty());
    }

    #[test]
    fn local_hosts() {
        for host in ["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]", "[::1]:8000", "127.8.8.8"] {
            assert!(is_local_host(host), "{host}");
        }
        let bracketed = ["[::2]", "[::1", "[::1].evil", "[::1].evil.example:8000", "[::1]evil", "[::1]:evil", "[::1]:80.evil", "[::1]]"];
        for host in ["evil.example", "localhost.evil.example:8000", "10.0.0.1", ""].into_iter().chain(bracketed) {
            assert!(!is_local_host(host), "{host}");
        }
    }
}
