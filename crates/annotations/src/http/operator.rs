//! For operators: re-indexing.
//!
//! # Invariants
//! - Without an operator token in the settings these routes do not exist.
//! - The token is compared in constant time, and guesses are rate-limited like other requests.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use jiff::Timestamp;
use leasehold_http::problems::CommonProblem;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::errors::Failure;
use super::web::{HandlerResult, Shared, Web, answer, bearer, segment};
use crate::error::Refused;
use crate::id::AnnotationId;
use crate::reindex::{Progress, What};

/// What to compare with the index. One of the first six.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReindexRequest {
    #[serde(default)]
    #[schema(max_length = 30)]
    user: Option<String>,
    #[serde(default)]
    #[schema(max_length = 40)]
    group: Option<String>,
    #[serde(default)]
    #[schema(max_length = 2000)]
    document: Option<String>,
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    since: Option<Timestamp>,
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    until: Option<Timestamp>,
    #[serde(default)]
    #[schema(max_items = 1000)]
    ids: Option<Vec<String>>,
    #[serde(default)]
    all: bool,
    /// Lower runs first; jobs of saves have 1.
    #[serde(default)]
    priority: Option<i32>,
    /// Also writes notes that are equal.
    #[serde(default)]
    force: bool,
    /// Only counts.
    #[serde(default)]
    dry_run: bool,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReindexProgress {
    /// Absent for a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    tag: String,
    /// Notes that the re-index covers. Absent before they are counted, and from a million on.
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<i64>,
    /// Notes that were handled so far.
    rows: i64,
    /// Their jobs that are not completed.
    waiting: i64,
    /// All notes were handled.
    finished: bool,
    cancelled: bool,
}

impl From<Progress> for ReindexProgress {
    fn from(progress: Progress) -> Self {
        let Progress { id, tag, total, rows, waiting, finished, cancelled } = progress;
        Self { id: Some(id.to_string()), tag, total, rows, waiting, finished, cancelled }
    }
}

/// Applies the rate limit, and checks the token.
fn admit(web: &Web, request: &Request) -> Result<(), Failure> {
    web.admit_read(request)?;
    let wanted = web.annotations.settings().operator_token.as_ref().ok_or(Failure::NoRoute)?;
    match bearer(request.headers())? {
        Some(shown) if shown.is(wanted) => Ok(()),
        Some(_) => Err(CommonProblem::WrongToken.into()),
        None => Err(CommonProblem::NoToken.into()),
    }
}

fn what(order: &ReindexRequest) -> Result<What, Failure> {
    let mut meant = Vec::new();
    let bad = |name: &str| Failure::malformed(format!("{name} is not an id."));
    if let Some(name) = &order.user {
        crate::accounts::check_name(name)?;
        meant.push(What::User(name.clone()));
    }
    if let Some(group) = &order.group {
        let fits = group == crate::WORLD || group.bytes().all(|byte| byte.is_ascii_alphanumeric());
        meant.push(fits.then(|| What::Group(group.clone())).ok_or_else(|| bad("group"))?);
    }
    if let Some(url) = &order.document {
        meant.push(What::Document(url.clone()));
    }
    if order.since.is_some() || order.until.is_some() {
        meant.push(What::Time { since: order.since, until: order.until });
    }
    if let Some(ids) = &order.ids {
        let ids: Result<Vec<AnnotationId>, _> = ids.iter().map(|id| id.parse()).collect();
        meant.push(What::Ids(ids.map_err(|_| bad("ids"))?));
    }
    if order.all {
        meant.push(What::All);
    }
    match (meant.pop(), meant.is_empty()) {
        (Some(what), true) => Ok(what),
        _ => Err(Failure::malformed(
            "Name one of user, group, document, since and until, ids, or all.",
        )),
    }
}

/// Compares notes with the index again, at a lower priority than live saves.
#[utoipa::path(post, path = "/api/v1/reindex", tag = "operator", operation_id = "reindex", request_body = ReindexRequest,
    responses((status = 202, description = "Started", body = ReindexProgress), (status = 200, description = "The count of a dry run", body = ReindexProgress)),
    security(("operator" = [])))]
pub async fn reindex(State(web): State<Shared>, request: Request) -> HandlerResult {
    admit(&web, &request)?;
    let (parts, body) = request.into_parts();
    let order: ReindexRequest = web.json(&parts, body).await?;
    let what = what(&order)?;
    if order.dry_run {
        let rows = web.annotations.count_reindex(&what).await?;
        let tag = what.tag().to_owned();
        let counted = ReindexProgress {
            id: None,
            tag,
            total: Some(rows),
            rows: 0,
            waiting: 0,
            finished: false,
            cancelled: false,
        };
        return answer(StatusCode::OK, &counted);
    }
    let id = web.annotations.reindex(&what, order.priority, order.force).await?;
    answer(StatusCode::ACCEPTED, &ReindexProgress::from(web.annotations.progress(id).await?))
}

fn number(request: &Request) -> Result<i64, Failure> {
    let text = segment(request, 3)?;
    text.parse().map_err(|_| Failure::Refused(Refused::NoSuchReindex))
}

/// Returns the progress of a re-index.
#[utoipa::path(get, path = "/api/v1/reindex/{id}", tag = "operator", operation_id = "reindexProgress",
    params(("id" = String, Path, pattern = "^[1-9][0-9]{0,17}$")),
    responses((status = 200, description = "The progress", body = ReindexProgress)), security(("operator" = [])))]
pub async fn progress(State(web): State<Shared>, request: Request) -> HandlerResult {
    admit(&web, &request)?;
    let id = number(&request)?;
    answer(StatusCode::OK, &ReindexProgress::from(web.annotations.progress(id).await?))
}

/// Stops a re-index; one that is over stays as it is.
#[utoipa::path(delete, path = "/api/v1/reindex/{id}", tag = "operator", operation_id = "cancelReindex",
    params(("id" = String, Path, pattern = "^[1-9][0-9]{0,17}$")),
    responses((status = 200, description = "Stopped, or finished before", body = ReindexProgress)), security(("operator" = [])))]
pub async fn cancel(State(web): State<Shared>, request: Request) -> HandlerResult {
    admit(&web, &request)?;
    let id = number(&request)?;
    web.annotations.cancel_bulk(id).await?;
    answer(StatusCode::OK, &ReindexProgress::from(web.annotations.progress(id).await?))
}
