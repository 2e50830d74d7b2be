//! Adds to an OpenAPI document what the types cannot express.

use serde_json::{Map, Value, json};

/// The error statuses of each operation (path and method), beside 429 and 503, which every operation
/// can return.
pub type Problems = [(&'static str, &'static str, &'static [u16])];

/// Adds every error status that an operation can return. `describe` returns the text.
pub fn add_problems(
    document: &mut Value,
    problems: &Problems,
    describe: impl Fn(u16) -> &'static str,
) {
    for (path, method, statuses) in problems {
        let responses = &mut document["paths"][path][method]["responses"];
        for status in statuses.iter().chain(&[429, 503]) {
            let mut response =
                json!({ "description": describe(*status), "content": content(path) });
            if matches!(status, 429 | 503) {
                response["headers"] = json!({ "Retry-After": {
                    "description": "Seconds", "schema": { "type": "integer", "minimum": 1 } } });
            }
            responses[status.to_string()] = response;
        }
    }
}

/// The format that [`crate::problems::ResponseFormat`] has for programs.
fn content(path: &str) -> Value {
    if !path.starts_with("/api/") {
        return json!({ "text/plain": { "schema": { "type": "string" } } });
    }
    json!({ "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } })
}

/// Declares that these bodies take no unknown fields: the services refuse them.
pub fn close_bodies(document: &mut Value, names: &[&str]) {
    for name in names {
        document["components"]["schemas"][name]["additionalProperties"] = json!(false);
    }
}

/// Returns links from a response to the operations that take its `name`, for programs that follow
/// links.
pub fn links(operations: &[&str], name: &str) -> Value {
    let link = |operation: &&str| {
        let parameters = json!({ name: format!("$response.body#/{name}") });
        let link = json!({ "operationId": operation, "parameters": parameters });
        ((*operation).to_owned(), link)
    };
    Value::Object(operations.iter().map(link).collect::<Map<_, _>>())
}

/// Returns operations that declare no problems, and problems of operations that do not exist. For
/// tests: there must be none.
pub fn gaps(document: &Value, problems: &Problems) -> Vec<String> {
    let mut gaps = Vec::new();
    let paths = document["paths"].as_object().into_iter().flatten();
    for (path, operations) in paths {
        for (method, operation) in operations.as_object().into_iter().flatten() {
            let listed = problems.iter().any(|(at, how, _)| at == path && how == method);
            if !listed || !operation["operationId"].is_string() {
                gaps.push(format!("{method} {path}"));
            }
        }
    }
    gaps
}
