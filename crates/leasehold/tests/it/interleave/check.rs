//! The judge: reads the trail of one run and reports the invariants that it breaks.
//!
//! It knows the states of a job and which ops may move it from one to the next, and nothing of how
//! the functions work.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tokio_postgres::Client;

use super::entry::Entry;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Running,
    Dead,
    Over,
    /// Deleted from one table and not yet seen in another.
    Between,
    Pruned,
}

/// The ops that may end an attempt, and only with its fence.
const FINISHES: [&str; 8] = [
    "complete",
    "complete each",
    "retry",
    "snooze",
    "defer",
    "finish cancelled",
    "bury",
    "release",
];
/// The ops that may take a job from a lease that has run out. `claim` expires before it claims.
const EXPIRIES: [&str; 2] = ["expire", "claim"];
/// The most jobs that `claim` asks for.
const BATCH: usize = 2;

struct Judge {
    states: BTreeMap<i64, State>,
    generations: BTreeMap<i64, i64>,
    /// Which transaction drew a generation, and for which jobs.
    claims: BTreeMap<i64, (i64, BTreeSet<i64>)>,
    wrong: Vec<String>,
    /// The ops that changed a job or prolonged a lease.
    doers: BTreeSet<String>,
}

/// Returns what is wrong with the run that has just ended, and which ops changed anything in it.
pub async fn judge(client: &Client) -> (Vec<String>, BTreeSet<String>) {
    let rows = client
        .query("select tx, actor, fence, place, action, before, after, overdue, due from public.trail order by seq", &[])
        .await
        .expect("the trail");
    let mut judge = Judge {
        states: BTreeMap::from([(1, State::Running), (2, State::Waiting), (3, State::Dead)]),
        generations: BTreeMap::from([(1, 1000), (3, 500)]),
        claims: BTreeMap::new(),
        wrong: Vec::new(),
        doers: BTreeSet::new(),
    };
    for entry in rows.iter().map(Entry::from) {
        judge.read(&entry);
    }
    for (job, state) in &judge.states {
        if *state == State::Between {
            judge.wrong.push(format!("J1: job {job} left its table and arrived nowhere"));
        }
    }
    let at_rest = client
        .query(
            "select * from public.wrong_at_rest() union all select * from public.wrong_after_expiry()",
            &[],
        )
        .await
        .expect("the state at rest");
    judge.wrong.extend(at_rest.iter().map(|row| row.get::<_, String>(0)));
    (judge.wrong, judge.doers)
}

/// Checks that the result of an op agrees with what it did: J9 and J12 from the caller's side.
pub fn result_agrees(
    name: &str,
    answer: Option<&str>,
    doers: &BTreeSet<String>,
) -> Result<(), String> {
    let success = match name {
        "complete" | "snooze" | "defer" | "bury" | "finish cancelled" => answer == Some("t"),
        "retry" => answer != Some("lost"),
        "renew" => answer == Some("renewed"),
        // A cancelled job is filed as cancelled and is not among the released ones.
        "release" if answer.is_none() => return Ok(()),
        "release" => answer == Some("1"),
        _ => return Ok(()),
    };
    if success == doers.contains(name) {
        return Ok(());
    }
    Err(format!("J9: {name} returned {answer:?}, and it changed something: {}", !success))
}

impl Judge {
    fn read(&mut self, entry: &Entry) {
        if entry.place == "job" {
            self.doers.insert(entry.actor.clone());
        }
        match (entry.place.as_str(), entry.action.as_str()) {
            ("job", "insert") => self.job_appears(entry),
            ("job", "update") => self.job_changes(entry),
            ("job", "delete") => self.job_leaves(entry),
            ("dead_job", "insert") => self.job_dies(entry),
            ("dead_job", "delete") => {
                let gone = if entry.actor == "prune" { State::Pruned } else { State::Between };
                self.step(entry, entry.id(), &[State::Dead], gone, "J7");
            }
            ("history", _) => {
                for job in entry.after("job_ids").as_array().into_iter().flatten() {
                    self.step(
                        entry,
                        job.as_i64().unwrap_or(0),
                        &[State::Between],
                        State::Over,
                        "J7",
                    );
                }
            }
            ("lease", "insert") => self.lease_appears(entry),
            ("lease", "update") => self.lease_changes(entry),
            ("lease", "delete") if entry.before("ended_at").is_null() => {
                self.say(entry, "L1: removed a lease that had not ended");
            }
            _ => {}
        }
    }

    fn say(&mut self, entry: &Entry, what: &str) {
        self.wrong.push(format!("{what} (by {})", entry.actor));
    }

    /// Moves a job to its next state, and records a violation unless it comes from one of `from`.
    fn step(&mut self, entry: &Entry, job: i64, from: &[State], to: State, rule: &str) {
        let known = self.states.insert(job, to);
        if !known.is_some_and(|state| from.contains(&state)) {
            self.say(entry, &format!("{rule}: job {job} goes from {known:?} to {to:?}"));
        }
    }

    fn job_appears(&mut self, entry: &Entry) {
        let job = entry.id();
        match self.states.insert(job, State::Waiting) {
            None if entry.actor.starts_with("enqueue") => {}
            Some(State::Between) if entry.actor == "redrive" => {}
            known => self.say(entry, &format!("J2 J7: job {job} appears, after {known:?}")),
        }
        if entry.after("held") == Value::Bool(true) {
            self.say(entry, &format!("J6: job {job} appears held"));
        }
    }

