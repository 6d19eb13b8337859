//! Metrics for Prometheus.

use actix_web::http::header;
use actix_web::{HttpRequest, HttpResponse, get, web};

use crate::domain::catalog::tool::ToolId;
use crate::http::caller::Caller;
use crate::http::problem::{Answer, Code, Problem};
use crate::http::state::State;
use crate::service::records::prometheus::Form;

const OPEN_METRICS: &str = "application/openmetrics-text";
const OPEN_METRICS_TEXT: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns metrics for Prometheus. This route needs a key, unless `metrics.public` is set. The response contains only
/// servers that the caller may see; with the admin key, it contains all servers.
#[utoipa::path(
    tag = "operations",
    responses(
        (
            status = 200,
            description = "The metrics, as OpenMetrics 1.0 if `Accept` requests this format, and otherwise as Prometheus text 0.0.4",
            content((String = "text/plain"), (String = "application/openmetrics-text"))
        ),
        (status = 404, description = "Metrics are off (metrics.enabled is false)")
    )
)]
#[get("/metrics")]
pub async fn metrics(state: web::Data<State>, caller: Caller, request: HttpRequest) -> Answer {
    if !state.metrics.enabled {
        return Err(Problem::not_found());
    }
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let (form, content_type) =
        if accept.contains(OPEN_METRICS) { (Form::OpenMetrics, OPEN_METRICS_TEXT) } else { (Form::Plain, PLAIN_TEXT) };
    let sees_all = state.metrics.public || caller.0.sees_all();
    let text = state.prometheus.text(form, |server, tool| {
        sees_all
            || match tool {
                Some(tool) => state.current.shows_tool(&caller.0, &ToolId::new(server.clone(), tool)),
                None => state.current.shows_server(&caller.0, server),
            }
    });
    let text = text.map_err(|_| Problem::new(Code::Internal, "The metrics could not be written."))?;
    Ok(HttpResponse::Ok().content_type(content_type).insert_header((header::CACHE_CONTROL, "no-store")).body(text))
}
