//! Finds tools for a model among all tools that the caller may use, loaded or not.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use serde::Serialize;

use crate::domain::access::visibility::{Scope, Visibility};
use crate::domain::catalog::catalog::{Catalog, CatalogServer};
use crate::domain::catalog::tool::{ServerName, Tool};
use crate::domain::publishing::meta_tools::MetaTool::{LoadToolset, RunTool};
use crate::domain::selection::intent::Intent;
use crate::domain::selection::relevance::arrange::{ArrangeCandidate, Arranged, arrange};
use crate::domain::selection::relevance::{Ranked, is_weak, shares_word};
use crate::domain::text::json_text::JsonText;
use crate::domain::text::similar::nearest_of_family;
use crate::service::access::limits::{Limited, Limits};
use crate::service::catalog::current::{CurrentCatalog, View};
use crate::service::meta_tools::describe::UnknownName;
use crate::service::meta_tools::proposed::{ProposedToolset, proposed};
use crate::service::records::metrics::SearchKind;
use crate::service::records::record::Recorder;
use crate::service::selection::retrieve::{Merged, Retrieve};
use crate::service::toolsets::loading::{CallerAt, Loading};

/// Maximum number of proposed toolsets per search.
const MOST_TOOLSETS: usize = 5;
/// Number of results requested from the index for a search with an intent, because tools that match the intent may rank low.
const LONGEST_LIST: usize = 1_000;

/// How much data a search returns per tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Detail {
    Names,
    #[default]
    Summary,
    Full,
}

impl Detail {
    pub(crate) const NAMES: &str = "`names` (or `compact`), `summary` or `full`";

    pub(crate) fn of_name(name: &str) -> Option<Self> {
        match name {
            "names" | "compact" => Some(Self::Names),
            "summary" => Some(Self::Summary),
            "full" => Some(Self::Full),
            _ => None,
        }
    }
}

