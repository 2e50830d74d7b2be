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

/// How long a run may exceed its end, for the last responses to arrive.
const OVERTIME: Duration = Duration::from_secs(30);

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct Load {
    pub address: SocketAddr,
    pub connections: usize,
    /// The status of a served request.
    pub expect: u16,
    pub until: Until,
    /// Requests of this time are sent and checked, but not counted.
    pub warm_up: Duration,
    pub rate: Option<Rate>,
    /// Keep every response: for small runs that need the bodies.
    pub keep: bool,
}

/// When a run ends.
#[derive(Clone, Debug)]
pub enum Until {
    For(Duration),
    Requests(u64),
    Cancelled(CancellationToken),
}

/// Requests are due at fixed times, whether earlier ones were answered or not.
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    pub per_second: f64,
}

/// Runs the load on its own thread.
pub async fn run(load: Load, source: Box<dyn Source>) -> Result<Measured> {
    let (ended, end) = oneshot::channel();
    std::thread::Builder::new().name("load".to_owned()).spawn(move || {
        // The receiver is gone if the caller dropped the run.
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
                    .context("the server stopped responding")??;
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
        if load.rate.is_some() {
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

/// State shared by the connections of one run. One thread: never locked, never borrowed over an await.
struct Shared {
    source: Box<dyn Source>,
    load: Load,
    started: Instant,
    /// Responses count from here on.
    from: Instant,
    sent: u64,
    failed: Option<anyhow::Error>,
    measured: Measured,
}

impl Shared {
    /// Writes the next request and returns when it is due, or `None` when the run is over.
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
        let due = match self.load.rate {
            Some(rate) => {
                self.started + Duration::from_secs_f64(self.sent as f64 / rate.per_second)
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
                // A response after the end does not belong to the measured time.
                Until::For(time) => now < self.from + time,
                Until::Requests(_) | Until::Cancelled(_) => true,
            };
        if counts {
            self.measured.record(now.saturating_duration_since(due));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    use axum::http::StatusCode;
    use axum::routing::get;

    use super::*;
    use crate::load::Reads;

    /// A server that answers every `bad_every`th request with 500.
    async fn server(bad_every: u64) -> (SocketAddr, Arc<AtomicU64>) {
        let seen = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&seen);
        let answer = move || {
            let number = counted.fetch_add(1, Ordering::SeqCst) + 1;
            let bad = number.is_multiple_of(bad_every);
            async move { if bad { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK } }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = axum::Router::new().route("/", get(answer));
        tokio::spawn(async move { axum::serve(listener, router).await });
        (address, seen)
    }

    fn load(address: SocketAddr, until: Until) -> Load {
        let warm_up = Duration::ZERO;
        Load { address, connections: 4, expect: 200, until, warm_up, rate: None, keep: false }
    }

    fn reads(address: SocketAddr) -> Box<dyn Source> {
        Box::new(Reads::new(address, ["/".to_owned()]))
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn run_sends_the_exact_number_of_requests() {
        let (address, seen) = server(u64::MAX).await;
        let keep = Load { keep: true, ..load(address, Until::Requests(101)) };
        let measured = run(keep, reads(address)).await.unwrap();
        assert_eq!((measured.requests, seen.load(Ordering::SeqCst)), (101, 101));
        assert_eq!(measured.answers.len(), 101);
        assert!(measured.ms(0.99) >= measured.ms(0.5) && measured.per_second() > 0.0);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn one_wrong_status_fails_the_run() {
        let (address, _) = server(50).await;
        let error = run(load(address, Until::Requests(1000)), reads(address)).await.unwrap_err();
        assert!(error.to_string().contains("500 instead of 200"), "{error}");
        let timed = load(address, Until::For(Duration::from_secs(600)));
        run(timed, reads(address)).await.unwrap_err();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn refused_connection_fails_the_run() {
        // Port 1: a port that was free a moment ago may be in use by now.
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        run(load(address, Until::Requests(1)), reads(address)).await.unwrap_err();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn limited_run_ends_at_its_deadline() {
        let (address, seen) = server(u64::MAX).await;
        let stop = CancellationToken::new();
        let limited = Load {
            rate: Some(Rate { per_second: 500.0 }),
            ..load(address, Until::Cancelled(stop.clone()))
        };
        let running = tokio::spawn(run(limited, reads(address)));
        while seen.load(Ordering::SeqCst) < 20 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        stop.cancel();
        let measured = running.await.unwrap().unwrap();
        assert_eq!(measured.requests, seen.load(Ordering::SeqCst));
    }
}
