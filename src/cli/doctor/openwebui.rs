//! Checks of an installation in Open WebUI: everything that `toolsieve openwebui install` sets, and a test message.

use url::Url;

use crate::adapters::openwebui::inspection::{ConnectionState, FilterState, Inspection, inspect};
use crate::adapters::openwebui::trial::{self, Trial, TrialError};
use crate::adapters::openwebui::{Audience, OpenWebUiAccess};
use crate::cli::doctor::checks::{Check, Level};
use crate::cli::openwebui;

const OPEN_WEBUI: &str = "Open WebUI";
const FILTER: &str = "filter";
const TEST_MESSAGE: &str = "test message";
const INSTALL: &str = "run `toolsieve openwebui install`";
const INSTALL_AGAIN: &str = "run `toolsieve openwebui install` again";

/// Examines the installation, and sends a test message if it is complete.
pub(super) async fn examine(open_webui: &OpenWebUiAccess, test_url: Option<&Url>) -> Vec<Check> {
    let inspection = match inspect(open_webui).await {
        Ok(inspection) => inspection,
        Err(error) => {
            let remedy = "correct --open-webui or the token, and check that Open WebUI runs";
            return vec![Check::new(Level::Problem, OPEN_WEBUI, error.to_string(), Some(remedy.to_owned()))];
        }
    };
    let mut checks = checks(&inspection);
    if let Some(setup) = inspection.setup {
        let is_read = inspection.connections.iter().any(|connection| connection.is_read == Some(true));
        let setup = match test_url {
            Some(url) => setup.at(url.as_str()),
            None => setup,
        };
        checks.push(test_message(trial::run(&setup, None).await, is_read));
    }
    checks
}

fn checks(inspection: &Inspection) -> Vec<Check> {
    let mut checks = vec![match &inspection.warning {
        Some(warning) => Check::new(Level::Warning, OPEN_WEBUI, warning.to_string(), None),
        None => Check::new(Level::Fine, OPEN_WEBUI, format!("version {}", inspection.version), None),
    }];
    if inspection.connections.is_empty() {
        checks.push(problem("tool server", "not registered", INSTALL));
    }
    checks.extend(inspection.connections.iter().map(connection));
    match &inspection.filter {
        Some(state) => {
            checks.push(filter(state));
            let switch = |name: &str, value: Option<bool>, flag: &str| {
                let finding =
                    if value == Some(true) { "on".to_owned() } else { format!("off; {flag} of `openwebui install` switches it on") };
                Check::new(Level::Fine, name, finding, None)
            };
            checks.push(switch("status line", state.switches.status, "--status-line"));
            checks.push(switch("auto_enable", state.switches.auto_enable, "--auto-enable"));
        }
        None => checks.push(problem(FILTER, "not installed, so the model gets all tools", INSTALL)),
    }
    checks
}

fn connection(state: &ConnectionState) -> Check {
    let ConnectionState { tool_id, url, .. } = state;
    if !state.is_enabled {
        return problem(tool_id, "switched off", "enable it in Admin Settings, Integrations, or run `toolsieve openwebui install` again");
    }
    if state.is_read == Some(false) {
        let is_toolset = url.contains("/toolsets/");
        let of_toolset = if is_toolset { "check with `toolsieve toolsets list` that the toolset exists, or " } else { "" };
        let remedy = format!(
            "start Toolsieve; if it runs, {of_toolset}install again with an address that Open WebUI reaches (--toolsieve-url) and the \
             right --key"
        );
        return problem(tool_id, format!("Open WebUI can't read Toolsieve's tools at {url}"), &remedy);
    }
    if !state.is_known {
        return problem(tool_id, "the filter doesn't know it, so its tools are not narrowed", INSTALL_AGAIN);
    }
    if !state.has_same_url {
        let finding = format!("its address is {url}, but the tool server `toolsieve` leads to another service");
        return Check::new(Level::Warning, tool_id, finding, Some(format!("{INSTALL_AGAIN}, unless both addresses lead to Toolsieve")));
    }
    if !state.has_same_key {
        let finding = "it and the tool server `toolsieve` have different keys";
        return Check::new(Level::Warning, tool_id, finding, Some(INSTALL_AGAIN.to_owned()));
    }
    let audience = match state.audience {
        Some(Audience::Everybody) => "everybody may use it",
        Some(Audience::Administrators) => "only administrators may use it",
        None => "certain users or groups may use it",
    };
    Check::new(Level::Fine, tool_id, format!("{url}; {audience}"), None)
}

fn filter(state: &FilterState) -> Check {
    if !state.is_active || !state.is_global {
        let finding = if state.is_active { "not global, so most models don't use it" } else { "switched off, so the model gets all tools" };
        return problem(FILTER, finding, "enable it globally in Admin Settings, Functions, or run `toolsieve openwebui install` again");
    }
    if state.has_bad_connections {
        return problem(FILTER, "its valve `connections` is not a JSON object, so the model gets all tools", INSTALL_AGAIN);
    }
    if state.has_same_url == Some(false) {
        let finding = format!("its valve `url` is {}, but the tool server has another address", state.url);
        return Check::new(Level::Warning, FILTER, finding, Some(format!("{INSTALL_AGAIN}, unless both addresses lead to Toolsieve")));
    }
    if state.has_same_key == Some(false) {
        return Check::new(Level::Warning, FILTER, "it and the tool server have different keys", Some(INSTALL_AGAIN.to_owned()));
    }
    if !state.is_current {
        return Check::new(Level::Warning, FILTER, "from another version of Toolsieve", Some(INSTALL_AGAIN.to_owned()));
    }
    Check::new(Level::Fine, FILTER, "up to date, and on for all models", None)
}

