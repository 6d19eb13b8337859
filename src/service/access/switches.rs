//! Switches of callers: what a user or a named key has switched off for itself, for every client that it uses.
//!
//! All switches that are off are in memory, so that a selection asks without the store. A change is stored before it is acknowledged, and
//! other services on the same store take it over.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::domain::access::principal::PrincipalId;
use crate::domain::access::switches::UserSwitch;
use crate::service::ports::{StoreError, SwitchStore};

pub struct Switches {
    store: Arc<dyn SwitchStore>,
    off: RwLock<HashSet<(PrincipalId, UserSwitch)>>,
    /// Ensures that what was read doesn't replace a later change.
    changing: tokio::sync::Mutex<()>,
}

impl Switches {
    /// Loads the switches.
    ///
    /// # Errors
    /// The store can't be read.
    pub async fn start(store: Arc<dyn SwitchStore>) -> Result<Self, StoreError> {
        let switches = Self { store, off: RwLock::default(), changing: tokio::sync::Mutex::default() };
        switches.refresh().await?;
        Ok(switches)
    }

    /// Whether a caller has switched this off for itself.
    pub fn is_off(&self, caller: &PrincipalId, switch: UserSwitch) -> bool {
        let off = self.off.read();
        // Nearly always, nobody has switched anything off.
        !off.is_empty() && off.contains(&(caller.clone(), switch))
    }

    /// Switches something on or off for an owner.
    ///
    /// # Errors
    /// The store fails. The switch is then unchanged.
    pub async fn set(&self, owner: &PrincipalId, switch: UserSwitch, is_on: bool) -> Result<(), StoreError> {
        let _one = self.changing.lock().await;
        self.store.save_switch(owner, switch, is_on).await?;
        let (mut off, key) = (self.off.write(), (owner.clone(), switch));
        if is_on {
            off.remove(&key);
        } else {
            off.insert(key);
        }
        Ok(())
    }

    /// Switches everything on again for an owner. Returns the number of switches that were off.
    ///
    /// # Errors
    /// The store fails. The switches are then unchanged.
    pub async fn forget(&self, owner: &PrincipalId) -> Result<u64, StoreError> {
        let _one = self.changing.lock().await;
        let removed = self.store.remove_switches(owner).await?;
        self.off.write().retain(|(known, _)| known != owner);
        Ok(removed)
    }

    /// Takes over the stored switches, which another service, or the end of a key, may have changed.
    ///
    /// # Errors
    /// The store can't be read. The switches are then unchanged.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        let _one = self.changing.lock().await;
        let stored = self.store.switched_off().await?;
        *self.off.write() = stored.into_iter().collect();
        Ok(())
    }
}
