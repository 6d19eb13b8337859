//! The toolsets.

use serde_json::json;
use toolsieve::domain::access::toolset::Toolset;
use toolsieve::service::ports::{Overwrites, ToolsetStore};

pub(crate) async fn toolsets_come_back_as_they_were(store: &dyn ToolsetStore) {
    let toolset = |name: &str, value: serde_json::Value| Toolset::read(name, &value).unwrap();
    let mail =
        toolset("mail", json!({"description": "日本 \"quoted\"", "servers": ["mail*"], "exclude": ["delete_*"], "always": ["a", "b"]}));
    let files = toolset("files", json!({"tags": ["file"], "annotations": ["readOnlyHint=false"], "tools": ["*"]}));
    assert_eq!(store.toolsets().await.unwrap(), []);
    for toolset in [&mail, &files] {
        assert!(store.save_toolset(&toolset.name, &toolset.definition, Overwrites::Only(None)).await.unwrap());
    }
    assert_eq!(store.toolsets().await.unwrap(), [files.clone(), mail.clone()]);
    // Somebody who knows another definition, or none, changes nothing.
    for known in [None, Some(&files.definition)] {
        assert!(!store.save_toolset(&mail.name, &files.definition, Overwrites::Only(known)).await.unwrap());
        assert!(!store.remove_toolset(&mail.name, Overwrites::Only(known)).await.unwrap());
    }
    assert_eq!(store.toolsets().await.unwrap(), [files.clone(), mail.clone()]);
    assert!(store.save_toolset(&mail.name, &files.definition, Overwrites::Only(Some(&mail.definition))).await.unwrap());
    assert!(store.save_toolset(&mail.name, &files.definition, Overwrites::Anything).await.unwrap());
    assert!(store.remove_toolset(&files.name, Overwrites::Only(Some(&files.definition))).await.unwrap());
    assert!(!store.remove_toolset(&files.name, Overwrites::Anything).await.unwrap());
    assert_eq!(store.toolsets().await.unwrap(), [Toolset { name: mail.name, definition: files.definition }]);
}
