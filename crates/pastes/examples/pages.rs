//! Serves the pages with sample content: `cargo run -p pastes --example pages`.
//!
//! Uses neither a database nor the service: every page is a function of its model.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use axum::Router;
use axum::extract::Path;
use axum::http::header::CONTENT_TYPE;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use jiff::Timestamp;
use leasehold_http::headers::NO_STORE;
use leasehold_http::responses;
use pastes::assets::ASSETS;
use pastes::highlight::Colours;
use pastes::pages::*;
use pastes::{highlight, qr};

const BASE: &str = "https://paste.example";
const CODE: &str = "k3vPq8sZtY1mXw7LbR2cDe";
const PASTE: &str = "4e63b2ac8f3f4c1fb0a8bd3c0b6f7d11";
const RUST: &str = include_str!("samples/app.rs.txt");
const DAY: Duration = Duration::from_secs(86_400);

#[tokio::main]
async fn main() {
    let router = Router::new()
        .route("/", get(index))
        .route("/sample/{name}", get(sample))
        .route("/assets/{name}", get(asset))
        .route("/qr/{code}", get(|| async { svg(&format!("{BASE}/{CODE}")) }));
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8099".into());
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    println!("http://{}/", listener.local_addr().unwrap());
    axum::serve(listener, router).await.unwrap();
}

async fn index() -> Html<String> {
    let links: String =
        SAMPLES.iter().map(|name| format!("<li><a href=\"/sample/{name}\">{name}</a>")).collect();
    Html(format!("<!DOCTYPE html><title>Samples</title><ul>{links}</ul>"))
}

async fn asset(Path(name): Path<String>) -> Response {
    responses::asset(ASSETS.find(&name).unwrap())
}

fn svg(url: &str) -> Response {
    ([(CONTENT_TYPE, "image/svg+xml")], qr::svg(url).unwrap()).into_response()
}

async fn sample(Path(name): Path<String>) -> Response {
    responses::page(render(&name).into_string(), NO_STORE)
}

const SAMPLES: &[&str] = &[
    "create",
    "create-error",
    "create-private",
    "paste",
    "created",
    "diff",
    "markdown",
    "yaml",
    "bidi",
    "busy",
    "large",
    "binary",
    "burn",
    "burn-created",
    "burnt",
    "waiting",
    "waiting-created",
    "not-found",
    "mine",
    "mine-empty",
    "error",
    "too-many",
    "deleted",
];

fn render(name: &str) -> maud::Markup {
    let created = JustCreated { delete_token: format!("{PASTE}c0f1da3369a25d8e4b7e7901ab2f6c55") };
    match name {
        "create" => create(&form(None)),
        "create-error" => create(&form(Some(FormError {
            field: Some(Field::Alias),
            message: "This name is taken. Choose another, or leave it empty.".into(),
        }))),
        "create-private" => create(&CreateForm {
            private: true,
            ..form(Some(FormError {
                field: Some(Field::Token),
                message: "This service is private: making a paste needs its token.".into(),
            }))
        }),
        "paste" => paste(&view(RUST.as_bytes(), Some("rust"))),
        "created" => {
            let page = paste(&view(RUST.as_bytes(), Some("rust"))).into_string();
            maud::PreEscaped(with_created(&page, &Links::of(BASE, CODE), &created))
        }
        "diff" => paste(&view(DIFF.as_bytes(), None)),
        "markdown" => paste(&view(MARKDOWN.as_bytes(), Some("md"))),
        "yaml" => paste(&view(YAML.as_bytes(), Some("yaml"))),
        "bidi" => paste(&view(BIDI.as_bytes(), Some("c"))),
        "busy" => {
            let mut view = view(b"", Some("rust"));
            view.content = highlight::render(RUST.as_bytes(), Some("rust"), Colours::NoneFree);
            paste(&view)
        }
        "large" => paste(&view(RUST.repeat(1200).as_bytes(), Some("rust"))),
        "binary" => paste(&view(b"\x89PNG\0\0\0", None)),
        "burn" => burn_confirm(&burn(None)),
        "burn-created" => burn_confirm(&burn(Some(created))),
        "burnt" => burnt(&Burnt {
            code: CODE.into(),
            content: highlight::highlight_whole(RUST, Some("rust"), Colours::Wanted)
                .unwrap_or_else(|| highlight::highlight(RUST, Some("rust"))),
            size: RUST.len() as u64,
        }),
        "waiting" => waiting(&wait(None)),
        "waiting-created" => waiting(&wait(Some(created))),
        "not-found" => not_found(),
        "mine" => mine(&Mine { pastes: own(), next: Some("/mine?after=x".into()) }),
        "mine-empty" => mine(&Mine { pastes: vec![], next: None }),
        "error" => error(&ErrorView::new(413, "Too large", "A paste has at most 1 MiB here.")),
        "too-many" => error(&ErrorView {
            retry_after: Some(Duration::from_secs(90)),
            ..ErrorView::new(429, "Too many requests", "Too many requests from this address.")
        }),
        "deleted" => done(&Done::deleted()),
        _ => panic!("no sample {name}"),
    }
}

