//! Binds addresses, and names them in links.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use crate::exit::Failure;

/// Binds an address. A caller that knows which option names it adds that to the failure: see
/// [`named_by`].
pub async fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        let failure = match error.kind() {
            std::io::ErrorKind::AddrInUse => Failure::conflict(format!("{address} is in use")),
            _ => Failure::failed(format!("cannot listen on {address}: {error}")),
        };
        failure.hint("choose another address")
    })
}

/// Adds the hint of a failure to bind the address of `option`: an address with any free port.
pub fn named_by(option: &'static str) -> impl Fn(Failure) -> Failure {
    move |failure| failure.hint(format!("choose another address: {option} 127.0.0.1:0"))
}

/// The address that a service will listen on. Port 0 is bound at once: links name the port, and the
/// service needs them when it starts. An address with a port is bound later, so another process may hold
/// it until then.
pub struct Wanted {
    address: SocketAddr,
    taken: Option<TcpListener>,
}

impl Wanted {
    pub async fn find(address: SocketAddr) -> Result<Self, Failure> {
        if address.port() != 0 {
            return Ok(Self { address, taken: None });
        }
        let listener = listen(address).await?;
        Ok(Self { address: listener.local_addr()?, taken: Some(listener) })
    }

    /// Returns the address for links.
    pub fn reachable(&self) -> String {
        reachable(self.address)
    }

    pub async fn listen(self) -> Result<TcpListener, Failure> {
        match self.taken {
            Some(listener) => Ok(listener),
            None => listen(self.address).await,
        }
    }
}

/// Binds the given address; else the default one, or a free port if that is taken.
pub async fn listen_somewhere(
    wanted: Option<SocketAddr>,
    usual: &str,
) -> Result<TcpListener, Failure> {
    if let Some(wanted) = wanted {
        return listen(wanted).await;
    }
    let usual: SocketAddr = usual.parse().map_err(Failure::failed)?;
    match TcpListener::bind(usual).await {
        Ok(listener) => Ok(listener),
        // Probably in use by another process: take any free port.
        Err(_) => listen(SocketAddr::new(usual.ip(), 0)).await,
    }
}

/// Returns the address for links: 0.0.0.0 is not an address to connect to.
pub fn reachable(address: SocketAddr) -> String {
    match address.ip().is_unspecified() {
        true => format!("localhost:{}", address.port()),
        false => address.to_string(),
    }
}
