//! Tests of the entries that an installation writes, and those that a second one keeps.

use super::*;

const URL: &str = "http://toolsieve:8000";

fn options(key: Option<&str>, audience: Option<Audience>) -> InstallOptions {
    InstallOptions {
        open_webui: OpenWebUiAccess { url: "http://localhost:3000".to_owned(), token: "sk-token".to_owned() },
        toolsieve_url: Some(URL.to_owned()),
        key: key.map(str::to_owned),
        toolsets: Vec::new(),
        mcp: false,
        mode: None,
        audience,
        status: Switch::Keep,
        auto_enable: Switch::Keep,
    }
}

fn foreign() -> Value {
    json!({ "url": "http://weather", "path": "openapi.json", "auth_type": null, "key": null, "config": null, "extra": 1 })
}

#[test]
fn the_filter_is_an_open_webui_plugin() {
    assert!(FILTER_SOURCE.starts_with("\"\"\"\n"), "front matter is read only if it is the very first line");
    assert!(FILTER_SOURCE.contains(&format!("\ntitle: {FUNCTION_TITLE}\n")));
}

/// Regression test: for a toolset that doesn't exist, the warning blamed the address and the key.
#[test]
fn a_toolset_that_can_not_be_read_is_named_only_if_all_tools_can() {
    let wanted = wanted(&InstallOptions { toolsets: vec!["code".to_owned()], ..options(None, None) }, URL);
    let [all, toolset] = &wanted[..] else { panic!("{} connections", wanted.len()) };
    let of = InstallWarning::of_unreadable;
    let document = || format!("{URL}/toolsets/code/openapi.json");
    assert_eq!(of(toolset, Some(true)), InstallWarning::ToolsetUnreadable { document: document() });
    assert_eq!(of(toolset, Some(false)), InstallWarning::DocumentUnreadable { document: document() });
    assert_eq!(of(all, Some(false)), InstallWarning::DocumentUnreadable { document: format!("{URL}/openapi.json") });
}

#[test]
fn others_connections_stay_as_they_are_and_in_their_order() {
    let (once, change) = with_ours(vec![foreign()], &options(Some("k"), None), URL);
    assert_eq!((once.len(), &once[0], change), (2, &foreign(), Change::Created));
    let (twice, change) = with_ours(once.clone(), &options(Some("k"), None), URL);
    assert_eq!((twice, change), (once.clone(), Change::Unchanged));
    let (moved, change) = with_ours(once, &options(Some("k"), None), "http://elsewhere");
    assert_eq!((&moved[0], &moved[1]["url"], change), (&foreign(), &json!("http://elsewhere"), Change::Updated));
}

#[test]
fn another_mcp_connection_with_our_id_is_not_ours() {
    assert!(!is_ours(&json!({ "type": "mcp", "info": { "id": CONNECTION_ID } })));
    assert!(!is_ours(&json!({ "type": "mcp", "url": "http://elsewhere/mcp", "info": { "id": CONNECTION_ID } })));
    assert!(!is_ours(&json!({ "type": "openapi", "info": null })));
    assert!(is_ours(&json!({ "info": { "id": CONNECTION_ID } })));
}

#[test]
fn access_is_never_widened_by_installing_again() {
    let grant = json!([{ "principal_type": "group", "principal_id": "g", "permission": "read" }]);
    let installed = json!({
        "info": { "id": CONNECTION_ID, "name": "Our tools" },
        "headers": { "X-Own": "1", "X-OpenWebUI-Chat-Id": "wrong" },
        "config": { "enable": false, "access_grants": grant, "function_name_filter_list": "!x" },
    });
    let options = |audience| options(None, audience);
    let whole = || wanted(&options(None), URL).remove(0);
    let kept = our_connection(&installed, &whole(), &options(None));
    assert_eq!(kept["config"]["access_grants"], grant);
    assert_eq!(kept["config"]["function_name_filter_list"], "!x");
    assert_eq!(kept["config"]["enable"], true);
    assert_eq!(kept["info"]["name"], "Our tools");
    assert_eq!(kept["headers"]["X-Own"], "1");
    assert_eq!(kept["headers"]["X-OpenWebUI-Chat-Id"], "{{CHAT_ID}}");
    assert_eq!(kept["auth_type"], "none");
    let closed = our_connection(&installed, &whole(), &options(Some(Audience::Administrators)));
    assert_eq!(closed["config"]["access_grants"], json!([]));
}

