//! For operators: reports, takedowns, bans, and the log of what operators did.
//!
//! # Invariants
//! - Without a token in the settings these addresses do not exist.
//! - The token is compared in constant time, and guesses count toward the rate limit like any other
//!   request.
//! - Every list is paged: `next` of one page is `before` of the following one.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use leasehold_http::problems::{CommonProblem, IntoProblem};
use leasehold_http::request::{limit, query, segment};
use leasehold_http::responses::empty;

use super::api::{SMALL, free_text, json};
use super::moderation::{BanRequest, Bans, Moderation, Reports, TakedownDone, TakedownRequest};
use super::problems::{HandlerResult, PasteProblem};
use super::web::{Shared, Web, bearer};
use crate::error::OperateError;
use crate::model::{Act, Target};

const PAGE: u32 = 100;
/// A reason has up to 2100 characters: a page stays below 3 MiB.
const LARGEST_PAGE: u32 = 200;

/// Counts the request and checks the token.
fn admit(web: &Web, request: &Request) -> Result<(), PasteProblem> {
    web.admit_read(request)?;
    let wanted = web.pastes.settings().operator_token.as_ref().ok_or(PasteProblem::NoRoute)?;
    match bearer(request.headers())? {
        Some(shown) if shown.is(wanted.as_str()) => Ok(()),
        Some(_) => Err(CommonProblem::WrongToken.into()),
        None => Err(CommonProblem::NoToken.into()),
    }
}

/// Returns who acts, for the log: all operators share one token, so the address is all that we know.
fn act(web: &Web, request: &Request) -> Act {
    let address = web.client(request).map_or("an unknown address".to_owned(), |ip| ip.to_string());
    Act { who: format!("operator token from {address}"), why: None }
}

/// The requested page of a list.
struct Part {
    before: Option<i64>,
    limit: u32,
}

impl Part {
    fn of(request: &Request) -> Result<Self, PasteProblem> {
        let limit = limit(request, PAGE, LARGEST_PAGE).map_err(PasteProblem::malformed)?;
        let before = match query(request, "before") {
            Some(id) => match id.parse() {
                Ok(id) if id > 0 => Some(id),
                _ => {
                    return Err(PasteProblem::malformed(
                        "before must be the `next` of the previous page.",
                    ));
                }
            },
            None => None,
        };
        Ok(Self { before, limit })
    }

    /// Returns where the list continues, or `None` at its end.
    fn next<T>(&self, rows: &[T], id: impl Fn(&T) -> i64) -> Option<i64> {
        let full = u32::try_from(rows.len()).is_ok_and(|count| count == self.limit);
        rows.last().filter(|_| full).map(id)
    }
}

/// Lists reports, newest first.
#[utoipa::path(get, path = "/api/v1/reports", tag = "operator", operation_id = "listReports",
    params(
        ("limit" = Option<u32>, Query, description = "Default: 100", minimum = 1, maximum = 200),
        ("before" = Option<i64>, Query, description = "The `next` of the previous page", minimum = 1)),
    responses((status = 200, description = "A page of reports", body = Reports)),
    security(("operator" = [])))]
pub async fn reports(State(web): State<Shared>, request: Request) -> HandlerResult {
    admit(&web, &request)?;
    let part = Part::of(&request)?;
    let reports = web.pastes.reports(part.before, part.limit).await?;
    let next = part.next(&reports, |report| report.id);
    let reports = reports.into_iter().map(Into::into).collect();
    json(StatusCode::OK, &Reports { reports, next })
}

/// Takes a paste down; with `ban`, every copy of its bytes.
#[utoipa::path(post, path = "/api/v1/takedowns", tag = "operator", operation_id = "takeDown",
    request_body = TakedownRequest,
    responses((status = 200, description = "Taken down", body = TakedownDone)),
    security(("operator" = [])))]
pub async fn takedown(State(web): State<Shared>, request: Request) -> HandlerResult {
    admit(&web, &request)?;
    let mut act = act(&web, &request);
    let (parts, body) = request.into_parts();
    let (order, _) = web.budget.json::<TakedownRequest>(&parts.headers, body, SMALL).await?;
    let target = match (order.report, order.code, order.content_hash) {
        (Some(report), None, None) => Target::Report(report),
        (None, Some(code), content_hash) => {
            Target::Code { code: code.parse().map_err(|_| PasteProblem::NOT_FOUND)?, content_hash }
        }
        _ => {
            let text = "Name the report, or the code and, if possible, its contentHash.";
            return Err(PasteProblem::malformed(text));
        }
    };
    act.why = Some(free_text(order.reason, "reason", 2000)?);
    let pastes = web.pastes.clone();
    let done =
        PasteProblem::run_to_end(async move { pastes.takedown(&target, order.ban, &act).await })
            .await?;
    json(StatusCode::OK, &TakedownDone::from(done))
}

