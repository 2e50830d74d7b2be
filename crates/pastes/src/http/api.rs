//! The JSON interface, under `/api/v1`.

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use leasehold_http::body::{BodyError, hold_memory};
use leasehold_http::json::JsonError;
use leasehold_http::problems::{CommonProblem, IntoProblem};
use leasehold_http::request::{limit, query};
use leasehold_http::responses::empty;
use serde::Serialize;

use super::create;
use super::headers;
use super::moderation::ReportRequest;
use super::problems::{HandlerResult, PasteProblem};
use super::read::{burn_now, ready};
use super::web::{Shared, code_in, create_token, largest_json, owner};
use super::wire::{CreateRequest, CreatedPaste, FullPaste, NewOwner, OwnPaste, OwnPastes};
use crate::error::{CreateError, ReadError};
use crate::model::{Cursor, NewPaste, Report};

/// JSON may escape one character as six: `\u0041`.
const LONGEST_LETTER: usize = 6;
const OVERHEAD: usize = 16 * 1024;
/// The largest body of any request but a create.
pub const SMALL: usize = 64 * 1024;
const PAGE: u32 = 50;
const LARGEST_PAGE: u32 = 200;

/// Creates a paste.
#[utoipa::path(post, path = "/api/v1/pastes", tag = "pastes", operation_id = "createPaste",
    request_body = CreateRequest,
    params(("Idempotency-Key" = Option<String>, Header, description = "Repeating a request with its key returns the same paste, and `Idempotent-Replayed: true`. Another paste with the same key is refused.", min_length = 1, max_length = 200, pattern = "^[!-~]([ -~]{0,198}[!-~])?$")),
    responses((status = 201, description = "Created now, or before with the same key", body = CreatedPaste, headers(
        ("Location" = String), ("X-Delete-Token" = String), ("X-Expires-At" = String)))),
    security((), ("owner" = [])))]
pub async fn create(State(web): State<Shared>, request: Request) -> HandlerResult {
    let client = web.client(&request);
    web.creates.admit(client)?;
    web.admit_creator(create_token(request.headers()))?;
    let most = web.pastes.settings().max_size;
    let limit = most.saturating_mul(LONGEST_LETTER) + OVERHEAD;
    let (parts, body) = request.into_parts();
    let received = web.budget.of(client).json::<CreateRequest>(&parts.headers, body, limit).await;
    let (new, permit) = received.map_err(|error| match error {
        JsonError::Body(BodyError::TooLarge { .. }) => PasteProblem::TooLarge { limit: most },
        error => error.into(),
    })?;
    let new = NewPaste {
        content: new.content.into(),
        expires_in: new.expires_in,
        alias: new.alias,
        language: new.language,
        burn: new.burn_after_reading,
        owner: owner(&parts.headers)?,
        idempotency_key: create::key(&parts.headers)?,
        client,
    };
    let created = create::create_paste(&web, new, permit).await?;
    let mut response = json(StatusCode::CREATED, &CreatedPaste::of(&web, &created))?;
    create::describe(&web, &created, &mut response);
    Ok(response)
}

/// Reads a paste.
#[utoipa::path(get, path = "/api/v1/pastes/{code}", tag = "pastes", operation_id = "readPaste",
    params(("code" = String, Path, pattern = "^[A-Za-z0-9_-]{1,32}$")),
    responses((status = 200, description = "The paste", body = FullPaste)))]
pub async fn read(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_read(&request)?;
    let (code, client) = (code_in(&request, 3)?, web.client(&request));
    let paste = ready(web.pastes.read(&code).await?, &code)?;
    let permit = web.reserve(client, largest_json(paste.content.len())).await?;
    let mut response = json(StatusCode::OK, &FullPaste::of(&web, &paste))?;
    response.headers_mut().insert(header::CACHE_CONTROL, headers::cache_control(paste.life));
    Ok(hold_memory(response, permit))
}

/// Reads a paste that burns after reading, and deletes it.
#[utoipa::path(post, path = "/api/v1/pastes/{code}/burn", tag = "pastes", operation_id = "burnPaste",
    params(("code" = String, Path, pattern = "^[A-Za-z0-9_-]{1,32}$")),
    responses((status = 200, description = "The paste, which is deleted now", body = FullPaste)))]
