//! Keeps a number of connections busy.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::connection::Connection;
use super::measured::Measured;
use super::source::Source;

/// How long a run may go on after its end: the last answers are still to come.
const OVERTIME: Duration = Duration::from_secs(30);

/// What a run does.
#[derive(Clone, Debug)]
pub struct Load {
    pub address: SocketAddr,
    pub connections: usize,
    /// The status that says that a request was served.
    pub expect: u16,
    pub until: Until,
    /// Sent and checked, but not counted.
    pub warm_up: Duration,
    pub pace: Option<Pace>,
    /// Keep every answer: for small runs that need what the server said.
    pub keep: bool,
}

/// When a run ends.
#[derive(Clone, Debug)]
pub enum Until {
    For(Duration),
    Requests(u64),
    Cancelled(CancellationToken),
}

/// Requests are due at fixed times, answered or not.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub per_second: f64,
}

/// Runs the load on a thread of its own.
pub async fn run(load: Load, source: Box<dyn Source>) -> Result<Measured> {
    let (ended, end) = oneshot::channel();
    std::thread::Builder::new().name("load".to_owned()).spawn(move || {
        // Nobody waits any more: the run was given up.
        let _ = ended.send(on_this_thread(load, source));
    })?;
    end.await.map_err(|_| anyhow!("the load tool panicked"))?
}

fn on_this_thread(load: Load, source: Box<dyn Source>) -> Result<Measured> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, all_connections(load, source))
}

async fn all_connections(load: Load, source: Box<dyn Source>) -> Result<Measured> {
    let started = Instant::now();
    let shared = Rc::new(RefCell::new(Shared {
        source,
        started,
        from: started + load.warm_up,
        sent: 0,
        failed: None,
        measured: Measured::new()?,
        load: load.clone(),
    }));
    let running: Vec<_> = (0..load.connections)
        .map(|_| tokio::task::spawn_local(one_connection(load.clone(), Rc::clone(&shared))))
        .collect();
    for connection in running {
        match &load.until {
            Until::For(time) => {
                let limit = started + load.warm_up + *time + OVERTIME;
                tokio::time::timeout_at(limit.into(), connection)
                    .await
                    .context("the server stopped answering")??;
            }
            Until::Requests(_) | Until::Cancelled(_) => connection.await?,
        }
    }
    let mut shared = shared.borrow_mut();
    if let Some(error) = shared.failed.take() {
        return Err(error);
    }
    let time = match load.until {
        Until::For(time) => time,
        Until::Requests(_) | Until::Cancelled(_) => shared.from.elapsed(),
    };
    let mut measured = std::mem::replace(&mut shared.measured, Measured::new()?);
    measured.time = time;
    Ok(measured)
}

async fn one_connection(load: Load, shared: Rc<RefCell<Shared>>) {
    let mut connection = Connection::new(load.address);
    let mut request = Vec::with_capacity(4096);
    loop {
        request.clear();
        let Some(mut due) = shared.borrow_mut().next(&mut request) else {
            return;
        };
        if load.pace.is_some() {
            let waiting = tokio::time::sleep_until(due.into());
            match &load.until {
                Until::Cancelled(over) => {
                    if over.run_until_cancelled(waiting).await.is_none() {
                        return;
                    }
                }
                Until::For(_) | Until::Requests(_) => waiting.await,
            }
        } else {
            due = Instant::now();
        }
        let ended = if load.keep {
            connection.ask(&request).await.and_then(|answer| {
                anyhow::ensure!(
                    answer.status == load.expect,
                    "the answer is {} instead of {}",
                    answer.status,
                    load.expect
                );
                Ok(Some(answer))
            })
        } else if matches!(load.until, Until::For(_)) {
            connection.send(&request, load.expect).await.map(|()| None)
        } else {
            connection.send_in_time(&request, load.expect).await.map(|()| None)
        };
        let mut shared = shared.borrow_mut();
        match ended {
            Ok(answer) => {
                shared.answered(due);
                shared.measured.answers.extend(answer);
            }
            Err(error) => {
                shared.failed.get_or_insert(error);
            }
        }
    }
}

/// What the connections of one run share. One thread: never locked, never held over an await.
struct Shared {
    source: Box<dyn Source>,
    load: Load,
    started: Instant,
    /// Answers count from here on.
    from: Instant,
    sent: u64,
    failed: Option<anyhow::Error>,
    measured: Measured,
}

impl Shared {
    /// The next request and when it is due; `None` when the run is over.
    fn next(&mut self, request: &mut Vec<u8>) -> Option<Instant> {
        if self.failed.is_some() {
            return None;
        }
        let over = match &self.load.until {
            Until::For(time) => Instant::now() >= self.from + *time,
            Until::Requests(count) => self.sent >= *count,
            Until::Cancelled(over) => over.is_cancelled(),
        };
        if over {
            return None;
        }
        let due = match self.load.pace {
            Some(pace) => {
                self.started + Duration::from_secs_f64(self.sent as f64 / pace.per_second)
            }
            None => self.started,
        };
        self.sent += 1;
        self.source.next(request);
        Some(due)
    }

    fn answered(&mut self, due: Instant) {
        let now = Instant::now();
        let counts = now >= self.from
            && match self.load.until {
                // An answer after the end would count for a time that is not measured.
                Until::For(time) => now < self.from + time,
                Until::Requests(_) | Until::Cancelled(_) => true,
            };
        if counts {
            self.measured.record(now.saturating_duration_since(due));
        }
    }
}
