//! Creating pastes: `curl --data-binary @file`, `curl -T file`, `curl -F file=@file`, and our page.
//!
//! # Invariants
//! - Programs get the link and a newline, nothing else; the rest is in headers.
//! - Browsers are redirected to the paste, which shows its delete token once.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use leasehold_http::body::{BodyError, MemoryPermit};
use leasehold_http::headers::media_type;
use leasehold_http::problems::{CommonProblem, IntoProblem};
use leasehold_http::request::{is_browser, segment};
use leasehold_http::responses;

use super::form::{self, Filled};
use super::headers::{
    self, DELETE_TOKEN, EXPIRES_AT, IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED, NO_STORE,
};
use super::options::Options;
use super::problems::{HandlerResult, PasteProblem};
use super::read::html;
use super::view;
use super::web::{Shared, Web, create_token, owner};
use crate::code::OwnerToken;
use crate::error::CreateError;
use crate::highlight;
use crate::model::{Created, NewPaste};
use crate::pages::{Field, FormError, Typed};

/// `GET /`
pub async fn page(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_read(&request)?;
    let page = view::create(web.pastes.settings(), None, None);
    Ok(html(page.into(), HeaderValue::from_static("private, max-age=60")))
}

/// `POST /` and `PUT /`
pub async fn post(State(web): State<Shared>, request: Request) -> HandlerResult {
    receive(web, request, None).await
}

/// `PUT /{file name}`: what `curl -T notes.md https://…/` sends.
pub async fn put_file(State(web): State<Shared>, request: Request) -> HandlerResult {
    let name = segment(request.uri().path(), 0).map(str::to_owned);
    receive(web, request, name).await
}

enum Encoding {
    Raw,
    Multipart,
    /// A form that a browser sent. curl gives every body this type, so the headers must show a browser.
    Urlencoded,
}

impl Encoding {
    fn of(headers: &HeaderMap) -> Self {
        match media_type(headers).as_deref() {
            Some("multipart/form-data") => Self::Multipart,
            Some("application/x-www-form-urlencoded") if is_browser(headers) => Self::Urlencoded,
            _ => Self::Raw,
        }
    }
}

async fn receive(web: Shared, request: Request, file_name: Option<String>) -> HandlerResult {
    let client = web.client(&request);
    web.creates.admit(client)?;
    let (parts, body) = request.into_parts();
    let options = Options::read(parts.uri.query(), &parts.headers)?;
    let most = web.pastes.settings().max_size;
    let encoding = Encoding::of(&parts.headers);
    // A form may carry the token in a field; any other body must come with the token in a header,
    // before anything is received.
    if matches!(encoding, Encoding::Raw) {
        web.admit_creator(create_token(&parts.headers))?;
    }
    let limit = match encoding {
        Encoding::Raw => most,
        Encoding::Multipart => most + form::OVERHEAD,
        // Every byte may be escaped as three.
        Encoding::Urlencoded => 3 * most + form::OVERHEAD,
    };
    let received = web.budget.of(client).read(&parts.headers, body, limit).await;
    let body = received.map_err(|error| match error {
        // Report the limit of the paste, which users know, not that of the encoded body.
        BodyError::TooLarge { .. } => PasteProblem::TooLarge { limit: most },
        error => error.into(),
    })?;
    let mut filled = match encoding {
        Encoding::Raw => Filled { content: body.bytes, options, ..Filled::default() },
        Encoding::Multipart => form::multipart(&parts.headers, &body, options).await?,
        Encoding::Urlencoded => form::urlencoded(&body, options)?,
    };
    filled.file_name = filled.file_name.or(file_name);
    guess_language(&mut filled);
    let shown = create_token(&parts.headers).or(filled.create_token.as_deref());
    let admitted = web.admit_creator(shown);
    let browser = match encoding {
        Encoding::Raw => false,
        Encoding::Multipart => filled.page || is_browser(&parts.headers),
        Encoding::Urlencoded => true,
    };
    match browser {
        true => respond_to_browser(&web, &parts, filled, client, (admitted, body.permit)).await,
        false => {
            admitted?;
            respond_to_program(&web, &parts.headers, filled, client, body.permit).await
        }
    }
}

/// Guesses the language from the file name.
fn guess_language(filled: &mut Filled) {
    if filled.options.language.is_none() {
        let name = filled.file_name.as_deref();
        let guess = name.and_then(|name| highlight::detect(Some(name), ""));
        filled.options.language = guess.map(|language| language.id.to_owned());
    }
}

async fn respond_to_program(
    web: &Web,
    headers: &HeaderMap,
    filled: Filled,
    client: Option<IpAddr>,
    permit: MemoryPermit,
) -> HandlerResult {
    let mut new = new_paste(filled, client);
    new.owner = owner(headers)?;
    new.idempotency_key = key(headers)?.or(new.idempotency_key);
    let created = create_paste(web, new, permit).await?;
    let mut response = responses::text(format!("{}/{}\n", web.base_url, created.code));
    *response.status_mut() = StatusCode::CREATED;
    describe(web, &created, &mut response);
    Ok(response)
}

