//! Invitations into groups over HTTP: list, decline, and block a user's invitations. A user accepts one
//! by joining: `POST /api/groups/{id}/members`.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use leasehold_http::problems::CommonProblem;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::errors::Failure;
use super::groups::{group_in, possible};
use super::web::{HandlerResult, Shared, answer, empty, segment};
use crate::model::{Invitation, User};

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct InvitationJson {
    group: String,
    group_name: String,
    /// The user who invites you.
    by: String,
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
}

#[derive(Serialize, ToSchema)]
pub struct Invitations {
    invitations: Vec<InvitationJson>,
}

#[derive(Serialize, ToSchema)]
pub struct Blocks {
    /// Names.
    blocks: Vec<String>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewBlock {
    /// The user whose invitations you do not want.
    #[schema(max_length = 30)]
    name: String,
}

impl From<Invitation> for InvitationJson {
    fn from(Invitation { group, group_name, by, at }: Invitation) -> Self {
        Self { group, group_name, by, at }
    }
}

/// Returns the user who reads their own invitations or blocks.
async fn reader(web: &Shared, headers: &HeaderMap) -> Result<User, Failure> {
    Ok(web.viewer(headers).await?.user.ok_or(CommonProblem::NoToken)?)
}

/// Lists the groups that invite you, the newest invitation first.
#[utoipa::path(get, path = "/api/invitations", tag = "groups", operation_id = "listInvitations",
    responses((status = 200, description = "At most 100", body = Invitations)), security(("token" = [])))]
pub async fn invitations(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_read(&request)?;
    let user = reader(&web, request.headers()).await?;
    let invitations = web.annotations.invitations(user.id).await?;
    let invitations = invitations.into_iter().map(InvitationJson::from).collect();
    answer(StatusCode::OK, &Invitations { invitations })
}

/// Declines an invitation. The group cannot invite you again; you may still join it.
#[utoipa::path(delete, path = "/api/invitations/{id}", tag = "groups", operation_id = "declineInvitation",
    params(("id" = String, Path, description = "The id of the group", pattern = "^[0-9A-Za-z]{8,22}$")),
    responses((status = 204, description = "Declined")), security(("token" = [])))]
pub async fn decline(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_save(&request)?;
    let group = group_in(&request)?;
    let author = web.author(request.headers()).await?;
    web.annotations.decline(author.id, &group).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Lists the users whose invitations you do not get.
#[utoipa::path(get, path = "/api/blocks", tag = "groups", operation_id = "listBlocks",
    responses((status = 200, description = "By name, at most 1000", body = Blocks)), security(("token" = [])))]
pub async fn blocks(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_read(&request)?;
    let user = reader(&web, request.headers()).await?;
    answer(StatusCode::OK, &Blocks { blocks: web.annotations.blocked(user.id).await? })
}

/// Blocks a user: deletes their invitations, and stops new ones.
#[utoipa::path(post, path = "/api/blocks", tag = "groups", operation_id = "blockUser", request_body = NewBlock,
    responses((status = 204, description = "Blocked")), security(("token" = [])))]
pub async fn block(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_save(&request)?;
    let (parts, body) = request.into_parts();
    let author = web.author(&parts.headers).await?;
    let new: NewBlock = web.json(&parts, body).await?;
    web.annotations.block_user(author.id, possible(&new.name)).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Lets a user invite you again.
#[utoipa::path(delete, path = "/api/blocks/{name}", tag = "groups", operation_id = "unblockUser",
    params(("name" = String, Path, pattern = "^[a-z0-9][a-z0-9_.-]{1,29}$")),
    responses((status = 204, description = "Not blocked")), security(("token" = [])))]
pub async fn unblock(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_save(&request)?;
    let name = segment(&request, 2)?;
    let author = web.author(request.headers()).await?;
    web.annotations.unblock_user(author.id, &name).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}
