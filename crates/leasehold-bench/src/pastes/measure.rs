//! The phases: creates on fresh data, then reads of a set of pastes.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::child::Running;
use super::service::Service;
use crate::load::{self, Connection, Creates, Load, Measured, Reads, Source, Until, get};
use crate::scratch::Scratch;

/// An upload that has not ended by then counts as failed.
const SETTLE: Duration = Duration::from_secs(60);
/// How often to restart a service that dies while it is filled.
const TRIES: u32 = 20;

/// The settings with which every service is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    pub connections: usize,
    pub size: usize,
    pub time: Duration,
    pub warm_up: Duration,
    /// Number of pastes to read.
    pub pastes: u64,
}

impl Plan {
    fn load(&self, running: &Running, expect: u16) -> Load {
        Load {
            address: running.address,
            connections: self.connections,
            expect,
            until: Until::For(self.time),
            warm_up: self.warm_up,
            rate: None,
            keep: false,
        }
    }
}

/// Creates pastes for the planned time.
pub async fn creates(service: &dyn Service, plan: &Plan, scratch: &Scratch) -> Result<Measured> {
    if let Some(most) = service.most_pastes() {
        return lives(service, plan, scratch, most).await;
    }
    let running = Running::start(service, &scratch.fresh(service.name())?).await?;
    let create = service.create();
    let load = plan.load(&running, create.status);
    let measured = load::run(load, creator(service, plan, &running)).await?;
    running.stop().await?;
    Ok(measured)
}

/// Creates pastes in short runs of a service that fails after `most` of them. A run that fails is not
/// counted, which favours the service.
async fn lives(
    service: &dyn Service,
    plan: &Plan,
    scratch: &Scratch,
    most: u64,
) -> Result<Measured> {
    let mut all = Measured::new()?;
    let mut failed = 0;
    while all.time < plan.time {
        let running = Running::start(service, &scratch.fresh(service.name())?).await?;
        let load = Load {
            until: Until::Requests(most),
            warm_up: Duration::ZERO,
            ..plan.load(&running, service.create().status)
        };
        let life = load::run(load, creator(service, plan, &running)).await;
        running.stop().await?;
        match life {
            Ok(life) => all.add(&life)?,
            Err(error) if failed == TRIES => return Err(error),
            Err(_) => failed += 1,
        }
    }
    Ok(all)
}

/// Measures raw reads, then page reads, of the same pastes.
pub async fn reads(
    service: &dyn Service,
    plan: &Plan,
    scratch: &Scratch,
) -> Result<(Measured, Measured)> {
    let (running, codes) = filled(service, plan, scratch).await?;
    settle(service, plan, &running, &codes).await?;
    let load = plan.load(&running, 200);
    let raw = Reads::new(running.address, codes.iter().map(|code| service.raw(code)));
    let raw = load::run(load.clone(), Box::new(raw)).await.context("a raw read")?;
    let page = Reads::new(running.address, codes.iter().map(|code| service.page(code)));
    let page = load::run(load, Box::new(page)).await.context("a page read")?;
    running.stop().await?;
    Ok((raw, page))
}

/// Starts a service and fills it with the pastes to read.
async fn filled(
    service: &dyn Service,
    plan: &Plan,
    scratch: &Scratch,
) -> Result<(Running, Vec<String>)> {
    let count = service.most_pastes().unwrap_or(plan.pastes).min(plan.pastes);
    let mut tries = 0;
    loop {
        let running = Running::start(service, &scratch.fresh(service.name())?).await?;
        let load = Load {
            until: Until::Requests(count),
            warm_up: Duration::ZERO,
            keep: true,
            ..plan.load(&running, service.create().status)
        };
        match load::run(load, creator(service, plan, &running)).await {
            Ok(filled) => {
                let codes = filled.answers.iter().map(|answer| service.created(answer));
                return Ok((running, codes.collect::<Result<_>>()?));
            }
            Err(_) if service.most_pastes().is_some() && tries < TRIES => tries += 1,
            Err(error) => return Err(error.context("filling it with pastes")),
        }
        running.stop().await?;
    }
}

/// Waits until every paste is readable, and checks once that raw and page show it.
async fn settle(
    service: &dyn Service,
    plan: &Plan,
    running: &Running,
    codes: &[String],
) -> Result<()> {
    let mut connection = Connection::new(running.address);
    let deadline = Instant::now() + SETTLE;
    for code in codes {
        let path = service.raw(code);
        let raw = loop {
            let answer = connection.ask(&get(running.address, &path)).await?;
            match answer.status {
                200 => break answer.body,
                503 if Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                status => bail!("{path} is answered with {status}"),
            }
        };
        ensure!(raw.len() == plan.size, "{path} has {} bytes, not {}", raw.len(), plan.size);
        // A "not found" page with status 200 does not count.
        let page = connection.ask(&get(running.address, &service.page(code))).await?;
        let number = raw.get(..20).unwrap_or_default();
        ensure!(
            page.status == 200 && page.body.windows(number.len()).any(|window| window == number),
            "the page of {code} does not show the paste (status {})",
            page.status
        );
    }
    Ok(())
}

fn creator(service: &dyn Service, plan: &Plan, running: &Running) -> Box<dyn Source> {
    let create = service.create();
    Box::new(Creates::new(
        running.address,
        create.path,
        &create.body,
        plan.size,
        rand::random::<u64>(),
    ))
}
