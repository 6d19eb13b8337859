//! What callers have switched off for themselves.

use async_trait::async_trait;

use super::StoreError;
use crate::domain::access::principal::PrincipalId;
use crate::domain::access::switches::UserSwitch;

#[async_trait]
pub trait SwitchStore: Send + Sync {
    /// All switches that are off, with their owners. Switches of later versions of the service are left out.
    async fn switched_off(&self) -> Result<Vec<(PrincipalId, UserSwitch)>, StoreError>;

    /// Switches something on or off for an owner. Durable.
    async fn save_switch(&self, owner: &PrincipalId, switch: UserSwitch, is_on: bool) -> Result<(), StoreError>;

    /// Switches everything on again for an owner. Returns the number of switches that were off. Durable.
    async fn remove_switches(&self, owner: &PrincipalId) -> Result<u64, StoreError>;
}
