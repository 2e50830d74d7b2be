//! The statements of a mirror, for tests. Not covered by the guarantees.

use super::declare::{Mirror, MirrorError};
use super::sync::{SETTINGS, Source};
use crate::Leasehold;

/// The statements of a mirror as they are sent, for tests that check their plans.
#[derive(Clone, Debug)]
pub struct MirrorSql {
    pub versions: String,
    pub documents: String,
    pub digest: String,
    pub first_keys: String,
    pub next_keys: String,
    /// The settings of mirror sessions.
    pub settings: &'static str,
}

/// Checks a mirror, stores its declaration and returns its statements.
pub async fn mirror_sql(mirror: &Mirror, engine: &Leasehold) -> Result<MirrorSql, MirrorError> {
    let source = Source::new(engine, mirror.clone());
    let statements = source.prepared().await?.statements.clone();
    Ok(MirrorSql {
        versions: statements.versions,
        documents: statements.documents,
        digest: statements.digest,
        first_keys: statements.first_keys,
        next_keys: statements.next_keys,
        settings: SETTINGS,
    })
}