/// The parameters of a search.
#[derive(Clone, Debug)]
pub(crate) struct FindTools {
    pub queries: Vec<String>,
    /// Names of the servers to search; if empty, all servers are searched.
    pub servers: Vec<String>,
    pub limit: usize,
    pub detail: Detail,
    /// The kind of tools that is wanted, as a hint.
    pub intent: Option<String>,
    /// Number of tools per server after which tools of other servers come first.
    pub per_server: Option<usize>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct FoundTool {
    pub name: String,
    pub server: String,
    pub tool: String,
    /// Match with the queries, 0 to 1.
    pub score: f32,
    /// Whether the tool only fills the list, because it hardly matches any query.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub weak: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parameters: Option<JsonText>,
    /// Whether calls run at once (`ready`), or the user must sign in first (`sign_in`). Only set for servers that people sign in to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection: Option<&'static str>,
    /// Whether the tool is already bound. Only set where tools can be loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub already_loaded: Option<bool>,
    /// Published names of near duplicates on other servers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub same_as: Vec<String>,
}

/// The results of a search.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Found {
    pub tools: Vec<FoundTool>,
    /// Toolsets to load for tools that are not bound yet, best first. Only set where tools can be loaded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub toolsets: Vec<ProposedToolset>,
    /// The requested servers of which the caller sees no tool.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unknown_servers: Vec<UnknownName>,
    /// A hint to the model about the next step.
    pub next: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

pub(crate) struct Find {
    pub current: Arc<CurrentCatalog>,
    pub retrieve: Arc<Retrieve>,
    pub loading: Arc<Loading>,
    pub limits: Arc<Limits>,
    pub recorder: Recorder,
}

impl Find {
    /// The best tools for all queries together, best first: exactly `limit` if there are that many. Empty if all tools are weak
    /// and none shares a word with the queries.
    ///
    /// # Errors
    /// [`Limited`] over the caller's limit.
    pub(crate) async fn find(&self, request: &FindTools, here: CallerAt<'_>) -> Result<Found, Limited> {
        self.limits.selection(&here.caller.principal).await?;
        let whole = self.current.view(&here.caller.principal);
        let (view, unknown_servers) = restricted(&whole, &request.servers);
        if view.visibility.servers == Scope::Only(BTreeSet::new()) && !unknown_servers.is_empty() {
            let next = "None of these servers has tools here. Correct the names, or search without `servers`.".to_owned();
            return Ok(Found { unknown_servers, next, ..Found::default() });
        }
        let View { catalog, visibility, settings, .. } = &*view;
        let mut queries = request.queries.clone();
        let mut warnings = Vec::new();
        let is_meant = meant(request, catalog, visibility, &mut warnings);
        if is_meant.is_none() {
            // The intent also describes the task, even if no tag matches it.
            queries.extend(request.intent.clone());
        }
        let list = if is_meant.is_some() { LONGEST_LIST } else { request.limit };
        let mut merged = self.retrieve.merged(&queries, &view, &here.caller.principal, list).await;
        warnings.append(&mut merged.warnings);
        // Right after a change of the catalog or the policy, the index may not return all tools yet. Then nothing is called weak.
        let returned = merged.ranked.iter().filter(|tool| tool.dense.is_some() || shares_word(tool)).count();
        let is_judged = !merged.has_failed && returned >= list.min(view.visible().positions().len());
        let weak_cosine = merged.weak_cosine;
        let is_weak = |tool: &Ranked<u32>| is_judged && is_weak(tool, weak_cosine);
        // A tool that matches the intent shares a word with the request.
        let is_nothing = is_judged && is_meant.is_none() && merged.ranked.iter().all(|tool| is_weak(tool) && !shares_word(tool));

        let connections = self.retrieve.connection_states(&here.caller.principal).await;
        let texts = catalog.texts().filter(|_| settings.fold_duplicates);
        let arranged = |ranked: &mut Vec<Ranked<u32>>| {
            Retrieve::prefer_ready(ranked, &connections, &view);
            let candidate = |&Ranked { key, .. }: &Ranked<u32>| ArrangeCandidate {
                server: catalog.server_of(key).unwrap_or(u32::MAX),
                group: texts.map_or(key, |texts| texts.near_duplicates.group(key)),
                is_meant: is_meant.as_ref().is_none_or(|meant| meant[key as usize]),
            };
            let found: Vec<ArrangeCandidate> = ranked.iter().map(candidate).collect();
            arrange(&found, request.per_server.or(settings.per_server))
        };
        let Arranged { mut order, in_place } = arranged(&mut merged.ranked);
        if in_place < request.limit && !is_nothing {
            merged.add_rest(&view);
            order = arranged(&mut merged.ranked).order;
        }
        let Merged { ranked, firsts, vector, .. } = merged;
        // The scores of different queries say little about each other, so each query keeps its best tool.
        let is_first = |place: &usize| is_meant.is_none() && firsts.contains(&ranked[*place].key) && !is_weak(&ranked[*place]);
        keep_first(&mut order, if is_nothing { 0 } else { request.limit }, is_first);
        let shown: HashSet<u32> = order.iter().map(|&place| ranked[place].key).collect();

        let now = if here.can_load { self.loading.now(here).await } else { None };
        let tool_at = |place: usize| &catalog.tools()[ranked[place].key as usize];
        let answers = order.iter().map(|&place| {
            let near_duplicates =
                texts.map_or(&[][..], |texts| texts.near_duplicates.of_group(texts.near_duplicates.group(ranked[place].key)));
            let same_as = near_duplicates.iter().filter(|key| !shown.contains(key)).map(|&key| &catalog.tools()[key as usize]);
            FoundTool {
                already_loaded: now.as_ref().map(|now| now.contains(&tool_at(place).operation_id)),
                same_as: same_as.filter(|tool| visibility.allows(tool)).map(|tool| tool.operation_id.to_string()).collect(),
                weak: is_weak(&ranked[place]),
                connection: connections.get(&tool_at(place).id.server).map(|state| state.name()),
                ..described(tool_at(place), ranked[place].score(), request.detail)
            }
        });
        let tools: Vec<FoundTool> = answers.collect();
        warnings.extend(self.retrieve.down_warnings(order.iter().map(|&place| &tool_at(place).id)));
        let to_load = || order.iter().map(|&place| tool_at(place));
        let toolsets = now.as_ref().map(|now| {
            let missing: Vec<&Arc<Tool>> = to_load().filter(|tool| !now.contains(&tool.operation_id)).collect();
            proposed(&missing, catalog, &whole.visibility, MOST_TOOLSETS)
        });
        let next = if catalog.tools().is_empty() {
            "There are no tools yet: the MCP servers may still be starting. Repeat the search in some seconds.".to_owned()
        } else {
            next(&tools, toolsets.as_deref(), request.detail)
        };
        let message = self.recorder.message(&request.queries.join("\n"));
        self.recorder.searched(SearchKind::FindTools, here.caller, (message, vector), to_load().map(|tool| tool.id.clone()).collect());
        Ok(Found { tools, toolsets: toolsets.unwrap_or_default(), unknown_servers, next, warnings })
    }
}

/// Keeps this many, among them those that come first, in their order.
fn keep_first(order: &mut Vec<usize>, limit: usize, is_first: impl Fn(&usize) -> bool) {
    let mut room = limit.saturating_sub(order.iter().filter(|place| is_first(place)).count());
    order.retain(|place| {
        let fits = is_first(place) || room > 0;
        room -= usize::from(fits && !is_first(place));
        fits
    });
    order.truncate(limit);
}

/// The view of a search, which covers only the named servers, and the names of servers of which the caller sees no tool. For
/// denied servers, the response is the same as for unknown ones.
fn restricted<'a>(whole: &'a View, names: &[String]) -> (Cow<'a, View>, Vec<UnknownName>) {
    if names.is_empty() {
        return (Cow::Borrowed(whole), Vec::new());
    }
    let View { catalog, visibility, .. } = whole;
    let shown: Vec<&CatalogServer> =
        catalog.servers().iter().filter(|server| !server.tools.is_empty() && visibility.shows(server)).collect();
    let shown = || shown.iter().map(|server| &server.name);
    let (mut servers, mut unknown) = (BTreeSet::new(), Vec::<UnknownName>::new());
    for name in names.iter().map(|name| name.trim()) {
        let known =
            shown().find(|known| known.as_str() == name).or_else(|| shown().find(|known| known.as_str().eq_ignore_ascii_case(name)));
        match known {
            Some(known) => {
                servers.insert(known.clone());
            }
            None if unknown.iter().any(|known| known.name == name) => {}
            None => {
                let did_you_mean = nearest_of_family(name, shown().map(ServerName::as_str)).map(str::to_owned);
                unknown.push(UnknownName { name: name.to_owned(), did_you_mean });
            }
        }
    }
    (Cow::Owned(whole.of_servers(Scope::Only(servers))), unknown)
}

