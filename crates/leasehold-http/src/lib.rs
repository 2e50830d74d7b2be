//! What the HTTP side of every service needs: none of it knows what the service is about.
//!
//! - [`server`] listens: connections are counted, and none of them can hold on for ever;
//! - [`body`] receives bodies within a budget; [`limits`] counts requests for each client;
//! - [`headers`] guard what a browser may do with an answer; [`cookies`] tell whose browser it is
//!   and whether a form is our own;
//! - [`look`] is what pages share; [`assets`] are files inside the executable;
//! - [`undisturbed`] lets work go on when the client goes away.

#![forbid(unsafe_code)]

pub mod assets;
pub mod body;
pub mod cookies;
pub mod headers;
pub mod limits;
pub mod look;
mod patience;
pub mod server;

/// The work of a request panicked. It was logged; answer with 500.
#[derive(Debug, thiserror::Error)]
#[error("the work of a request panicked")]
pub struct Panicked;

/// Work that goes on when the client goes away: half of it must not be left behind.
pub async fn undisturbed<T, E>(
    work: impl Future<Output = Result<T, E>> + Send + 'static,
) -> Result<Result<T, E>, Panicked>
where
    T: Send + 'static,
    E: Send + 'static,
{
    tokio::spawn(work).await.map_err(|_| {
        tracing::error!("the work of a request panicked; this is a defect");
        Panicked
    })
}
