//! Determines the address of a request: the whole service, a toolset or a session. All addresses have the same routes.

use std::future::{Ready, ready};
use std::sync::Arc;

use actix_web::dev::Payload;
use actix_web::{FromRequest, HttpMessage, HttpRequest};

use crate::domain::access::principal::Principal;
use crate::domain::access::toolset_name::ToolsetName;
use crate::domain::publishing::address::{Address, AddressPrefix};
use crate::http::problem::Problem;
use crate::http::state::State;

/// The address, and the caller's principal there. An address without visible tools does not exist for the caller.
pub(super) async fn enter(prefix: AddressPrefix<'_>, state: &State, principal: &Principal) -> Result<(Address, Principal), Problem> {
    match prefix {
        AddressPrefix::Toolset(name) => {
            let name = ToolsetName::from(name);
            let principal = principal.kept_to(name.clone());
            if !state.current.shows_anything(&principal) {
                return Err(Problem::not_found());
            }
            Ok((Address::Toolset(name), principal))
        }
        AddressPrefix::Session(id) => {
            let session = state.sessions.find(id, principal).await?.ok_or_else(Problem::not_found)?;
            Ok((Address::Session(session), Principal { administers: false, views: false, ..principal.clone() }))
        }
    }
}

/// The address to which a request was sent.
pub(crate) struct RequestAddress(pub Arc<Address>);

impl FromRequest for RequestAddress {
    type Error = Problem;
    type Future = Ready<Result<Self, Problem>>;

    fn from_request(request: &HttpRequest, _: &mut Payload) -> Self::Future {
        ready(Ok(Self(request.extensions().get::<Arc<Address>>().cloned().unwrap_or_default())))
    }
}