/// For each tool of the catalog, whether it matches the intent; `None` without an intent, or if no tool matches.
fn meant(request: &FindTools, catalog: &Catalog, visibility: &Visibility, warnings: &mut Vec<String>) -> Option<Vec<bool>> {
    let text = request.intent.as_deref()?;
    let mut intent = Intent::new(text);
    if intent.is_empty() {
        return None;
    }
    let fits =
        |tool: &Arc<Tool>| visibility.allows(tool) && intent.fits(tool, catalog.server(tool.id.server.as_str()), &visibility.assigned);
    let meant: Vec<bool> = catalog.tools().iter().map(fits).collect();
    if !meant.contains(&true) {
        let searched = if request.servers.is_empty() { "all tools" } else { "all tools of these servers" };
        warnings.push(format!("no tag, toolset or server matches the intent: {searched} were searched"));
        return None;
    }
    Some(meant)
}

/// A hint about the next step. `toolsets` is set where tools can be loaded.
fn next(tools: &[FoundTool], toolsets: Option<&[ProposedToolset]>, detail: Detail) -> String {
    let next = next_call(tools, toolsets, detail);
    if !tools.is_empty() && tools.iter().all(|tool| tool.weak) {
        format!("These tools match only weakly. Use one only if it does what you need; otherwise, try other words. {next}")
    } else {
        next
    }
}

