//! What callers have switched off for themselves.

use toolsieve::domain::access::principal::PrincipalId;
use toolsieve::domain::access::switches::UserSwitch;
use toolsieve::service::ports::SwitchStore;

pub(crate) async fn what_is_switched_off_is_kept_by_owner(store: &dyn SwitchStore) {
    let [anna, other] = ["user:日本 '", "key:other"].map(PrincipalId::new);
    assert_eq!(store.switched_off().await.unwrap(), []);
    store.save_switch(&anna, UserSwitch::Narrowing, true).await.unwrap();
    assert_eq!(store.switched_off().await.unwrap(), [], "on is the default");
    for owner in [&anna, &anna, &other] {
        store.save_switch(owner, UserSwitch::Narrowing, false).await.unwrap();
    }
    let of_both = [(other.clone(), UserSwitch::Narrowing), (anna.clone(), UserSwitch::Narrowing)];
    assert_eq!(store.switched_off().await.unwrap(), of_both);
    store.save_switch(&other, UserSwitch::Narrowing, true).await.unwrap();
    assert_eq!(store.switched_off().await.unwrap(), of_both[1..]);
    assert_eq!((store.remove_switches(&other).await.unwrap(), store.remove_switches(&anna).await.unwrap()), (0, 1));
    assert_eq!(store.switched_off().await.unwrap(), []);
}
