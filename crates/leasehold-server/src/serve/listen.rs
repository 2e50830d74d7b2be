//! Addresses: taking one, and naming it.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use crate::exit::Failure;

/// Takes an address. Whoever knows which option names it says so in the failure: see [`named_by`].
pub async fn listen(address: SocketAddr) -> Result<TcpListener, Failure> {
    TcpListener::bind(address).await.map_err(|error| {
        let failure = match error.kind() {
            std::io::ErrorKind::AddrInUse => Failure::conflict(format!("{address} is in use")),
            _ => Failure::failed(format!("cannot listen on {address}: {error}")),
        };
        failure.hint("choose another address")
    })
}

/// The hint of a failure to listen where `option` said: an address with any free port.
pub fn named_by(option: &'static str) -> impl Fn(Failure) -> Failure {
    move |failure| failure.hint(format!("choose another address: {option} 127.0.0.1:0"))
}

/// Where a service is to listen, under which address. Any free port is taken at once: links name it, and
/// the service needs them when it starts. An address with a port is left to whoever has it until then.
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

    /// The address in links.
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

/// The address that somebody wants; else the usual one, or a free port when that is taken.
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
        // Somebody else's; any other will do.
        Err(_) => listen(SocketAddr::new(usual.ip(), 0)).await,
    }
}

/// The address in links: nobody can open 0.0.0.0.
pub fn reachable(address: SocketAddr) -> String {
    match address.ip().is_unspecified() {
        true => format!("localhost:{}", address.port()),
        false => address.to_string(),
    }
}
