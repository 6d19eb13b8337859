//! The toolsets.

use serde_json::json;
use toolsieve::domain::access::toolset::Toolset;
use toolsieve::service::ports::ToolsetStore;

pub(crate) async fn toolsets_come_back_as_they_were(store: &dyn ToolsetStore) {
    let toolset = |name: &str, value: serde_json::Value| Toolset::read(name, &value).unwrap();
    let mail =
        toolset("mail", json!({"description": "日本 \"quoted\"", "servers": ["mail*"], "exclude": ["delete_*"], "always": ["a", "b"]}));
    let files = toolset("files", json!({"tags": ["file"], "annotations": ["readOnlyHint=false"], "tools": ["*"]}));
    assert_eq!(store.toolsets().await.unwrap(), []);
    for toolset in [&mail, &files] {
        store.save_toolset(&toolset.name, &toolset.definition).await.unwrap();
    }
    assert_eq!(store.toolsets().await.unwrap(), [files.clone(), mail.clone()]);
    store.save_toolset(&mail.name, &files.definition).await.unwrap();
    assert!(store.remove_toolset(&files.name).await.unwrap() && !store.remove_toolset(&files.name).await.unwrap());
    assert_eq!(store.toolsets().await.unwrap(), [Toolset { name: mail.name, definition: files.definition }]);
}