fn next_call(tools: &[FoundTool], toolsets: Option<&[ProposedToolset]>, detail: Detail) -> String {
    if tools.is_empty() {
        return "Nothing was found. Try other words for what the tool should do.".to_owned();
    }
    match (toolsets, detail) {
        (Some([]), _) if tools.iter().all(|tool| tool.already_loaded == Some(true)) => {
            "All of these are loaded: call them directly.".to_owned()
        }
        (Some([first, ..]), _) => format!(
            "If one of these is what you need and is not loaded yet, load its toolset ({LoadToolset}, e.g. \"{}\") and then call the tool \
             directly. If none fits, try other words.",
            first.name
        ),
        // No toolset can be loaded for those that aren't, such as tools of a server that has the name of a toolset.
        (Some([]) | None, Detail::Full) => {
            format!("Call a tool directly if it is among your tools, otherwise through {RunTool}.")
        }
        (Some([]) | None, Detail::Names | Detail::Summary) => format!(
            "Call a tool directly if it is among your tools; otherwise get its parameters (this search again with detail \"full\") and \
             call it through {RunTool}."
        ),
    }
}

fn described(tool: &Tool, score: f32, detail: Detail) -> FoundTool {
    FoundTool {
        name: tool.operation_id.to_string(),
        server: tool.id.server.to_string(),
        tool: tool.label.to_string(),
        score,
        weak: false,
        summary: (detail == Detail::Summary).then(|| tool.summary().to_owned()),
        description: (detail == Detail::Full).then(|| tool.description.clone()),
        parameters: (detail == Detail::Full).then(|| tool.input.published.clone()),
        connection: None,
        already_loaded: None,
        same_as: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Detail, FoundTool, ProposedToolset, next_call};

    fn found(already_loaded: Option<bool>) -> FoundTool {
        FoundTool {
            name: "git__log".to_owned(),
            server: "git".to_owned(),
            tool: "log".to_owned(),
            score: 1.0,
            weak: false,
            summary: None,
            description: None,
            parameters: None,
            connection: None,
            already_loaded,
            same_as: Vec::new(),
        }
    }

    /// Regression test: without a toolset to load, all tools were called loaded.
    #[test]
    fn the_next_step_fits_what_is_loaded() {
        let toolset = ProposedToolset { name: "history".to_owned(), tools: 1, has: Vec::new() };
        let (loaded, other) = (found(Some(true)), found(Some(false)));
        for (tools, toolsets, detail, expected) in [
            (vec![], Some(&[][..]), Detail::Summary, "Nothing was found."),
            (vec![loaded.clone()], Some(&[]), Detail::Summary, "All of these are loaded"),
            (vec![loaded.clone(), other.clone()], Some(&[]), Detail::Full, "otherwise through run_tool."),
            (vec![loaded, other.clone()], Some(&[]), Detail::Summary, "call it through run_tool."),
            (vec![other], Some(std::slice::from_ref(&toolset)), Detail::Full, "load its toolset (load_toolset, e.g. \"history\")"),
            (vec![found(None)], None, Detail::Full, "otherwise through run_tool."),
        ] {
            let next = next_call(&tools, toolsets, detail);
            assert!(next.contains(expected), "{expected}: {next}");
        }
    }
}
