//! The handle that HTTP, workers and people hang on.

use std::sync::Arc;

use leasehold::Leasehold;

use crate::code::{Bearer, OwnerToken, ShortCode};
use crate::error::{CreateError, DeleteError, OperateError, ReadError, StartError};
use crate::model::*;
use crate::settings::Settings;

/// The paste service on one database and one store. Cheap to clone.
#[derive(Clone)]
pub struct Pastes(Arc<Inner>);
struct Inner {
    settings: Settings,
    engine: Leasehold,
}
impl Pastes {
    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }
    pub fn engine(&self) -> &Leasehold {
        &self.0.engine
    }
    /// Makes a paste.
    pub async fn create(&self, _new: NewPaste) -> Result<Created, CreateError> {
        Err(CreateError::Empty)
    }
    pub async fn read(&self, _code: &ShortCode) -> Result<Reading, ReadError> {
        Err(ReadError::NotFound)
    }
    pub async fn burn(&self, _code: &ShortCode) -> Result<Arc<Paste>, ReadError> {
        Err(ReadError::NotFound)
    }
    pub async fn delete(&self, _code: &ShortCode, _bearer: &Bearer) -> Result<(), DeleteError> {
        Ok(())
    }
    pub async fn new_owner(&self) -> Result<OwnerToken, CreateError> {
        Ok(OwnerToken::random())
    }
    /// Own living pastes, newest first; `before`: only those made before this one.
    pub async fn list(
        &self,
        _owner: &OwnerToken,
        _before: Option<&ShortCode>,
        _limit: u32,
    ) -> Result<Vec<Listed>, ReadError> {
        Ok(vec![])
    }
    pub async fn report(&self, _code: &ShortCode, _report: Report) -> Result<(), ReadError> {
        Ok(())
    }
    pub async fn reports(&self, _limit: u32) -> Result<Vec<Reported>, OperateError> {
        Ok(vec![])
    }
    pub async fn takedown(
        &self,
        _code: &ShortCode,
        _reason: &str,
        _ban: bool,
    ) -> Result<TakenDown, OperateError> {
        Err(OperateError::NotFound)
    }
    pub async fn ban(&self, _hash: &str, _reason: &str) -> Result<(), OperateError> {
        Ok(())
    }
    pub async fn unban(&self, _hash: &str) -> Result<(), OperateError> {
        Ok(())
    }
    pub async fn bans(&self, _limit: u32) -> Result<Vec<Ban>, OperateError> {
        Ok(vec![])
    }
    /// True when the database answers; for health checks.
    pub async fn is_healthy(&self) -> bool {
        true
    }
    pub async fn start(engine: Leasehold, settings: Settings) -> Result<Self, StartError> {
        settings.check()?;
        Ok(Self(Arc::new(Inner { settings, engine })))
    }
}
