//! Creating pastes: `curl --data-binary @file`, `curl -T file`, `curl -F file=@file`, and our page.
//!
//! # What is true
//! - Programs get the link and a newline, nothing else; the rest is in headers.
//! - Browsers are redirected to the paste, which shows its delete token once.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use leasehold_http::answers;
use leasehold_http::body::{BodyError, Held};
use leasehold_http::failures::IntoProblem;
use leasehold_http::headers::media_type;
use leasehold_http::request::{is_browser, segment};

use super::errors::Failure;
use super::form::{self, Filled};
use super::headers::{self, DELETE_TOKEN, EXPIRES_AT, IDEMPOTENCY_KEY, NO_STORE, REPLAYED};
use super::options::Options;
use super::read::html;
use super::view;
use super::web::{Shared, Web, create_token, owner};
use crate::code::OwnerToken;
use crate::error::CreateError;
use crate::highlight;
use crate::model::{Created, NewPaste};
use crate::pages::{Field, FormError, Typed};

type Answer = Result<Response, Failure>;

/// `GET /`
pub async fn page(State(web): State<Shared>, request: Request) -> Answer {
    web.admit_read(&request)?;
    let page = view::create(web.pastes.settings(), None, None);
    Ok(html(page.into(), HeaderValue::from_static("private, max-age=60")))
}

/// `POST /` and `PUT /`
pub async fn post(State(web): State<Shared>, request: Request) -> Answer {
    take(web, request, None).await
}

/// `PUT /{file name}`: what `curl -T notes.md https://…/` sends.
pub async fn put_file(State(web): State<Shared>, request: Request) -> Answer {
    let name = segment(request.uri().path(), 0).map(str::to_owned);
    take(web, request, name).await
}

enum Kind {
    Raw,
    Multipart,
    /// A form that a browser sent. curl gives every body this type, so the headers must show a browser.
    Urlencoded,
}

impl Kind {
    fn of(headers: &HeaderMap) -> Self {
        match media_type(headers).as_deref() {
            Some("multipart/form-data") => Self::Multipart,
            Some("application/x-www-form-urlencoded") if is_browser(headers) => Self::Urlencoded,
            _ => Self::Raw,
        }
    }
}

