//! Listing and deleting the caller's own pastes, and reporting a paste to the operator.
//!
//! # Invariants
//! - A wrong token, another owner's paste and a code that never existed get the same response.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use leasehold_http::problems::{CommonProblem, IntoProblem};
use leasehold_http::request::query;
use leasehold_http::responses::empty;
use uuid::Uuid;

use super::api;
use super::form;
use super::headers::{DELETE_TOKEN, NO_STORE};
use super::problems::{HandlerResult, PasteProblem};
use super::read::html;
use super::view;
use super::web::{Shared, Web, bearer, code_in};
use crate::code::{Bearer, ShortCode};
use crate::error::{DeleteError, ReadError};
use crate::model::{Cursor, Report};
use crate::pages::{self, Done};

/// Pastes on one page of `/mine`.
const PAGE: u32 = 50;
const FORM: usize = 16 * 1024;

/// `DELETE /{code}`
pub async fn delete(State(web): State<Shared>, request: Request) -> HandlerResult {
    delete_at(web, request, 0).await
}

/// Deletes a paste.
#[utoipa::path(delete, path = "/api/v1/pastes/{code}", tag = "pastes", operation_id = "deletePaste",
    params(
        ("code" = String, Path, pattern = "^[A-Za-z0-9_-]{1,32}$"),
        ("X-Delete-Token" = Option<String>, Header, description = "Instead of Authorization")),
    responses((status = 204, description = "Deleted, or it had ended before")),
    security(("deleteToken" = []), ("owner" = [])))]
pub async fn delete_by_api(State(web): State<Shared>, request: Request) -> HandlerResult {
    delete_at(web, request, 3).await
}

async fn delete_at(web: Shared, request: Request, before: usize) -> HandlerResult {
    web.admit_read(&request)?;
    let token = delete_token(request.headers())?;
    let code = code_in(&request, before).map_err(|_| DeleteError::NotYours)?;
    carry_out(&web, code, token, None).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

fn delete_token(headers: &HeaderMap) -> Result<Bearer, PasteProblem> {
    match headers.get(DELETE_TOKEN) {
        Some(token) => {
            let token = token.to_str().ok().and_then(Bearer::new);
            token.ok_or(DeleteError::NotYours.into())
        }
        None => Ok(bearer(headers)?.ok_or(CommonProblem::NoToken)?),
    }
}

async fn carry_out(
    web: &Web,
    code: ShortCode,
    token: Bearer,
    only: Option<Uuid>,
) -> Result<(), PasteProblem> {
    let pastes = web.pastes.clone();
    PasteProblem::run_to_end(async move { pastes.delete(&code, &token, only).await }).await
}

/// `POST /{code}/delete`: the token is in the form, or the browser has the owner's cookie.
pub async fn delete_form(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_read(&request)?;
    web.cookies.own_form(request.headers(), &web.base_url)?;
    let code = code_in(&request, 0).map_err(|_| DeleteError::NotYours)?;
    let (parts, body) = request.into_parts();
    let fields = form::fields(&web, &parts.headers, body, FORM).await?;
    let typed = form::value(&fields, "token").map(|token| Bearer::new(token.trim()));
    let token = match typed {
        Some(token) => token,
        None => web.cookies.owner(&parts.headers).and_then(|owner| Bearer::new(owner.as_str())),
    };
    let only = form::seen(&fields).map_err(|_| DeleteError::NotYours)?;
    carry_out(&web, code, token.ok_or(DeleteError::NotYours)?, only).await?;
    let mut response = html(pages::done(&Done::deleted()).into_string().into(), NO_STORE);
    // Browsers cache pages for a minute: a user who deletes a paste must not see it right after.
    let forget = axum::http::HeaderValue::from_static("\"cache\"");
    response.headers_mut().insert("clear-site-data", forget);
    Ok(response)
}

/// `POST /{code}/report`
pub async fn report_form(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_create(&request)?;
    web.cookies.own_form(request.headers(), &web.base_url)?;
    let code = code_in(&request, 0)?;
    let (parts, body) = request.into_parts();
    let fields = form::fields(&web, &parts.headers, body, FORM).await?;
    let reason = [form::value(&fields, "reason"), form::value(&fields, "details")];
    let reason: Vec<&str> = reason.into_iter().flatten().filter(|text| !text.is_empty()).collect();
    let contact = form::value(&fields, "contact").filter(|contact| !contact.is_empty());
    let report = Report {
        reason: api::free_text(reason.join(": "), "reason", 2100)?,
        contact: contact
            .map(|contact| api::free_text(contact.to_owned(), "contact", 200))
            .transpose()?,
        paste_id: form::seen(&fields)?,
    };
    let pastes = web.pastes.clone();
    PasteProblem::run_to_end(async move { pastes.report(&code, report).await }).await?;
    Ok(html(pages::done(&Done::reported()).into_string().into(), NO_STORE))
}

/// `GET /mine`
pub async fn mine(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_read(&request)?;
    let before: Option<Cursor> = query(&request, "before").and_then(|cursor| cursor.parse().ok());
    let (listed, known) = match web.cookies.owner(request.headers()) {
        Some(owner) => match web.pastes.list(&owner, before.as_ref(), PAGE).await {
            // An unknown owner has no pastes.
            Err(ReadError::NotFound) => (Vec::new(), false),
            listed => (listed?, true),
        },
        None => (Vec::new(), true),
    };
    let full = listed.len() == PAGE as usize;
    let last = listed.last().filter(|_| full);
    let next = last.map(|last| format!("/mine?before={}", Cursor::after(last)));
    let mut response = html(view::mine(&web.base_url, &listed, next).into(), NO_STORE);
    response.headers_mut().insert(header::VARY, axum::http::HeaderValue::from_static("cookie"));
    if !known {
        response.headers_mut().append(header::SET_COOKIE, web.cookies.forget_owner());
    }
    Ok(response)
}
