//! The OpenAPI document of the service's own routes, with shared errors and the limits that the routes check.

use actix_web::App;
use serde_json::{Map, Value, json};
use utoipa::OpenApi;
use utoipa_actix_web::AppExt;

use crate::domain::access::api_key;
use crate::domain::access::tool_facts::{DESCRIPTION_CHARACTERS, MOST_SYNONYMS, MOST_TAGS, SYNONYM_CHARACTERS, TAG_CHARACTERS};
use crate::domain::access::toolset::MAX_DESCRIPTION;
use crate::domain::publishing::meta_tools::{
    DEFAULT_FOUND, DEFAULT_SELECTED, MAX_DESCRIBED, MAX_FOUND, MAX_GROUPS, MAX_QUERIES, MAX_SELECTED, MAX_SERVERS, MIN_SELECTED,
};
use crate::domain::selection::enrichment::{self, FUNCTION_CHARACTERS, MOST_QUERIES, QUERY_CHARACTERS};
use crate::http::problem::{Code, ProblemBody};
use crate::http::routes::{admin, context, feedback, filter, sessions};
use crate::http::{configure, person};
use crate::service::access::policies::MAX_RULES;
use crate::service::access::secrets;
use crate::service::toolsets::sessions::SHORTEST_TTL_SECONDS;

/// The service's own routes. Routes of MCP tools are missing here, because every caller's document describes the
/// caller's own tools.
#[derive(OpenApi)]
#[openapi(
    info(title = "Toolsieve", description = "The service's own routes. /openapi.json describes the tools.", license(name = "Apache-2.0", identifier = "Apache-2.0")),
    components(schemas(ProblemBody<'static>)),
    tags(
        (name = "operations", description = "Liveness and readiness of the service"),
        (name = "filter", description = "Selecting tools for a message"),
        (name = "tools", description = "Finding and running tools"),
        (name = "toolsets", description = "Named lists of tools. All routes also exist below /toolsets/NAME, where they are limited to the toolset's tools"),
        (name = "sessions", description = "Temporary addresses with their own tool lists. All routes also exist below /s/ID"),
        (name = "secrets", description = "Callers' secrets, with which MCP servers act on the callers' behalf"),
        (name = "connections", description = "Sign-ins of users to MCP servers"),
        (name = "files", description = "Files that tools returned"),
        (name = "administration", description = "Routes that only the admin key can use. For all other callers, they don't exist"),
        (name = "documents", description = "OpenAPI documents of the tools that a caller may see")
    )
)]
struct ServiceApi;

/// An error response that many routes share.
struct Shared {
    /// The response's name under `components/responses`.
    name: &'static str,
    code: Code,
    description: &'static str,
    routes: Routes,
}

/// Which routes can return a shared error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Routes {
    All,
    WithKey,
    WithBody,
    Administration,
}

/// The shared errors. If a route describes one of them itself, its own description is used.
const SHARED: [Shared; 10] = [
    Shared { name: "NotJson", code: Code::NotJson, description: "The body is not JSON", routes: Routes::WithBody },
    Shared { name: "Unauthorized", code: Code::Unauthorized, description: "The key is missing or wrong", routes: Routes::WithKey },
    Shared {
        name: "ForeignOrigin",
        code: Code::ForeignOrigin,
        description: "The request comes from another site's page (`foreign_origin`)",
        routes: Routes::All,
    },
    Shared {
        name: "MethodNotAllowed",
        code: Code::MethodNotAllowed,
        description: "The key is not the admin key, so the response is the same as for an unknown route",
        routes: Routes::Administration,
    },
    Shared { name: "BodyTooSlow", code: Code::BodyTooSlow, description: "The body did not arrive in time", routes: Routes::WithBody },
    Shared { name: "BodyTooLarge", code: Code::BodyTooLarge, description: "The body is too large", routes: Routes::WithBody },
    Shared {
        name: "EncodedBody",
        code: Code::EncodedBody,
        description: "The body is encoded (`Content-Encoding`)",
        routes: Routes::WithBody,
    },
    Shared {
        name: "RateLimited",
        code: Code::RateLimited,
        description: "There were too many requests, or too many wrong keys from this address; `Retry-After` contains the time to wait",
        routes: Routes::All,
    },
    Shared { name: "Internal", code: Code::Internal, description: "Internal error", routes: Routes::All },
    Shared {
        name: "Overloaded",
        code: Code::Overloaded,
        description: "The service is receiving too much data at once (`overloaded`), or its store is not available \
                      (`store_unavailable`); `Retry-After` contains the time to wait",
        routes: Routes::All,
    },
];

