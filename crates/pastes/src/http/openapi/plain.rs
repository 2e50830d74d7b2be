//! The part of the OpenAPI document for curl and browsers: bytes in, a link out; bytes out; pages and
//! forms.

use serde_json::{Value, json};

use crate::http::options::EXPIRES_PATTERN;
use crate::settings::Settings;

const CODE_PATTERN: &str = "^[A-Za-z0-9_-]{1,32}$";
const ALIAS_PATTERN: &str = "^[A-Za-z0-9_-]{3,32}$";
const LANGUAGE_PATTERN: &str = "^[A-Za-z0-9+#._ -]{1,40}$";

/// Adds these operations to the document, which already has those of the API.
pub fn describe(document: &mut Value, settings: &Settings) {
    creating(document, settings);
    reading(document);
    forms(document);
    others(document);
}

fn creating(document: &mut Value, settings: &Settings) {
    let option = |name: &str, description: &str, schema: Value| json!({ "name": name, "in": "query", "description": description, "schema": schema });
    // An empty value counts as absent.
    let or_empty = |pattern: &str| json!({ "type": "string", "anyOf": [{ "pattern": pattern }, { "maxLength": 0 }] });
    let created = &document["paths"]["/api/v1/pastes"]["post"];
    let mut headers = created["responses"]["201"]["headers"].clone();
    headers["Idempotent-Replayed"] = json!({ "schema": { "type": "string", "enum": ["true"] } });
    let key = created["parameters"][0].clone();
    let security = created["security"].clone();
    let mut paste = json!({
        "tags": ["plain"],
        "operationId": "pasteBytes",
        "summary": "Create a paste of the body, which may be any bytes, or of a form: curl -F file=@name",
        "parameters": [
            option("expires", "When it expires: 10m, 1h30m, 2 weeks, or seconds", or_empty(EXPIRES_PATTERN)),
            option("lang", "For highlighting; an unknown language is refused", or_empty(LANGUAGE_PATTERN)),
            option("burn", "Burn after reading", json!({ "type": "string", "enum": ["", "1", "0", "true", "false", "yes", "no", "on", "off"] })),
            option("alias", "A custom link", or_empty(ALIAS_PATTERN)),
            key,
        ],
        "requestBody": { "required": true, "content": { "application/octet-stream": {
            "schema": { "type": "string", "format": "binary", "minLength": 1, "maxLength": settings.max_size } } } },
        "responses": { "201": {
            "description": "The link, and a newline",
            "headers": headers,
            "content": { "text/plain": { "schema": { "type": "string" } } } } },
        "security": security,
    });
    document["paths"]["/"]["post"] = paste.clone();
    paste["operationId"] = json!("putBytes");
    paste["summary"] = json!("The same, for curl -T -");
    document["paths"]["/"]["put"] = paste.clone();
    paste["operationId"] = json!("putFile");
    paste["summary"] = json!("The same, for curl -T name: the name of the file sets the language");
    if let Some(parameters) = paste["parameters"].as_array_mut() {
        parameters.push(json!({ "name": "code", "in": "path", "required": true,
            "description": "The name of the file; the paste gets a code of its own",
            "schema": { "type": "string", "pattern": "^[A-Za-z0-9_-]{1,32}([.][a-z0-9]{1,8})?$" } }));
    }
    document["paths"]["/{code}"]["put"] = paste;
    document["paths"]["/"]["get"] = json!({
        "tags": ["pages"],
        "operationId": "createPage",
        "summary": "The page with the form that creates pastes",
        "responses": { "200": page("The form") },
    });
}