fn form(error: Option<FormError>) -> CreateForm {
    let content = if error.is_some() { RUST.into() } else { String::new() };
    let alias = if error.is_some() { "notes".into() } else { String::new() };
    CreateForm {
        base_url: BASE.into(),
        expiries: expiry_choices(30 * DAY, 365 * DAY),
        max_size: 1 << 20,
        private: false,
        typed: Typed { content, alias, expires: "30d".into(), ..Typed::default() },
        error,
    }
}

fn now() -> Timestamp {
    "2026-11-15T20:04:11Z".parse().unwrap()
}

fn view(bytes: &[u8], language: Option<&str>) -> PasteView {
    PasteView {
        code: CODE.into(),
        paste_id: PASTE.into(),
        content: highlight::render(bytes, language, Colours::Wanted),
        size: bytes.len() as u64,
        created_at: now(),
        expires_at: now() + 30 * DAY,
        life: 30 * DAY - Duration::from_secs(5),
        links: Links::of(BASE, CODE),
    }
}

fn burn(created: Option<JustCreated>) -> BurnConfirm {
    BurnConfirm {
        code: CODE.into(),
        paste_id: "0".repeat(32),
        size: 1234,
        language: Some("rust".into()),
        expires_at: now() + DAY,
        life: DAY,
        links: Links::of(BASE, CODE),
        created,
    }
}

fn wait(created: Option<JustCreated>) -> Waiting {
    Waiting {
        code: CODE.into(),
        refresh: Duration::from_secs(600),
        links: Links::of(BASE, CODE),
        created,
    }
}

fn own() -> Vec<MinePaste> {
    let states = [PasteState::Uploading, PasteState::Ready, PasteState::Failed, PasteState::Ready];
    let row = |(n, state)| MinePaste {
        code: if n == 1 { "meeting-notes".into() } else { format!("{n}3vPq8sZtY1mXw7LbR2cDe") },
        paste_id: PASTE.into(),
        language: (n != 1).then(|| "rust".into()),
        size: Some(700 * (n as u64 + 1).pow(4)),
        created_at: now(),
        expires_at: now() + DAY * 3,
        life: DAY * 3,
        state,
        burn: n == 3,
        links: Links::of(BASE, CODE),
    };
    states.into_iter().enumerate().map(row).collect()
}

const DIFF: &str = "diff --git a/src/lease.rs b/src/lease.rs
--- a/src/lease.rs
+++ b/src/lease.rs
@@ -12,7 +12,7 @@ impl Lease {
     pub fn renew(&self) -> Result<(), RenewError> {
-        self.update(self.job)
+        self.update(self.job, self.generation)
     }
 }
";

const MARKDOWN: &str = "# Notes

Some *emphasis*, **strength**, `code` and [a link](https://example.org/).

* first
* second

> A quotation.

```rust
let x = 1;
```
";

const YAML: &str = "# deploy
service:
  name: pastes
  replicas: 3
  ready: true
  command: [\"pastes\", \"serve\"]
  note: >
    folded text
";

const BIDI: &str = "int main() {
    /* \u{202e} } \u{2066}if (admin)\u{2069} \u{2066} begin admins only */
    return 0; /* end \u{202e} { \u{2066}*/
}
";
