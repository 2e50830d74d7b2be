//! For whoever runs the service: reports, takedowns, bans.
//!
//! # What is true
//! - Without a token in the settings these addresses do not exist.
//! - The token is compared in constant time, and guesses are counted like any other request.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use leasehold_http::answers::empty;
use leasehold_http::failures::Failing;
use leasehold_http::request::{limit, segment};

use super::api::{SMALL, answer, words};
use super::errors::Failure;
use super::orders::{BanRequest, Bans, Reports, TakedownDone, TakedownRequest};
use super::web::{Shared, Web, bearer};
use crate::code::ShortCode;
use crate::error::OperateError;

type Answer = Result<Response, Failure>;

const PAGE: u32 = 100;
const LARGEST_PAGE: u32 = 1000;

/// Counts the request and checks the token.
fn admit(web: &Web, request: &Request) -> Result<(), Failure> {
    web.admit_read(request)?;
    let wanted = web.pastes.settings().operator_token.as_ref().ok_or(Failure::NoRoute)?;
    match bearer(request.headers())? {
        Some(shown) if shown.is(wanted.as_str()) => Ok(()),
        Some(_) => Err(Failure::WrongToken),
        None => Err(Failure::NoToken),
    }
}

/// Lists reports, newest first.
#[utoipa::path(get, path = "/api/v1/reports", tag = "operator", operation_id = "listReports",
    params(("limit" = Option<u32>, Query, description = "Default: 100", minimum = 1, maximum = 1000)),
    responses((status = 200, description = "Reports", body = Reports)),
    security(("operator" = [])))]
pub async fn reports(State(web): State<Shared>, request: Request) -> Answer {
    admit(&web, &request)?;
    let limit = limit(&request, PAGE, LARGEST_PAGE).map_err(Failure::malformed)?;
    let reports = web.pastes.reports(limit).await?;
    answer(StatusCode::OK, &Reports { reports: reports.into_iter().map(Into::into).collect() })
}

/// Takes a paste down, and on request every copy of its bytes.
#[utoipa::path(post, path = "/api/v1/takedowns", tag = "operator", operation_id = "takeDown",
    request_body = TakedownRequest,
    responses((status = 200, description = "Taken down", body = TakedownDone)),
    security(("operator" = [])))]
pub async fn takedown(State(web): State<Shared>, request: Request) -> Answer {
    admit(&web, &request)?;
    let (parts, body) = request.into_parts();
    let (order, _) = web.budget.json::<TakedownRequest>(&parts.headers, body, SMALL).await?;
    let code: ShortCode = order.code.parse().map_err(|_| Failure::NOT_FOUND)?;
    let reason = words(order.reason, "reason", 2000)?;
    let pastes = web.pastes.clone();
    let done =
        Failure::undisturbed(async move { pastes.takedown(&code, &reason, order.ban).await })
            .await?;
    answer(StatusCode::OK, &TakedownDone { pastes: done.pastes, banned: done.banned })
}

/// Lists banned content, newest first.
#[utoipa::path(get, path = "/api/v1/bans", tag = "operator", operation_id = "listBans",
    params(("limit" = Option<u32>, Query, description = "Default: 100", minimum = 1, maximum = 1000)),
    responses((status = 200, description = "Bans", body = Bans)),
    security(("operator" = [])))]
pub async fn bans(State(web): State<Shared>, request: Request) -> Answer {
    admit(&web, &request)?;
    let limit = limit(&request, PAGE, LARGEST_PAGE).map_err(Failure::malformed)?;
    let bans = web.pastes.bans(limit).await?;
    answer(StatusCode::OK, &Bans { bans: bans.into_iter().map(Into::into).collect() })
}

/// Refuses content from now on, by its SHA-256.
#[utoipa::path(put, path = "/api/v1/bans/{hash}", tag = "operator", operation_id = "ban",
    params(("hash" = String, Path, pattern = "^[0-9a-f]{64}$")),
    request_body = BanRequest,
    responses((status = 204, description = "Banned")),
    security(("operator" = [])))]
pub async fn ban(State(web): State<Shared>, request: Request) -> Answer {
    admit(&web, &request)?;
    let hash = hash_in(&request)?;
    let (parts, body) = request.into_parts();
    let (order, _) = web.budget.json::<BanRequest>(&parts.headers, body, SMALL).await?;
    let reason = words(order.reason, "reason", 2000)?;
    let pastes = web.pastes.clone();
    Failure::undisturbed(async move { pastes.ban(&hash, &reason).await }).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Allows content again.
#[utoipa::path(delete, path = "/api/v1/bans/{hash}", tag = "operator", operation_id = "unban",
    params(("hash" = String, Path, pattern = "^[0-9a-f]{64}$")),
    responses((status = 204, description = "Allowed")),
    security(("operator" = [])))]
pub async fn unban(State(web): State<Shared>, request: Request) -> Answer {
    admit(&web, &request)?;
    let hash = hash_in(&request)?;
    let pastes = web.pastes.clone();
    Failure::undisturbed(async move { pastes.unban(&hash).await }).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Only a hash is a hash, whatever the path holds.
fn hash_in(request: &Request) -> Result<String, Failure> {
    let hash = segment(request.uri().path(), 3).unwrap_or_default();
    let fits = hash.len() == 64
        && hash.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    if fits { Ok(hash.to_owned()) } else { Err(OperateError::BadHash.into()) }
}