/// JSON Schema keywords, with their values.
type Keywords<'a> = &'a [(&'static str, usize)];

/// Limits on members of request bodies, by schema and member. For ids, names and tasks, lengths are in bytes.
const MEMBERS: [(&str, &str, Keywords<'_>); 60] = [
    ("FilterBody", "messages", &[("minItems", 1)]),
    ("FilterBody", "connections", &[("maxProperties", filter::MAX_IDS)]),
    ("FilterBody", "tool_ids", &[("maxItems", filter::MAX_IDS)]),
    ("FilterBody", "disclose", &[("maxItems", filter::MAX_IDS)]),
    ("FilterBody", "keep", &[("maxItems", filter::MAX_IDS)]),
    ("FilterBody", "searched", &[("maxItems", filter::MAX_IDS)]),
    ("FilterBody", "chat_id", &[("maxLength", person::MAX_BYTES)]),
    ("FilterBody", "message_id", &[("maxLength", person::MAX_BYTES)]),
    ("FilterBody", "model", &[("maxLength", person::MAX_BYTES)]),
    ("FilterBody", "limit", &[("minimum", 1), ("maximum", filter::MAX_LIMIT)]),
    ("PersonBody", "id", &[("minLength", 1), ("maxLength", person::MAX_BYTES)]),
    ("PersonBody", "email", &[("maxLength", person::MAX_BYTES)]),
    ("PersonBody", "groups", &[("maxItems", person::MAX_GROUPS)]),
    ("PersonBody", "groups/items", &[("maxLength", person::MAX_BYTES)]),
    ("FeedbackBody", "selection_id", &[("maxLength", feedback::MAX_ID_BYTES)]),
    ("FeedbackBody", "chat_id", &[("maxLength", feedback::MAX_ID_BYTES)]),
    ("FeedbackBody", "tool", &[("maxLength", feedback::MAX_ID_BYTES)]),
    ("SearchBody", "queries", &[("maxItems", MAX_QUERIES)]),
    ("SearchBody", "servers", &[("maxItems", MAX_SERVERS)]),
    ("SearchBody", "limit", &[("minimum", 1), ("maximum", MAX_FOUND), ("default", DEFAULT_FOUND)]),
    ("SearchBody", "per_server", &[("minimum", 1), ("maximum", MAX_FOUND)]),
    ("SearchBody", "chat_id", &[("maxLength", context::MAX_ID_BYTES)]),
    ("DescribeBody", "names", &[("minItems", 1), ("maxItems", MAX_DESCRIBED)]),
    ("SmartSelectBody", "limit", &[("minimum", MIN_SELECTED), ("maximum", MAX_SELECTED), ("default", DEFAULT_SELECTED)]),
    ("LoadBody", "toolsets", &[("maxItems", MAX_GROUPS)]),
    ("LoadBody", "chat_id", &[("maxLength", context::MAX_ID_BYTES)]),
    ("UnloadBody", "chat_id", &[("maxLength", context::MAX_ID_BYTES)]),
    ("EnableBody", "chat_id", &[("maxLength", context::MAX_ID_BYTES)]),
    ("AvailableBody", "chat_id", &[("maxLength", context::MAX_ID_BYTES)]),
    ("NewSessionBody", "toolsets", &[("maxItems", sessions::MOST_NAMES)]),
    ("NewSessionBody", "servers", &[("maxItems", sessions::MOST_NAMES)]),
    ("NewSessionBody", "tools", &[("maxItems", sessions::MOST_NAMES)]),
    ("NewSessionBody", "task", &[("maxLength", sessions::LONGEST_TASK)]),
    ("NewSessionBody", "limit", &[("minimum", 1), ("maximum", sessions::MOST_TOOLS)]),
    ("NewSessionBody", "ttl_seconds", &[("minimum", SHORTEST_TTL_SECONDS)]),
    ("NewKeyBody", "name", &[("minLength", 1), ("maxLength", api_key::MAX_NAME)]),
    ("NewKeyBody", "servers", &[("minItems", 1), ("maxItems", admin::keys::MOST_NAMES)]),
    ("NewKeyBody", "toolsets", &[("minItems", 1), ("maxItems", admin::keys::MOST_NAMES)]),
    ("NewKeyBody", "groups", &[("maxItems", admin::keys::MOST_NAMES)]),
    ("NewKeyBody", "expires_in_days", &[("minimum", 1)]),
    ("EndBody", "expires_in_days", &[("minimum", 1)]),
    ("PolicyBody", "rules", &[("maxItems", MAX_RULES)]),
    ("ToolsetDefinitionBody", "description", &[("maxLength", MAX_DESCRIPTION)]),
    ("ToolsetDefinitionBody", "servers", &[("minItems", 1)]),
    ("ToolsetDefinitionBody", "tools", &[("minItems", 1)]),
    ("ToolsetDefinitionBody", "tags", &[("minItems", 1)]),
    ("ToolsetDefinitionBody", "annotations", &[("minItems", 1)]),
    ("ToolsetDefinitionBody", "exclude", &[("minItems", 1)]),
    ("ToolsetDefinitionBody", "always", &[("minItems", 1)]),
    ("SecretValueBody", "value", &[("minLength", 1), ("maxLength", secrets::MAX_BYTES)]),
    ("EnrichmentBody", "function", &[("maxLength", FUNCTION_CHARACTERS)]),
    ("EnrichmentBody", "tags", &[("maxItems", enrichment::MOST_TAGS)]),
    ("EnrichmentBody", "tags/items", &[("minLength", 1), ("maxLength", enrichment::TAG_CHARACTERS)]),
    ("EnrichmentBody", "queries", &[("maxItems", MOST_QUERIES)]),
    ("EnrichmentBody", "queries/items", &[("minLength", 1), ("maxLength", QUERY_CHARACTERS)]),
    ("ToolFactsBody", "tags", &[("maxItems", MOST_TAGS)]),
    ("ToolFactsBody", "tags/items", &[("minLength", 1), ("maxLength", TAG_CHARACTERS)]),
    ("ToolFactsBody", "synonyms", &[("maxItems", MOST_SYNONYMS)]),
    ("ToolFactsBody", "synonyms/items", &[("maxLength", SYNONYM_CHARACTERS)]),
    ("ToolFactsBody", "description", &[("minLength", 1), ("maxLength", DESCRIPTION_CHARACTERS)]),
];

/// Limits on query parameters, by operation and parameter.
const PARAMETERS: [(&str, &str, Keywords<'_>); 7] = [
    ("list_audit", "limit", &[("minimum", 1), ("maximum", admin::audit::MAX_LIMIT), ("default", admin::audit::DEFAULT_LIMIT)]),
    ("list_events", "limit", &[("minimum", 1), ("maximum", admin::events::MAX_LIMIT), ("default", admin::events::DEFAULT_LIMIT)]),
    ("list_enrichment", "limit", &[("minimum", 1), ("maximum", admin::part::MAX_LIMIT), ("default", admin::part::DEFAULT_LIMIT)]),
    ("list_all_secrets", "limit", &[("minimum", 1), ("maximum", admin::part::MAX_LIMIT), ("default", admin::part::DEFAULT_LIMIT)]),
    ("list_tools", "limit", &[("minimum", 1), ("maximum", admin::tools::MAX_LIMIT), ("default", admin::tools::DEFAULT_LIMIT)]),
    ("show_usage", "limit", &[("minimum", 1), ("maximum", admin::usage::MAX_LIMIT), ("default", admin::usage::DEFAULT_LIMIT)]),
    ("show_report", "limit", &[("minimum", 0), ("maximum", admin::report::MAX_LIMIT), ("default", admin::report::DEFAULT_LIMIT)]),
];

/// The OpenAPI document of the service's own routes, which `openapi/service.json` contains.
pub fn service_document() -> String {
    let (_, document) = App::new().into_utoipa_app().openapi(ServiceApi::openapi()).configure(configure).split_for_parts();
    let mut document = serde_json::to_value(document).unwrap_or_default();
    tag_administration(&mut document);
    operations(&mut document).for_each(describe_errors);
    let shared = SHARED.iter().map(|shared| (shared.name.to_owned(), problem(shared.description)));
    document["components"]["responses"] = Value::Object(shared.collect());
    write_limits(&mut document);
    format!("{document:#}")
}

fn tag_administration(document: &mut Value) {
    let items = document["paths"].as_object_mut().into_iter().flatten().filter(|(path, _)| path.starts_with("/v1/admin/"));
    for operation in items.filter_map(|(_, item)| item.as_object_mut()).flat_map(Map::values_mut).filter_map(Value::as_object_mut) {
        operation.shift_insert(0, "tags".to_owned(), json!(["administration"]));
    }
}

/// Adds the problem schema to every error response, and the shared errors to every operation.
fn describe_errors(operation: &mut Value) {
    let (needs_key, takes_body) = (operation.get("security").is_none(), operation.get("requestBody").is_some());
    let administers = operation["tags"].as_array().is_some_and(|tags| tags.iter().any(|tag| tag == "administration"));
    let Some(responses) = operation["responses"].as_object_mut() else { return };
    for (_, response) in responses.iter_mut().filter(|(status, response)| is_error(status) && response.get("content").is_none()) {
        *response = problem(response["description"].as_str().unwrap_or_default());
    }
    if administers {
        responses.entry("404").or_insert_with(|| problem("The caller is not an administrator"));
    }
    for Shared { name, code, routes, .. } in &SHARED {
        let answers = match routes {
            Routes::All => true,
            Routes::WithKey => needs_key,
            Routes::WithBody => takes_body,
            Routes::Administration => administers,
        };
        if answers {
            let reference = || json!({"$ref": format!("#/components/responses/{name}")});
            responses.entry(code.status().as_str()).or_insert_with(reference);
        }
    }
    responses.sort_keys();
}

fn is_error(status: &str) -> bool {
    status.starts_with(['4', '5'])
}

fn problem(description: &str) -> Value {
    json!({
        "description": description,
        "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    })
}

/// Writes the limits into the document. Returns the limits whose schema or parameter doesn't exist.
fn write_limits(document: &mut Value) -> Vec<String> {
    let mut misplaced = Vec::new();
    let mut write = |schema: Option<&mut Value>, keywords: Keywords<'_>, place: String| match schema.and_then(Value::as_object_mut) {
        Some(schema) => schema.extend(keywords.iter().map(|&(keyword, value)| (keyword.to_owned(), value.into()))),
        None => misplaced.push(place),
    };
    for (schema, member, keywords) in MEMBERS {
        let pointer = format!("/components/schemas/{schema}/properties/{member}");
        write(document.pointer_mut(&pointer), keywords, pointer);
    }
    for (id, name, keywords) in PARAMETERS {
        let operation = operations(document).find(|operation| operation["operationId"] == id);
        let parameters = operation.and_then(|operation| operation["parameters"].as_array_mut());
        let parameter = parameters.into_iter().flatten().find(|parameter| parameter["name"] == name);
        write(parameter.map(|parameter| &mut parameter["schema"]), keywords, format!("{id} {name}"));
    }
    misplaced
}

fn operations(document: &mut Value) -> impl Iterator<Item = &mut Value> {
    const METHODS: [&str; 5] = ["get", "post", "put", "patch", "delete"];
    let items = document["paths"].as_object_mut().into_iter().flat_map(Map::values_mut);
    let keys = items.filter_map(Value::as_object_mut).flatten();
    keys.filter(|(key, _)| METHODS.contains(&key.as_str())).map(|(_, operation)| operation)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{service_document, write_limits};

    #[test]
    fn every_limit_has_its_place() {
        let mut document: Value = serde_json::from_str(&service_document()).unwrap();
        assert_eq!(write_limits(&mut document), Vec::<String>::new());
    }

    #[test]
    fn a_parameter_of_a_path_stands_in_it() {
        let document: Value = serde_json::from_str(&service_document()).unwrap();
        let mut found = 0;
        for (path, item) in document["paths"].as_object().unwrap() {
            for operation in item.as_object().unwrap().values() {
                for parameter in operation["parameters"].as_array().into_iter().flatten() {
                    let name = parameter["name"].as_str().unwrap();
                    assert_eq!(parameter["in"] == "path", path.contains(&format!("{{{name}}}")), "{name} of {path}");
                    found += 1;
                }
            }
        }
        assert!(found > 20, "{found}");
    }
}
