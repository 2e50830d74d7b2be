#![allow(clippy::string_slice, reason = "a wrong slice ends the test, as it should")]

use std::collections::BTreeMap;
use std::time::Duration;

use maud::Markup;

use super::*;
use crate::highlight;

/// Texts that try to become markup, in text and inside attributes.
const ATTACKS: &[&str] = &[
    "<script>alert(1)</script>",
    "\"><script>alert(1)</script>",
    "'><img src=x onerror=alert(1)>",
    "\" autofocus onfocus=\"alert(1)",
    "' style='position:fixed",
    "</textarea><script>alert(1)</script>",
    "</title><base href=//evil.example>",
    "</option></select><form action=//evil.example>",
    "--><svg onload=alert(1)>",
    "javascript:alert(1)",
    "\n\r\t\0<x y=z>",
    "&quot;&#34;&lt;",
    "\u{202e}\u{2066}<b>",
];

fn attacked(text: &str) -> Vec<(&'static str, Markup)> {
    let s = || text.to_owned();
    let at = jiff::Timestamp::UNIX_EPOCH;
    let life = Duration::from_secs(3600);
    let links = || Links::of("https://paste.example", text);
    let created = || Some(JustCreated { delete_token: s() });
    let form = |field| CreateForm {
        base_url: s(),
        expiries: vec![Choice { value: s(), label: s() }],
        max_size: 1024,
        private: true,
        typed: Typed {
            content: s(),
            language: s(),
            expires: s(),
            alias: s(),
            burn: true,
            remember: true,
        },
        error: Some(FormError { field, message: s() }),
    };
    let view = |content| PasteView {
        code: s(),
        paste_id: s(),
        content,
        size: 10,
        created_at: at,
        expires_at: at,
        life,
        links: links(),
    };
    let own = |state| MinePaste {
        code: s(),
        paste_id: s(),
        language: Some(s()),
        size: Some(1),
        created_at: at,
        expires_at: at,
        life,
        state,
        burn: true,
        links: links(),
    };
    let states = [PasteState::Ready, PasteState::Uploading, PasteState::Failed];
    vec![
        ("create", create(&form(None))),
        ("create content", create(&form(Some(Field::Content)))),
        ("create alias", create(&form(Some(Field::Alias)))),
        ("create language", create(&form(Some(Field::Language)))),
        ("create token", create(&form(Some(Field::Token)))),
        ("create expires", create(&form(Some(Field::Expires)))),
        // The content is one line of text here; its own tests are in `highlight`.
        ("paste", paste(&view(highlight::render(b"text", None, highlight::Colours::Wanted)))),
        ("just made", {
            let page = paste(&view(highlight::Content::Binary)).into_string();
            let created = JustCreated { delete_token: s() };
            maud::PreEscaped(with_created(&page, &links(), &created))
        }),
        ("binary", paste(&view(highlight::Content::Binary))),
        ("burn", {
            burn_confirm(&BurnConfirm {
                code: s(),
                paste_id: s(),
                size: 1,
                language: Some(s()),
                expires_at: at,
                life,
                links: links(),
                created: created(),
            })
        }),
        ("burnt", {
            let content =
                highlight::highlight_whole("text", Some("text"), highlight::Colours::Wanted);
            let content = content.expect("a short text");
            burnt(&Burnt { code: s(), content, size: 1 })
        }),
        ("waiting", {
            waiting(&Waiting { code: s(), refresh: life, links: links(), created: created() })
        }),
        ("not found", not_found()),
        ("mine", mine(&Mine { pastes: states.map(own).into(), next: Some(s()) })),
        ("nothing of mine", mine(&Mine { pastes: vec![], next: None })),
        ("error", error(&ErrorView::new(422, text, text))),
        ("too many", {
            error(&ErrorView { retry_after: Some(life), ..ErrorView::new(429, text, text) })
        }),
        ("done", done(&Done { title: s(), message: s() })),
    ]
}

/// A tag and its attributes, as a parser sees them. The name of a closing tag begins with a slash.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tag {
    name: String,
    attributes: Vec<(String, String)>,
}

impl Tag {
    fn get(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }
}

