//! Accounts over HTTP.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::errors::Failure;
use super::groups::GroupJson;
use super::web::{HandlerResult, Shared, answer, empty, segment};
use crate::error::Refused;
use crate::model::User;

/// The user who sent the request.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Profile {
    /// Absent: not logged in.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<Account>,
    /// Absent for pages of other origins.
    #[serde(skip_serializing_if = "Option::is_none")]
    groups: Option<Vec<GroupJson>>,
}

#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Account {
    name: String,
    display_name: String,
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

impl From<User> for Account {
    fn from(user: User) -> Self {
        Self { name: user.name, display_name: user.display_name }
    }
}

/// Returns the user who sent the request, and their groups.
///
/// Pages of other origins get the user without the groups: any user who knows the id of an open group
/// may join it.
#[utoipa::path(get, path = "/api/profile", tag = "accounts", operation_id = "profile",
    responses((status = 200, description = "The user, and their groups", body = Profile)), security((), ("token" = [])))]
pub async fn profile(State(web): State<Shared>, request: Request) -> HandlerResult {
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
    answer(StatusCode::OK, &Profile { user: viewer.user.map(Account::from), groups })
}

/// Creates an account, if the settings allow it.
#[utoipa::path(post, path = "/api/users", tag = "accounts", operation_id = "signUp", request_body = NewUser,
    responses((status = 201, description = "Created; the token is shown only now", body = SignedUp)))]
pub async fn sign_up(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_save(&request)?;
    if !web.annotations.settings().sign_up {
        return Err(Failure::NoSignUp);
    }
    let (parts, body) = request.into_parts();
    let new: NewUser = web.json(&parts, body).await?;
    let (user, token) = web.annotations.sign_up(&new.name, &new.display_name).await?;
    answer(StatusCode::CREATED, &SignedUp { name: user.name, token: token.as_str().to_owned() })
}

/// Changes your name, your display name, or both, all or nothing.
#[utoipa::path(patch, path = "/api/users/{name}", tag = "accounts", operation_id = "changeUser",
    params(("name" = String, Path, pattern = "^[a-z0-9][a-z0-9_.-]{1,29}$")), request_body = ChangeUser,
    responses((status = 200, description = "The account after the change", body = Account)), security(("token" = [])))]
pub async fn change_user(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_save(&request)?;
    let name = segment(&request, 2)?;
    let (parts, body) = request.into_parts();
    let author = web.author(&parts.headers).await?;
    own(&author, &name)?;
    let change: ChangeUser = web.json(&parts, body).await?;
    let (name, display_name) = (change.name.as_deref(), change.display_name.as_deref());
    web.annotations.change_user(author.id, name, display_name).await?;
    let name = change.name.unwrap_or(author.name);
    answer(StatusCode::OK, &Account::from(web.annotations.user(&name).await?))
}

/// Deletes your account, with everything that you wrote.
#[utoipa::path(delete, path = "/api/users/{name}", tag = "accounts", operation_id = "deleteUser",
    params(("name" = String, Path, pattern = "^[a-z0-9][a-z0-9_.-]{1,29}$")),
    responses((status = 204, description = "The account is deleted; a job deletes its notes")), security(("token" = [])))]
pub async fn delete_user(State(web): State<Shared>, request: Request) -> HandlerResult {
    web.admit_save(&request)?;
    let name = segment(&request, 2)?;
    let author = web.author(request.headers()).await?;
    own(&author, &name)?;
    web.annotations.delete_user(author.id).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

/// Refuses to change other accounts, whether they exist or not.
fn own(author: &User, name: &str) -> Result<(), Failure> {
    if author.name == name { Ok(()) } else { Err(Failure::Refused(Refused::NotYours)) }
}