    fn job_changes(&mut self, entry: &Entry) {
        let job = entry.id();
        let held = |value: Value| value == Value::Bool(true);
        let deferred = (held(entry.before("deferred")), held(entry.after("deferred")));
        if deferred == (false, true) && entry.actor != "defer" {
            self.say(entry, &format!("J14: job {job} is deferred without a deferral"));
        }
        match (held(entry.before("held")), held(entry.after("held"))) {
            (false, true) => self.claimed(entry, job),
            (true, true) => {
                if entry.before("lease_generation") != entry.after("lease_generation") {
                    self.say(entry, &format!("J6: job {job} was taken from its holder"));
                }
            }
            (true, false) => {
                self.let_go(entry, job);
                self.step(entry, job, &[State::Running], State::Waiting, "J7");
            }
            (false, false) => {
                if FINISHES.contains(&entry.actor.as_str()) {
                    self.say(entry, &format!("J4: changed job {job}, which it does not hold"));
                }
            }
        }
    }

    fn claimed(&mut self, entry: &Entry, job: i64) {
        self.step(entry, job, &[State::Waiting], State::Running, "J6");
        let generation = entry.after("lease_generation").as_i64().unwrap_or(0);
        let last = self.generations.insert(job, generation).unwrap_or(0);
        if generation <= last {
            self.say(entry, &format!("J5: generation {generation} of job {job} after {last}"));
        }
        if entry.due != Some(true) {
            self.say(entry, &format!("J11: job {job} was not due, or past its time"));
        }
        let attempts = |value: Value| value.as_i64().unwrap_or(-9);
        if attempts(entry.after("attempts")) != attempts(entry.before("attempts")) + 1 {
            self.say(entry, &format!("J10: the claim of job {job} was not charged"));
        }
        let (tx, jobs) = self.claims.entry(generation).or_insert((entry.tx, BTreeSet::new()));
        jobs.insert(job);
        if *tx != entry.tx {
            self.say(entry, &format!("J5: generation {generation} was drawn twice"));
        }
    }

    /// Checks that an attempt is ended by its holder, or because its lease had run out.
    fn let_go(&mut self, entry: &Entry, job: i64) {
        let generation = entry.before("lease_generation").as_i64();
        let actor = entry.actor.as_str();
        if FINISHES.contains(&actor) {
            if entry.fence != generation {
                let fence = entry.fence.unwrap_or(0);
                self.say(
                    entry,
                    &format!(
                        "J4: ended the attempt {generation:?} of job {job} with fence {fence}"
                    ),
                );
            }
        } else if !EXPIRIES.contains(&actor) {
            self.say(entry, &format!("J4: ended an attempt of job {job} without owning it"));
        } else if entry.overdue != Some(true) {
            self.say(entry, &format!("J6: took job {job} from a lease that had not run out"));
        }
    }

    fn job_leaves(&mut self, entry: &Entry) {
        let job = entry.id();
        if entry.before("held") == Value::Bool(true) {
            self.let_go(entry, job);
            self.step(entry, job, &[State::Running], State::Between, "J7");
        } else {
            self.step(entry, job, &[State::Waiting], State::Between, "J7");
            if !entry.actor.starts_with("cancel") {
                self.say(entry, &format!("J4: removed the waiting job {job}"));
            }
        }
    }

    fn job_dies(&mut self, entry: &Entry) {
        self.step(entry, entry.id(), &[State::Between], State::Dead, "J7");
        let number = |name: &str| entry.after(name).as_i64();
        let reached = match entry.after("cause").as_str() {
            Some("exhausted") => number("attempts") >= Some(number("max_attempts").unwrap_or(25)),
            Some("lost") => number("lost_count") >= Some(3),
            Some("rejected") => entry.actor == "bury",
            _ => false,
        };
        if !reached || entry.after("last_error").is_null() {
            self.say(entry, &format!("J10: job {} died without a reason", entry.id()));
        }
    }

    fn lease_appears(&mut self, entry: &Entry) {
        let generation = entry.after("lease_generation").as_i64().unwrap_or(0);
        let listed: BTreeSet<i64> = entry
            .after("job_ids")
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_i64)
            .collect();
        let claimed =
            self.claims.get(&generation).map(|(_, jobs)| jobs.clone()).unwrap_or_default();
        if listed != claimed || listed.len() > BATCH {
            self.say(
                entry,
                &format!("J13: the lease lists {listed:?} and the claim took {claimed:?}"),
            );
        }
    }

    fn lease_changes(&mut self, entry: &Entry) {
        let moved = entry.before("lease_expires_at") != entry.after("lease_expires_at");
        if !entry.before("ended_at").is_null() && (moved || entry.after("ended_at").is_null()) {
            self.say(entry, "J4: a lease that had ended came back");
        }
        if moved {
            self.doers.insert(entry.actor.clone());
        }
        if moved && entry.fence != entry.after("lease_generation").as_i64() {
            self.say(entry, "J4: the lease of another worker was renewed");
        }
    }
}
