//! Annotations: notes that people make in the margin of a page, and find again by searching.
//!
//! The service stands on the engine: rows are saved in Postgres, and a mirror keeps the search index
//! equal to them.

pub mod index;
