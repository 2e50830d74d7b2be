//! Checks the largest responses against the OpenAPI document.

use serde_json::{Value, json};

use super::{Site, note};

/// Finds what a value has that its schema does not allow. Postgres evaluates the regular expressions.
struct Checker<'a> {
    site: &'a Site,
    document: &'a Value,
    wrong: Vec<String>,
}

impl Checker<'_> {
    async fn check(&mut self, schema: &Value, value: &Value, at: &str) {
        if let Some(name) = schema["$ref"].as_str() {
            let found = self.document.pointer(name.trim_start_matches('#')).expect("a schema");
            let found = found.clone();
            return Box::pin(self.check(&found, value, at)).await;
        }
        if let Some(kinds) = schema["oneOf"].as_array() {
            let fits = kinds.iter().find(|kind| {
                let named = &kind["properties"]["type"]["enum"][0];
                named.is_null() || *named == value["type"]
            });
            match fits.cloned() {
                Some(kind) => Box::pin(self.check(&kind, value, at)).await,
                None => self.wrong.push(format!("{at} is none of its kinds")),
            }
            return;
        }
        if let Value::String(text) = value {
            let length = text.chars().count() as u64;
            if schema["maxLength"].as_u64().is_some_and(|most| length > most) {
                self.wrong.push(format!("{at} has {length} characters"));
            }
            if let Some(pattern) = schema["pattern"].as_str() {
                let sql = "select $1 ~ $2";
                let row = self.site.fixture.client.query_one(sql, &[text, &pattern]).await.unwrap();
                if !row.get::<_, bool>(0) {
                    self.wrong.push(format!("{at} is not {pattern}"));
                }
            }
        }
        for (name, inner) in value.as_object().into_iter().flatten() {
            let schema = schema["properties"][name].clone();
            if schema.is_null() {
                self.wrong.push(format!("{at} has {name}"));
            } else {
                Box::pin(self.check(&schema, inner, &format!("{at}.{name}"))).await;
            }
        }
        for name in schema["required"].as_array().into_iter().flatten() {
            if value.is_object() && value.get(name.as_str().unwrap()).is_none() {
                self.wrong.push(format!("{at} lacks {name}"));
            }
        }
        let list = value.as_array();
        if schema["maxItems"]
            .as_u64()
            .is_some_and(|most| list.is_some_and(|l| l.len() as u64 > most))
        {
            self.wrong.push(format!("{at} has too many"));
        }
        for (number, inner) in list.into_iter().flatten().enumerate() {
            Box::pin(self.check(&schema["items"], inner, &format!("{at}[{number}]"))).await;
        }
    }
}

#[tokio::test]
async fn h2_largest_responses_match_the_openapi_document() {
    let site = Site::new().await;
    let token = site.token("sophia").await;
    let document: Value = site.get("/openapi.json").send().await.unwrap().json().await.unwrap();
    let mut new = note(&"x".repeat(65_536));
    // The service's own page, whose host is an address and not a name.
    new["target"]["source"] = json!(site.url("/"));
    new["target"]["selector"][0]["exact"] = json!("y".repeat(16_384));
    for number in 0..20 {
        let tag = json!({ "type": "TextualBody", "value": format!("{number:0>64}"), "purpose": "tagging" });
        new["body"].as_array_mut().unwrap().push(tag);
    }
    let mut checker = Checker { site: &site, document: &document, wrong: Vec::new() };
    let schema = |name: &str| document["components"]["schemas"][name].clone();
    checker.check(&schema("CreateAnnotation"), &new, "request").await;
    let made = site.save(&token, &new).await;
    checker.check(&schema("AnnotationJson"), &made, "note").await;
    let found = site.search(&[("url", &site.url("/"))]).send().await.unwrap();
    let found: Value = found.json().await.unwrap();
    assert_eq!(found["rows"].as_array().map(Vec::len), Some(1));
    checker.check(&schema("SearchAnswer"), &found, "found").await;
    assert_eq!(checker.wrong, [""; 0]);
}
