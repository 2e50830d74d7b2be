//! Accounts for pages: forms to sign up, log in and out, delete the account, and manage groups.
//!
//! # Invariants
//! - A browser keeps its session in a cookie that no script and no other site can use.
//! - After logging out neither the cookie nor a copy of it is valid.
//! - Only forms from our own pages are accepted.

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use leasehold_http::body::hold_memory;
use leasehold_http::headers::NO_STORE;
use leasehold_http::problems::CommonProblem;
use leasehold_http::responses;

use super::errors::Failure;
use super::web::{HandlerResult, Shared, query};
use crate::error::Refused;
use crate::id::Token;
use crate::model::{Group, WORLD};
use crate::pages::{self, Account};

/// Groups on one page.
const GROUPS: usize = 100;

pub fn page(markup: maud::Markup) -> Response {
    responses::page(markup.into_string(), NO_STORE)
}

fn go_to(place: &'static str) -> Response {
    responses::see_other(HeaderValue::from_static(place))
}

/// `GET /account`
pub async fn account(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_read(&request)?;
    let page = query(&request, "page").and_then(|page| page.parse().ok()).unwrap_or(1);
    let (parts, _) = request.into_parts();
    show(&web, &parts, page, None).await
}

/// Returns the account page, with the error if there is one.
async fn show(
    web: &Shared,
    parts: &Parts,
    number: usize,
    wrong: Option<&Refused>,
) -> HandlerResult {
    let held = web.room_for(&parts.extensions, &parts.headers).await?;
    let viewer = web.viewer(&parts.headers).await?;
    let mut groups = web.annotations.groups(viewer.id()).await?;
    groups.retain(|group| group.id != WORLD);
    let pages: Vec<&[Group]> = groups.chunks(GROUPS).collect();
    let number = number.clamp(1, pages.len().max(1));
    let (invitations, blocked) = match viewer.id() {
        Some(id) => (web.annotations.invitations(id).await?, web.annotations.blocked(id).await?),
        None => (Vec::new(), Vec::new()),
    };
    let account = Account {
        user: viewer.user.as_ref(),
        groups: pages.get(number - 1).copied().unwrap_or_default(),
        page: (number, pages.len()),
        invitations: &invitations,
        blocked: &blocked,
        sign_up: web.annotations.settings().sign_up,
        wrong: wrong.map(ToString::to_string),
    };
    let mut response = page(pages::account(&account));
    if wrong.is_some() {
        *response.status_mut() = StatusCode::UNPROCESSABLE_ENTITY;
    }
    Ok(hold_memory(response, held))
}

struct Form(Vec<(String, String)>);

impl Form {
    fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(found, _)| found == name).map_or("", |(_, value)| value.trim())
    }
}

/// Applies the rate limit, and reads the form if it comes from our own pages.
async fn form(web: &Shared, request: Request) -> Result<(Parts, Form), Failure> {
    web.admit_save(&request)?;
    web.own_form(request.headers())?;
    let (parts, body) = request.into_parts();
    let form = web.form(&parts.headers, body).await?;
    if form.iter().any(|(_, value)| value.contains('\0')) {
        return Err(Failure::malformed("A form must not contain NUL."));
    }
    Ok((parts, Form(form)))
}

/// `POST /account/signup`
pub async fn sign_up(State(web): State<Shared>, request: Request) -> HandlerResult {
    let (parts, form) = form(&web, request).await?;
    if !web.annotations.settings().sign_up {
        return Err(Failure::NoSignUp);
    }
    match web.annotations.sign_up(form.get("name"), form.get("display_name")).await {
        Ok((user, token)) => {
            let mut response = page(pages::welcome(&user, token.as_str()));
            // Without a session the page still has the token, which no later page shows.
            if let Ok(Some(session)) = web.annotations.log_in(&token).await {
                let cookie = web.session_cookie(&session);
                response.headers_mut().insert(header::SET_COOKIE, cookie);
            }
            Ok(response)
        }
        Err(Refused::Unavailable(why)) => Err(Refused::Unavailable(why).into()),
        Err(refused) => show(&web, &parts, 1, Some(&refused)).await,
    }
}

/// `POST /account/login`
pub async fn log_in(State(web): State<Shared>, request: Request) -> HandlerResult {
    let (parts, form) = form(&web, request).await?;
    let session = match Token::parse(form.get("token")) {
        Some(token) => web.annotations.log_in(&token).await?,
        None => None,
    };
    match session {
        Some(session) => {
            let mut response = go_to("/");
            response.headers_mut().insert(header::SET_COOKIE, web.session_cookie(&session));
            Ok(response)
        }
        None => {
            let refused = Refused::Malformed("this token is not known".to_owned());
            show(&web, &parts, 1, Some(&refused)).await
        }
    }
}

/// `POST /account/logout`: ends the session of this browser. The user's tokens stay valid.
pub async fn log_out(State(web): State<Shared>, request: Request) -> HandlerResult {
    let (parts, _) = form(&web, request).await?;
    if let Some(session) = web.session(&parts.headers) {
        web.annotations.log_out(&session).await?;
    }
    let mut response = go_to("/");
    response.headers_mut().insert(header::SET_COOKIE, web.no_session_cookie());
    Ok(response)
}

/// `POST /account/groups`, `/account/join`, `/account/leave`, `/account/rename`, `/account/delete`, and
/// the other actions on groups and users.
pub async fn act(State(web): State<Shared>, request: Request) -> HandlerResult {
    let what = super::web::segment(&request, 1)?;
    let (parts, form) = form(&web, request).await?;
    let user = web.viewer(&parts.headers).await?.user.ok_or(CommonProblem::NoToken)?;
    let notes = &web.annotations;
    let done = match what.as_str() {
        "groups" => {
            let open = form.get("open") == "1";
            notes.make_group(user.id, form.get("name"), open).await.map(drop)
        }
        "join" => notes.join_group(user.id, form.get("group")).await,
        "members" => notes.invite(user.id, form.get("group"), form.get("name")).await,
        "remove" => notes.remove_member(Some(user.id), form.get("group"), form.get("name")).await,
        "owner" => notes.hand_over(Some(user.id), form.get("group"), form.get("name")).await,
        "decline" => notes.decline(user.id, form.get("group")).await,
        "block" => notes.block_user(user.id, form.get("name")).await,
        "unblock" => notes.unblock_user(user.id, form.get("name")).await,
        "leave" => notes.leave_group(user.id, form.get("group")).await,
        "rename" => notes.rename_user(user.id, form.get("name")).await.map(drop),
        "delete" if form.get("name") == user.name => notes.delete_user(user.id).await.map(drop),
        "delete" => Err(Refused::Malformed("type your name to delete your account".to_owned())),
        _ => return Err(Failure::NoRoute),
    };
    match done {
        Ok(()) => Ok(go_to("/account")),
        Err(Refused::Unavailable(why)) => Err(Refused::Unavailable(why).into()),
        Err(refused) => show(&web, &parts, 1, Some(&refused)).await,
    }
}
