//! A mirror in this process: the objects that work on it, on one session of the database.

use std::sync::Arc;

use super::check::Comparer;
use super::declare::Mirror;
use super::sets::SetStore;
use super::sync::{Source, StoreCalls, Syncer};
use crate::Leasehold;

pub(crate) struct MirrorRuntime {
    pub(crate) mirror: Mirror,
    pub(crate) source: Arc<Source>,
    pub(crate) calls: Arc<StoreCalls>,
    pub(crate) sets: Arc<SetStore>,
    pub(crate) syncer: Syncer,
    pub(crate) comparer: Comparer,
}

impl MirrorRuntime {
    pub(crate) fn new(engine: &Leasehold, mirror: Mirror) -> Self {
        let source = Arc::new(Source::new(engine, mirror.clone()));
        let calls = Arc::new(StoreCalls::new(&source));
        let sets = Arc::new(SetStore::new(&source, &calls));
        let syncer = Syncer::new(&source, &calls, &sets);
        let comparer = Comparer::new(&source, &calls);
        Self { mirror, source, calls, sets, syncer, comparer }
    }

    pub(crate) fn name(&self) -> &str {
        self.mirror.name()
    }
}
