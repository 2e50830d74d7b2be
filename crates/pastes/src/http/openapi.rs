//! The description of the interface, made from the types that are used.
//!
//! # What is true
//! - Every status that an operation can answer with is listed, and every limit is the one in force.

use bytes::Bytes;
use leasehold_http::failures::Problem;
use leasehold_http::openapi::{Problems, add_problems, close_bodies, links};
use serde_json::{Value, json};
use utoipa::OpenApi;

use super::options::EXPIRES_PATTERN;
use super::{api, operator, own};
use crate::settings::Settings;

const CODE_PATTERN: &str = "^[A-Za-z0-9_-]{1,32}$";
const ALIAS_PATTERN: &str = "^[A-Za-z0-9_-]{3,32}$";
const LANGUAGE_PATTERN: &str = "^[A-Za-z0-9+#._ -]{1,40}$";

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
        operator::bans,
        operator::ban,
        operator::unban,
    ),
    components(schemas(Problem))
)]
struct Document;

/// What can go wrong with each operation, beside 429 and 503, which every one can answer with.
const PROBLEMS: &Problems = &[
    ("/", "get", &[]),
    ("/", "post", &[400, 401, 403, 408, 409, 413, 415, 422]),
    ("/", "put", &[400, 401, 403, 408, 409, 413, 415, 422]),
    ("/raw/{code}", "get", &[404, 409]),
    ("/api/v1/pastes", "post", &[400, 401, 403, 408, 409, 413, 415, 422]),
    ("/api/v1/pastes", "get", &[400, 401]),
    ("/api/v1/pastes/{code}", "get", &[404, 409]),
    ("/api/v1/pastes/{code}", "delete", &[401, 403]),
    ("/api/v1/pastes/{code}/burn", "post", &[404, 409]),
    ("/api/v1/pastes/{code}/reports", "post", &[400, 404, 408, 413, 415]),
    ("/api/v1/owners", "post", &[]),
    ("/api/v1/reports", "get", &[400, 401, 403, 404]),
    ("/api/v1/takedowns", "post", &[400, 401, 403, 404, 408, 413, 415]),
    ("/api/v1/bans", "get", &[400, 401, 403, 404]),
    ("/api/v1/bans/{hash}", "put", &[400, 401, 403, 404, 408, 413, 415]),
    ("/api/v1/bans/{hash}", "delete", &[400, 401, 403, 404]),
];

/// The document for a service with these settings.
pub fn document(settings: &Settings) -> Bytes {
    let mut document = serde_json::to_value(Document::openapi()).unwrap_or_default();
    document["servers"] = json!([{ "url": settings.base_url.trim_end_matches('/') }]);
    document["components"]["securitySchemes"] = json!({
        "owner": { "type": "http", "scheme": "bearer", "description": "An owner's token, from POST /api/v1/owners" },
        "deleteToken": { "type": "apiKey", "in": "header", "name": "X-Delete-Token", "description": "The token that came with the paste" },
        "operator": { "type": "http", "scheme": "bearer", "description": "The operator's token" },
    });
    describe_plain(&mut document, settings);
    add_problems(&mut document, PROBLEMS, problem);
    describe_create(&mut document, settings);
    document.to_string().into()
}

/// What curl uses: bytes in, a link out; and bytes out.
fn describe_plain(document: &mut Value, settings: &Settings) {
    let option = |name: &str, description: &str, schema: Value| json!({ "name": name, "in": "query", "description": description, "schema": schema });
    // A value that is empty says nothing.
    let given = |pattern: &str| json!({ "type": "string", "anyOf": [{ "pattern": pattern }, { "maxLength": 0 }] });
    let created = &document["paths"]["/api/v1/pastes"]["post"];
    let mut headers = created["responses"]["201"]["headers"].clone();
    headers["Idempotent-Replayed"] = json!({ "schema": { "type": "string", "enum": ["true"] } });
    let key = created["parameters"][0].clone();
    let mut paste = json!({
        "tags": ["plain"],
        "operationId": "pasteBytes",
        "summary": "Makes a paste of the body, whatever bytes it has. Forms are taken too: curl -F file=@name",
        "parameters": [
            option("expires", "How long it lives: 10m, 1d, 2 weeks, or seconds", given(EXPIRES_PATTERN)),
            option("lang", "For colours", given(LANGUAGE_PATTERN)),
            option("burn", "Readable once", json!({ "type": "string", "enum": ["", "1", "0", "true", "false", "yes", "no", "on", "off"] })),
            option("alias", "A name of your own for the link", given(ALIAS_PATTERN)),
            key,
        ],
        "requestBody": { "required": true, "content": { "application/octet-stream": {
            "schema": { "type": "string", "format": "binary", "minLength": 1, "maxLength": settings.max_size } } } },
        "responses": { "201": {
            "description": "The link, and a line end",
            "headers": headers,
            "content": { "text/plain": { "schema": { "type": "string" } } } } },
        "security": [{}, { "owner": [] }],
    });
    document["paths"]["/"]["post"] = paste.clone();
    paste["operationId"] = json!("putBytes");
    paste["summary"] = json!("The same, for curl -T -");
    document["paths"]["/"]["put"] = paste;
    document["paths"]["/"]["get"] = json!({
        "tags": ["plain"],
        "operationId": "createPage",
        "summary": "The page on which people make pastes",
        "responses": { "200": {
            "description": "A page",
            "content": { "text/html": { "schema": { "type": "string" } } } } },
    });
    document["paths"]["/raw/{code}"]["get"] = json!({
        "tags": ["plain"],
        "operationId": "readBytes",
        "summary": "The bytes of a paste, as plain text in a sandbox",
        "parameters": [
            { "name": "code", "in": "path", "required": true, "schema": { "type": "string", "pattern": CODE_PATTERN } },
            { "name": "If-None-Match", "in": "header", "schema": { "type": "string" } },
        ],
        "responses": {
            "200": {
                "description": "The bytes",
                "headers": { "ETag": { "schema": { "type": "string" } } },
                "content": { "text/plain": { "schema": { "type": "string" } } },
            },
            "304": { "description": "The copy that you have is good" },
        },
    });
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
    close_bodies(document, &["CreateRequest", "ReportRequest", "TakedownRequest", "BanRequest"]);
}

fn problem(status: u16) -> &'static str {
    match status {
        400 => "The request cannot be understood",
        401 => "A token is needed, or is not known",
        403 => "Not allowed: a wrong token, or banned content",
        404 => "There is no such paste, or not any more; for operators: no token is configured",
        408 => "The body did not arrive in time",
        409 => "Taken; used before for something else; to be read once by POST; or not to be burnt",
        413 => "Too large",
        415 => "Not JSON, or compressed",
        422 => "Understood, but outside of what is allowed here",
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