#[test]
fn toolsets_are_connections_of_their_own() {
    let options = InstallOptions { toolsets: vec!["mail".into(), "files".into()], ..options(Some("k"), None) };
    let (all, change) = with_ours(vec![foreign()], &options, URL);
    assert_eq!(change, Change::Created);
    let stored: Vec<(&Value, &Value)> = all[1..].iter().map(|one| (&one["info"]["id"], &one["url"])).collect();
    let url = |path: &str| json!(format!("{URL}{path}"));
    let (whole, mail, files) = (url(""), url("/toolsets/mail"), url("/toolsets/files"));
    let ids = [json!("toolsieve"), json!("toolsieve-mail"), json!("toolsieve-files")];
    assert_eq!(stored, [(&ids[0], &whole), (&ids[1], &mail), (&ids[2], &files)]);
    assert!(all[1..].iter().all(is_ours) && all[2]["key"] == "k");
    assert_eq!(with_ours(all.clone(), &options, URL), (all.clone(), Change::Unchanged));
    // Toolsets that the command omits stay.
    let fewer = InstallOptions { toolsets: Vec::new(), ..options.clone() };
    assert_eq!(with_ours(all.clone(), &fewer, URL), (all, Change::Unchanged));
    let valves = with_our_valves(Map::new(), &options, URL);
    let connections: Value = serde_json::from_str(valves["connections"].as_str().unwrap()).unwrap();
    let expected = json!({"server:toolsieve": "/", "server:toolsieve-mail": "/toolsets/mail", "server:toolsieve-files": "/toolsets/files"});
    assert_eq!(connections, expected);
    assert!(!is_ours(&json!({"url": "http://elsewhere", "info": {"id": "toolsieve-mail"}})));
}

/// What a second run with these options makes of an installation.
fn again(connections: Vec<Value>, valves: &Map<String, Value>, options: &InstallOptions) -> (Vec<Value>, Map<String, Value>) {
    let options = completed(options, &connections, valves);
    let url = base_url(TOOLSIEVE_URL, options.toolsieve_url.as_deref().unwrap_or(NEW_URL)).unwrap();
    (with_ours(connections, &options, &url).0, with_our_valves(valves.clone(), &options, &url))
}

#[test]
fn a_second_run_updates_the_toolsets_of_earlier_runs() {
    let first = InstallOptions { toolsets: vec!["mail".into()], ..options(Some("k"), None) };
    let (installed, valves) = again(vec![foreign()], &Map::new(), &first);
    let second = InstallOptions {
        toolsieve_url: Some("https://new/base/".to_owned()),
        toolsets: vec!["files".into()],
        ..options(Some("new"), Some(Audience::Administrators))
    };
    let (moved, valves) = again(installed, &valves, &second);
    let urls: Vec<&str> = moved.iter().map(|one| one["url"].as_str().unwrap()).collect();
    assert_eq!(urls, ["http://weather", "https://new/base", "https://new/base/toolsets/mail", "https://new/base/toolsets/files"]);
    assert_eq!(moved[0], foreign());
    assert!(moved[1..].iter().all(|one| one["key"] == "new" && one["config"]["access_grants"] == json!([])));
    let (over_mcp, _) = again(moved, &valves, &InstallOptions { mcp: true, ..options(None, None) });
    assert!(over_mcp[1..].iter().all(|one| one["type"] == "mcp" && one["url"].as_str().unwrap().ends_with(MCP_PATH)), "{over_mcp:?}");
}

#[test]
fn a_second_run_keeps_the_address_and_the_key_that_it_does_not_name() {
    let nothing = InstallOptions { toolsieve_url: None, ..options(None, None) };
    let (new, valves) = again(Vec::new(), &Map::new(), &nothing);
    assert_eq!((&new[0]["url"], &new[0]["auth_type"], &valves["url"]), (&json!(NEW_URL), &json!("none"), &json!(NEW_URL)));

    let first = InstallOptions { toolsets: vec!["mail".into()], ..options(Some("k"), None) };
    for mcp in [false, true] {
        let (first, nothing) = (InstallOptions { mcp, ..first.clone() }, InstallOptions { mcp, ..nothing.clone() });
        let (installed, valves) = again(Vec::new(), &Map::new(), &first);
        assert_eq!(again(installed.clone(), &valves, &nothing), (installed.clone(), valves.clone()));
        // If parts of the installation are gone, the rest knows both.
        assert_eq!(again(Vec::new(), &valves, &nothing).0[0], installed[0]);
        let (of_toolset, _) = again(vec![installed[1].clone()], &Map::new(), &nothing);
        assert_eq!(of_toolset, [installed[1].clone(), installed[0].clone()]);
        // An empty key removes the key.
        let (open, valves) = again(installed, &valves, &InstallOptions { key: Some(String::new()), ..nothing });
        assert!(open.iter().all(|one| one["auth_type"] == "none" && one["key"] == "") && valves["key"] == "");
    }
}