async fn respond_to_browser(
    web: &Web,
    parts: &Parts,
    filled: Filled,
    client: Option<IpAddr>,
    (admitted, permit): (Result<(), PasteProblem>, MemoryPermit),
) -> HandlerResult {
    web.cookies.own_form(&parts.headers, &web.base_url)?;
    let content = filled.content.clone();
    let typed = typed(&filled);
    let made = match admitted {
        Ok(()) => create_for_browser(web, parts, filled, client, permit).await,
        refused => refused.and(Err(PasteProblem::Private)),
    };
    match made {
        Ok(response) => Ok(response),
        Err(problem) => Ok(form_again(web, &problem, typed, &content)),
    }
}

async fn create_for_browser(
    web: &Web,
    parts: &Parts,
    filled: Filled,
    client: Option<IpAddr>,
    permit: MemoryPermit,
) -> HandlerResult {
    let remember = filled.remember;
    let owner = match remember {
        true => Some(owner_to_remember(web, &parts.headers).await?),
        // Not listed, even if the browser has an owner: an owner links a user's pastes to each other.
        false => None,
    };
    let mut new = new_paste(filled, client);
    new.owner = owner.clone();
    let created = create_paste(web, new, permit).await?;
    let mut response = responses::see_other(headers::header_value(&format!("/{}", created.code)));
    let map = response.headers_mut();
    map.append(header::SET_COOKIE, web.cookies.remember_made(&created.code, &created.delete_token));
    if let Some(owner) = owner {
        map.append(header::SET_COOKIE, web.cookies.remember_owner(&owner));
    }
    Ok(response)
}

/// Returns the owner that the browser has, or a new one. Ignores a cookie that another database or
/// another program on this host wrote.
async fn owner_to_remember(web: &Web, headers: &HeaderMap) -> Result<OwnerToken, PasteProblem> {
    if let Some(owner) = web.cookies.owner(headers)
        && web.pastes.is_owner(&owner).await.map_err(CreateError::from)?
    {
        return Ok(owner);
    }
    Ok(web.pastes.new_owner().await?)
}

fn new_paste(filled: Filled, client: Option<IpAddr>) -> NewPaste {
    let options = filled.options;
    NewPaste {
        content: filled.content,
        expires_in: options.expires_in,
        alias: options.alias,
        language: options.language,
        burn: options.burn,
        owner: None,
        idempotency_key: filled.key,
        client,
    }
}

/// Creates the paste even if the client disconnects. Holds the memory of the body until then.
pub async fn create_paste(
    web: &Web,
    new: NewPaste,
    permit: MemoryPermit,
) -> Result<Created, PasteProblem> {
    let pastes = web.pastes.clone();
    PasteProblem::run_to_end(async move {
        let created = pastes.create(new).await;
        drop(permit);
        created
    })
    .await
}

/// `Idempotency-Key`
pub fn key(headers: &HeaderMap) -> Result<Option<String>, PasteProblem> {
    match headers.get(IDEMPOTENCY_KEY) {
        None => Ok(None),
        Some(key) => match key.to_str() {
            Ok(key) => Ok(Some(key.to_owned())),
            Err(_) => Err(CreateError::BadKey.into()),
        },
    }
}

/// Sets the headers in which programs find the details of a new paste.
pub fn describe(web: &Web, created: &Created, response: &mut Response) {
    let map = response.headers_mut();
    map.insert(
        header::LOCATION,
        headers::header_value(&format!("{}/{}", web.base_url, created.code)),
    );
    map.insert(header::CACHE_CONTROL, NO_STORE);
    map.insert(DELETE_TOKEN, headers::header_value(&created.delete_token));
    map.insert(EXPIRES_AT, headers::header_value(&created.expires_at.to_string()));
    if created.replayed {
        map.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    }
}

fn typed(filled: &Filled) -> Typed {
    Typed {
        content: String::new(),
        language: filled.options.language.clone().unwrap_or_default(),
        expires: filled.options.expires_in.map(crate::pages::expiry_value).unwrap_or_default(),
        alias: filled.options.alias.clone().unwrap_or_default(),
        burn: filled.options.burn,
        remember: filled.remember,
    }
}

/// Returns the form as the user filled it in, with the error, so that the user does not have to type
/// the paste again.
fn form_again(web: &Web, problem: &PasteProblem, mut typed: Typed, content: &Bytes) -> Response {
    problem.log();
    let field = match problem {
        PasteProblem::Create(
            CreateError::Empty | CreateError::TooLarge { .. } | CreateError::Banned,
        ) => Some(Field::Content),
        PasteProblem::Create(CreateError::BadAlias | CreateError::AliasTaken(_)) => {
            Some(Field::Alias)
        }
        PasteProblem::Create(CreateError::BadExpiry { .. }) => Some(Field::Expires),
        PasteProblem::Create(CreateError::BadLanguage(_)) => Some(Field::Language),
        PasteProblem::Private | PasteProblem::Common(CommonProblem::WrongToken) => {
            Some(Field::Token)
        }
        _ => None,
    };
    let problem = problem.problem();
    typed.content = highlight::text(content).unwrap_or_default().to_owned();
    let error = FormError { field, message: problem.detail.into_owned() };
    let page = view::create(web.pastes.settings(), Some(typed), Some(error));
    let mut response = html(page.into(), NO_STORE);
    *response.status_mut() = problem.status;
    if let Some(after) = problem.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, headers::whole_seconds(after).into());
    }
    response
}
