//! The OpenAPI document.

use bytes::Bytes;
use leasehold_http::openapi::{Problems, add_problems, close_bodies, links};
use leasehold_http::problems::Problem;
use serde_json::json;
use utoipa::OpenApi;

use super::{accounts, api, groups, invitations, operator};
use crate::lane::REINDEX_PRIORITIES;
use crate::settings::Settings;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Annotations",
        description = "Notes in the margin of any page, and a search that finds them again.",
        license(name = "MIT OR Apache-2.0")
    ),
    paths(
        api::create,
        api::read,
        api::change,
        api::delete,
        api::search,
        accounts::profile,
        accounts::sign_up,
        accounts::change_user,
        accounts::delete_user,
        groups::groups,
        groups::make_group,
        groups::add_member,
        groups::leave_group,
        groups::remove_member,
        groups::hand_over,
        groups::move_group,
        invitations::invitations,
        invitations::decline,
        invitations::blocks,
        invitations::block,
        invitations::unblock,
        operator::reindex,
        operator::progress,
        operator::cancel
    ),
    components(schemas(Problem))
)]
struct Document;

/// The error statuses of each operation; every operation also has 429 and 503.
const PROBLEMS: &Problems = &[
    ("/api/annotations", "post", &[400, 401, 403, 404, 408, 409, 413, 415, 422]),
    ("/api/annotations/{key}", "get", &[401, 404]),
    ("/api/annotations/{key}", "patch", &[400, 401, 403, 404, 408, 409, 412, 413, 415, 422]),
    ("/api/annotations/{key}", "delete", &[400, 401, 403, 404, 412]),
    ("/api/search", "get", &[400, 401]),
    ("/api/profile", "get", &[401]),
    ("/api/users", "post", &[400, 403, 408, 409, 413, 415, 422]),
    ("/api/users/{name}", "patch", &[400, 401, 403, 404, 408, 409, 413, 415, 422]),
    ("/api/users/{name}", "delete", &[401, 403, 404]),
    ("/api/groups", "get", &[401]),
    ("/api/groups", "post", &[400, 401, 403, 408, 409, 413, 415, 422]),
    ("/api/groups/{id}/members", "post", &[400, 401, 403, 404, 408, 409, 413, 415]),
    ("/api/groups/{id}/members", "delete", &[400, 401, 403, 404, 408, 409, 413, 415]),
    ("/api/groups/{id}/members/{name}", "delete", &[401, 403, 404, 409]),
    ("/api/groups/{id}/owner", "post", &[400, 401, 403, 404, 408, 413, 415]),
    ("/api/invitations", "get", &[401]),
    ("/api/invitations/{id}", "delete", &[401, 403, 404]),
    ("/api/blocks", "get", &[401]),
    ("/api/blocks", "post", &[400, 401, 403, 404, 408, 409, 413, 415]),
    ("/api/blocks/{name}", "delete", &[401, 403, 404]),
    ("/api/groups/{id}/move", "post", &[400, 401, 403, 404, 408, 413, 415]),
    ("/api/v1/reindex", "post", &[400, 401, 403, 404, 408, 413, 415, 422]),
    ("/api/v1/reindex/{id}", "get", &[401, 403, 404]),
    ("/api/v1/reindex/{id}", "delete", &[401, 403, 404, 422]),
];

/// Returns the document for a service with these settings.
pub fn document(settings: &Settings) -> Bytes {
    let mut document = serde_json::to_value(Document::openapi()).unwrap_or_default();
    document["servers"] = json!([{ "url": settings.base_url.trim_end_matches('/') }]);
    document["components"]["securitySchemes"] = json!({
        "token": { "type": "http", "scheme": "bearer", "description": "A user's token" },
        "operator": { "type": "http", "scheme": "bearer", "description": "The operator's token" },
    });
    let priority =
        &mut document["components"]["schemas"]["ReindexRequest"]["properties"]["priority"];
    priority["minimum"] = json!(REINDEX_PRIORITIES.start());
    priority["maximum"] = json!(REINDEX_PRIORITIES.end());
    add_problems(&mut document, PROBLEMS, problem);
    close_bodies(
        &mut document,
        &[
            "CreateAnnotation",
            "ChangeAnnotation",
            "NewUser",
            "ChangeUser",
            "NewGroup",
            "NewMember",
            "HandOver",
            "NewBlock",
            "MoveGroup",
            "ReindexRequest",
        ],
    );
    document["paths"]["/api/annotations"]["post"]["responses"]["201"]["links"] =
        links(&["readAnnotation", "changeAnnotation", "deleteAnnotation"], "key");
    document.to_string().into()
}

fn problem(status: u16) -> &'static str {
    match status {
        400 => "The request cannot be understood",
        401 => "A token is needed, or is not known",
        403 => "Not allowed: another user's, or not for this token",
        404 => "It does not exist, or is not visible to you",
        408 => "The body did not arrive in time",
        409 => {
            "The name is taken, the key was used for another request, other users have replied, a limit is reached, or the owner would leave members behind"
        }
        412 => "The note was changed: If-Match names another version",
        413 => "Too large",
        415 => "Not JSON, or compressed",
        422 => "Understood, but outside of what is allowed here",
        429 => "Too many requests from one address",
        _ => "The service cannot respond now; retry",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_http::openapi::gaps;

    #[test]
    fn every_operation_lists_its_error_statuses() {
        let document = serde_json::from_slice(&document(&Settings::default())).expect("JSON");
        assert_eq!(gaps(&document, PROBLEMS), [""; 0]);
    }
}
