//! Callers' verdicts on selected tools.

use actix_web::{HttpResponse, post, web};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::http::body::Body;
use crate::http::caller::Caller;
use crate::http::problem::{Answer, Code, Problem, plain, read_json};
use crate::http::state::State;
use crate::service::ports::{SelectionName, Verdict};

/// Maximum size of the body in bytes. It contains only two names and a verdict.
const MAX_BYTES: usize = 4_096;
/// Maximum length of an id or a name.
pub(in crate::http) const MAX_ID_BYTES: usize = 256;

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct FeedbackBody {
    /// The `selection_id` from the caller's `/v1/filter` response.
    selection_id: Option<String>,
    /// A chat, as an alternative to `selection_id`. The verdict applies to the chat's last selection.
    chat_id: Option<String>,
    /// The tool's public name.
    tool: String,
    /// `helpful`: the tool was right. `wrong`: the tool was selected, but the message didn't need it. `missing`: the
    /// message needed the tool, but it wasn't selected.
    verdict: String,
}

#[derive(Serialize, ToSchema)]
struct FeedbackAnswer {
    /// The selection to which the verdict applies.
    selection_id: String,
    tool: String,
    verdict: &'static str,
}

/// Stores a verdict on a tool in one of the caller's own selections. A later verdict on the same tool replaces an
/// earlier one. Verdicts contain no text.
#[utoipa::path(
    tag = "filter",
    request_body = FeedbackBody,
    responses(
        (status = 200, description = "The verdict is stored", body = FeedbackAnswer),
        (status = 404, description = "The selection is not one of the caller's, or the tool is unknown"),
        (status = 422, description = "The body contains neither or both of selection_id and chat_id, or a value is invalid"),
        (status = 429, description = "The caller exceeds limits.selections_per_minute")
    )
)]
#[post("/v1/feedback")]
pub async fn feedback(state: web::Data<State>, caller: Caller, body: Body) -> Answer {
    if body.0.len() > MAX_BYTES {
        return Err(Problem::new(Code::BodyTooLarge, format!("Feedback has at most {MAX_BYTES} bytes.")));
    }
    let body: FeedbackBody = read_json(&body.0)?;
    let (named, verdict) = (body.named()?, body.verdict()?);
    state.limits.selection(&caller.0).await?;
    let selection_id = state.feedback.give(named, &body.tool, verdict, &caller.0).await?;
    Ok(HttpResponse::Ok().json(FeedbackAnswer { selection_id, tool: body.tool, verdict: verdict.name() }))
}

impl FeedbackBody {
    fn named(&self) -> Result<SelectionName, Problem> {
        let given = |id: &Option<String>| id.clone().filter(|id| !id.is_empty());
        let named = match (given(&self.selection_id), given(&self.chat_id)) {
            (Some(id), None) => SelectionName::Id(id),
            (None, Some(chat)) => SelectionName::Chat(chat),
            _ => return Err(Problem::invalid("selection_id", "give either selection_id or chat_id.")),
        };
        let named_by = match &named {
            SelectionName::Id(id) => ("selection_id", id),
            SelectionName::Chat(id) => ("chat_id", id),
        };
        if let Some((parameter, _)) = [named_by, ("tool", &self.tool)].into_iter().find(|(_, id)| id.len() > MAX_ID_BYTES) {
            return Err(Problem::invalid(parameter, format!("selection_id, chat_id and tool have at most {MAX_ID_BYTES} bytes.")));
        }
        let (parameter, id) = named_by;
        plain(parameter, id)?;
        plain("tool", &self.tool)?;
        Ok(named)
    }

    fn verdict(&self) -> Result<Verdict, Problem> {
        Verdict::of_name(&self.verdict).ok_or_else(|| Problem::invalid("verdict", "verdict is `helpful`, `wrong` or `missing`."))
    }
}
