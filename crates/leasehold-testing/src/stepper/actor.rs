//! The connections of the scripts, and the observer's connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{Mutex, Notify};
use tokio::task::JoinHandle;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Config, Error, NoTls};

use super::TIMEOUT;
use super::orders::Orders;
use super::report::StepperError;
use super::run::{Event, Outcome, Run};
use super::script::{Script, StepError};

/// How often the lock table is read while a step runs.
const GLANCE: Duration = Duration::from_millis(1);

/// For each of our backends: those of ours that it waits for. Others, such as a vacuum, do not count:
/// they end by themselves.
const WAITS: &str = "
    select waits.pid, waits.on_pid
      from (select pid, unnest(pg_blocking_pids(pid)) as on_pid from unnest($1::int[]) pid) waits
     where waits.on_pid = any ($1)";

/// Resets session state that would carry over to the next run. Not `discard all`, which drops
/// prepared statements that the client still uses.
const RESET: &str =
    "rollback; close all; reset all; unlisten *; discard temp; select pg_advisory_unlock_all()";

pub(super) struct Stage {
    config: Config,
    looker: Client,
    actors: Vec<Actor>,
    /// Notified when a step ends.
    moved: Arc<Notify>,
}

struct Actor {
    client: Arc<Mutex<Client>>,
    pid: i32,
    running: Option<Running>,
}

struct Running {
    step: usize,
    task: JoinHandle<Outcome>,
    /// Whether its wait was already recorded.
    waits: bool,
}

impl Stage {
    pub(super) async fn connect(config: &Config, actors: usize) -> Result<Self, StepperError> {
        let looker = connect(&with_option(config, "lock_timeout=120s")).await?;
        let mut stage = Self {
            config: with_option(config, "deadlock_timeout=50ms"),
            looker,
            actors: Vec::new(),
            moved: Arc::new(Notify::new()),
        };
        match stage.add(actors).await {
            // Only a superuser may shorten `deadlock_timeout`; other users wait a second for each
            // deadlock.
            Err(error) if error.code() == Some(&SqlState::INSUFFICIENT_PRIVILEGE) => {
                stage.config = config.clone();
                stage.add(actors).await?;
            }
            other => other?,
        }
        Ok(stage)
    }

    async fn add(&mut self, actors: usize) -> Result<(), Error> {
        self.actors.clear();
        for _ in 0..actors {
            self.actors.push(Actor::connect(&self.config).await?);
        }
        Ok(())
    }

    pub(super) fn looker(&self) -> &Client {
        &self.looker
    }

    /// Rolls back open transactions and resets the sessions.
    pub(super) async fn reset(&mut self) -> Result<(), StepperError> {
        for actor in &mut self.actors {
            let client = actor.client.lock().await;
            let lost = client.batch_execute(RESET).await.is_err();
            drop(client);
            if lost {
                // A step may end its own connection.
                *actor = Actor::connect(&self.config).await?;
            }
        }
        Ok(())
    }

    /// Runs the scripts once. `orders` decides which script continues.
    pub(super) async fn play(
        &mut self,
        scripts: Vec<Script>,
        orders: &mut Orders,
    ) -> Result<Run, StepperError> {
        let mut run = Run::new(&scripts);
        let mut next = vec![0; scripts.len()];
        loop {
            self.settle(&mut run, &scripts, &next).await?;
            let idle = |script: &usize| self.actors[*script].running.is_none();
            let open: Vec<usize> = (0..scripts.len())
                .filter(idle)
                .filter(|script| next[*script] < scripts[*script].len())
                .collect();
            if open.is_empty() {
                return Ok(run);
            }
            let chosen = orders.choose(open);
            run.events.push(Event::Started((chosen, next[chosen])));
            self.actors[chosen].start(&scripts[chosen], next[chosen], self.moved.clone());
            next[chosen] += 1;
        }
    }

