//! Groups over HTTP.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::errors::Failure;
use super::web::{HandlerResult, Shared, answer, empty, segment};
use crate::error::Refused;
use crate::model::Group;

#[derive(Serialize, ToSchema)]
pub struct GroupJson {
    id: String,
    name: String,
    open: bool,
    /// You own it.
    own: bool,
}

#[derive(Serialize, ToSchema)]
pub struct Groups {
    groups: Vec<GroupJson>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewGroup {
    #[schema(min_length = 1, max_length = 80)]
    name: String,
    /// Any user who knows its id may join.
    #[serde(default)]
    open: bool,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMember {
    /// The user to invite; absent: yourself, into a group that is open or has invited you.
    #[serde(default)]
    #[schema(max_length = 30)]
    name: Option<String>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MoveGroup {
    /// The group that takes the notes.
    #[schema(max_length = 40)]
    to: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HandOver {
    /// The member who owns the group from now on.
    #[schema(max_length = 30)]
    name: String,
}

impl From<Group> for GroupJson {
    fn from(Group { id, name, open, own }: Group) -> Self {
        Self { id, name, open, own }
    }
}

/// Returns the group in a path. A text that is not an id is not a group either.
pub fn group_in(request: &Request) -> Result<String, Failure> {
    let id = segment(request, 2)?;
    let fits = (8..=22).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if fits { Ok(id) } else { Err(Failure::Refused(Refused::NoSuchGroup)) }
}

/// Lists your groups.
#[utoipa::path(get, path = "/api/groups", tag = "groups", operation_id = "listGroups",
    responses((status = 200, description = "The public group first", body = Groups)), security((), ("token" = [])))]
pub async fn groups(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_read(&request)?;
    let viewer = web.viewer(request.headers()).await?;
    let groups = web.annotations.groups(viewer.id()).await?;
    answer(StatusCode::OK, &Groups { groups: groups.into_iter().map(GroupJson::from).collect() })
}

/// Creates a group.
#[utoipa::path(post, path = "/api/groups", tag = "groups", operation_id = "makeGroup", request_body = NewGroup,
    responses((status = 201, description = "Created; you are a member", body = GroupJson)), security(("token" = [])))]
pub async fn make_group(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_save(&request)?;
    let (parts, body) = request.into_parts();
    let author = web.author(&parts.headers).await?;
    let new: NewGroup = web.json(&parts, body).await?;
    let group = web.annotations.make_group(author.id, &new.name, new.open).await?;
    answer(StatusCode::CREATED, &GroupJson::from(group))
}

/// Joins a group that is open or has invited you, or invites a user into your own group.
#[utoipa::path(post, path = "/api/groups/{id}/members", tag = "groups", operation_id = "addMember",
    params(("id" = String, Path, pattern = "^[0-9A-Za-z]{8,22}$")), request_body = NewMember,
    responses((status = 204, description = "You are a member"), (status = 202, description = "Invited; the user decides")),
    security(("token" = [])))]
pub async fn add_member(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_save(&request)?;
    let group = group_in(&request)?;
    let (parts, body) = request.into_parts();
    let author = web.author(&parts.headers).await?;
    let new: NewMember = web.json(&parts, body).await?;
    match &new.name {
        Some(name) if *name != author.name => {
            web.annotations.invite(author.id, &group, possible(name)).await?;
            Ok(empty(StatusCode::ACCEPTED))
        }
        _ => {
            web.annotations.join_group(author.id, &group).await?;
            Ok(empty(StatusCode::NO_CONTENT))
        }
    }
}

/// Returns the name, or an empty one, which no user has, instead of a name that Postgres does not take.
pub fn possible(name: &str) -> &str {
    if name.contains('\0') { "" } else { name }
}

/// Leaves a group. An owner must hand it over first, unless there are no other members.
#[utoipa::path(delete, path = "/api/groups/{id}/members", tag = "groups", operation_id = "leaveGroup",
    params(("id" = String, Path, pattern = "^[0-9A-Za-z]{8,22}$")),
    responses((status = 204, description = "No longer a member")), security(("token" = [])))]
pub async fn leave_group(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_save(&request)?;
    let group = group_in(&request)?;
    let (parts, body) = request.into_parts();
    let author = web.author(&parts.headers).await?;
    // A client that names a member here wants to remove that member; the caller would leave the group
    // instead.
    let why = "This request takes no body: it removes you from the group. To remove another member, send \
               DELETE /api/groups/{id}/members/{name}.";
    web.no_body(&parts, body, why).await?;
    web.annotations.leave_group(author.id, &group).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Removes a member from your own group, or withdraws an invitation. With your own name: leaves.
#[utoipa::path(delete, path = "/api/groups/{id}/members/{name}", tag = "groups", operation_id = "removeMember",
    params(("id" = String, Path, pattern = "^[0-9A-Za-z]{8,22}$"), ("name" = String, Path, pattern = "^[a-z0-9][a-z0-9_.-]{1,29}$")),
    responses((status = 204, description = "No longer a member")), security(("token" = [])))]
pub async fn remove_member(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_save(&request)?;
    let (group, name) = (group_in(&request)?, segment(&request, 4)?);
    let author = web.author(request.headers()).await?;
    match name == author.name {
        true => web.annotations.leave_group(author.id, &group).await?,
        false => web.annotations.remove_member(Some(author.id), &group, &name).await?,
    }
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Makes a member the owner of your group.
#[utoipa::path(post, path = "/api/groups/{id}/owner", tag = "groups", operation_id = "handOver",
    params(("id" = String, Path, pattern = "^[0-9A-Za-z]{8,22}$")), request_body = HandOver,
    responses((status = 204, description = "The member owns the group")), security(("token" = [])))]
pub async fn hand_over(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_save(&request)?;
    let group = group_in(&request)?;
    let (parts, body) = request.into_parts();
    let author = web.author(&parts.headers).await?;
    let new: HandOver = web.json(&parts, body).await?;
    web.annotations.hand_over(Some(author.id), &group, possible(&new.name)).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Moves all notes of a group into another; you own both.
#[utoipa::path(post, path = "/api/groups/{id}/move", tag = "groups", operation_id = "moveGroup",
    params(("id" = String, Path, pattern = "^[0-9A-Za-z]{8,22}$")), request_body = MoveGroup,
    responses((status = 204, description = "The members of the other group read the notes from now on")), security(("token" = [])))]
pub async fn move_group(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_save(&request)?;
    let group = group_in(&request)?;
    let (parts, body) = request.into_parts();
    let author = web.author(&parts.headers).await?;
    let order: MoveGroup = web.json(&parts, body).await?;
    if order.to.contains('\0') {
        return Err(Failure::Refused(Refused::NoSuchGroup));
    }
    web.annotations.move_group(Some(author.id), &group, &order.to).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}
