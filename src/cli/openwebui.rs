//! `toolsieve openwebui`: installs Toolsieve in Open WebUI, uninstalls it, and sends a test message.

use std::io::{self, BufRead, IsTerminal, Write};

use clap::{ArgAction, Args, Subcommand, ValueEnum};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use crate::adapters::log;
use crate::adapters::openwebui::trial::{self, Setup, Trial, TrialError, TrialView};
use crate::adapters::openwebui::{self, Audience, Change, InstallOptions, InstallReport, OpenWebUiAccess, OpenWebUiError, Switch};
use crate::cli::mode::ModeArg;
use crate::cli::{Failure, Outcome, print, runtime, service_url};
use crate::domain::toolsets::mode::Mode;

/// Maximum number of functions that a result names.
const NAMED: usize = 12;
/// The option with the address for the test message.
pub(super) const TEST_URL: &str = "--test-url";
const QUESTION: &str = "In a new chat, the model gets no tools until the user switches them on. Should Toolsieve switch the relevant tool \
                        servers on by itself, for every user who may use them (auto_enable)?";

#[derive(Subcommand)]
pub(super) enum OpenWebUi {
    /// Register the tool server and the filter, switch the status line on, and send a test message to Toolsieve
    ///
    /// A second run keeps what an administrator changed. It only updates the filter, and for all registered tool servers Toolsieve's
    /// address and the key, and switches the tool servers and the filter on.
    Install(Box<Install>),
    /// Remove the tool server and the filter with its settings, and keep everything else
    Uninstall {
        #[command(flatten)]
        access: Access,
    },
    /// Ask Toolsieve which functions the model would get for a message, without Open WebUI
    Test {
        /// Address of Toolsieve
        #[arg(long, value_name = "URL", env = "TOOLSIEVE_URL", default_value = "http://127.0.0.1:8000", value_parser = service_url)]
        toolsieve_url: Url,
        /// API key of Toolsieve, if it requires one
        #[arg(short = 'k', long, value_name = "KEY", env = "TOOLSIEVE_API_KEY", hide_env_values = true)]
        key: Option<SecretString>,
        /// The message [default: a message made from a tool's description]
        #[arg(long, value_name = "TEXT", value_parser = message)]
        message: Option<String>,
    },
}

#[derive(Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(super) struct Install {
    #[command(flatten)]
    access: Access,
    /// Address at which Open WebUI reaches Toolsieve [default: the registered address, or port 8000 of this machine]
    #[arg(long, value_name = "URL")]
    toolsieve_url: Option<String>,
    /// API key of Toolsieve, if it requires one; an empty text removes the key [default: the registered key]
    #[arg(short = 'k', long, value_name = "KEY", env = "TOOLSIEVE_API_KEY", hide_env_values = true)]
    key: Option<SecretString>,
    /// Also register this toolset as a separate tool server; may be repeated
    #[arg(long = "toolset", value_name = "NAME")]
    toolsets: Vec<String>,
    /// Register MCP connections instead of OpenAPI tool servers, for Open WebUI 0.9.6 to 0.11.1
    #[arg(long)]
    mcp: bool,
    /// Mode of the registered document [default: all tools, or the mode already registered]
    #[arg(long, value_enum, conflicts_with = "mcp")]
    mode: Option<ModeArg>,
    /// Who may use the tool server [default: everybody, or the setting already registered]
    #[arg(long, value_enum)]
    audience: Option<AudienceArg>,
    /// Switch relevant tool servers on in chats without tools [default: the present setting; on a terminal, ask once]
    #[arg(long, conflicts_with = "no_auto_enable")]
    auto_enable: bool,
    /// Leave chats without tools as they are
    #[arg(long)]
    no_auto_enable: bool,
    /// Show a line such as "7 of 214 tools" above each answer, even if an administrator switched it off
    #[arg(long, conflicts_with = "no_status_line")]
    status_line: bool,
    /// Leave the status line as it is
    #[arg(long)]
    no_status_line: bool,
    /// The test message [default: a message made from a tool's description]
    #[arg(long, value_name = "TEXT", value_parser = message)]
    message: Option<String>,
    /// Address at which this machine reaches Toolsieve, for the test message [default: the registered address]
    #[arg(long, value_name = "URL", value_parser = service_url)]
    test_url: Option<Url>,
    /// Send no test message
    #[arg(long = "no-test", action = ArgAction::SetFalse)]
    test: bool,
}

