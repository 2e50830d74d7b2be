//! The OpenAPI document, generated from the types in use.
//!
//! # What is true
//! - It lists every status that an operation can return, and every limit is the one in force.

use bytes::Bytes;
use leasehold_http::failures::Problem;
use leasehold_http::openapi::{Problems, add_problems, close_bodies, links};
use serde_json::{Value, json};
use utoipa::OpenApi;

use super::options::EXPIRES_PATTERN;
use super::{api, operator, own, plain};
use crate::settings::Settings;

#[derive(OpenApi)]
#[openapi(
    info(title = "Pastes", description = "Text that people share by a link, until it expires."),
    paths(
        api::create,
        api::read,
        api::burn,
        api::report,
        own::delete_by_api,
        api::new_owner,
        api::list,
        operator::reports,
        operator::takedown,
        operator::moderation,
        operator::bans,
        operator::ban,
        operator::unban,
    ),
    components(schemas(Problem))
)]
struct Document;

/// The error statuses of each operation, beside 429 and 503, which every operation can return.
const PROBLEMS: &Problems = &[
    ("/", "get", &[]),
    ("/", "post", &[400, 401, 403, 408, 409, 410, 413, 415, 422, 507]),
    ("/", "put", &[400, 401, 403, 408, 409, 410, 413, 415, 422, 507]),
    ("/{code}", "get", &[404, 409]),
    ("/{code}", "put", &[400, 401, 403, 408, 409, 410, 413, 415, 422, 507]),
    ("/{code}", "delete", &[401, 403]),
    ("/{code}/burn", "post", &[403, 404, 408, 409, 413, 415]),
    ("/{code}/delete", "post", &[403, 408, 413, 415]),
    ("/{code}/report", "post", &[400, 403, 404, 408, 413, 415]),
    ("/raw/{code}", "get", &[404, 409]),
    ("/download/{code}", "get", &[404, 409]),
    ("/qr/{code}", "get", &[404]),
    ("/mine", "get", &[]),
    ("/healthz", "get", &[]),
    ("/openapi.json", "get", &[]),
    ("/api/v1/pastes", "post", &[400, 401, 403, 408, 409, 410, 413, 415, 422, 507]),
    ("/api/v1/pastes", "get", &[400, 401]),
    ("/api/v1/pastes/{code}", "get", &[404, 409]),
    ("/api/v1/pastes/{code}", "delete", &[401, 403]),
    ("/api/v1/pastes/{code}/burn", "post", &[404, 409]),
    ("/api/v1/pastes/{code}/reports", "post", &[400, 404, 408, 413, 415]),
    ("/api/v1/owners", "post", &[401, 403]),
    ("/api/v1/reports", "get", &[400, 401, 403, 404]),
    ("/api/v1/takedowns", "post", &[400, 401, 403, 404, 408, 409, 413, 415]),
    ("/api/v1/moderation", "get", &[400, 401, 403, 404]),
    ("/api/v1/bans", "get", &[400, 401, 403, 404]),
    ("/api/v1/bans/{hash}", "put", &[400, 401, 403, 404, 408, 413, 415]),
    ("/api/v1/bans/{hash}", "delete", &[400, 401, 403, 404]),
];

/// Returns the document for a service with these settings.
pub fn document(settings: &Settings) -> Bytes {
    let mut document = serde_json::to_value(Document::openapi()).unwrap_or_default();
    document["servers"] = json!([{ "url": settings.base_url.trim_end_matches('/') }]);
    document["components"]["securitySchemes"] = json!({
        "owner": { "type": "http", "scheme": "bearer", "description": "An owner's token, from POST /api/v1/owners" },
        "deleteToken": { "type": "apiKey", "in": "header", "name": "X-Delete-Token", "description": "The token that came with the paste" },
        "createToken": { "type": "apiKey", "in": "header", "name": "X-Create-Token", "description": "The token of a private service, which takes pastes from its holders only" },
        "operator": { "type": "http", "scheme": "bearer", "description": "The operator's token" },
    });
    if settings.create_token.is_some() {
        make_private(&mut document);
    }
    plain::describe(&mut document, settings);
    add_problems(&mut document, PROBLEMS, problem);
    describe_create(&mut document, settings);
    document.to_string().into()
}

/// Adds the create token to the operations that create something, beside the token of an owner.
fn make_private(document: &mut Value) {
    document["paths"]["/api/v1/pastes"]["post"]["security"] =
        json!([{ "createToken": [] }, { "createToken": [], "owner": [] }]);
    document["paths"]["/api/v1/owners"]["post"]["security"] = json!([{ "createToken": [] }]);
}

fn describe_create(document: &mut Value, settings: &Settings) {
    let create = &mut document["components"]["schemas"]["CreateRequest"];
    let fields = &mut create["properties"];
    fields["content"]["maxLength"] = json!(settings.max_size);
    fields["content"]["description"] = json!(format!(
        "The text, at most {} bytes of UTF-8. Other bytes go to POST / as they are.",
        settings.max_size
    ));
    fields["expiresIn"] = json!({
        "description": "How long it lives: a length of time, or seconds.",
        "oneOf": [
            { "type": "string", "pattern": EXPIRES_PATTERN, "examples": ["10m", "1d", "2 weeks"] },
            { "type": "integer", "minimum": 1, "maximum": settings.max_expiry.as_secs() },
            { "type": "null" },
        ],
    });
    document["paths"]["/api/v1/pastes"]["post"]["responses"]["201"]["links"] =
        links(&["readPaste", "deletePaste", "burnPaste", "reportPaste", "readBytes"], "code");
    let only = |kind: &str| json!({ "type": kind });
    document["components"]["schemas"]["TakedownRequest"]["oneOf"] = json!([
        { "required": ["report"], "properties": {
            "report": only("integer"), "code": only("null"), "contentHash": only("null") } },
        { "required": ["code"], "properties": { "code": only("string"), "report": only("null") } },
    ]);
    close_bodies(document, &["CreateRequest", "ReportRequest", "TakedownRequest", "BanRequest"]);
}

fn problem(status: u16) -> &'static str {
    match status {
        400 => "The request cannot be understood",
        401 => "A token is needed, or is not known",
        403 => "Not allowed: a wrong token, or banned content",
        404 => "There is no such paste, or not any more; for operators: no token is configured",
        408 => "The body did not arrive in time",
        409 => {
            "Taken; used before for something else; to be read once by POST; not to be burnt; or another paste has the name"
        }
        410 => "The paste of this idempotency key is over",
        413 => "Too large",
        415 => "Not JSON, or compressed",
        422 => "Understood, but outside of what is allowed here",
        507 => "All the bytes that the service may store are used up",
        429 => "Too many requests from one address",
        _ => "Not just now: the upload goes on, or the database or the store does not answer",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_http::openapi::gaps;

    #[test]
    fn every_operation_says_what_can_go_wrong_and_the_limits_in_force() {
        let settings = Settings { max_size: 777, ..Settings::default() };
        let document: Value = serde_json::from_slice(&document(&settings)).expect("JSON");
        assert_eq!(gaps(&document, PROBLEMS), [""; 0]);
        let content = &document["components"]["schemas"]["CreateRequest"]["properties"]["content"];
        assert_eq!(content["maxLength"], 777);
    }
}
