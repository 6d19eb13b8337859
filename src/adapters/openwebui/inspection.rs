//! Reads what of an installation is in Open WebUI, without changing anything.

use serde_json::{Map, Value};

use crate::adapters::openwebui::trial::{self, Setup};
use crate::adapters::openwebui::{
    Administration, Audience, FILTER_SOURCE, Function, InstallWarning, OpenWebUiAccess, OpenWebUiError, Switches, is_mcp, is_ours,
    is_to_all_tools, key_of, service_of, tool_id,
};

/// Everything that an installation consists of, as it is now.
pub(crate) struct Inspection {
    /// Open WebUI's version.
    pub version: String,
    /// A problem with this version.
    pub warning: Option<InstallWarning>,
    pub connections: Vec<ConnectionState>,
    pub filter: Option<FilterState>,
    /// How the filter asks Toolsieve about a message. `None` without the filter or the connection to all tools.
    pub setup: Option<Setup>,
}

/// One of our connections, or one that somebody else made to the same service.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one connection")]
pub(crate) struct ConnectionState {
    pub tool_id: String,
    pub url: String,
    pub is_enabled: bool,
    /// Whether Open WebUI could read its document. `None` for MCP connections, because it doesn't say.
    pub is_read: Option<bool>,
    /// Who may use it. `None` if only some users or groups may.
    pub audience: Option<Audience>,
    /// Whether the filter knows it.
    pub is_known: bool,
    /// Whether it leads to the same service as our connection to all tools, with the same key. Connections that somebody else made may
    /// have another key.
    pub has_same_url: bool,
    pub has_same_key: bool,
}

/// The filter and its valves.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one filter")]
pub(crate) struct FilterState {
    /// Whether its source is the one in this program.
    pub is_current: bool,
    pub is_active: bool,
    pub is_global: bool,
    /// Toolsieve's base URL in the valves.
    pub url: String,
    /// Whether the connection to all tools has the same address. `None` if there is no such connection.
    pub has_same_url: Option<bool>,
    pub has_same_key: Option<bool>,
    /// Whether its list of connections can't be read, so that nothing is narrowed.
    pub has_bad_connections: bool,
    pub switches: Switches,
}

/// Reads the connections, the filter and its valves.
///
/// # Errors
/// See [`OpenWebUiError`].
pub(crate) async fn inspect(open_webui: &OpenWebUiAccess) -> Result<Inspection, OpenWebUiError> {
    let administration = Administration::open(open_webui)?;
    let version = administration.version().await?;
    let function = administration.function().await?;
    let valves = match &function {
        Some(_) => administration.valves().await?,
        None => Map::new(),
    };
    let connections = administration.connections().await?;
    let offered = administration.offered_tools().await?;
    Ok(inspection(version, function.as_ref(), &valves, &connections, &offered))
}

fn inspection(
    version: String,
    function: Option<&Function>,
    valves: &Map<String, Value>,
    connections: &[Value],
    offered: &[String],
) -> Inspection {
    let ours: Vec<&Value> = connections.iter().filter(|connection| is_ours(connection)).collect();
    let to_all_tools = ours.iter().copied().find(|connection| is_to_all_tools(connection));
    let setup = to_all_tools.map(|connection| Setup::of(connection, valves));
    let url = valves.get("url").and_then(Value::as_str).unwrap_or_default();
    // An administrator may have added more connections by hand.
    let is_theirs =
        |connection: &&Value| !is_ours(connection) && connection["config"]["enable"] == true && trial::is_below(connection, url);
    let theirs = connections.iter().filter(is_theirs);
    let filter = function.map(|function| FilterState {
        is_current: function.content == FILTER_SOURCE,
        is_active: function.is_active,
        is_global: function.is_global,
        url: url.to_owned(),
        has_same_url: setup.as_ref().map(|setup| setup.connection_url == setup.filter_url),
        has_same_key: setup.as_ref().map(Setup::has_one_key),
        has_bad_connections: setup.as_ref().is_some_and(|setup| setup.has_bad_connections),
        switches: Switches::of(valves),
    });
    Inspection {
        warning: InstallWarning::of_version(&version, ours.iter().any(|connection| is_mcp(connection))),
        version,
        connections: ours
            .into_iter()
            .chain(theirs)
            .map(|connection| ConnectionState::of(connection, to_all_tools, setup.as_ref(), offered))
            .collect(),
        setup: setup.filter(|_| filter.is_some()),
        filter,
    }
}