#[derive(Args)]
pub(super) struct Access {
    /// Address of Open WebUI
    #[arg(long, value_name = "URL")]
    url: String,
    /// API key or session token of an Open WebUI administrator
    #[arg(long, env = "OPENWEBUI_TOKEN", hide_env_values = true)]
    token: SecretString,
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum AudienceArg {
    Everybody,
    Administrators,
}

impl OpenWebUi {
    pub(super) fn run(self) -> Outcome {
        match self {
            Self::Install(install) => install.run(),
            Self::Uninstall { access } => uninstall(&access.into()),
            Self::Test { toolsieve_url, key, message } => {
                let key = key.as_ref().map(ExposeSecret::expose_secret);
                let setup = Setup::new(toolsieve_url.as_str(), key);
                match runtime()?.block_on(trial::run(&setup, message.as_deref())) {
                    Ok(trial) => show(&trial),
                    Err(error) => Err(not_sent(&error, "--toolsieve-url")),
                }
            }
        }
    }
}

impl Install {
    fn run(self) -> Outcome {
        let runtime = runtime()?;
        let Self { access, toolsieve_url, key, toolsets, mcp, mode, audience, message, test_url, test, .. } = self;
        let open_webui = OpenWebUiAccess::from(access);
        let auto_enable = if self.auto_enable || self.no_auto_enable {
            Switch::Set(self.auto_enable)
        } else if is_on_a_terminal() && runtime.block_on(openwebui::switches(&open_webui)).map_err(failure)?.auto_enable.is_none() {
            Switch::Initially(ask(QUESTION, &mut io::stdin().lock(), &mut io::stderr())?)
        } else {
            Switch::Keep
        };
        let status = match (self.status_line, self.no_status_line) {
            (true, _) => Switch::Set(true),
            (false, true) => Switch::Keep,
            (false, false) => Switch::Initially(true),
        };
        let options = InstallOptions {
            open_webui,
            toolsieve_url,
            key: key.map(|key| key.expose_secret().to_owned()),
            toolsets,
            mcp,
            mode: mode.map(Mode::from),
            audience: audience.map(Audience::from),
            status,
            auto_enable,
        };
        let report = runtime.block_on(openwebui::install(&options)).map_err(failure)?;
        print(&installed(&report))?;
        for warning in &report.warnings {
            log::say(&format!("warning: {warning}"));
        }
        if !test {
            return Ok(());
        }
        let setup = match test_url {
            Some(url) => report.setup.at(url.as_str()),
            None => report.setup,
        };
        match runtime.block_on(trial::run(&setup, message.as_deref())) {
            Ok(trial) => show(&trial)?,
            // Open WebUI reaches the service, so the installation works.
            Err(error) if error.is_unreachable() && report.is_read == Some(true) => {
                log::say(&format!(
                    "note: no test message was sent. Open WebUI reads Toolsieve's tools, but {error}\n→ {}",
                    error.remedy(TEST_URL)
                ));
            }
            Err(error) => return Err(not_sent(&error, TEST_URL)),
        }
        if report.is_read == Some(false) {
            // A warning says what is wrong.
            return Ok(());
        }
        print("Next step: start a chat in Open WebUI, switch the tool server Toolsieve on, and send a message.")
    }
}

fn uninstall(open_webui: &OpenWebUiAccess) -> Outcome {
    let report = runtime()?.block_on(openwebui::uninstall(open_webui)).map_err(failure)?;
    let connections = if report.connections.is_empty() {
        "was not registered".to_owned()
    } else {
        format!("removed ({})", report.connections.join(", "))
    };
    let filter = if report.filter { "removed, with its settings for the status line and auto_enable" } else { "was not registered" };
    print(&format!("tool server: {connections}\nfilter:      {filter}"))?;
    if !report.connections.is_empty() || report.filter {
        print(
            "What stays in Open WebUI has no effect: chats and models in which the tool server is switched on, and users' own settings for \
             the filter.",
        )?;
    }
    Ok(())
}

/// What an installation did, one line for each part.
fn installed(report: &InstallReport) -> String {
    let switch = |before: Option<bool>, after: Option<bool>, flag: &str| {
        let is_on = after == Some(true);
        let state = if is_on { "on" } else { "off" };
        let note = if before == after { ", as before" } else { "" };
        // The flag that switches to the other state.
        if is_on { format!("{state}{note}") } else { format!("{state}{note}; {flag} switches it on") }
    };
    let (before, after) = (report.before, report.switches);
    [
        format!("Open WebUI {}", report.version),
        format!("tool server: {}", changed(report.connection)),
        format!("filter:      {}", changed(report.filter)),
        format!("status line: {}", switch(before.status, after.status, "--status-line")),
        format!("auto_enable: {}", switch(before.auto_enable, after.auto_enable, "--auto-enable")),
    ]
    .join("\n")
}

/// Prints the result of a test message, and warnings.
fn show(trial: &Trial) -> Outcome {
    print(&result(trial))?;
    for warning in warnings(trial) {
        log::say(&format!("warning: {warning}"));
    }
    Ok(())
}

fn not_sent(error: &TrialError, flag: &str) -> Failure {
    Failure::failed(format!("error: the test message failed: {error}\n→ {}", error.remedy(flag)))
}

/// The result of a test message in words.
pub(super) fn result(trial: &Trial) -> String {
    let Trial { message, offered, view, .. } = trial;
    let mut lines = vec![format!("Test message \"{message}\": the model would get {}", functions(view, *offered))];
    if trial.is_indirect {
        lines.push("With these, the model finds and runs all other tools.".to_owned());
    }
    if let Some(view) = &trial.without_groups {
        lines.push(format!("For a user who is in no group: {}", functions(view, *offered)));
    }
    lines.join("\n")
}

pub(super) fn warnings(trial: &Trial) -> Vec<String> {
    let missing = trial.expected.as_ref().filter(|expected| !trial.view.functions.contains(expected));
    let missing = missing.map(|name| format!("{name}, from whose description the message is taken, is not among these functions"));
    missing.into_iter().chain(trial.warnings.iter().cloned()).collect()
}

/// How many functions the model gets, their tokens and their names.
fn functions(view: &TrialView, offered: usize) -> String {
    let (shown, before, after) = (view.functions.len(), thousands(view.tokens_before), thousands(view.tokens_after));
    let names = named(&view.functions);
    if view.is_small {
        let count = if shown == offered { format!("all {shown}") } else { format!("{shown} of {offered}") };
        return format!(
            "{count} functions ({after} tokens), because a catalog this small stays whole (selection.narrow_above_tokens): {names}"
        );
    }
    let why = if view.needs_tool { "" } else { ", because it needs no tool" };
    if shown == 0 {
        return format!("none of {offered} functions{why}");
    }
    format!("{shown} of {offered} functions ({after} of {before} tokens){why}: {names}")
}

fn named(functions: &[String]) -> String {
    let more = functions.len().saturating_sub(NAMED);
    let names = functions[..functions.len() - more].join(", ");
    if more == 0 { names } else { format!("{names}, and {more} more") }
}

/// The number with commas between groups of three digits.
fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Whether a person can answer a question.
fn is_on_a_terminal() -> bool {
    io::stdin().is_terminal() && io::stderr().is_terminal()
}

/// Asks a question that is answered with yes or no. Without an answer, it is no.
fn ask(question: &str, input: &mut impl BufRead, output: &mut impl Write) -> Result<bool, Failure> {
    let failed = |error: io::Error| Failure::failed(format!("error: the question can't be asked: {error}"));
    loop {
        write!(output, "{question} [y/N] ").and_then(|()| output.flush()).map_err(failed)?;
        let mut answer = String::new();
        let length = input.read_line(&mut answer).map_err(failed)?;
        match answer.trim().to_lowercase().as_str() {
            "y" | "yes" => return Ok(true),
            "" | "n" | "no" => return Ok(false),
            // A last line without an end is followed by nothing.
            _ if length == 0 || !answer.ends_with('\n') => return Ok(false),
            _ => {}
        }
    }
}

fn message(text: &str) -> Result<String, String> {
    if text.trim().is_empty() { Err("the message is empty".to_owned()) } else { Ok(text.to_owned()) }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape that map_err asks for")]
fn failure(error: OpenWebUiError) -> Failure {
    let message = format!("error: {error}");
    match error {
        OpenWebUiError::Address { .. } | OpenWebUiError::Toolset(_) => Failure::invalid(message),
        _ => Failure::failed(message),
    }
}

fn changed(change: Change) -> &'static str {
    match change {
        Change::Created => "added",
        Change::Updated => "updated",
        Change::Unchanged => "unchanged",
    }
}

impl From<Access> for OpenWebUiAccess {
    fn from(access: Access) -> Self {
        Self { url: access.url, token: access.token.expose_secret().to_owned() }
    }
}

impl From<AudienceArg> for Audience {
    fn from(audience: AudienceArg) -> Self {
        match audience {
            AudienceArg::Everybody => Self::Everybody,
            AudienceArg::Administrators => Self::Administrators,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapters::openwebui::Switches;

    fn view(functions: &[&str]) -> TrialView {
        TrialView {
            functions: functions.iter().map(|name| (*name).to_owned()).collect(),
            tokens_before: 88_651,
            tokens_after: 1_793,
            needs_tool: true,
            is_small: false,
        }
    }

    fn trial(view: TrialView) -> Trial {
        Trial {
            message: "Create an issue".to_owned(),
            expected: Some("a__create".to_owned()),
            offered: 212,
            is_indirect: false,
            view,
            without_groups: None,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn a_result_names_functions_and_tokens() {
        let narrowed = trial(view(&["find_tools", "a__create"]));
        let expected =
            "Test message \"Create an issue\": the model would get 2 of 212 functions (1,793 of 88,651 tokens): find_tools, a__create";
        assert_eq!(result(&narrowed), expected);
        assert_eq!(warnings(&narrowed), [""; 0]);
        let for_others = Trial { without_groups: Some(view(&[])), ..trial(view(&["a__create"])) };
        assert!(result(&for_others).ends_with("\nFor a user who is in no group: none of 212 functions"), "{}", result(&for_others));
    }

    #[test]
    fn a_result_says_why_all_functions_stay_or_none_is_needed() {
        let small = TrialView { is_small: true, ..view(&["find_tools", "a__create"]) };
        let text = result(&Trial { offered: 2, ..trial(small) });
        assert!(text.contains("would get all 2 functions (1,793 tokens), because a catalog this small stays whole"), "{text}");
        let text = result(&trial(TrialView { needs_tool: false, ..view(&["find_tools"]) }));
        assert!(text.contains("1 of 212 functions (1,793 of 88,651 tokens), because it needs no tool: find_tools"), "{text}");
        let text = result(&Trial { is_indirect: true, ..trial(view(&["find_tools"])) });
        assert!(text.contains("finds and runs all other tools"), "{text}");
    }

    #[test]
    fn a_missing_tool_is_a_warning() {
        let missed = Trial { warnings: vec!["tools are being embedded".to_owned()], ..trial(view(&["find_tools"])) };
        let warnings = warnings(&missed);
        assert!(warnings[0].starts_with("a__create, ") && warnings[1] == "tools are being embedded", "{warnings:?}");
    }

    #[test]
    fn long_lists_are_shortened() {
        let names: Vec<String> = (0..NAMED + 3).map(|number| format!("t{number}")).collect();
        assert!(named(&names).ends_with(", t11, and 3 more"), "{}", named(&names));
        assert_eq!(named(&names[..2]), "t0, t1");
    }

    #[test]
    fn numbers_have_commas() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (88_651, "88,651"), (1_234_567, "1,234,567")] {
            assert_eq!(thousands(number), text);
        }
    }

    #[test]
    fn a_question_is_answered_with_yes_or_no() {
        let answered = |mut input: &[u8]| {
            let mut asked = Vec::new();
            let answer = ask("Really?", &mut input, &mut asked).unwrap_or_else(|failure| panic!("{}", failure.message));
            (answer, String::from_utf8(asked).unwrap())
        };
        assert_eq!(answered(b"y\n"), (true, "Really? [y/N] ".to_owned()));
        assert!(answered(b"YES\n").0);
        assert!(!answered(b"\n").0);
        assert!(!answered(b"").0);
        assert!(!answered(b"perhaps").0);
        assert_eq!(answered(b"perhaps\nyes\n"), (true, "Really? [y/N] Really? [y/N] ".to_owned()));
    }

    #[test]
    fn an_installation_reports_its_switches() {
        let report = |before: Switches, switches: Switches| {
            installed(&InstallReport {
                version: "0.12.4".to_owned(),
                connection: Change::Created,
                filter: Change::Created,
                before,
                switches,
                warnings: Vec::new(),
                setup: Setup::new("http://t", None),
                is_read: Some(true),
            })
        };
        let new = report(Switches::default(), Switches { status: Some(true), auto_enable: None });
        assert!(new.ends_with("status line: on\nauto_enable: off, as before; --auto-enable switches it on"), "{new}");
        let kept = Switches { status: Some(false), auto_enable: Some(true) };
        let kept = report(kept, kept);
        assert!(kept.ends_with("status line: off, as before; --status-line switches it on\nauto_enable: on, as before"), "{kept}");
    }
}