/// Splits markup into tags and respects quotes, so that a quote that escaped from an attribute shows.
fn tags(html: &str) -> Vec<Tag> {
    let mut tags = Vec::new();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        rest = &rest[at + 1..];
        let name_end = rest.find(|c: char| c.is_whitespace() || c == '>').unwrap();
        let mut tag = Tag { name: rest[..name_end].to_ascii_lowercase(), attributes: vec![] };
        rest = rest[name_end..].trim_start();
        while !rest.starts_with('>') {
            let end = rest.find(|c: char| c.is_whitespace() || "=>".contains(c)).unwrap();
            let name = rest[..end].to_ascii_lowercase();
            rest = rest[end..].trim_start();
            let mut value = "";
            if let Some(after) = rest.strip_prefix("=\"") {
                let end = after.find('"').unwrap();
                value = &after[..end];
                rest = after[end + 1..].trim_start();
            }
            tag.attributes.push((name, value.to_owned()));
        }
        tags.push(tag);
    }
    tags
}

/// Returns the structure of a page: its tags and the names of their attributes, without any text.
fn shape(html: &str) -> Vec<(String, Vec<String>)> {
    let names = |tag: Tag| (tag.name, tag.attributes.into_iter().map(|(name, _)| name).collect());
    tags(html).into_iter().map(names).collect()
}

#[test]
fn h3_no_field_of_any_page_becomes_markup() {
    let harmless = attacked("harmless");
    for attack in ATTACKS {
        for ((page, good), (_, bad)) in harmless.iter().zip(attacked(attack)) {
            assert_eq!(shape(&good.0), shape(&bad.0), "{attack:?} on {page}");
        }
    }
}

#[test]
fn h3_no_page_has_inline_code_or_foreign_resources() {
    for (page, html) in attacked("javascript:alert(1)") {
        for tag in tags(&html.0) {
            let which = format!("{tag:?} on {page}");
            assert!(tag.name != "style" && tag.name != "base" && tag.name != "iframe", "{which}");
            assert!(tag.name != "script" || tag.get("src").is_some(), "{which}");
            for (name, value) in &tag.attributes {
                assert!(name != "style" && !name.starts_with("on"), "{which}");
                if matches!(name.as_str(), "src" | "action" | "href") && page != "mine" {
                    let ours = value.starts_with('/') && !value.starts_with("//");
                    let shared = value.starts_with("https://paste.example/");
                    assert!(ours || shared || value.starts_with('#'), "{which}");
                }
            }
        }
        assert!(!html.0.contains("<script>"), "{page}");
    }
}

#[test]
fn every_page_has_its_landmarks_and_every_field_its_label() {
    for (page, html) in attacked("words") {
        let tags = tags(&html.0);
        let count = |name: &str| tags.iter().filter(|tag| tag.name == name).count();
        for once in ["main", "h1", "title", "nav", "header", "footer"] {
            assert_eq!(count(once), 1, "{once} on {page}");
        }
        assert_eq!(tags.iter().find(|t| t.name == "html").unwrap().get("lang"), Some("en"));
        let mut ids = BTreeMap::new();
        for tag in &tags {
            if let Some(id) = tag.get("id") {
                *ids.entry(id).or_insert(0) += 1;
            }
        }
        assert!(ids.values().all(|n| *n == 1), "an id twice on {page}: {ids:?}");
        for tag in &tags {
            for name in ["aria-labelledby", "aria-describedby", "for"] {
                for id in tag.get(name).unwrap_or_default().split_whitespace() {
                    assert!(ids.contains_key(id), "{id} is missing on {page}");
                }
            }
        }
        let labels: Vec<_> = tags.iter().filter_map(|tag| tag.get("for")).collect();
        for field in tags.iter().filter(|t| ["select", "textarea", "input"].contains(&&*t.name)) {
            let labelled = field.get("id").is_some_and(|id| labels.contains(&id));
            let inside = matches!(field.get("type"), Some("hidden" | "checkbox"));
            assert!(labelled || inside, "{field:?} on {page}");
        }
    }
}