async fn take(web: Shared, request: Request, file_name: Option<String>) -> Answer {
    let client = web.client(&request);
    web.creates.admit(client)?;
    let (parts, body) = request.into_parts();
    let options = Options::read(parts.uri.query(), &parts.headers)?;
    let most = web.pastes.settings().max_size;
    let kind = Kind::of(&parts.headers);
    // A form may carry the token in a field; any other body must come with the token in a header,
    // before anything is received.
    if matches!(kind, Kind::Raw) {
        web.admit_maker(create_token(&parts.headers))?;
    }
    let limit = match kind {
        Kind::Raw => most,
        Kind::Multipart => most + form::OVERHEAD,
        // Every byte may be escaped as three.
        Kind::Urlencoded => 3 * most + form::OVERHEAD,
    };
    let received = web.budget.of(client).read(&parts.headers, body, limit).await;
    let taken = received.map_err(|failure| match failure {
        // Report the limit of the paste, which users know, not that of the encoded body.
        BodyError::TooLarge { .. } => Failure::TooLarge { limit: most },
        failure => failure.into(),
    })?;
    let mut filled = match kind {
        Kind::Raw => Filled { content: taken.bytes, options, ..Filled::default() },
        Kind::Multipart => form::multipart(&parts.headers, &taken, options).await?,
        Kind::Urlencoded => form::urlencoded(&taken, options)?,
    };
    filled.file_name = filled.file_name.or(file_name);
    guess_language(&mut filled);
    let shown = create_token(&parts.headers).or(filled.create_token.as_deref());
    let admitted = web.admit_maker(shown);
    let person = match kind {
        Kind::Raw => false,
        Kind::Multipart => filled.page || is_browser(&parts.headers),
        Kind::Urlencoded => true,
    };
    match person {
        true => for_person(&web, &parts, filled, client, (admitted, taken.held)).await,
        false => {
            admitted?;
            for_program(&web, &parts.headers, filled, client, taken.held).await
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

async fn for_program(
    web: &Web,
    headers: &HeaderMap,
    filled: Filled,
    client: Option<IpAddr>,
    held: Held,
) -> Answer {
    let mut new = new_paste(filled, client);
    new.owner = owner(headers)?;
    new.idempotency_key = key(headers)?.or(new.idempotency_key);
    let created = make(web, new, held).await?;
    let mut response = answers::plain(format!("{}/{}\n", web.base_url, created.code));
    *response.status_mut() = StatusCode::CREATED;
    describe(web, &created, &mut response);
    Ok(response)
}

async fn for_person(
    web: &Web,
    parts: &Parts,
    filled: Filled,
    client: Option<IpAddr>,
    (admitted, held): (Result<(), Failure>, Held),
) -> Answer {
    web.cookies.own_form(&parts.headers, &web.base_url)?;
    let content = filled.content.clone();
    let typed = typed(&filled);
    let made = match admitted {
        Ok(()) => make_for_person(web, parts, filled, client, held).await,
        refused => refused.and(Err(Failure::Private)),
    };
    match made {
        Ok(response) => Ok(response),
        Err(failure) => Ok(form_again(web, &failure, typed, &content)),
    }
}

async fn make_for_person(
    web: &Web,
    parts: &Parts,
    filled: Filled,
    client: Option<IpAddr>,
    held: Held,
) -> Answer {
    let remember = filled.remember;
    let owner = match remember {
        true => Some(owner_to_remember(web, &parts.headers).await?),
        // Not listed, even if the browser has an owner: an owner links a user's pastes to each other.
        false => None,
    };
    let mut new = new_paste(filled, client);
    new.owner = owner.clone();
    let created = make(web, new, held).await?;
    let mut response = answers::go_to(headers::text(&format!("/{}", created.code)));
    let map = response.headers_mut();
    map.append(header::SET_COOKIE, web.cookies.remember_made(&created.code, &created.delete_token));
    if let Some(owner) = owner {
        map.append(header::SET_COOKIE, web.cookies.remember_owner(&owner));
    }
    Ok(response)
}

/// Returns the owner that the browser has, or a new one. Ignores a cookie that another database or
/// another program on this host wrote.
async fn owner_to_remember(web: &Web, headers: &HeaderMap) -> Result<OwnerToken, Failure> {
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
pub async fn make(web: &Web, new: NewPaste, held: Held) -> Result<Created, Failure> {
    let pastes = web.pastes.clone();
    Failure::undisturbed(async move {
        let created = pastes.create(new).await;
        drop(held);
        created
    })
    .await
}

/// `Idempotency-Key`
pub fn key(headers: &HeaderMap) -> Result<Option<String>, Failure> {
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
    map.insert(header::LOCATION, headers::text(&format!("{}/{}", web.base_url, created.code)));
    map.insert(header::CACHE_CONTROL, NO_STORE);
    map.insert(DELETE_TOKEN, headers::text(&created.delete_token));
    map.insert(EXPIRES_AT, headers::text(&created.expires_at.to_string()));
    if created.replayed {
        map.insert(REPLAYED, HeaderValue::from_static("true"));
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
fn form_again(web: &Web, failure: &Failure, mut typed: Typed, content: &Bytes) -> Response {
    failure.log();
    let field = match failure {
        Failure::Create(
            CreateError::Empty | CreateError::TooLarge { .. } | CreateError::Banned,
        ) => Some(Field::Content),
        Failure::Create(CreateError::BadAlias | CreateError::AliasTaken(_)) => Some(Field::Alias),
        Failure::Create(CreateError::BadExpiry { .. }) => Some(Field::Expires),
        Failure::Create(CreateError::BadLanguage(_)) => Some(Field::Language),
        Failure::Private | Failure::WrongToken => Some(Field::Token),
        _ => None,
    };
    let told = failure.problem();
    typed.content = highlight::text(content).unwrap_or_default().to_owned();
    let error = FormError { field, message: told.detail.into_owned() };
    let page = view::create(web.pastes.settings(), Some(typed), Some(error));
    let mut response = html(page.into(), NO_STORE);
    *response.status_mut() = told.status;
    if let Some(after) = told.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, headers::seconds_up(after));
    }
    response
}
