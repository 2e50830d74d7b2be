//! What can go wrong with a request, with its status and text.
//!
//! Handlers return a [`Failure`]; [`leasehold_http::middleware`] writes it in the format that the client
//! accepts.

use std::borrow::Cow;

use axum::http::StatusCode;
use bytes::Bytes;
use leasehold_http::problems::{CommonProblem, IntoProblem, ProblemDetails};

use crate::error::Refused;
use crate::pages;

/// Why a request failed.
#[derive(Debug)]
pub enum Failure {
    /// A problem that every service can have.
    Common(CommonProblem),
    Refused(Refused),
    /// The token belongs to no user.
    UnknownToken,
    /// Users cannot create accounts for themselves here.
    NoSignUp,
    NoRoute,
}

leasehold_http::embed_common_problem!(Failure);

impl From<Refused> for Failure {
    fn from(error: Refused) -> Self {
        match error {
            Refused::Unavailable(why) => Self::Common(CommonProblem::unavailable(&why)),
            error => Self::Refused(error),
        }
    }
}

impl Failure {
    pub fn malformed(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Common(CommonProblem::malformed(text))
    }
}

impl IntoProblem for Failure {
    fn problem(&self) -> ProblemDetails {
        use StatusCode as S;
        match self {
            // A user of the pages has no token to send.
            Self::Common(CommonProblem::NoToken) => ProblemDetails {
                detail: "Log in, or send a token: Authorization: Bearer …".into(),
                ..CommonProblem::NoToken.problem()
            },
            Self::Common(problem) => problem.problem(),
            Self::Refused(refused) => refused_problem(refused),
            Self::UnknownToken => ProblemDetails::new(
                S::UNAUTHORIZED,
                "unknown_token",
                "This token is unknown or was revoked.",
            ),
            Self::NoSignUp => ProblemDetails::new(
                S::FORBIDDEN,
                "no_sign_up",
                "Only the operator of this service creates accounts.",
            ),
            Self::NoRoute => {
                ProblemDetails::new(S::NOT_FOUND, "not_found", "There is no such page.")
            }
        }
    }

    fn common(&self) -> Option<&CommonProblem> {
        match self {
            Self::Common(problem) => Some(problem),
            _ => None,
        }
    }

    fn page(problem: &ProblemDetails) -> Bytes {
        pages::failure(problem.status.as_u16(), &problem.detail).into_string().into()
    }
}

fn refused_problem(refused: &Refused) -> ProblemDetails {
    use StatusCode as S;
    let (status, code) = match refused {
        Refused::NotFound => (S::NOT_FOUND, "not_found"),
        Refused::NoSuchPerson => (S::NOT_FOUND, "no_such_person"),
        Refused::NoSuchPage => (S::NOT_FOUND, "no_such_page"),
        Refused::NoSuchReindex => (S::NOT_FOUND, "no_such_reindex"),
        Refused::NoSuchGroup => (S::NOT_FOUND, "no_such_group"),
        Refused::OwnerLeaves => (S::CONFLICT, "owner_leaves"),
        Refused::TooManyInvitations => (S::CONFLICT, "too_many_invitations"),
        Refused::TooManyBlocked => (S::CONFLICT, "too_many_blocked"),
        Refused::NotYours => (S::FORBIDDEN, "not_yours"),
        Refused::HasReplies => (S::CONFLICT, "has_replies"),
        Refused::ReplyElsewhere => (S::BAD_REQUEST, "reply_elsewhere"),
        Refused::AccountGone => (S::UNAUTHORIZED, "unknown_token"),
        Refused::ChangedMeanwhile => (S::PRECONDITION_FAILED, "changed_meanwhile"),
        Refused::TooManyGroups => (S::CONFLICT, "too_many_groups"),
        Refused::NameTaken => (S::CONFLICT, "name_taken"),
        Refused::KeyReused => (S::CONFLICT, "key_reused"),
        Refused::Malformed(_) => (S::UNPROCESSABLE_ENTITY, "not_allowed"),
        Refused::Unavailable(_) => (S::SERVICE_UNAVAILABLE, "unavailable"),
    };
    ProblemDetails::error(status, code, refused)
}
