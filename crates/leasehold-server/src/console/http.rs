//! The routes of the console, and `/metrics`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, Request, State};
use axum::http::{Extensions, HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{get, post};
use axum::{Form, Router};
use leasehold::admin::{AlarmChange, By};
use leasehold::measure::text::CONTENT_TYPE;
use leasehold::{AdminError, Leasehold};
use leasehold_http::request::is_browser;
use leasehold_http::{headers, limits, responses};
use maud::Markup;
use serde::Deserialize;

use super::assets::ASSETS;
use super::auth::{BEHIND_A_PROXY, Entry, Gatekeeper};
use super::model::{Overview, Range};
use super::{page, read};
use crate::housekeeping::Kept;
use crate::text::parse_duration;

#[derive(Clone)]
struct Console {
    engine: Leasehold,
    keeper: Arc<Gatekeeper>,
    kept: Kept,
}

impl Console {
    async fn read(&self, range: Range) -> Result<Overview, String> {
        read::overview(&self.engine, range, self.kept).await
    }
}

/// Timeout of a change.
const LIMIT: Duration = Duration::from_secs(5);
/// The largest form that the console accepts.
const FORM_BYTES: usize = 8 * 1024;

pub fn router(engine: Leasehold, keeper: Gatekeeper, kept: Kept) -> Router {
    let console = Console { engine, keeper: Arc::new(keeper), kept };
    let guarded = Router::new()
        .route("/", get(|| async { Redirect::to("/console") }))
        .route("/console", get(overview))
        .route("/console/live", get(live))
        .route("/console/api/overview", get(json))
        .route("/console/alarms/{id}", post(act))
        .route("/console/logout", post(log_out))
        .route("/metrics", get(metrics))
        .layer(axum::middleware::from_fn_with_state(console.clone(), admit));
    Router::new()
        .route(
            "/console/login",
            get(|| async { html(StatusCode::OK, &page::login(None)) }).post(log_in),
        )
        .route("/console/assets/{name}", get(asset))
        .route("/healthz", get(|| async { "ok\n" }))
        .merge(guarded)
        .layer(axum::extract::DefaultBodyLimit::max(FORM_BYTES))
        .layer(axum::middleware::map_response(guard))
        .with_state(console)
}

/// Admits requests that may see the console, and lets only its own forms change something.
async fn admit(State(console): State<Console>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    let client = limits::peer(request.extensions());
    match console.keeper.admit(headers, client) {
        Entry::Open => {}
        Entry::Waiting(wait) => return wait_first(wait),
        Entry::Stranger => {
            let text = "the console serves localhost only; other host names need LEASEHOLD_CONSOLE_TOKEN\n";
            return (StatusCode::MISDIRECTED_REQUEST, text).into_response();
        }
        Entry::Proxied => return (StatusCode::FORBIDDEN, BEHIND_A_PROXY).into_response(),
        Entry::Closed if is_browser(headers) && request.method().is_safe() => {
            return Redirect::to("/console/login").into_response();
        }
        Entry::Closed => {
            let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
            return (
                StatusCode::UNAUTHORIZED,
                challenge,
                "the token is missing or wrong; send: Authorization: Bearer …\n",
            )
                .into_response();
        }
    }
    if !request.method().is_safe()
        && let Err(why) = console.keeper.may_change(headers)
    {
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    next.run(request).await
}

/// The response to an address that sent too many wrong tokens.
pub fn wait_first(wait: Duration) -> Response {
    let seconds = wait.as_secs().max(1).to_string();
    let text = format!("too many wrong tokens from this address; try again in {seconds} s\n");
    (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, seconds)], text).into_response()
}

/// Adds the headers that every response has.
pub async fn guard(mut response: Response) -> Response {
    let map = response.headers_mut();
    headers::add_security_headers(map, false);
    map.entry(header::CACHE_CONTROL).or_insert(headers::NO_STORE);
    response
}

fn html(status: StatusCode, page: &Markup) -> Response {
    let fixed = [
        (header::CONTENT_TYPE, headers::HTML),
        (header::CONTENT_SECURITY_POLICY, headers::PAGE_CSP),
    ];
    (status, fixed, page.clone().into_string()).into_response()
}

#[derive(Deserialize)]
struct Asked {
    range: Option<String>,
}

async fn overview(State(console): State<Console>, Query(asked): Query<Asked>) -> Response {
    let range = Range::of(asked.range.as_deref());
    match console.read(range).await {
        Ok(overview) => {
            html(StatusCode::OK, &page::overview(&overview, console.keeper.has_token()))
        }
        Err(why) => html(StatusCode::SERVICE_UNAVAILABLE, &page::unreachable(&why, range.word())),
    }
}

