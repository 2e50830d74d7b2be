//! Brings rows into the store. `compare` decides, without side effects; `source` reads the table and
//! `store_calls` calls the store, as `throttle` allows; `syncer` carries the decision out for some rows,
//! `pass` for jobs, with cool-downs for `bulk` work, and `direct` right after a commit.

mod bulk;
mod compare;
mod direct;
mod pass;
mod shared;
mod source;
mod store_calls;
mod syncer;
mod throttle;

pub use compare::Outcome;
pub use direct::DirectWriter;

pub(crate) use bulk::is_bulk;
pub(crate) use compare::{Step, Want, decide};
pub(crate) use pass::run as run_pass;
pub(crate) use shared::Shared;
#[cfg(feature = "testing")]
pub(crate) use source::SETTINGS;
pub(crate) use source::Source;
pub(crate) use store_calls::{StoreCalls, answered};
pub(crate) use syncer::{Item, Synced, Syncer};
pub(crate) use throttle::{Permit, StoreThrottle};