    /// Waits until every step has ended or waits for a lock that only another step can free.
    async fn settle(
        &mut self,
        run: &mut Run,
        scripts: &[Script],
        next: &[usize],
    ) -> Result<(), StepperError> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            for (script, actor) in self.actors.iter_mut().enumerate() {
                if let Some((step, outcome)) = actor.take_ended().await {
                    run.events.push(Event::Ended((script, step), outcome));
                }
            }
            let running: Vec<usize> = (0..self.actors.len())
                .filter(|script| self.actors[*script].running.is_some())
                .collect();
            if running.is_empty() {
                return Ok(());
            }
            // Most steps end at once; only for others is it worth reading the lock table.
            tokio::select! {
                () = self.moved.notified() => continue,
                () = tokio::time::sleep(GLANCE) => {}
            }
            let waits = self.waits().await?;
            let all_wait =
                running.iter().all(|script| waits.iter().any(|(waiter, _)| waiter == script));
            // PostgreSQL resolves a deadlock by itself; otherwise another script must be able to free
            // the lock.
            let one_can_continue = (0..scripts.len())
                .any(|script| !running.contains(&script) && next[script] < scripts[script].len());
            if all_wait && one_can_continue && !has_cycle(&waits) {
                for script in running {
                    if let Some(step) = self.actors[script].note_wait() {
                        run.events.push(Event::Waits((script, step)));
                    }
                }
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(StepperError::Stuck { seconds: TIMEOUT.as_secs(), run: run.clone() });
            }
        }
    }

    /// Returns which script waits for which, by index.
    async fn waits(&self) -> Result<Vec<(usize, usize)>, Error> {
        let pids: Vec<i32> = self.actors.iter().map(|actor| actor.pid).collect();
        let index = |pid: i32| pids.iter().position(|known| *known == pid);
        let rows = self.looker.query(WAITS, &[&pids]).await?;
        Ok(rows.iter().filter_map(|row| Some((index(row.get(0))?, index(row.get(1))?))).collect())
    }
}

impl Actor {
    async fn connect(config: &Config) -> Result<Self, Error> {
        let client = connect(config).await?;
        let pid = client.query_one("select pg_backend_pid()", &[]).await?.get(0);
        Ok(Self { client: Arc::new(Mutex::new(client)), pid, running: None })
    }

    fn start(&mut self, script: &Script, step: usize, moved: Arc<Notify>) {
        let (client, work) = (self.client.clone(), script.steps[step].clone());
        let task = tokio::spawn(async move {
            let outcome = work.run(client.lock_owned().await).await;
            moved.notify_one();
            outcome
        });
        self.running = Some(Running { step, task, waits: false });
    }

    async fn take_ended(&mut self) -> Option<(usize, Outcome)> {
        let ended = self.running.take_if(|running| running.task.is_finished())?;
        let outcome = match ended.task.await {
            Ok(outcome) => outcome,
            // A panic in a step belongs to the test: resume it.
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            Err(error) => Err(StepError::new(error)),
        };
        Some((ended.step, outcome))
    }

    /// Returns the step that now waits, the first time.
    fn note_wait(&mut self) -> Option<usize> {
        let running = self.running.as_mut()?;
        (!std::mem::replace(&mut running.waits, true)).then_some(running.step)
    }
}

async fn connect(config: &Config) -> Result<Client, Error> {
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

/// Returns the config with one more setting.
fn with_option(config: &Config, setting: &str) -> Config {
    let mut changed = config.clone();
    let known = config.get_options().unwrap_or_default();
    changed.options(format!("{known} -c {setting}").trim());
    changed
}

/// Returns whether scripts wait for each other, directly or indirectly.
fn has_cycle(waits: &[(usize, usize)]) -> bool {
    let mut left = waits.to_vec();
    loop {
        let before = left.len();
        // A script that waits only for scripts that do not wait will continue.
        let waiters: Vec<usize> = left.iter().map(|(waiter, _)| *waiter).collect();
        left.retain(|(_, on)| waiters.contains(on));
        match left.len() {
            0 => return false,
            after if after == before => return true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ring_of_waits_is_a_deadlock_and_a_queue_is_not() {
        assert!(!has_cycle(&[]));
        assert!(!has_cycle(&[(1, 0), (2, 1), (2, 0)]));
        assert!(has_cycle(&[(0, 1), (1, 0)]));
        assert!(has_cycle(&[(0, 1), (1, 2), (2, 0)]));
        assert!(has_cycle(&[(0, 1), (1, 0), (2, 0)]));
    }
}
