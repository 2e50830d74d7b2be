//! Annotations: notes that users write in the margin of a page, and find again by searching.
//!
//! The service is built on the engine: Postgres stores the rows, and a mirror keeps the search index
//! equal to them. It has no claim, lease, retry or comparison of its own.
//!
//! In reading order:
//! - [`Annotations::create`] commits a note and the job that brings it into the index together;
//! - `find` reads rows for one user, [`Annotations::search`] asks the index first;
//! - `accounts` has users, tokens and sessions, `groups` members and invitations, `bulk` operations on
//!   many notes, `reindex` starts one;
//! - `mirror` declares what the index must equal; [`index`] has the stores;
//! - [`http`] and [`pages`] are the interface for clients.
//!
//! # Invariants
//! - A save that was acknowledged is committed, with its job. No request waits for the index.
//! - A user sees no note of a group without being a member: not by search, id, count or conversation.
//! - Authors find what they just saved, even while the index lacks it.

#![forbid(unsafe_code)]

mod accounts;
pub mod assets;
mod bulk;
mod cursor;
mod database;
mod error;
mod find;
mod groups;
pub mod http;
mod id;
pub mod index;
mod index_identity;
mod lane;
mod latency;
mod mirror;
mod model;
pub mod pages;
mod reindex;
mod save;
mod search;
mod service;
mod settings;

pub use bulk::{index_worker, worker};
pub use database::SCHEMA;
pub use error::{Refused, StartError, Unavailable};
pub use http::router;
pub use id::{AnnotationId, BadId, Token};
pub use lane::REINDEX_PRIORITIES;
pub use mirror::{Index, NAME as MIRROR, QUEUE, declare, migrate, trigger_sql};
pub use model::{
    Annotation, Change, Counts, Cursor, Filter, Found, Group, IndexState, Invitation, Kind,
    NewAnnotation, Page, Saved, User, WORLD,
};
pub use reindex::{Progress, What};
pub use save::canonical;
pub use service::Annotations;
pub use settings::{Limits, Settings};
