//! Repeats a recorded selection with the settings, tools and learning of today.

use actix_web::{HttpRequest, post, web};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use super::events::{EventBody, EventToolBody};
use super::uncached;
use crate::domain::catalog::tool::ToolId;
use crate::http::caller::{Administrator, Caller};
use crate::http::problem::{Answer, Code, Problem};
use crate::http::routes::filter::{FilterAnswer, explained};
use crate::http::state::State;
use crate::service::ports::{StoredEvent, StoredEventKind};

/// What a message would get now, with an explanation, and what it got then.
#[derive(Serialize, ToSchema)]
pub(in crate::http) struct Replay {
    /// The recorded selection.
    pub(in crate::http) then: EventBody,
    /// Tools that are selected now, and were not then. Empty if all tools were kept then.
    pub(in crate::http) added: Vec<EventToolBody>,
    /// Tools that were selected then, and are not now. Empty if all tools were kept then.
    pub(in crate::http) gone: Vec<EventToolBody>,
    #[serde(flatten)]
    pub(in crate::http) now: FilterAnswer,
}

/// Selects again for the message of a recorded selection, as its caller and with the settings of today, and explains the selection. Records
/// nothing and changes no chat. The record contains neither earlier turns nor the model nor a user's groups, so these are left out; groups
/// in the settings count.
#[utoipa::path(
    params(("id" = u64, Path, description = "The event's number")),
    responses(
        (status = 200, description = "What the message would get now, with `explain`, and what it got then", body = Replay),
        (status = 404, description = "There is no such event, or the caller is not an administrator"),
        (status = 409, description = "The event is no selection, or the text of its message isn't stored"),
        (status = 422, description = "The caller of the event doesn't exist any more")
    )
)]
#[post("/v1/admin/events/{id}/replay")]
pub(in crate::http) async fn replay_event(
    state: web::Data<State>,
    caller: Administrator,
    request: HttpRequest,
    path: web::Path<String>,
) -> Answer {
    let event = event(&state, path.parse().map_err(|_| missing())?).await?;
    let replay = replay(&state, &Caller(caller.0), &request, event).await?;
    Ok(uncached(&replay))
}

/// The event with this number.
///
/// # Errors
/// There is none, or the store can't be read.
pub(in crate::http) async fn event(state: &State, id: u64) -> Result<StoredEvent, Problem> {
    state.activity.event(id).await?.ok_or_else(missing)
}

fn missing() -> Problem {
    Problem::new(Code::NotFound, "There is no event with this number. Old events are deleted after a while.")
}

/// Repeats a selection.
///
/// # Errors
/// The event is no selection, or its text isn't stored; and the errors of a selection.
pub(in crate::http) async fn replay(state: &State, caller: &Caller, request: &HttpRequest, event: StoredEvent) -> Result<Replay, Problem> {
    if !matches!(event.kind, StoredEventKind::Offered { .. }) {
        return Err(Problem::new(Code::Conflict, "Only selections can be replayed. This event is a search or a call."));
    }
    let Some(message) = &event.message else {
        let detail = "The text of this message isn't stored. Set learning.message_text to store the texts of later messages.";
        return Err(Problem::new(Code::Conflict, detail));
    };
    let asked = json!({"messages": [{"role": "user", "content": message}], "as": {"principal": event.principal}});
    let now = explained(state, caller, request, asked.to_string().as_bytes()).await?;
    // In shadow mode, the model gets all tools, and the record contains the selected ones.
    let explained = now.explain.iter();
    let names = explained.flat_map(|explain| {
        let sent = explain.candidates.iter().filter(|candidate| candidate.sent).map(|candidate| candidate.name.as_str());
        sent.chain(explain.kept.iter().map(|kept| kept.name.as_str()))
    });
    let catalog = state.current.snapshot();
    let selected: Vec<&ToolId> = names.filter_map(|name| catalog.operation(name).map(|tool| &tool.id)).collect();
    let (mut added, mut gone) = (Vec::new(), Vec::new());
    if let StoredEventKind::Offered { tools, all: None } = &event.kind {
        added = selected.iter().filter(|tool| !tools.contains(tool)).map(|tool| EventToolBody::of(tool)).collect();
        gone = tools.iter().filter(|tool| !selected.contains(tool)).map(EventToolBody::of).collect();
    }
    Ok(Replay { then: EventBody::from(event), added, gone, now })
}
