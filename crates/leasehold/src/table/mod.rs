//! Tables of the user: quotes their names, reads what the catalogue has about them, and lets Postgres
//! check statements on them. For services that work on a table which they do not own.
//!
//! # Invariants
//! - Every text of the caller that becomes part of a statement as a name or a value is quoted here.
//! - [`UserTable`] names the table with its schema, so that every session means the same table.
//! - [`check_statement`] runs nothing: an error in SQL of the user fails the start, and not the first run.

mod catalogue;
mod explain;
mod quote;

pub use catalogue::{Column, TableError, UserTable};
pub use explain::check_statement;
pub use quote::{quote_literal, quote_name, quote_table, short_name, stable_hash};
