//! The description of an interface: what is added to what the types say.

use serde_json::{Map, Value, json};

/// What can go wrong with an operation (its path and method), beside 429 and 503, which every one can
/// answer with.
pub type Problems = [(&'static str, &'static str, &'static [u16])];

/// Lists every status that an operation can answer with. `describe` has the words.
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

/// As [`crate::failures::Face`] has it for programs.
fn content(path: &str) -> Value {
    if !path.starts_with("/api/") {
        return json!({ "text/plain": { "schema": { "type": "string" } } });
    }
    json!({ "application/problem+json": { "schema": { "$ref": "#/components/schemas/Problem" } } })
}

/// Bodies say everything: what is not known is refused.
pub fn close_bodies(document: &mut Value, names: &[&str]) {
    for name in names {
        document["components"]["schemas"][name]["additionalProperties"] = json!(false);
    }
}

/// What can be done with an answer, for programs that follow: operations that take its `name`.
pub fn links(operations: &[&str], name: &str) -> Value {
    let link = |operation: &&str| {
        let parameters = json!({ name: format!("$response.body#/{name}") });
        let link = json!({ "operationId": operation, "parameters": parameters });
        ((*operation).to_owned(), link)
    };
    Value::Object(operations.iter().map(link).collect::<Map<_, _>>())
}

/// Operations that do not say what can go wrong, and problems of operations that are not there. For
/// tests: there must be none.
pub fn gaps(document: &Value, problems: &Problems) -> Vec<String> {
    let mut gaps = Vec::new();
    let paths = document["paths"].as_object().into_iter().flatten();
    for (path, operations) in paths {
        for (method, operation) in operations.as_object().into_iter().flatten() {
            let said = problems.iter().any(|(at, how, _)| at == path && how == method);
            if !said || !operation["operationId"].is_string() {
                gaps.push(format!("{method} {path}"));
            }
        }
    }
    gaps
}
