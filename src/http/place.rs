//! Determines the address of a request: the whole service, a toolset or a session. All addresses have the same routes.

use std::future::{Ready, ready};
use std::sync::Arc;

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpMessage, HttpRequest};

use crate::domain::access::principal::Principal;
use crate::domain::access::toolset::ToolsetName;
use crate::domain::publishing::address::Address;
use crate::http::problem::Problem;
use crate::http::state::State;

/// The first part of a path, which names a toolset or a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressPrefix<'a> {
    Toolset(&'a str),
    Session(&'a str),
}

impl<'a> AddressPrefix<'a> {
    /// Splits a path into the part that names a toolset or a session, and the rest.
    #[must_use]
    pub fn split(path: &'a str) -> Option<(Self, &'a str)> {
        let part = |prefix: &str| {
            let rest = path.strip_prefix(prefix)?;
            let (name, below) = rest.split_at(rest.find('/')?);
            (!name.is_empty()).then_some((name, below))
        };
        let toolset = || part("/toolsets/").map(|(name, rest)| (Self::Toolset(name), rest));
        toolset().or_else(|| part("/s/").map(|(id, rest)| (Self::Session(id), rest)))
    }

    /// Looks up the address, and limits the principal to it. If the caller can see none of a toolset's tools, the
    /// toolset doesn't exist.
    pub(super) async fn enter(self, state: &State, principal: &Principal) -> Result<(Address, Principal), Problem> {
        match self {
            Self::Toolset(name) => {
                let name = ToolsetName::from(name);
                let principal = principal.kept_to(name.clone());
                if !state.current.shows_anything(&principal) {
                    return Err(Problem::not_found());
                }
                Ok((Address::Toolset(name), principal))
            }
            Self::Session(id) => {
                let session = state.sessions.find(id, principal).await?.ok_or_else(Problem::not_found)?;
                Ok((Address::Session(session), Principal { administers: false, ..principal.clone() }))
            }
        }
    }
}

/// The address to which a request was sent.
pub struct RequestAddress(pub Arc<Address>);

impl FromRequest for RequestAddress {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Ok(Self(request.extensions().get::<Arc<Address>>().cloned().unwrap_or_default())))
    }
}

#[cfg(test)]
mod tests {
    use super::AddressPrefix;

    #[test]
    fn addresses_differ_from_other_paths() {
        assert_eq!(AddressPrefix::split("/toolsets/mail/openapi.json"), Some((AddressPrefix::Toolset("mail"), "/openapi.json")));
        assert_eq!(AddressPrefix::split("/s/abc/v1/tools/call"), Some((AddressPrefix::Session("abc"), "/v1/tools/call")));
        for other in ["/toolsets/mail", "/toolsets//x", "/s/", "/s", "/sx/a/b", "/v1/toolsets/a/b", "/"] {
            assert_eq!(AddressPrefix::split(other), None, "{other}");
        }
    }
}