/// Lists the actions of operators, newest first: takedowns, bans and unbans.
#[utoipa::path(get, path = "/api/v1/moderation", tag = "operator", operation_id = "listModeration",
    params(
        ("limit" = Option<u32>, Query, description = "Default: 100", minimum = 1, maximum = 200),
        ("before" = Option<i64>, Query, description = "The `next` of the previous page", minimum = 1)),
    responses((status = 200, description = "A page of actions", body = Moderation)),
    security(("operator" = [])))]
pub async fn moderation(State(web): State<Shared>, request: Request) -> HandlerResult {
    admit(&web, &request)?;
    let part = Part::of(&request)?;
    let acts = web.pastes.moderation(part.before, part.limit).await?;
    let next = part.next(&acts, |act| act.id);
    json(StatusCode::OK, &Moderation { acts: acts.into_iter().map(Into::into).collect(), next })
}

/// Lists banned content, newest first.
#[utoipa::path(get, path = "/api/v1/bans", tag = "operator", operation_id = "listBans",
    params(
        ("limit" = Option<u32>, Query, description = "Default: 100", minimum = 1, maximum = 200),
        ("before" = Option<i64>, Query, description = "The `next` of the previous page", minimum = 1)),
    responses((status = 200, description = "A page of bans", body = Bans)),
    security(("operator" = [])))]
pub async fn bans(State(web): State<Shared>, request: Request) -> HandlerResult {
    admit(&web, &request)?;
    let part = Part::of(&request)?;
    let bans = web.pastes.bans(part.before, part.limit).await?;
    let next = part.next(&bans, |ban| ban.id);
    json(StatusCode::OK, &Bans { bans: bans.into_iter().map(Into::into).collect(), next })
}

/// Bans content by its SHA-256: it is refused from now on.
#[utoipa::path(put, path = "/api/v1/bans/{hash}", tag = "operator", operation_id = "ban",
    params(("hash" = String, Path, pattern = "^[0-9a-f]{64}$")),
    request_body = BanRequest,
    responses((status = 204, description = "Banned")),
    security(("operator" = [])))]
pub async fn ban(State(web): State<Shared>, request: Request) -> HandlerResult {
    admit(&web, &request)?;
    let (hash, mut act) = (hash_in(&request)?, act(&web, &request));
    let (parts, body) = request.into_parts();
    let (order, _) = web.budget.json::<BanRequest>(&parts.headers, body, SMALL).await?;
    act.why = Some(free_text(order.reason, "reason", 2000)?);
    let pastes = web.pastes.clone();
    PasteProblem::run_to_end(async move { pastes.ban(&hash, &act).await }).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Lifts a ban.
#[utoipa::path(delete, path = "/api/v1/bans/{hash}", tag = "operator", operation_id = "unban",
    params(
        ("hash" = String, Path, pattern = "^[0-9a-f]{64}$"),
        ("reason" = Option<String>, Query, description = "For the log of actions", min_length = 1, max_length = 2000, pattern = "^[^\\u0000]*$")),
    responses((status = 204, description = "Lifted")),
    security(("operator" = [])))]
pub async fn unban(State(web): State<Shared>, request: Request) -> HandlerResult {
    admit(&web, &request)?;
    let (hash, mut act) = (hash_in(&request)?, act(&web, &request));
    act.why = query(&request, "reason").map(|why| free_text(why, "reason", 2000)).transpose()?;
    let pastes = web.pastes.clone();
    PasteProblem::run_to_end(async move { pastes.unban(&hash, &act).await }).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Returns the hash in the path, or an error if it is not 64 lowercase hexadecimal digits.
fn hash_in(request: &Request) -> Result<String, PasteProblem> {
    let hash = segment(request.uri().path(), 3).unwrap_or_default();
    let fits = hash.len() == 64
        && hash.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    if fits { Ok(hash.to_owned()) } else { Err(OperateError::BadHash.into()) }
}
