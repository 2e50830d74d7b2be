//! `/metrics` and `/healthz` alone, for processes without a console.
//!
//! # Invariants
//! - The text is the same as that of the console: same names, same meaning.
//! - Access is as for the console: names of queues and tags reveal the business.
//! - `/healthz` shows only that the process runs. A check that fails while the database is down would
//!   restart every worker at the moment when none can start.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{Extensions, HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use leasehold::measure::text::CONTENT_TYPE;
use leasehold::{Fleet, Leasehold};
use tokio::net::TcpListener;

use super::TOKEN_VARIABLE;
use super::auth::{BEHIND_A_PROXY, Entry, Gatekeeper};
use super::http::{guard, wait_first};
use crate::cli::address;
use crate::exit::Failure;

#[derive(clap::Args, Debug, Default)]
#[command(next_help_heading = "Metrics")]
pub struct ScrapeOptions {
    /// Serve /metrics and /healthz at this address, such as 9464 (this machine only) or 0.0.0.0:9464.
    /// An address that other machines reach needs a token in LEASEHOLD_CONSOLE_TOKEN. Default: off
    #[arg(long, env = "LEASEHOLD_METRICS_LISTEN", value_name = "[ADDRESS:]PORT", value_parser = parse)]
    metrics_listen: Option<SocketAddr>,
}

/// Parses an address. A port alone means this machine only.
fn parse(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<u16>() {
        Ok(port) => Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)),
        Err(_) => text.parse().map_err(|_| {
            format!("{text:?} is not an address; write 9464, 127.0.0.1:9464 or [::1]:9464")
        }),
    }
}

/// What /metrics is about.
#[derive(Clone)]
pub enum Measured {
    One(Leasehold),
    /// Each line has the name of its database.
    Fleet(Fleet),
}

impl Measured {
    async fn metrics(&self) -> String {
        match self {
            Self::One(engine) => engine.metrics().await,
            Self::Fleet(fleet) => fleet.metrics().await,
        }
    }
}

/// A bound address, and who may use it.
pub struct Scraped {
    listener: TcpListener,
    keeper: Gatekeeper,
    pub url: String,
}

impl ScrapeOptions {
    /// Binds the address. Returns `None` if the option is not set.
    pub async fn bind(&self) -> Result<Option<Scraped>, Failure> {
        let Some(wanted) = self.metrics_listen else { return Ok(None) };
        let keeper = Gatekeeper::new(address::environment(TOKEN_VARIABLE))?;
        keeper.may_listen(wanted)?;
        let listener = crate::serve::listen(wanted).await.map_err(|failure| {
            failure.hint("choose another port for each process: --metrics-listen 9465")
        })?;
        let url = format!("http://{}/metrics", crate::serve::reachable(listener.local_addr()?));
        Ok(Some(Scraped { listener, keeper, url }))
    }
}

impl Scraped {
    /// Answers requests as long as it is polled.
    pub async fn answer(self, measured: Measured) {
        let metrics = Router::new()
            .route("/metrics", get(metrics))
            .route("/healthz", get(|| async { "ok\n" }))
            .layer(axum::middleware::map_response(guard))
            .with_state((measured, Arc::new(self.keeper)));
        leasehold_http::server::serve(self.listener, metrics, std::future::pending()).await;
    }
}

async fn metrics(
    State((measured, keeper)): State<(Measured, Arc<Gatekeeper>)>,
    extensions: Extensions,
    headers: HeaderMap,
) -> Response {
    let client = leasehold_http::limits::peer(&extensions);
    match keeper.admit(&headers, client) {
        Entry::Waiting(wait) => wait_first(wait),
        Entry::Open => {
            ([(header::CONTENT_TYPE, CONTENT_TYPE)], measured.metrics().await).into_response()
        }
        Entry::Stranger => {
            let text = "/metrics answers to localhost only; other host names need LEASEHOLD_CONSOLE_TOKEN\n";
            (StatusCode::MISDIRECTED_REQUEST, text).into_response()
        }
        Entry::Proxied => (StatusCode::FORBIDDEN, BEHIND_A_PROXY).into_response(),
        Entry::Closed => {
            let text = "the token is missing or wrong; send: Authorization: Bearer …\n";
            let challenge = [(header::WWW_AUTHENTICATE, "Bearer")];
            (StatusCode::UNAUTHORIZED, challenge, text).into_response()
        }
    }
}