#[test]
fn form_with_an_error_keeps_what_was_typed() {
    let form = CreateForm {
        base_url: "https://paste.example".into(),
        expiries: expiry_choices(Duration::from_secs(86_400), Duration::from_secs(30 * 86_400)),
        max_size: 1024,
        private: true,
        typed: Typed {
            content: "\nfirst line was empty\n".into(),
            language: "rs".into(),
            expires: "7d".into(),
            alias: "taken".into(),
            burn: true,
            remember: true,
        },
        error: Some(FormError { field: Some(Field::Alias), message: "Taken.".into() }),
    };
    let html = create(&form).0;
    // Parsers drop the first newline.
    assert!(html.contains(">\n\nfirst line was empty\n</textarea>"), "{html}");
    let tags = tags(&html);
    let chosen: Vec<_> = tags.iter().filter(|t| t.get("selected").is_some()).collect();
    let chosen: Vec<_> = chosen.into_iter().filter_map(|t| t.get("value")).collect();
    assert_eq!(chosen, ["rust", "7d"]);
    let alias = tags.iter().find(|t| t.get("name") == Some("alias")).unwrap();
    assert_eq!(alias.get("value"), Some("taken"));
    assert_eq!(alias.get("aria-invalid"), Some("true"));
    assert_eq!(alias.get("aria-describedby"), Some("form-error"));
    for name in ["burn", "remember"] {
        let tag = tags.iter().find(|t| t.get("name") == Some(name)).unwrap();
        assert!(tag.get("checked").is_some(), "{name}");
    }
}

#[test]
fn expiry_choices_include_the_default_and_end_at_the_maximum() {
    let day = 86_400;
    let values = |default, max| -> Vec<String> {
        let choices = expiry_choices(Duration::from_secs(default), Duration::from_secs(max));
        choices.into_iter().map(|c| format!("{}={}", c.value, c.label)).collect()
    };
    assert_eq!(values(day, 7 * day), ["10m=10 minutes", "1h=1 hour", "1d=1 day", "7d=7 days"]);
    assert_eq!(values(90, 90), ["1m 30s=1 minute 30 seconds"]);
    assert_eq!(
        values(day * 2, day * 3),
        ["10m=10 minutes", "1h=1 hour", "1d=1 day", "2d=2 days", "3d=3 days"]
    );
    assert_eq!(values(9 * day, 60), ["1m=1 minute"], "never more than the longest");
    assert_eq!(expiry_value(Duration::from_secs(3600)), "1h");
}

#[test]
fn sizes_are_printed_with_units() {
    for (bytes, words) in [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (1024, "1 KiB"),
        (1536, "1.5 KiB"),
        (1 << 20, "1 MiB"),
        ((1 << 20) - 1, "1 MiB"),
        (u64::MAX, "16777216 TiB"),
    ] {
        assert_eq!(parts::size(bytes), words);
    }
}

#[test]
fn burn_page_opens_the_paste_only_by_a_form() {
    let (_, html) = attacked("code").into_iter().find(|(page, _)| *page == "burn").unwrap();
    let tags = tags(&html.0);
    let form = tags.iter().position(|t| t.get("action") == Some("/code/burn")).unwrap();
    assert_eq!((tags[form].name.as_str(), tags[form].get("method")), ("form", Some("post")));
    assert!(tags.iter().all(|t| !t.get("href").unwrap_or_default().contains("burn")));
    assert!(tags.iter().all(|t| !t.get("href").unwrap_or_default().contains("/raw/")));
}

#[test]
fn waiting_page_reloads_with_and_without_scripts() {
    let links = Links::of("https://paste.example", "x");
    let refresh = Duration::ZERO;
    let plain = Waiting { code: "x".into(), refresh, links, created: None };
    let html = waiting(&plain).0;
    assert!(html.contains("<meta http-equiv=\"refresh\" content=\"1\">"), "never without a pause");
    assert!(html.contains("data-wait"));
    let created = Some(JustCreated { delete_token: "t".into() });
    let html = waiting(&Waiting { created, ..plain }).0;
    assert!(html.contains("<noscript><meta http-equiv=\"refresh\""), "{html}");
}

#[test]
fn unix_lines_converts_cr_lf_and_nothing_else() {
    assert_eq!(unix_lines("a\r\nb\r\n"), "a\nb\n");
    assert_eq!(unix_lines("a\nb\rc"), "a\nb\rc");
}

#[test]
fn moment_is_readable_by_users_and_by_programs() {
    let at = "2026-11-05T09:04:11.123456Z".parse().unwrap();
    assert_eq!(
        parts::moment(at).0,
        "<time datetime=\"2026-11-05T09:04:11Z\">5 Nov 2026, 09:04 UTC</time>"
    );
}
