//! sqlx 0.9.

use crate::error::FinishError;
use crate::worker::Ctx;

super::sqlx::sqlx_driver!(sqlx, Sqlx);

impl Ctx {
    /// Like [`Ctx::complete_in`], for a transaction of sqlx 0.9.
    pub async fn complete_in_sqlx(
        &self,
        transaction: &mut sqlx::PgConnection,
    ) -> Result<(), FinishError> {
        super::complete(self, transaction, FinishError::Sqlx).await
    }
}
