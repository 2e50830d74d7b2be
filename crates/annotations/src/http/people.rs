//! People and groups over HTTP.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::errors::Failure;
use super::web::{Answer, Shared, answer, empty, segment};
use crate::error::Refused;
use crate::model::{Group, User};

/// Who is asking.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Profile {
    /// Absent: nobody in particular.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<Person>,
    /// Absent for pages of other origins.
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Vec<GroupJson>>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Person {
    name: String,
    display_name: String,
}

#[derive(Serialize, ToSchema)]
pub struct GroupJson {
    id: String,
    name: String,
    open: bool,
    /// You made it.
    own: bool,
}

#[derive(Serialize, ToSchema)]
pub struct Groups {
    groups: Vec<GroupJson>,
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewUser {
    #[schema(pattern = "^[a-z0-9][a-z0-9_.-]{1,29}$")]
    name: String,
    #[serde(default)]
    #[schema(max_length = 80)]
    display_name: String,
}

#[derive(Serialize, ToSchema)]
pub struct SignedUp {
    name: String,
    /// Shown only now: send it as `Authorization: Bearer …`.
    token: String,
}

#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ChangeUser {
    #[serde(default)]
    #[schema(pattern = "^[a-z0-9][a-z0-9_.-]{1,29}$")]
    name: Option<String>,
    #[serde(default)]
    #[schema(max_length = 80)]
    display_name: Option<String>,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewGroup {
    #[schema(min_length = 1, max_length = 80)]
    name: String,
    /// Whoever knows its id may join.
    #[serde(default)]
    open: bool,
}

#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMember {
    /// Of the person who is let in; absent: yourself, into an open group.
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

impl From<User> for Person {
    fn from(user: User) -> Self {
        Self { name: user.name, display_name: user.display_name }
    }
}

impl From<Group> for GroupJson {
    fn from(Group { id, name, open, own }: Group) -> Self {
        Self { id, name, open, own }
    }
}

/// Tells who is asking, and what they may read.
///
/// Pages of other origins learn who it is, and no more: whoever knows the id of an open group may join it.
#[utoipa::path(get, path = "/api/profile", tag = "people", operation_id = "profile",
    responses((status = 200, description = "You", body = Profile)), security((), ("token" = [])))]
pub async fn profile(State(web): State<Shared>, request: Request) -> Answer {
    web.admit_read(&request)?;
    let viewer = web.viewer(request.headers()).await?;
    let is_elsewhere = web.allowed_origin(request.headers()).is_some();
    let groups = match is_elsewhere {
        true => None,
        false => {
            let groups = web.annotations.groups(viewer.id()).await?;
            Some(groups.into_iter().map(GroupJson::from).collect())
        }
    };
    answer(StatusCode::OK, &Profile { user: viewer.user.map(Person::from), groups })
}

/// Makes an account, where that is allowed.
#[utoipa::path(post, path = "/api/users", tag = "people", operation_id = "signUp", request_body = NewUser,
    responses((status = 201, description = "Welcome", body = SignedUp)))]
pub async fn sign_up(State(web): State<Shared>, request: Request) -> Answer {
    web.admit_save(&request)?;
    if !web.annotations.settings().sign_up {
        return Err(Failure::NoSignUp);
    }
    let (parts, body) = request.into_parts();
    let new: NewUser = web.json(&parts.headers, body).await?;
    let (user, token) = web.annotations.sign_up(&new.name, &new.display_name).await?;
    answer(StatusCode::CREATED, &SignedUp { name: user.name, token: token.as_str().to_owned() })
}

/// Changes one's own name.
#[utoipa::path(patch, path = "/api/users/{name}", tag = "people", operation_id = "changeUser",
    params(("name" = String, Path, pattern = "^[a-z0-9][a-z0-9_.-]{1,29}$")), request_body = ChangeUser,
    responses((status = 200, description = "As it is now", body = Person)), security(("token" = [])))]
pub async fn change_user(State(web): State<Shared>, request: Request) -> Answer {
    web.admit_save(&request)?;
    let name = segment(&request, 2)?;
    let (parts, body) = request.into_parts();
    let author = web.author(&parts.headers).await?;
    own(&author, &name)?;
    let change: ChangeUser = web.json(&parts.headers, body).await?;
    if let Some(display_name) = &change.display_name {
        web.annotations.set_display_name(author.id, display_name).await?;
    }
    if let Some(name) = &change.name {
        web.annotations.rename_user(author.id, name).await?;
    }
    let name = change.name.unwrap_or(author.name);
    answer(StatusCode::OK, &Person::from(web.annotations.user(&name).await?))
}