fn reading(document: &mut Value) {
    let known = json!({ "name": "If-None-Match", "in": "header", "schema": { "type": "string" } });
    let bytes = |operation: &str, summary: &str, kind: &str, schema: Value| {
        json!({
            "tags": ["plain"],
            "operationId": operation,
            "summary": summary,
            "parameters": [code(), known],
            "responses": {
                "200": {
                    "description": "The bytes",
                    "headers": { "ETag": { "schema": { "type": "string" } } },
                    "content": { kind: { "schema": schema } },
                },
                "304": { "description": "The client's copy is current" },
            },
        })
    };
    let (text, binary) =
        (json!({ "type": "string" }), json!({ "type": "string", "format": "binary" }));
    document["paths"]["/raw/{code}"]["get"] =
        bytes("readBytes", "The bytes of a paste, as plain text in a sandbox", "text/plain", text);
    document["paths"]["/download/{code}"]["get"] =
        bytes("download", "The bytes of a paste, as a file", "application/octet-stream", binary);
    document["paths"]["/qr/{code}"]["get"] = json!({
        "tags": ["pages"],
        "operationId": "qrCode",
        "summary": "The link to a paste, as a QR code",
        "parameters": [code()],
        "responses": { "200": {
            "description": "An image",
            "content": { "image/svg+xml": { "schema": { "type": "string" } } } } },
    });
    document["paths"]["/{code}"]["get"] = json!({
        "tags": ["pages"],
        "operationId": "readPage",
        "summary": "The page of a paste; its bytes if the client accepts text/plain and not text/html",
        "parameters": [code(), known],
        "responses": {
            "200": {
                "description": "A page, or the bytes",
                "content": {
                    "text/html": { "schema": { "type": "string" } },
                    "text/plain": { "schema": { "type": "string" } },
                },
            },
            "304": { "description": "The client's copy is current" },
        },
    });
    let mut delete = document["paths"]["/api/v1/pastes/{code}"]["delete"].clone();
    delete["tags"] = json!(["plain"]);
    delete["operationId"] = json!("deleteBytes");
    document["paths"]["/{code}"]["delete"] = delete;
}

/// Adds the forms of the pages. The service refuses a form from another site with 403.
fn forms(document: &mut Value) {
    let identity = json!({ "type": "string", "description": "Only the paste with this identity: the one that was on the page", "pattern": "^[0-9a-f]{32}$" });
    let form = |operation: &str, summary: &str, fields: Value, done: Value| {
        json!({
            "tags": ["pages"],
            "operationId": operation,
            "summary": summary,
            "parameters": [code()],
            "requestBody": { "content": { "application/x-www-form-urlencoded": {
                "schema": { "type": "object", "properties": fields } } } },
            "responses": { "200": done },
        })
    };
    let copy = json!({
        "description": "The paste, which is deleted now: a page for browsers, else the bytes",
        "content": {
            "text/html": { "schema": { "type": "string" } },
            "text/plain": { "schema": { "type": "string" } },
            "application/octet-stream": { "schema": { "type": "string", "format": "binary" } },
        },
    });
    let how = json!({ "as": { "type": "string", "enum": ["page", "download"] } });
    document["paths"]["/{code}/burn"]["post"] =
        form("burn", "Read a paste that burns after reading, and delete it", how, copy);
    let token = json!({
        "token": { "type": "string", "description": "The delete token; without it the owner's cookie counts" },
        "paste": identity,
    });
    document["paths"]["/{code}/delete"]["post"] =
        form("deleteForm", "Delete a paste", token, page("Deleted"));
    let fields = json!({
        "reason": { "type": "string", "minLength": 1, "maxLength": 90, "pattern": "^[^\\u0000]*$" },
        "details": { "type": "string", "maxLength": 2000, "pattern": "^[^\\u0000]*$" },
        "contact": { "type": "string", "maxLength": 200, "pattern": "^[^\\u0000]*$" },
        "paste": identity,
    });
    let mut report = form(
        "reportForm",
        "Report a paste to the operators",
        fields,
        page("Stored for the operators"),
    );
    report["requestBody"]["required"] = json!(true);
    report["requestBody"]["content"]["application/x-www-form-urlencoded"]["schema"]["required"] =
        json!(["reason"]);
    document["paths"]["/{code}/report"]["post"] = report;
}

fn others(document: &mut Value) {
    document["paths"]["/mine"]["get"] = json!({
        "tags": ["pages"],
        "operationId": "minePage",
        "summary": "The pastes that this browser listed, by its cookie",
        "parameters": [{ "name": "before", "in": "query", "description": "From the link to older pastes", "schema": { "type": "string" } }],
        "responses": { "200": page("A list") },
    });
    document["paths"]["/healthz"]["get"] = json!({
        "tags": ["plain"],
        "operationId": "health",
        "summary": "200 if the database responds, else 503",
        "responses": { "200": {
            "description": "The database responds",
            "content": { "text/plain": { "schema": { "type": "string" } } } } },
    });
    document["paths"]["/openapi.json"]["get"] = json!({
        "tags": ["plain"],
        "operationId": "description",
        "summary": "This document",
        "responses": { "200": {
            "description": "OpenAPI",
            "content": { "application/json": { "schema": { "type": "object" } } } } },
    });
}

fn code() -> Value {
    json!({ "name": "code", "in": "path", "required": true, "schema": { "type": "string", "pattern": CODE_PATTERN } })
}

fn page(description: &str) -> Value {
    json!({ "description": description, "content": { "text/html": { "schema": { "type": "string" } } } })
}
