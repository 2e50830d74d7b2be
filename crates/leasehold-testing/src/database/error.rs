/// Why a test has no database.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum TestDatabaseError {
    /// No server. Kept after the first try: the other tests of the process would only get the same
    /// error.
    #[error("{0}")]
    Server(String),
    /// `LEASEHOLD_TEST_URL` cannot be used.
    #[error(
        "LEASEHOLD_TEST_URL should look like postgresql://user:password@host:5432/database: {0}"
    )]
    BadUrl(String),
    /// The server refused a step.
    #[error("cannot {step}: {why}")]
    Sql { step: String, why: String },
}

impl TestDatabaseError {
    pub(super) fn sql(step: &str) -> impl FnOnce(tokio_postgres::Error) -> Self {
        // The Display of tokio-postgres hides the server's message.
        move |error| Self::Sql {
            step: step.to_owned(),
            why: match error.as_db_error() {
                Some(said) => said.to_string(),
                None => format!("{error:?}"),
            },
        }
    }
}
