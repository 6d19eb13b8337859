//! Ends sign-ins: deletes them, ends the connections that use them, and revokes their tokens.

use std::time::Duration;

use futures::future::join_all;

use super::Connections;
use super::grant::Grant;
use crate::domain::access::principal::PrincipalId;
use crate::domain::catalog::tool::ServerName;
use crate::service::ports::{Parting, StoreError, StoredConnection};

/// How long the page waits for the revocation of a token.
const REVOKING: Duration = Duration::from_secs(15);

impl Connections {
    /// Ends a sign-in: deletes it, ends the connections that use it, and revokes its tokens. Returns whether there was one.
    pub(crate) async fn disconnect(&self, owner: &PrincipalId, server: &ServerName) -> Result<bool, StoreError> {
        let Some(stored) = self.store.connection(owner, server).await? else { return Ok(false) };
        if !self.store.remove_connection(&stored).await? {
            return Ok(false);
        }
        tracing::info!(%server, "a user's sign-in was ended");
        self.leave(&stored).await;
        Ok(true)
    }

    /// Ends all sign-ins of an owner. Returns their number.
    pub(crate) async fn forget(&self, owner: &PrincipalId) -> Result<u64, StoreError> {
        self.store.end_connect_visits(owner).await?;
        self.links.forget(owner);
        self.exchanges.forget(owner);
        let mut ended = 0;
        for stored in self.store.connections(owner).await? {
            if self.disconnect(owner, &stored.sealed.place.server).await? {
                ended += 1;
            }
        }
        Ok(ended)
    }

    /// Ends what uses a deleted sign-in, and revokes its tokens.
    pub(super) async fn leave(&self, stored: &StoredConnection) {
        let place = &stored.sealed.place;
        self.drop_copies(&place.owner, &place.server);
        self.servers.disconnect(&place.owner, Some(&place.server), Parting::AtOnce);
        self.revoke(stored).await;
    }

    /// Revokes the tokens of a deleted sign-in, as far as the authorization server supports that.
    pub(super) async fn revoke(&self, stored: &StoredConnection) {
        let server = &stored.sealed.place.server;
        let Some(keys) = &self.keys else { return };
        let Some(configured) = self.configured(server) else {
            tracing::warn!(%server, "without the server's `auth`, its tokens can't be revoked: they stay valid until they expire");
            return;
        };
        let Ok(grant) = Grant::open(keys, &stored.sealed) else { return };
        let grant = grant.with_secret_of(&configured.settings);
        let Some(endpoint) = &grant.revocation_endpoint else {
            tracing::info!(%server, "the authorization server can't revoke tokens: they stay valid until they expire");
            return;
        };
        // With the refresh token, servers revoke the access tokens too, but need not (RFC 7009, section 2.1).
        let tokens = [(grant.refresh.as_ref(), true), (Some(&grant.access), false)];
        let revoking = async {
            for (token, is_refresh) in tokens.into_iter().filter_map(|(token, is_refresh)| Some((token?, is_refresh))) {
                if let Err(error) = self.client.revoke(&configured.settings, endpoint, &grant.client, token, is_refresh).await {
                    tracing::warn!(%server, %error, "a token could not be revoked");
                }
            }
        };
        if tokio::time::timeout(REVOKING, revoking).await.is_err() {
            tracing::warn!(%server, "a token could not be revoked in time");
        }
    }

    /// The sign-ins of an owner that is about to be deleted, for [`Self::part`].
    pub(crate) async fn of(&self, owner: &PrincipalId) -> Result<Vec<StoredConnection>, StoreError> {
        self.store.connections(owner).await
    }

    /// Ends those of these former sign-ins that were deleted from the store together with their owner.
    pub(crate) async fn part(&self, former: Vec<StoredConnection>) {
        let part = async |stored: &StoredConnection| {
            let place = &stored.sealed.place;
            match self.store.connection(&place.owner, &place.server).await {
                Ok(None) => {}
                Ok(Some(_)) => return,
                Err(error) => return tracing::warn!(server = %place.server, %error, "the tokens of a deleted sign-in are not revoked"),
            }
            self.links.forget(&place.owner);
            tracing::info!(server = %place.server, "a sign-in was ended with its owner");
            self.leave(stored).await;
        };
        join_all(former.iter().map(part)).await;
    }

    /// Removes what memory holds of a sign-in.
    pub(super) fn drop_copies(&self, owner: &PrincipalId, server: &ServerName) {
        let key = (owner.clone(), server.clone());
        self.copies.remove(&key);
        self.unsaved.remove(&key);
        self.signed_in.forget(owner);
    }
}