async fn live(State(console): State<Console>, Query(asked): Query<Asked>) -> Response {
    match console.read(Range::of(asked.range.as_deref())).await {
        Ok(overview) => html(StatusCode::OK, &page::live(&overview)),
        Err(why) => html(StatusCode::SERVICE_UNAVAILABLE, &page::trouble(&why)),
    }
}

async fn json(State(console): State<Console>, Query(asked): Query<Asked>) -> Response {
    match console.read(Range::of(asked.range.as_deref())).await {
        Ok(overview) => axum::Json(overview).into_response(),
        Err(why) => {
            let body = axum::Json(serde_json::json!({ "v": 1, "error": why }));
            (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
        }
    }
}

async fn metrics(State(console): State<Console>) -> Response {
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], console.engine.metrics().await).into_response()
}

async fn asset(Path(name): Path<String>) -> Response {
    match ASSETS.find(&name) {
        Some(asset) => responses::asset(asset),
        None => (StatusCode::NOT_FOUND, "no such file\n").into_response(),
    }
}

#[derive(Deserialize)]
struct Shown {
    token: String,
}

async fn log_in(
    State(console): State<Console>,
    extensions: Extensions,
    headers: HeaderMap,
    Form(shown): Form<Shown>,
) -> Response {
    if let Err(why) = console.keeper.may_change(&headers) {
        return (StatusCode::FORBIDDEN, why).into_response();
    }
    let client = limits::peer(&extensions);
    match console.keeper.log_in(shown.token.trim(), &headers, client) {
        Ok(cookie) => ([(header::SET_COOKIE, cookie)], Redirect::to("/console")).into_response(),
        Err(Entry::Waiting(wait)) => {
            let seconds = wait.as_secs().max(1).to_string();
            let why = format!("Too many wrong tokens. Try again in {seconds} s.");
            let page = html(StatusCode::TOO_MANY_REQUESTS, &page::login(Some(&why)));
            ([(header::RETRY_AFTER, seconds)], page).into_response()
        }
        Err(_) => html(StatusCode::UNAUTHORIZED, &page::login(Some("The token is wrong."))),
    }
}

async fn log_out(State(console): State<Console>, headers: HeaderMap) -> Response {
    let cookie = console.keeper.log_out(&headers);
    ([(header::SET_COOKIE, cookie)], Redirect::to("/console/login")).into_response()
}

#[derive(Deserialize)]
struct Act {
    act: String,
    why: String,
    #[serde(rename = "for")]
    how_long: Option<String>,
}

async fn act(
    State(console): State<Console>,
    Path(id): Path<i64>,
    Form(form): Form<Act>,
) -> Response {
    let why = form.why.trim();
    if why.is_empty() || why.chars().count() > 500 {
        return html(
            StatusCode::BAD_REQUEST,
            &page::message("Reason missing", "Give a reason of at most 500 characters."),
        );
    }
    let how_long = match form.act.as_str() {
        "ack" => None,
        "silence" => match form.how_long.as_deref().map(parse_duration) {
            Some(Ok(time)) => Some(time),
            _ => {
                return html(
                    StatusCode::BAD_REQUEST,
                    &page::message("Invalid request", "Choose how long the alarm is silenced."),
                );
            }
        },
        _ => {
            return html(
                StatusCode::BAD_REQUEST,
                &page::message("Invalid request", "Choose Acknowledge or Silence."),
            );
        }
    };
    let changing = change(&console.engine, id, how_long, why);
    match tokio::time::timeout(LIMIT, changing).await {
        Ok(Ok(true)) => Redirect::to("/console").into_response(),
        Ok(Ok(false)) => html(
            StatusCode::CONFLICT,
            &page::message("Alarm cleared", "This alarm is no longer active."),
        ),
        Ok(Err(error)) => {
            html(StatusCode::SERVICE_UNAVAILABLE, &page::message("Not changed", &error.to_string()))
        }
        Err(_) => html(
            StatusCode::SERVICE_UNAVAILABLE,
            &page::message("Not changed", "The database did not respond in time. Try again."),
        ),
    }
}

/// Acknowledges the alarm, or silences it for this time. Returns false if it has cleared or is unknown.
async fn change(
    engine: &Leasehold,
    id: i64,
    how_long: Option<Duration>,
    why: &str,
) -> Result<bool, AdminError> {
    let (alarms, by) = (engine.alarms(), By::new("console").why(why));
    let changed = match how_long {
        None => alarms.acknowledge(id, &by).await?,
        Some(time) => alarms.silence(id, time, &by).await?,
    };
    Ok(changed == AlarmChange::Changed)
}
