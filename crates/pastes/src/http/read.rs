//! Reading: the page, the bytes, the download, the QR code; and pastes that can be read once.
//!
//! # Invariants
//! - Every handler asks the service first; nothing here remembers that a paste was live.
//! - The bytes of a paste never become active: they are plain text in a sandbox, or a download.
//! - A GET does not burn. Only a POST does, so that link previews destroy nothing.

use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use leasehold_http::body::{MemoryPermit, hold_memory};
use leasehold_http::problems::{CommonProblem, IntoProblem};
use leasehold_http::request::{accepts, is_browser};
use leasehold_http::responses;
use uuid::Uuid;

use super::form;
use super::headers::{self, NO_STORE, RAW_CSP, TEXT};
use super::problems::{HandlerResult, PasteProblem};
use super::view;
use super::web::{Shared, Web, code_in};
use crate::code::ShortCode;
use crate::highlight;
use crate::model::{Paste, Reading};

/// `GET /{code}`
pub async fn page(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_read(&request)?;
    let (code, client) = (code_in(&request, 0)?, web.client(&request));
    let (Parts { headers: asked, .. }, _) = request.into_parts();
    let reading = web.pastes.read(&code).await?;
    if wants_text(&asked) {
        let paste = ready(reading, &code)?;
        let mut response = bytes_of(&web, client, &paste, &asked, false).await?;
        response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
        return Ok(response);
    }
    // The token is trusted only if it belongs to exactly the paste that is shown.
    let made = |paste| web.made(&asked, &code, paste);
    let (mut response, just_made) = match reading {
        Reading::Ready(paste) => {
            let permit = web.reserve(client, view::largest_page(paste.content.len())).await?;
            let page = web.rendered.page(&web.base_url, &paste, client).await?;
            let (response, just_made) = match made(paste.paste_id) {
                // Wraps the page that all readers get, so that the author's view costs no second
                // rendering.
                Some(token) => {
                    let page = view::just_made(&web.base_url, &paste, &page, token);
                    (html(page.into(), NO_STORE), true)
                }
                None => (html(page, headers::cache_control(paste.life)), false),
            };
            (hold_memory(response, permit), just_made)
        }
        Reading::Burns { paste_id, language, size, expires_at } => {
            let made = made(paste_id);
            let just_made = made.is_some();
            let page = view::burn_confirm(
                &web.base_url,
                &code,
                paste_id,
                language,
                size,
                expires_at,
                made,
            );
            (html(page.into(), NO_STORE), just_made)
        }
        Reading::Uploading { retry_after, .. } if !is_browser(&asked) => {
            return Err(PasteProblem::Uploading { retry_after });
        }
        Reading::Uploading { paste_id, retry_after } => {
            let made = made(paste_id);
            let mut response = html(view::waiting(&web.base_url, &code, made).into(), NO_STORE);
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, headers::whole_seconds(retry_after).into());
            // Keep the token's cookie until the paste itself is shown: this page reloads by itself.
            return Ok(response);
        }
    };
    if just_made {
        response.headers_mut().append(header::SET_COOKIE, web.cookies.forget_made(&code));
    }
    Ok(response)
}

/// `GET /raw/{code}`
pub async fn raw(State(web): State<Shared>, request: Request) -> HandlerResult {
    whole(&web, request, false).await
}

/// `GET /download/{code}`
pub async fn download(State(web): State<Shared>, request: Request) -> HandlerResult {
    whole(&web, request, true).await
}

async fn whole(web: &Web, request: Request, download: bool) -> HandlerResult {
    web.admit_read(&request)?;
    let (code, client) = (code_in(&request, 1)?, web.client(&request));
    let (Parts { headers: asked, .. }, _) = request.into_parts();
    let paste = ready(web.pastes.read(&code).await?, &code)?;
    bytes_of(web, client, &paste, &asked, download).await
}

/// `GET /qr/{code}`
pub async fn qr(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_read(&request)?;
    let code = code_in(&request, 1)?;
    // Without this check, the QR code would be a second way to probe which codes exist.
    let cache_control = match web.pastes.read(&code).await? {
        Reading::Ready(paste) => headers::cache_control(paste.life),
        Reading::Uploading { .. } | Reading::Burns { .. } => NO_STORE,
    };
    let image = crate::qr::svg(&format!("{}/{code}", web.base_url)).ok_or(CommonProblem::Defect)?;
    let mut response = Response::new(Body::from(image));
    let map = response.headers_mut();
    map.insert(header::CONTENT_TYPE, HeaderValue::from_static("image/svg+xml"));
    map.insert(header::CACHE_CONTROL, cache_control);
    Ok(response)
}

/// `POST /{code}/burn`: the page's buttons, and curl.
pub async fn burn(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_read(&request)?;
    let code = code_in(&request, 0)?;
    web.cookies.own_form(request.headers(), &web.base_url)?;
    let (browser, client) = (is_browser(request.headers()), web.client(&request));
    let (parts, body) = request.into_parts();
    let fields = form::fields(&web, &parts.headers, body, 4096).await?;
    let download = fields.iter().any(|(name, value)| name == "as" && value == "download");
    let largest = |size: usize| view::largest_page(size).max(size);
    let (paste, permit) = burn_now(&web, client, code, form::seen(&fields)?, largest).await?;
    let shown = browser && !download && highlight::text(&paste.content).is_some();
    if !shown {
        return Ok(hold_memory(last_copy(&paste, browser), permit));
    }
    let shown = Arc::clone(&paste);
    let render = move |colours| view::burnt(&shown, colours);
    let response = match web.rendered.work(client, render).await {
        Ok(Some(page)) => html(page.into(), NO_STORE),
        // It is burnt: even if it is too large for a page, or the page cannot be rendered, the reader
        // must get the bytes.
        Ok(None) | Err(_) => last_copy(&paste, true),
    };
    Ok(hold_memory(response, permit))
}

