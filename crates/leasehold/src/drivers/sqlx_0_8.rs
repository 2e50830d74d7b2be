//! sqlx 0.8.

use crate::error::FinishError;
use crate::worker::Ctx;

super::sqlx::sqlx_driver!(sqlx08, Sqlx08);

impl Ctx {
    /// Like [`Ctx::complete_in`], for a transaction of sqlx 0.8.
    pub async fn complete_in_sqlx_0_8(
        &self,
        transaction: &mut sqlx08::PgConnection,
    ) -> Result<(), FinishError> {
        super::complete(self, transaction, FinishError::Sqlx08).await
    }
}
