//! Queries of the operator's lists, for programs that read them straight from the database. Each takes
//! the id before which the list continues, or null, and the most rows.

/// Reports: id, code, content hash, reason, contact, time, and whether the paste is still there.
pub const REPORTS: &str = include_str!("../queries/reports.sql");
/// Banned content: id, content hash, reason, time.
pub const BANS: &str = include_str!("../queries/bans.sql");
/// What operators did: id, action, code, content hash, report, pastes ended, banned, who, why, time.
pub const MODERATION: &str = include_str!("../queries/moderation.sql");