/// Burns a paste even if the reader disconnects: an interrupted burn could lose the paste. With `only`
/// it burns that very paste, or none. Reserves memory for the response first, because a paste that is
/// burnt must be sent.
pub async fn burn_now(
    web: &Web,
    client: Option<IpAddr>,
    code: ShortCode,
    only: Option<Uuid>,
    largest: impl Fn(usize) -> usize,
) -> Result<(Arc<Paste>, MemoryPermit), PasteProblem> {
    let (paste, size) = match web.pastes.read(&code).await? {
        Reading::Burns { paste_id, size, .. } => (paste_id, size),
        // The paste exists and does not burn; a reader can find that out anyway.
        Reading::Ready(_) => return Err(PasteProblem::DoesNotBurn(code)),
        Reading::Uploading { .. } => return Err(PasteProblem::NOT_FOUND),
    };
    if only.is_some_and(|only| only != paste) {
        return Err(PasteProblem::NOT_FOUND);
    }
    let permit = web.reserve(client, largest(size)).await?;
    let pastes = web.pastes.clone();
    let burning = async move { pastes.burn(&code, Some(paste)).await };
    Ok((PasteProblem::run_to_end(burning).await?, permit))
}

/// Returns the paste if its bytes can be served.
pub fn ready(reading: Reading, code: &ShortCode) -> Result<Arc<Paste>, PasteProblem> {
    match reading {
        Reading::Ready(paste) => Ok(paste),
        Reading::Uploading { retry_after, .. } => Err(PasteProblem::Uploading { retry_after }),
        Reading::Burns { .. } => Err(PasteProblem::Burns(code.clone())),
    }
}

pub fn html(page: Bytes, cache_control: HeaderValue) -> Response {
    let mut response = responses::page(page, cache_control);
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("accept"));
    response
}

/// Returns true if the client asks for plain text by name and not for a page.
fn wants_text(headers: &HeaderMap) -> bool {
    !is_browser(headers) && accepts(headers, "text/plain")
}

/// Returns the bytes as they are, or 304 if the client already has them.
async fn bytes_of(
    web: &Web,
    client: Option<IpAddr>,
    paste: &Paste,
    asked: &HeaderMap,
    download: bool,
) -> HandlerResult {
    let tag = entity_tag(paste);
    let known = asked
        .get(header::IF_NONE_MATCH)
        .is_some_and(|known| knows(known.as_bytes(), tag.as_bytes()));
    let permit = web.reserve(client, if known { 0 } else { paste.content.len() }).await?;
    let mut response = Response::new(match known {
        true => Body::empty(),
        false => Body::from(paste.content.clone()),
    });
    if known {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    }
    let map = response.headers_mut();
    map.reserve(12);
    if download {
        attach(map, paste);
    } else {
        map.insert(header::CONTENT_TYPE, TEXT);
    }
    map.insert(header::CACHE_CONTROL, headers::cache_control(paste.life));
    map.insert(header::ETAG, tag);
    map.insert(header::CONTENT_SECURITY_POLICY, RAW_CSP);
    Ok(hold_memory(response, permit))
}

/// Returns the bytes of a paste that was burnt.
fn last_copy(paste: &Paste, download: bool) -> Response {
    let mut response = Response::new(Body::from(paste.content.clone()));
    let map = response.headers_mut();
    match download {
        true => attach(map, paste),
        false => drop(map.insert(header::CONTENT_TYPE, TEXT)),
    }
    map.insert(header::CACHE_CONTROL, NO_STORE);
    map.insert(header::CONTENT_SECURITY_POLICY, RAW_CSP);
    response
}

/// Marks a download as bytes, also if it is text. Its name is made from the code, which has only plain
/// characters.
fn attach(map: &mut HeaderMap, paste: &Paste) {
    let ending = if highlight::text(&paste.content).is_some() { "txt" } else { "bin" };
    let name = format!("attachment; filename=\"{}.{ending}\"", paste.code);
    map.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    map.insert(header::CONTENT_DISPOSITION, headers::header_value(&name));
}

/// Returns the ETag. A paste never changes, so its creation time identifies its bytes. The tag contains
/// nothing of the content: that would reveal whether two pastes have the same bytes.
fn entity_tag(paste: &Paste) -> HeaderValue {
    let mut tag = String::with_capacity(20);
    // Writing to a string cannot fail.
    let _ = write!(tag, "\"{:x}\"", paste.created_at.as_microsecond());
    HeaderValue::from_maybe_shared(Bytes::from(tag)).unwrap_or(HeaderValue::from_static("\"\""))
}

/// `If-None-Match` is `*` or a list of tags, compared weakly.
fn knows(known: &[u8], tag: &[u8]) -> bool {
    known
        .split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii)
        .any(|one| one == b"*" || one.strip_prefix(b"W/").unwrap_or(one) == tag)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn client_that_accepts_only_text_wants_text() {
        let accepting =
            |value| HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(value))]);
        assert!(wants_text(&accepting("text/plain")));
        assert!(!wants_text(&accepting("*/*")) && !wants_text(&accepting("text/html, text/plain")));
    }

    #[test]
    fn if_none_match_finds_the_tag_in_a_list() {
        for known in ["\"a\"", "W/\"a\"", "\"b\", \"a\"", "*", " \"b\" ,W/\"a\" "] {
            assert!(knows(known.as_bytes(), b"\"a\""), "{known}");
        }
        for unknown in ["", "a", "\"b\"", "\"ab\"", "W/"] {
            assert!(!knows(unknown.as_bytes(), b"\"a\""), "{unknown}");
        }
    }
}