pub async fn burn(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_read(&request)?;
    let (code, client) = (code_in(&request, 3)?, web.client(&request));
    let (paste, permit) = burn_now(&web, client, code, None, largest_json).await?;
    Ok(hold_memory(json(StatusCode::OK, &FullPaste::of(&web, &paste))?, permit))
}

/// Reports a paste to the operators.
#[utoipa::path(post, path = "/api/v1/pastes/{code}/reports", tag = "pastes", operation_id = "reportPaste",
    params(("code" = String, Path, pattern = "^[A-Za-z0-9_-]{1,32}$")),
    request_body = ReportRequest,
    responses((status = 202, description = "Stored for the operators")))]
pub async fn report(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_create(&request)?;
    let code = code_in(&request, 3)?;
    let (parts, body) = request.into_parts();
    let (report, _) = web.budget.json::<ReportRequest>(&parts.headers, body, SMALL).await?;
    let contact = report.contact.map(|contact| free_text(contact, "contact", 200)).transpose()?;
    let reason = free_text(report.reason, "reason", 2000)?;
    let report = Report { reason, contact, paste_id: report.paste };
    let pastes = web.pastes.clone();
    PasteProblem::run_to_end(async move { pastes.report(&code, report).await }).await?;
    Ok(empty(StatusCode::ACCEPTED))
}

/// Creates an owner. Its token lists and deletes the pastes that were created with it.
#[utoipa::path(post, path = "/api/v1/owners", tag = "owners", operation_id = "createOwner",
    responses((status = 201, description = "The new owner", body = NewOwner)))]
pub async fn new_owner(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_create(&request)?;
    web.admit_creator(create_token(request.headers()))?;
    let owner = web.pastes.new_owner().await?;
    json(StatusCode::CREATED, &NewOwner { owner_token: owner.as_str().to_owned() })
}

/// Lists the owner's pastes, newest first.
#[utoipa::path(get, path = "/api/v1/pastes", tag = "owners", operation_id = "listPastes",
    params(
        ("limit" = Option<u32>, Query, description = "Default: 50", minimum = 1, maximum = 200),
        ("before" = Option<String>, Query, description = "The `next` of the previous page", pattern = "^[0-9]{1,15}[.][A-Za-z0-9_-]{1,32}$")),
    responses((status = 200, description = "A page of the owner's pastes", body = OwnPastes)),
    security(("owner" = [])))]
pub async fn list(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_read(&request)?;
    let owner = owner(request.headers())?.ok_or(CommonProblem::NoToken)?;
    let limit = limit(&request, PAGE, LARGEST_PAGE).map_err(PasteProblem::malformed)?;
    let before: Option<Cursor> = match query(&request, "before") {
        Some(cursor) => Some(cursor.parse().map_err(|_| {
            PasteProblem::malformed("before must be the `next` of the previous page, unchanged.")
        })?),
        None => None,
    };
    let listed = web.pastes.list(&owner, before.as_ref(), limit).await.map_err(unknown_owner)?;
    let full = u32::try_from(listed.len()).is_ok_and(|count| count == limit);
    let next = listed.last().filter(|_| full).map(|paste| Cursor::after(paste).to_string());
    let pastes = listed.iter().map(|paste| OwnPaste::of(&web, paste)).collect();
    json(StatusCode::OK, &OwnPastes { pastes, next })
}

pub fn unknown_owner(error: ReadError) -> PasteProblem {
    match error {
        ReadError::NotFound => CreateError::UnknownOwner.into(),
        error => error.into(),
    }
}

/// Checks a free text: 1 to `most` characters, and no NUL.
pub fn free_text(text: String, name: &str, most: usize) -> Result<String, PasteProblem> {
    if text.is_empty() || text.chars().count() > most || text.contains('\0') {
        return Err(PasteProblem::malformed(format!(
            "{name} must have 1 to {most} characters, and no NUL."
        )));
    }
    Ok(text)
}

pub fn json(status: StatusCode, value: &impl Serialize) -> HandlerResult {
    Ok(leasehold_http::responses::json(status, value)?)
}
