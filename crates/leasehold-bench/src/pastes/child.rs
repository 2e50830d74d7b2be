//! A service in its own process, killed on drop.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::service::Service;
use crate::load::{Connection, get};

const START: Duration = Duration::from_secs(30);
const STOP: Duration = Duration::from_secs(20);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

pub struct Running {
    pub address: SocketAddr,
    child: tokio::process::Child,
    gently: bool,
}

impl Running {
    /// Starts a service with its data in `dir` and waits until it responds.
    pub async fn start(service: &dyn Service, dir: &Path) -> Result<Self> {
        let port = free_port()?;
        let command = service.command(port, dir)?;
        let line = format!("{command:?}");
        let log = dir.join("stderr");
        let mut command = tokio::process::Command::from(command);
        command.stdin(Stdio::null()).stdout(Stdio::null()).kill_on_drop(true);
        // One log line per request would slow the service down; only ours is quiet by default.
        match service.ends_gently() {
            true => command.stderr(std::fs::File::create(&log)?),
            false => command.stderr(Stdio::null()),
        };
        let child = command.spawn().with_context(|| format!("{line} could not be started"))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let mut running = Self { address, child, gently: service.ends_gently() };
        running.ready(service.ready()).await.with_context(|| {
            let said = std::fs::read_to_string(&log).unwrap_or_default();
            format!("{} did not start as {line}\n{}", service.name(), said.trim())
        })?;
        Ok(running)
    }

    async fn ready(&mut self, path: &str) -> Result<()> {
        let deadline = Instant::now() + START;
        let request = get(self.address, path);
        loop {
            if let Some(status) = self.child.try_wait()? {
                bail!("it ended ({status})");
            }
            let asked = Connection::new(self.address).ask(&request).await;
            match asked {
                Ok(answer) if answer.status == 200 => return Ok(()),
                _ if Instant::now() < deadline => tokio::time::sleep(LOOK_AGAIN).await,
                Ok(answer) => bail!("{path} is answered with {}", answer.status),
                Err(error) => return Err(error),
            }
        }
    }

    /// Stops the process and waits for its end.
    pub async fn stop(mut self) -> Result<()> {
        if self.gently {
            let id = self.child.id().and_then(|id| i32::try_from(id).ok());
            if let Some(id) = id.and_then(rustix::process::Pid::from_raw) {
                rustix::process::kill_process(id, rustix::process::Signal::TERM)?;
            }
            if tokio::time::timeout(STOP, self.child.wait()).await.is_ok() {
                return Ok(());
            }
        }
        self.child.kill().await?;
        Ok(())
    }
}

/// Returns a free port. If another process takes it first, the service reports that.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