/// Deletes one's own account, with everything that was written under it.
#[utoipa::path(delete, path = "/api/users/{name}", tag = "people", operation_id = "deleteUser",
    params(("name" = String, Path, pattern = "^[a-z0-9][a-z0-9_.-]{1,29}$")),
    responses((status = 204, description = "Gone; the rest is being removed")), security(("token" = [])))]
pub async fn delete_user(State(web): State<Shared>, request: Request) -> Answer {
    web.admit_save(&request)?;
    let name = segment(&request, 2)?;
    let author = web.author(request.headers()).await?;
    own(&author, &name)?;
    web.annotations.delete_user(author.id).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// The group in a path. Whatever is no id is no group either.
fn group_in(request: &Request) -> Result<String, Failure> {
    let id = segment(request, 2)?;
    let fits = (8..=22).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    if fits { Ok(id) } else { Err(Failure::Refused(Refused::NoSuchGroup)) }
}

/// Others' accounts are not there for changes, whether they exist or not.
fn own(author: &User, name: &str) -> Result<(), Failure> {
    if author.name == name { Ok(()) } else { Err(Failure::Refused(Refused::NotYours)) }
}

/// Lists one's groups.
#[utoipa::path(get, path = "/api/groups", tag = "groups", operation_id = "listGroups",
    responses((status = 200, description = "Everybody's first", body = Groups)), security((), ("token" = [])))]
pub async fn groups(State(web): State<Shared>, request: Request) -> Answer {
    web.admit_read(&request)?;
    let viewer = web.viewer(request.headers()).await?;
    let groups = web.annotations.groups(viewer.id()).await?;
    answer(StatusCode::OK, &Groups { groups: groups.into_iter().map(GroupJson::from).collect() })
}

/// Makes a group.
#[utoipa::path(post, path = "/api/groups", tag = "groups", operation_id = "makeGroup", request_body = NewGroup,
    responses((status = 201, description = "Made; you are in it", body = GroupJson)), security(("token" = [])))]
pub async fn make_group(State(web): State<Shared>, request: Request) -> Answer {
    web.admit_save(&request)?;
    let (parts, body) = request.into_parts();
    let author = web.author(&parts.headers).await?;
    let new: NewGroup = web.json(&parts.headers, body).await?;
    let group = web.annotations.make_group(author.id, &new.name, new.open).await?;
    answer(StatusCode::CREATED, &GroupJson::from(group))
}

/// Joins an open group, or lets somebody into one's own.
#[utoipa::path(post, path = "/api/groups/{id}/members", tag = "groups", operation_id = "addMember",
    params(("id" = String, Path, pattern = "^[0-9A-Za-z]{8,22}$")), request_body = NewMember,
    responses((status = 204, description = "In")), security(("token" = [])))]
pub async fn add_member(State(web): State<Shared>, request: Request) -> Answer {
    web.admit_save(&request)?;
    let group = group_in(&request)?;
    let (parts, body) = request.into_parts();
    let author = web.author(&parts.headers).await?;
    let new: NewMember = web.json(&parts.headers, body).await?;
    match &new.name {
        Some(name) if *name != author.name => {
            // A name that nobody can have is nobody's.
            let name = if name.contains('\0') { "" } else { name.as_str() };
            web.annotations.add_member(author.id, &group, name).await?;
        }
        _ => web.annotations.join_group(author.id, &group).await?,
    }
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Leaves a group.
#[utoipa::path(delete, path = "/api/groups/{id}/members", tag = "groups", operation_id = "leaveGroup",
    params(("id" = String, Path, pattern = "^[0-9A-Za-z]{8,22}$")),
    responses((status = 204, description = "Out")), security(("token" = [])))]
pub async fn leave_group(State(web): State<Shared>, request: Request) -> Answer {
    web.admit_save(&request)?;
    let group = group_in(&request)?;
    let author = web.author(request.headers()).await?;
    web.annotations.leave_group(author.id, &group).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Moves all notes of a group into another; both are one's own.
#[utoipa::path(post, path = "/api/groups/{id}/move", tag = "groups", operation_id = "moveGroup",
    params(("id" = String, Path, pattern = "^[0-9A-Za-z]{8,22}$")), request_body = MoveGroup,
    responses((status = 204, description = "The other group's members read them from now on")), security(("token" = [])))]
pub async fn move_group(State(web): State<Shared>, request: Request) -> Answer {
    web.admit_save(&request)?;
    let group = group_in(&request)?;
    let (parts, body) = request.into_parts();
    let author = web.author(&parts.headers).await?;
    let order: MoveGroup = web.json(&parts.headers, body).await?;
    if order.to.contains('\0') {
        return Err(Failure::Refused(Refused::NoSuchGroup));
    }
    web.annotations.move_group(Some(author.id), &group, &order.to).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}