impl ConnectionState {
    fn of(connection: &Value, to_all_tools: Option<&Value>, setup: Option<&Setup>, offered: &[String]) -> Self {
        let to_all_tools = to_all_tools.filter(|_| is_ours(connection));
        let tool_id = tool_id(connection);
        let config = &connection["config"];
        let grants = config["access_grants"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_everybody = |grant: &Value| grant["principal_type"] == "user" && grant["principal_id"] == "*";
        Self {
            url: trial::connection_base(connection).to_owned(),
            is_enabled: config["enable"] == true,
            is_read: (!is_mcp(connection)).then(|| offered.contains(&tool_id)),
            audience: match grants {
                [] => Some(Audience::Administrators),
                _ if grants.iter().any(is_everybody) => Some(Audience::Everybody),
                _ => None,
            },
            is_known: setup.is_none_or(|setup| setup.knows(connection)),
            has_same_url: to_all_tools.is_none_or(|whole| service_of(whole) == service_of(connection)),
            has_same_key: to_all_tools.is_none_or(|whole| key_of(whole) == key_of(connection)),
            tool_id,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::adapters::openwebui::{InstallOptions, Switch, with_our_valves, with_ours};

    const URL: &str = "http://toolsieve:8000";

    fn options() -> InstallOptions {
        InstallOptions {
            open_webui: OpenWebUiAccess { url: "http://localhost:3000".to_owned(), token: "sk-token".to_owned() },
            toolsieve_url: Some(URL.to_owned()),
            key: Some("k".to_owned()),
            toolsets: vec!["mail".to_owned()],
            mcp: false,
            mode: None,
            audience: None,
            status: Switch::Initially(true),
            auto_enable: Switch::Keep,
        }
    }

    fn function(content: &str) -> Function {
        Function { kind: "filter".to_owned(), content: content.to_owned(), meta: Value::Null, is_active: true, is_global: true }
    }

    #[test]
    fn what_was_installed_is_found_again() {
        let (connections, _) = with_ours(vec![json!({"url": "http://weather", "info": {"id": "weather"}})], &options(), URL);
        let valves = with_our_valves(Map::new(), &options(), URL);
        let offered = ["server:weather".to_owned(), "server:toolsieve".to_owned()];
        let found = inspection("0.12.4".to_owned(), Some(&function(FILTER_SOURCE)), &valves, &connections, &offered);
        let ids: Vec<(&str, Option<bool>)> = found.connections.iter().map(|one| (one.tool_id.as_str(), one.is_read)).collect();
        assert_eq!(ids, [("server:toolsieve", Some(true)), ("server:toolsieve-mail", Some(false))]);
        assert!(found.connections.iter().all(|one| one.is_enabled && one.is_known && one.audience == Some(Audience::Everybody)));
        assert!(found.connections.iter().all(|one| one.has_same_url && one.has_same_key));
        let filter = found.filter.unwrap();
        assert!(filter.is_current && filter.is_active && filter.is_global);
        assert_eq!((filter.has_same_url, filter.has_same_key), (Some(true), Some(true)));
        assert_eq!(filter.switches, Switches { status: Some(true), auto_enable: None });
        assert!(found.setup.is_some() && found.warning.is_none());
    }

    #[test]
    fn what_an_administrator_changed_is_reported() {
        let (mut connections, _) = with_ours(Vec::new(), &options(), URL);
        connections[0]["config"] = json!({"enable": false, "access_grants": [{"principal_type": "group", "principal_id": "g"}]});
        connections[1]["config"]["access_grants"] = json!([]);
        let mut valves = with_our_valves(Map::new(), &options(), "http://elsewhere");
        valves.insert("connections".to_owned(), json!("{\"server:toolsieve\": \"/\"}"));
        valves.insert("key".to_owned(), json!("other"));
        let found = inspection("0.11.1".to_owned(), Some(&function("old")), &valves, &connections, &[]);
        let states: Vec<_> = found.connections.iter().map(|one| (one.is_enabled, one.audience, one.is_known)).collect();
        assert_eq!(states, [(false, None, true), (true, Some(Audience::Administrators), false)]);
        let filter = found.filter.unwrap();
        assert_eq!((filter.is_current, filter.has_same_url, filter.has_same_key), (false, Some(false), Some(false)));
        assert!(matches!(found.warning, Some(InstallWarning::NoRequestHook { .. })));
    }

    #[test]
    fn a_toolset_with_an_old_address_or_key_is_reported() {
        let (mut connections, _) = with_ours(Vec::new(), &options(), URL);
        let valves = with_our_valves(Map::new(), &options(), URL);
        let states = |connections: &[Value]| {
            let found = inspection("0.12.4".to_owned(), Some(&function(FILTER_SOURCE)), &valves, connections, &[]);
            found.connections.iter().map(|one| (one.has_same_url, one.has_same_key)).collect::<Vec<_>>()
        };
        connections[1]["url"] = json!("http://old:8000/toolsets/mail");
        assert_eq!(states(&connections), [(true, true), (false, true)]);
        connections[1]["url"] = json!(format!("{URL}/toolsets/mail"));
        connections[1]["key"] = json!("old");
        // Somebody else's connection may have a key of its own.
        connections.push(json!({"url": URL, "key": "own", "info": {"id": "office"}, "config": {"enable": true}}));
        assert_eq!(states(&connections), [(true, true), (true, false), (true, true)]);
    }

    #[test]
    fn a_connection_made_by_hand_is_listed_if_it_is_on() {
        let (mut connections, _) = with_ours(Vec::new(), &options(), URL);
        connections.push(json!({"url": format!("{URL}/toolsets/office"), "info": {"id": "office"}, "config": {"enable": true}}));
        connections.push(json!({"url": URL, "info": {"id": "old"}, "config": {"enable": false}}));
        let valves = with_our_valves(Map::new(), &options(), URL);
        let found = inspection("0.12.4".to_owned(), Some(&function(FILTER_SOURCE)), &valves, &connections, &[]);
        let ids: Vec<(&str, bool)> = found.connections.iter().map(|one| (one.tool_id.as_str(), one.is_known)).collect();
        assert_eq!(ids, [("server:toolsieve", true), ("server:toolsieve-mail", true), ("server:office", true)]);
    }

    #[test]
    fn nothing_of_ours_is_nothing() {
        let found = inspection("0.12.4".to_owned(), None, &Map::new(), &[json!({"url": "http://weather"})], &[]);
        assert!(found.connections.is_empty() && found.filter.is_none() && found.setup.is_none());
    }
}
