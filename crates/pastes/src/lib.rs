//! Pastes: text that users share by a link, until it expires.
//!
//! The service is built on the engine: it contains no claim, lease, retry or watchdog of its own.
//!
//! In reading order:
//! - [`Pastes::create`] commits the paste, its bytes and its upload job in one transaction;
//! - `upload` puts the bytes into the object store, at once or by the job, and checks them there;
//! - [`Pastes::read`] serves pastes that are live by the database's clock;
//! - `expire` declares the sweep that deletes pastes, and the job that deletes objects; `worker` lists
//!   everything that the service's worker runs.
//!
//! # Invariants
//! - Once a create returns success, the paste is committed with its bytes.
//! - `ref_count` changes only in the statement that creates a paste or makes it DELETED.
//! - No object key is used twice: a late delete can only hit a dead object.
//! - No user can tell whether another user stored the same bytes before.

#![forbid(unsafe_code)]

pub mod assets;
mod cache;
mod coalesce;
mod code;
mod create;
mod database;
mod error;
mod expire;
pub mod highlight;
pub mod http;
mod lookup;
mod model;
mod moderate;
mod orphans;
mod own;
pub mod pages;
mod purge;
pub mod qr;
mod quota;
mod read;
mod service;
mod settings;
pub mod sql;
pub mod store;
mod store_id;
mod token;
mod upload;
mod worker;
mod writer;

pub use code::{Alias, BadCode, Bearer, OwnerToken, ShortCode};
pub use database::SCHEMA;
pub use error::{CreateError, DeleteError, OperateError, ReadError, StartError, Unavailable};
pub use http::router;
pub use model::{
    Act, Ban, Created, Cursor, Listed, Moderated, NewPaste, Paste, Reading, Report, Reported,
    Status, TakenDown, Target,
};
pub use orphans::OrphanReport;
pub use service::Pastes;
pub use settings::{Expiry, GateKind, Limits, Settings, When};
pub use store::{S3Settings, Store};
pub use worker::{UPLOAD_QUEUE, worker};
