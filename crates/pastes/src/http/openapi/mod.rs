//! The OpenAPI document, generated from the types in use.
//!
//! # Invariants
//! - It lists every status that an operation can return, and every limit is the one in force.

mod plain;

use bytes::Bytes;
use leasehold_http::openapi::{Problems, add_problems, close_bodies, links};
use leasehold_http::problems::Problem;
use serde_json::{Value, json};
use utoipa::OpenApi;

use super::options::EXPIRES_PATTERN;
use super::{api, operator, own};
use crate::settings::Settings;

#[derive(OpenApi)]
#[openapi(
    info(title = "Pastes", description = "Text that users share by a link, until it expires."),
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
        "createToken": { "type": "apiKey", "in": "header", "name": "X-Create-Token", "description": "The token of a private service: only its holders create pastes" },
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
        "The text, at most {} bytes of UTF-8. Send other bytes to POST /.",
        settings.max_size
    ));
    fields["expiresIn"] = json!({
        "description": "When it expires: a duration, or seconds.",
        "oneOf": [
            { "type": "string", "pattern": EXPIRES_PATTERN, "examples": ["10m", "1h30m", "2 weeks"] },
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
        400 => "The request is malformed",
        401 => "A token is required, or is not known",
        403 => "Not allowed: a wrong token, a form of another site, or banned content",
        404 => "There is no such paste, or it has ended; for operators: no token is configured",
        408 => "The body did not arrive in time",
        409 => {
            "The custom link is taken; the idempotency key was sent with another paste; the paste burns after reading, or does not; or another paste has the name"
        }
        410 => "The paste of this idempotency key has ended",
        413 => "Too large",
        415 => "Not JSON, or compressed",
        422 => "A value is not allowed here",
        507 => "The quota of the service is used up",
        429 => "Too many requests from one address",
        _ => {
            "Try again later: the upload is in progress, or the database or the store does not respond"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_http::openapi::gaps;

    #[test]
    fn every_operation_lists_its_problems_and_the_limits_in_force() {
        let settings = Settings { max_size: 777, ..Settings::default() };
        let document: Value = serde_json::from_slice(&document(&settings)).expect("JSON");
        assert_eq!(gaps(&document, PROBLEMS), [""; 0]);
        let content = &document["components"]["schemas"]["CreateRequest"]["properties"]["content"];
        assert_eq!(content["maxLength"], 777);
    }
}
