//! Annotations: notes that people make in the margin of a page, and find again by searching.
//!
//! The service stands on the engine: rows are saved in Postgres, and a mirror keeps the search index
//! equal to them. It contains no claim, lease, retry or comparison of its own.
//!
//! In reading order:
//! - [`Annotations::create`] commits a note and the job that brings it into the index together;
//! - `find` reads rows for one person, [`Annotations::search`] asks the index first;
//! - `people` has accounts and groups, `bulk` the work on many notes in pieces, `reindex` asks for it;
//! - `mirror` declares what the index is to equal; [`index`] has the stores;
//! - [`http`] and [`pages`] are what clients meet.
//!
//! # What is true
//! - A note that was answered is committed, with its job. No request waits for the index.
//! - Nobody sees a note of a group that they are not in: not by search, id, count or conversation.
//! - An author finds what they just saved, whatever the index knows.

#![forbid(unsafe_code)]

pub mod assets;
mod bulk;
mod database;
mod error;
mod find;
pub mod http;
mod id;
pub mod index;
mod mirror;
mod model;
mod pace;
pub mod pages;
mod people;
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
pub use mirror::{Index, NAME as MIRROR, QUEUE, declare, migrate, trigger_sql};
pub use model::{
    Annotation, Change, Counts, Cursor, Filter, Found, Group, IndexState, Kind, NewAnnotation,
    Saved, User, WORLD,
};
pub use reindex::{Progress, What};
pub use save::canonical;
pub use service::Annotations;
pub use settings::{Limits, Settings};
