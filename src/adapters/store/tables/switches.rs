//! Stores what callers have switched off for themselves.

use std::time::SystemTime;

use async_trait::async_trait;

use super::{DbConnection, SqlStore};
use crate::adapters::store::encoding::to_millis;
use crate::domain::access::principal::PrincipalId;
use crate::domain::access::switches::UserSwitch;
use crate::service::ports::{StoreError, SwitchStore};

#[async_trait]
impl SwitchStore for SqlStore {
    async fn switched_off(&self) -> Result<Vec<(PrincipalId, UserSwitch)>, StoreError> {
        let query = sqlx::query_as("SELECT owner, name FROM user_switch ORDER BY owner, name");
        let read = |(owner, name): (String, String)| Ok(UserSwitch::of_name(&name).map(|switch| (PrincipalId::new(owner), switch)));
        let found = self.read_all("read the switches of callers", query.fetch_all(self.readers()), read).await?;
        Ok(found.into_iter().flatten().collect())
    }

    async fn save_switch(&self, owner: &PrincipalId, switch: UserSwitch, is_on: bool) -> Result<(), StoreError> {
        let off = "INSERT INTO user_switch (owner, name, changed_at) VALUES ($1, $2, $3) ON CONFLICT (owner, name) DO NOTHING";
        let query = || {
            if is_on {
                return sqlx::query("DELETE FROM user_switch WHERE owner = $1 AND name = $2").bind(owner.as_str()).bind(switch.name());
            }
            sqlx::query(off).bind(owner.as_str()).bind(switch.name()).bind(to_millis(SystemTime::now()))
        };
        self.durable("save a switch of a caller", || async move |writer: &mut DbConnection| query().execute(writer).await.map(drop)).await
    }

    async fn remove_switches(&self, owner: &PrincipalId) -> Result<u64, StoreError> {
        self.durable("remove a caller's switches", || async move |writer: &mut DbConnection| remove_all(writer, owner).await).await
    }
}

pub(super) async fn remove_all(writer: &mut DbConnection, owner: &PrincipalId) -> Result<u64, sqlx::Error> {
    Ok(sqlx::query("DELETE FROM user_switch WHERE owner = $1").bind(owner.as_str()).execute(writer).await?.rows_affected())
}