fn test_message(outcome: Result<Trial, TrialError>, is_read: bool) -> Check {
    match outcome {
        Ok(trial) => {
            let warnings = openwebui::warnings(&trial);
            let level = if warnings.is_empty() { Level::Fine } else { Level::Warning };
            let remedy = Some(warnings.join("\n")).filter(|text| !text.is_empty());
            Check::new(level, TEST_MESSAGE, openwebui::result(&trial), remedy)
        }
        Err(error) => {
            // Open WebUI may reach the service at an address that this machine doesn't know.
            let level = if is_read && error.is_unreachable() { Level::Warning } else { Level::Problem };
            Check::new(level, TEST_MESSAGE, format!("not sent: {error}"), Some(error.remedy(openwebui::TEST_URL)))
        }
    }
}

fn problem(subject: &str, finding: impl Into<String>, remedy: &str) -> Check {
    Check::new(Level::Problem, subject, finding, Some(remedy.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::openwebui::Switches;

    fn connection_state() -> ConnectionState {
        ConnectionState {
            tool_id: "server:toolsieve".to_owned(),
            url: "http://toolsieve:8000".to_owned(),
            is_enabled: true,
            is_read: Some(true),
            audience: Some(Audience::Everybody),
            is_known: true,
            has_same_url: true,
            has_same_key: true,
        }
    }

    fn filter_state() -> FilterState {
        FilterState {
            is_current: true,
            is_active: true,
            is_global: true,
            url: "http://toolsieve:8000".to_owned(),
            has_same_url: Some(true),
            has_same_key: Some(true),
            has_bad_connections: false,
            switches: Switches { status: Some(true), auto_enable: None },
        }
    }

    fn inspection(connections: Vec<ConnectionState>, filter: Option<FilterState>) -> Inspection {
        Inspection { version: "0.12.4".to_owned(), warning: None, connections, filter, setup: None }
    }

    #[test]
    fn a_complete_installation_is_fine() {
        let checks = checks(&inspection(vec![connection_state()], Some(filter_state())));
        assert!(checks.iter().all(|check| check.level == Level::Fine), "{checks:?}");
        let subjects: Vec<&str> = checks.iter().map(|check| check.subject.as_str()).collect();
        assert_eq!(subjects, ["Open WebUI", "server:toolsieve", "filter", "status line", "auto_enable"]);
        assert_eq!(checks[3].finding, "on");
        assert!(checks[4].finding.starts_with("off; --auto-enable"), "{:?}", checks[4]);
    }

    #[test]
    fn what_is_missing_is_a_problem_with_a_remedy() {
        let checks = checks(&inspection(Vec::new(), None));
        let problems: Vec<&Check> = checks.iter().filter(|check| check.is_problem()).collect();
        assert_eq!(problems.iter().map(|check| check.subject.as_str()).collect::<Vec<_>>(), ["tool server", "filter"]);
        assert!(problems.iter().all(|check| check.remedy.as_deref() == Some(INSTALL)));
    }

    #[test]
    fn each_part_that_does_not_work_is_reported() {
        let connections = [
            (ConnectionState { is_enabled: false, ..connection_state() }, Level::Problem, "switched off"),
            (ConnectionState { is_read: Some(false), ..connection_state() }, Level::Problem, "can't read"),
            (ConnectionState { is_known: false, ..connection_state() }, Level::Problem, "not narrowed"),
            (ConnectionState { has_same_url: false, ..connection_state() }, Level::Warning, "another service"),
            (ConnectionState { has_same_key: false, ..connection_state() }, Level::Warning, "different keys"),
        ];
        for (state, level, finding) in connections {
            let check = connection(&state);
            assert!(check.level == level && check.finding.contains(finding) && check.remedy.is_some(), "{check:?}");
        }
        let url = "http://toolsieve:8000/toolsets/code".to_owned();
        let check = connection(&ConnectionState { url, is_read: Some(false), ..connection_state() });
        assert!(check.remedy.as_deref().is_some_and(|remedy| remedy.contains("that the toolset exists")), "{check:?}");
        let filters = [
            (FilterState { is_active: false, ..filter_state() }, Level::Problem, "switched off"),
            (FilterState { is_global: false, ..filter_state() }, Level::Problem, "not global"),
            (FilterState { has_bad_connections: true, ..filter_state() }, Level::Problem, "not a JSON object"),
            (FilterState { has_same_url: Some(false), ..filter_state() }, Level::Warning, "another address"),
            (FilterState { has_same_key: Some(false), ..filter_state() }, Level::Warning, "different keys"),
            (FilterState { is_current: false, ..filter_state() }, Level::Warning, "another version"),
        ];
        for (state, level, finding) in filters {
            let check = filter(&state);
            assert!(check.level == level && check.finding.contains(finding) && check.remedy.is_some(), "{check:?}");
        }
    }

    #[test]
    fn a_test_message_that_fails_is_a_problem() {
        let check = test_message(Err(TrialError::WrongKey { url: "http://toolsieve:8000".to_owned() }), true);
        assert!(check.is_problem() && check.finding.contains("rejected the key") && check.remedy.is_some(), "{check:?}");
    }
}
