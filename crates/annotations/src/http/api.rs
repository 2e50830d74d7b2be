//! Notes over HTTP: create, read, change, delete, search.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use leasehold_http::body::hold_memory;
use leasehold_http::headers::{IDEMPOTENCY_KEY, IDEMPOTENT_REPLAYED, header_value};
use leasehold_http::problems::{CommonProblem, IntoProblem};
use leasehold_http::request::limit;
use serde_json::value::{RawValue, to_raw_value};

use super::errors::Failure;
use super::precondition::{etag, if_match};
use super::web::{HandlerResult, Shared, answer, empty, given, id_in, query};
use super::wire::{AnnotationJson, ChangeAnnotation, CountsJson, CreateAnnotation, SearchAnswer};
use crate::id::AnnotationId;
use crate::model::{Annotation, Cursor, Filter, Found, Kind, Page};
use crate::save::{LONGEST_TAG, canonical};
use crate::search::{LARGEST_ANSWER, LARGEST_PAGE};

/// The state of the index while the response was made.
pub const INDEX: HeaderName = HeaderName::from_static("x-index");
const PAGE: usize = 50;
/// The longest query, in characters.
const LONGEST_QUERY: usize = 200;

/// Creates a note.
#[utoipa::path(post, path = "/api/annotations", tag = "annotations", operation_id = "createAnnotation",
    request_body = CreateAnnotation,
    params(("Idempotency-Key" = Option<String>, Header, description = "A repeated request with this key returns the first note and `Idempotent-Replayed: true`; one with another request is refused.", min_length = 1, max_length = 200, pattern = "^[!-~]([ -~]{0,198}[!-~])?$")),
    responses((status = 201, description = "Created, now or by an earlier request with this key", body = AnnotationJson, headers(("Location" = String)))),
    security(("token" = [])))]
pub async fn create(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_save(&request)?;
    let (parts, body) = request.into_parts();
    let author = web.note_author(&parts.headers).await?;
    let new: CreateAnnotation = web.json(&parts, body).await?;
    let new = new.draft(idempotency_key(&parts.headers)?)?;
    let viewer = author.id;
    // Runs to the end even if the client disconnects, so that the direct write is not lost.
    let annotations = web.annotations.clone();
    let saved = Failure::run_to_end(async move { annotations.create(&author, new).await }).await?;
    let json = AnnotationJson::of(&web, &saved.annotation, Some(viewer));
    let mut response = answer(StatusCode::CREATED, &json)?;
    let map = response.headers_mut();
    let place = format!("{}/api/annotations/{}", web.base_url, saved.annotation.id);
    map.insert(header::LOCATION, header_value(&place));
    map.insert(header::ETAG, etag(saved.annotation.version));
    if saved.replayed {
        map.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    }
    Ok(response)
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Failure> {
    let Some(value) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    match value.to_str().map(str::trim) {
        Ok(key) if (1..=200).contains(&key.len()) => Ok(Some(key.to_owned())),
        _ => Err(Failure::malformed("Idempotency-Key must have 1 to 200 printable characters.")),
    }
}

/// Reads a note.
#[utoipa::path(get, path = "/api/annotations/{key}", tag = "annotations", operation_id = "readAnnotation",
    params(("key" = String, Path, pattern = "^[0-9A-Za-z]{22}$")),
    responses((status = 200, description = "The note", body = AnnotationJson, headers(("ETag" = String, description = "Its version, for If-Match")))),
    security((), ("token" = [])))]
pub async fn read(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_read(&request)?;
    let id = id_in(&request, 2)?;
    let viewer = web.viewer(request.headers()).await?.id();
    let row = web.annotations.read(viewer, &id).await?;
    shown(&web, &row, viewer)
}

/// Returns a note, with its version as `ETag`.
fn shown(web: &Shared, row: &Annotation, viewer: Option<i64>) -> HandlerResult {
    let mut response = answer(StatusCode::OK, &AnnotationJson::of(web, row, viewer))?;
    response.headers_mut().insert(header::ETAG, etag(row.version));
    Ok(response)
}

/// Changes a note of your own.
#[utoipa::path(patch, path = "/api/annotations/{key}", tag = "annotations", operation_id = "changeAnnotation",
    params(("key" = String, Path, pattern = "^[0-9A-Za-z]{22}$"),
        ("If-Match" = Option<String>, Header, description = "The ETag that you have seen. If the note was changed since, nothing is done.", pattern = "^(\\*|\"[0-9]{1,18}\")$")),
    request_body = ChangeAnnotation,
    responses((status = 200, description = "The note after the change", body = AnnotationJson, headers(("ETag" = String, description = "Its version, for If-Match")))),
    security(("token" = [])))]
pub async fn change(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_save(&request)?;
    let id = id_in(&request, 2)?;
    let (parts, body) = request.into_parts();
    let author = web.note_author(&parts.headers).await?;
    let change: ChangeAnnotation = web.json(&parts, body).await?;
    let change = change.change(if_match(&parts.headers)?)?;
    let viewer = author.id;
    let annotations = web.annotations.clone();
    let row =
        Failure::run_to_end(async move { annotations.update(&author, &id, change).await }).await?;
    shown(&web, &row, Some(viewer))
}

