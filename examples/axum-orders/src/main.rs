//! `DATABASE_URL=postgres://… cargo run -p axum-orders`, then
//! `curl -d '{"item":"teapot","quantity":1}' -H 'content-type: application/json' localhost:3000/orders`.

use axum_orders::shop::{Problem, Shop};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> Result<(), Problem> {
    let url = std::env::var("DATABASE_URL")
        .map_err(|_| "set DATABASE_URL, such as postgres://user@localhost/shop")?;
    let address = std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let shop = Shop::new(&url).await?;
    let listener = tokio::net::TcpListener::bind(&address).await?;
    let mut terminated = signal(SignalKind::terminate())?;
    let stop = async move {
        tokio::select! {
            _ = terminated.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        }
    };
    println!("listening on http://{}", listener.local_addr()?);
    shop.run(listener, stop).await
}
