//! The search index: where the mirror puts annotations.