/// Deletes a note of your own. Replies stay.
#[utoipa::path(delete, path = "/api/annotations/{key}", tag = "annotations", operation_id = "deleteAnnotation",
    params(("key" = String, Path, pattern = "^[0-9A-Za-z]{22}$"),
        ("If-Match" = Option<String>, Header, description = "The ETag that you have seen. If the note was changed since, nothing is done.", pattern = "^(\\*|\"[0-9]{1,18}\")$")),
    responses((status = 204, description = "Deleted")),
    security(("token" = [])))]
pub async fn delete(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_save(&request)?;
    let id = id_in(&request, 2)?;
    let author = web.note_author(request.headers()).await?;
    let expected = if_match(request.headers())?;
    let annotations = web.annotations.clone();
    Failure::run_to_end(async move { annotations.delete_if(&author, &id, expected).await }).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Finds notes, the most recently changed first.
#[utoipa::path(get, path = "/api/search", tag = "annotations", operation_id = "search",
    params(
        ("url" = Option<String>, Query, description = "The address of the page, at most 2000 bytes"),
        ("user" = Option<String>, Query, description = "The name of the author", max_length = 30),
        ("group" = Option<String>, Query, description = "The id of the group", max_length = 40),
        ("tag" = Option<String>, Query, max_length = 64),
        ("kind" = Option<String>, Query, description = "annotation, page_note or reply", pattern = "^(annotation|page_note|reply)$"),
        ("references" = Option<String>, Query, description = "Replies to this note", pattern = "^[0-9A-Za-z]{22}$"),
        ("q" = Option<String>, Query, description = "Words in quote, text and tags", max_length = 200),
        ("limit" = Option<u32>, Query, description = "Default: 50", minimum = 1, maximum = 200),
        ("cursor" = Option<String>, Query, description = "`next` of the previous response", pattern = "^[0-9a-f]{86}$")),
    responses((status = 200, description = "One page of notes", body = SearchAnswer, headers(("X-Index" = String, description = "ok, behind or down")))),
    security((), ("token" = [])))]
pub async fn search(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_read(&request)?;
    let filter = filter_in(&request)?;
    let limit = limit(&request, PAGE, LARGEST_PAGE).map_err(Failure::malformed)?;
    let cursor = web.cursor(&request)?;
    let held = web.room(&request).await?;
    let viewer = web.viewer(request.headers()).await?.id();
    // Counts before the search: a note that is saved in between makes the result larger, not smaller
    // than the count.
    let counts = match (&filter.url, &cursor) {
        (Some(url), None) => Some(web.annotations.counts(viewer, url).await?),
        _ => None,
    };
    let page = Page { cursor: cursor.as_ref(), limit, bytes: LARGEST_ANSWER, preview: None };
    let found = web.annotations.search_counted(viewer, &filter, page, counts.as_ref()).await?;
    let (rows, next) = written(&web, &found, viewer)?;
    let (next, counts) = (next.map(|next| web.sealed(&next)), counts.map(CountsJson::from));
    let index = found.index.as_str();
    let mut response = answer(StatusCode::OK, &SearchAnswer { rows, next, index, counts })?;
    response.headers_mut().insert(INDEX, HeaderValue::from_static(index));
    Ok(hold_memory(response, held))
}

/// Serializes what was found. JSON may need six bytes for a character, so a note that would make the
/// response too large is left to the next page.
fn written(
    web: &Shared,
    found: &Found,
    viewer: Option<i64>,
) -> Result<(Vec<Box<RawValue>>, Option<Cursor>), Failure> {
    let (mut rows, mut bytes) = (Vec::new(), 0);
    let mut last = None;
    for row in &found.rows {
        let json = to_raw_value(&AnnotationJson::of(web, row, viewer));
        let json = json.map_err(|_| CommonProblem::Defect)?;
        bytes += json.get().len();
        if bytes > LARGEST_ANSWER && last.is_some() {
            return Ok((rows, last));
        }
        rows.push(json);
        last = Some(found.after(row));
    }
    Ok((rows, found.next.clone()))
}

/// Returns the filter of a request.
pub fn filter_in(request: &Request) -> Result<Filter, Failure> {
    let value = |name: &str, most: usize| match query(request, name) {
        Some(text) if text.chars().count() > most || text.contains('\0') => {
            Err(Failure::malformed(format!("{name} may have {most} characters, and no NUL.")))
        }
        text => Ok(text),
    };
    let url = match query(request, "url") {
        Some(url) => {
            Some(canonical(&url).map_err(|error| Failure::malformed(format!("url: {error}.")))?)
        }
        None => None,
    };
    let kind = match given(request, "kind") {
        Some(word) => Some(
            Kind::of(&word)
                .ok_or_else(|| Failure::malformed("kind must be annotation, page_note or reply."))?
                .as_str(),
        ),
        None => None,
    };
    let references = match given(request, "references") {
        Some(text) => Some(
            text.parse::<AnnotationId>()
                .map_err(|_| Failure::malformed("references must be the key of a note."))?,
        ),
        None => None,
    };
    Ok(Filter {
        url,
        user: value("user", 30)?,
        group: value("group", 40)?,
        tag: value("tag", LONGEST_TAG)?,
        kind,
        references,
        q: value("q", LONGEST_QUERY)?,
    })
}
