//! The commands, one file each.

mod common;

pub use common::Common;
