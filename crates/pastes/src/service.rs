//! The handle that HTTP handlers, workers and programs share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use leasehold::Leasehold;
use leasehold::link::Links;

use crate::cache::Cache;
use crate::database::{SCHEMA, sessions};
use crate::error::StartError;
use crate::lookup::Lookups;
use crate::settings::Settings;
use crate::store::Store;
use crate::store_id;
use crate::token::TokenKey;
use crate::upload::Uploader;
use crate::writer::Writer;

/// Sessions for single statements.
const WRITING: usize = 4;
/// Sessions for creates that share a statement: one batch is in flight while the next fills.
const CREATING: usize = 2;
/// Sessions for finding pastes.
const READING: usize = 2;

/// The paste service on one database and one store. Cheap to clone.
#[derive(Clone)]
pub struct Pastes(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) engine: Leasehold,
    pub(crate) settings: Settings,
    pub(crate) store: Store,
    pub(crate) sessions: Arc<Links>,
    pub(crate) writer: Writer,
    pub(crate) lookups: Lookups,
    pub(crate) cache: Cache,
    pub(crate) uploader: Option<Uploader>,
    pub(crate) tokens: TokenKey,
    /// Bytes that wait for their upload, as last counted.
    pub(crate) staged: AtomicU64,
    /// Bytes of all content: as last counted, plus what this process stored since. Only with a quota.
    pub(crate) stored: AtomicU64,
}

impl Pastes {
    /// Starts the service. The schema must exist: see [`SCHEMA`].
    pub async fn start(
        engine: Leasehold,
        store: Store,
        settings: Settings,
    ) -> Result<Self, StartError> {
        settings.check()?;
        let database = engine.database().clone();
        let session = SCHEMA.session(&database).await?;
        let rows = session.query_typed("select key from pastes.secret", &[]).await?;
        let secret = rows.first().map(|row| row.get(0)).ok_or(StartError::NotMigrated)?;
        let tokens = TokenKey::new(secret).ok_or(StartError::NotMigrated)?;
        store_id::compare_or_close(&database, &store).await?;
        let sessions = Arc::new(sessions(&database, WRITING));
        let uploader =
            settings.direct_upload.then(|| Uploader::start(store.clone(), Arc::clone(&sessions)));
        let pastes = Self(Arc::new(Inner {
            writer: Writer::start(&database, CREATING, settings.head_start()),
            lookups: Lookups::start(&database, READING),
            cache: Cache::new(settings.cache_bytes),
            uploader,
            tokens,
            staged: AtomicU64::new(0),
            stored: AtomicU64::new(0),
            engine,
            settings,
            store,
            sessions,
        }));
        tokio::spawn(crate::quota::watch_staging(Arc::downgrade(&pastes.0)));
        if pastes.settings().quota.is_some() {
            pastes.count_stored().await?;
            tokio::spawn(crate::quota::watch_stored(Arc::downgrade(&pastes.0)));
        }
        Ok(pastes)
    }

    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub fn engine(&self) -> &Leasehold {
        &self.0.engine
    }

    pub fn store(&self) -> &Store {
        &self.0.store
    }

    /// Returns true if the database responds; for health checks.
    pub async fn is_healthy(&self) -> bool {
        self.0.sessions.query("select 1", &[]).await.is_ok()
    }
}