#[test]
fn the_mode_is_that_of_the_connection_to_everything_and_stays() {
    let paths = |connections: &[Value]| connections.iter().map(|one| one["path"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    let plain = InstallOptions { toolsets: vec!["mail".into()], ..options(None, None) };
    let dynamic = InstallOptions { mode: Some(Mode::Dynamic), ..plain.clone() };
    let (installed, _) = with_ours(Vec::new(), &dynamic, URL);
    assert_eq!(paths(&installed), ["openapi.json?mode=dynamic", "openapi.json"]);
    assert_eq!(with_ours(installed.clone(), &plain, URL), (installed.clone(), Change::Unchanged));
    let full = InstallOptions { mode: Some(Mode::Full), ..plain };
    assert_eq!(paths(&with_ours(installed, &full, URL).0), ["openapi.json", "openapi.json"]);
}

#[test]
fn valves_that_an_administrator_set_stay() {
    let set = json!({ "limit": 5, "connections": "{\"server:mail\": \"/toolsets/mail\"}", "url": "old" });
    let valves = with_our_valves(object(&set), &options(Some("k"), None), URL);
    assert_eq!((&valves["limit"], &valves["url"], &valves["key"]), (&json!(5), &json!(URL), &json!("k")));
    let connections: Value = serde_json::from_str(valves["connections"].as_str().unwrap()).unwrap();
    assert_eq!(connections, json!({ "server:mail": "/toolsets/mail", "server:toolsieve": "/" }));
    assert_eq!(with_our_valves(valves.clone(), &options(Some("k"), None), URL), valves);
}

/// The switches after installing with these options over these valves.
fn switched(valves: &Value, status: Switch, auto_enable: Switch) -> (Option<bool>, Option<bool>) {
    let options = InstallOptions { status, auto_enable, ..options(None, None) };
    let Switches { status, auto_enable } = Switches::of(&with_our_valves(object(valves), &options, URL));
    (status, auto_enable)
}

#[test]
fn switches_that_an_administrator_set_stay_unless_a_flag_says_otherwise() {
    let (nothing, set) = (json!({}), json!({ "status": false, "auto_enable": true }));
    assert_eq!(switched(&nothing, Switch::Initially(true), Switch::Keep), (Some(true), None));
    assert_eq!(switched(&nothing, Switch::Keep, Switch::Initially(false)), (None, Some(false)));
    assert_eq!(switched(&set, Switch::Initially(true), Switch::Keep), (Some(false), Some(true)));
    assert_eq!(switched(&set, Switch::Set(true), Switch::Set(false)), (Some(true), Some(false)));
}

#[test]
fn over_mcp_the_same_entries_are_of_another_type() {
    let documents = InstallOptions { toolsets: vec!["mail".into()], ..options(Some("k"), None) };
    let (before, _) = with_ours(vec![foreign()], &documents, URL);
    let mcp = InstallOptions { mcp: true, ..documents.clone() };
    let (after, change) = with_ours(before.clone(), &mcp, URL);
    assert_eq!((after.len(), change), (3, Change::Updated));
    let urls: Vec<&str> = after[1..].iter().map(|one| one["url"].as_str().unwrap()).collect();
    assert_eq!(urls, ["http://toolsieve:8000/mcp?mode=message", "http://toolsieve:8000/toolsets/mail/mcp?mode=message"]);
    assert!(after[1..].iter().all(|one| is_ours(one) && one["type"] == "mcp"));
    assert_eq!(after[1]["headers"]["X-OpenWebUI-Message-Id"], "{{MESSAGE_ID}}");
    assert_eq!(with_ours(after.clone(), &mcp, URL), (after.clone(), Change::Unchanged));
    assert_eq!(with_ours(after, &documents, URL).0, before);
    let valves = with_our_valves(Map::new(), &mcp, URL);
    let connections: Value = serde_json::from_str(valves["connections"].as_str().unwrap()).unwrap();
    assert_eq!(connections["server:mcp:toolsieve-mail"], "/toolsets/mail/mcp?mode=message");
    // After a switch to the other kind of connection, the filter still narrows both.
    let both: Value = serde_json::from_str(with_our_valves(valves, &documents, URL)["connections"].as_str().unwrap()).unwrap();
    assert_eq!((&both["server:toolsieve"], &both["server:mcp:toolsieve"]), (&json!("/"), &json!("/mcp?mode=message")));
}

#[test]
fn versions() {
    let warning = |version: &str, mcp| InstallWarning::of_version(version, mcp).map(|warning| warning.to_string()).unwrap_or_default();
    for old in ["0.11.1", "0.10.9", "0.9.3", "unknown"] {
        assert!(warning(old, false).contains("--mcp"), "{old}");
    }
    for new in ["0.11.2", "0.12.4", "0.12.0-dev", "1.0"] {
        assert_eq!(warning(new, false), "", "{new}");
        assert!(warning(new, true).contains("without --mcp"), "{new}");
    }
    for between in ["0.9.6", "0.10.2", "0.11.1"] {
        assert_eq!(warning(between, true), "", "{between}");
    }
    assert!(warning("0.9.5", true).contains("update it"));
}

#[test]
fn addresses() {
    assert_eq!(base_url("x", " http://localhost:3000/ ").unwrap(), "http://localhost:3000");
    for wrong in ["localhost:3000", "", "ftp://host", "http://"] {
        assert!(base_url("x", wrong).is_err(), "{wrong}");
    }
}

#[test]
fn secrets_do_not_print() {
    let printed = format!("{:?}", options(Some("sk-key"), None));
    assert!(!printed.contains("sk-"), "{printed}");
}
