//! The worker processes, and what happens to them.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use leasehold::database::Session;
use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio_postgres::types::Type;
use tokio_util::sync::CancellationToken;

use super::worker::APPLICATION;
use super::{Args, LEASE};

/// Ends one session of a worker, whatever it does at the moment.
const END_A_SESSION: &str = "select count(pg_terminate_backend(s.pid)) from (
    select a.pid from pg_stat_activity a
     where a.datname = current_database() and a.application_name = $1
     order by random() limit 1) s";

pub struct Processes {
    url: String,
    slots: u64,
    children: Vec<Child>,
}

#[derive(Clone, Copy, Debug, Default)]
pub struct Troubles {
    pub kills: u64,
    pub pauses: u64,
    pub sessions: u64,
}

impl Processes {
    pub async fn start(url: &str, args: &Args) -> Result<Self> {
        let mut processes = Self { url: url.to_owned(), slots: args.slots, children: Vec::new() };
        for _ in 0..args.processes {
            let child = processes.child()?;
            processes.children.push(child);
        }
        Ok(processes)
    }

    fn child(&self) -> Result<Child> {
        let program = std::env::current_exe().context("the path of this program is unknown")?;
        Command::new(program)
            .args(["batch-worker", "--url", &self.url, "--slots", &self.slots.to_string()])
            // It ends when this process does: see `worker::work`.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .context("a worker process could not be started")
    }

    /// A process whose first session was ended does not start.
    fn replace_those_that_ended(&mut self) -> Result<()> {
        for at in 0..self.children.len() {
            let Some(child) = self.children.get_mut(at) else { break };
            if child.try_wait()?.is_some() {
                let fresh = self.child()?;
                self.children.splice(at..=at, [fresh]);
            }
        }
        Ok(())
    }

    /// Kills, pauses and disconnects workers until the token is cancelled. Then all of them end.
    pub async fn make_trouble(
        mut self,
        session: Session,
        args: Args,
        stop: CancellationToken,
    ) -> Result<Troubles> {
        let mut random = SmallRng::seed_from_u64(args.seed);
        let mut troubles = Troubles::default();
        let pause = Duration::from_millis(args.trouble_ms);
        loop {
            if pause.is_zero() {
                stop.cancelled().await;
            }
            if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                break;
            }
            self.replace_those_that_ended()?;
            let at = random.random_range(0..self.children.len());
            match random.random_range(0..4) {
                0 => {
                    let fresh = self.child()?;
                    let Some(child) = self.children.get_mut(at) else { continue };
                    child.kill().await?;
                    *child = fresh;
                    troubles.kills += 1;
                }
                1 => {
                    let of = (&APPLICATION as _, Type::TEXT);
                    session.query_typed(END_A_SESSION, &[of]).await?;
                    troubles.sessions += 1;
                }
                _ => {
                    let Some(pid) = self.children.get(at).and_then(pid) else { continue };
                    kill_process(pid, Signal::STOP)?;
                    // Some leases run out meanwhile, some do not.
                    tokio::time::sleep(LEASE.mul_f64(random.random_range(0.1..1.6))).await;
                    kill_process(pid, Signal::CONT)?;
                    troubles.pauses += 1;
                }
            }
        }
        for child in &mut self.children {
            child.kill().await?;
        }
        Ok(troubles)
    }
}

fn pid(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()?).ok()?)
}
