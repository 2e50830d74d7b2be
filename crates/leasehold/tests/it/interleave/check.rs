//! The judge: reads the trail of one run and says which invariant it breaks.
//!
//! It knows the states of a job and who may move it from one to the next, and nothing of how the
//! functions work.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tokio_postgres::{Client, Row};

/// One entry of the trail.
struct Entry {
    tx: i64,
    actor: String,
    fence: Option<i64>,
    place: String,
    action: String,
    before: Option<Value>,
    after: Option<Value>,
    overdue: Option<bool>,
    due: Option<bool>,
}

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

/// Those who may end an attempt, and only with its fence.
const FINISHES: [&str; 6] = ["complete", "retry", "snooze", "finish cancelled", "bury", "release"];
/// Those who may take a job from a lease that has run out. `claim` expires before it claims.
const EXPIRIES: [&str; 2] = ["expire", "claim"];
/// What `claim` asks for.
const BATCH: usize = 2;

struct Judge {
    states: BTreeMap<i64, State>,
    generations: BTreeMap<i64, i64>,
    /// Which transaction drew a generation, and for which jobs.
    claims: BTreeMap<i64, (i64, BTreeSet<i64>)>,
    wrong: Vec<String>,
}

/// What is wrong with the run that has just ended; empty: nothing.
pub async fn judge(client: &Client) -> Vec<String> {
    let rows = client
        .query("select tx, actor, fence, place, action, before, after, overdue, due from public.trail order by seq", &[])
        .await
        .expect("the trail");
    let mut judge = Judge {
        states: BTreeMap::from([(1, State::Running), (2, State::Waiting), (3, State::Dead)]),
        generations: BTreeMap::from([(1, 1000), (3, 500)]),
        claims: BTreeMap::new(),
        wrong: Vec::new(),
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
        .query("select * from public.wrong_at_rest() union all select * from public.wrong_after_expiry()", &[])
        .await
        .expect("the state at rest");
    judge.wrong.extend(at_rest.iter().map(|row| row.get::<_, String>(0)));
    judge.wrong
}

impl Judge {
    fn read(&mut self, entry: &Entry) {
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
                for job in entry.new("job_ids").as_array().into_iter().flatten() {
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
            ("lease", "delete") if entry.old("ended_at").is_null() => {
                self.say(entry, "L1: removed a lease that had not ended");
            }
            _ => {}
        }
    }

    fn say(&mut self, entry: &Entry, what: &str) {
        self.wrong.push(format!("{what} (by {})", entry.actor));
    }

    /// Moves a job to its next state, if it comes from where it may.
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
        if entry.new("held") == Value::Bool(true) {
            self.say(entry, &format!("J6: job {job} appears held"));
        }
    }

    fn job_changes(&mut self, entry: &Entry) {
        let job = entry.id();
        let held = |value: Value| value == Value::Bool(true);
        match (held(entry.old("held")), held(entry.new("held"))) {
            (false, true) => self.claimed(entry, job),
            (true, true) => {
                if entry.old("lease_generation") != entry.new("lease_generation") {
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
        let generation = entry.new("lease_generation").as_i64().unwrap_or(0);
        let last = self.generations.insert(job, generation).unwrap_or(0);
        if generation <= last {
            self.say(entry, &format!("J5: generation {generation} of job {job} after {last}"));
        }
        if entry.due != Some(true) {
            self.say(entry, &format!("J11: job {job} was not due, or past its time"));
        }
        let attempts = |value: Value| value.as_i64().unwrap_or(-9);
        if attempts(entry.new("attempts")) != attempts(entry.old("attempts")) + 1 {
            self.say(entry, &format!("J10: the claim of job {job} was not charged"));
        }
        let (tx, jobs) = self.claims.entry(generation).or_insert((entry.tx, BTreeSet::new()));
        jobs.insert(job);
        if *tx != entry.tx {
            self.say(entry, &format!("J5: generation {generation} was drawn twice"));
        }
    }

    /// An attempt ends: by its holder, or because its lease had run out.
    fn let_go(&mut self, entry: &Entry, job: i64) {
        let generation = entry.old("lease_generation").as_i64();
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
        if entry.old("held") == Value::Bool(true) {
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
        let number = |name: &str| entry.new(name).as_i64();
        let reached = match entry.new("cause").as_str() {
            Some("exhausted") => number("attempts") >= Some(number("max_attempts").unwrap_or(25)),
            Some("lost") => number("lost_count") >= Some(3),
            Some("refused") => entry.actor == "bury",
            _ => false,
        };
        if !reached || entry.new("last_error").is_null() {
            self.say(entry, &format!("J10: job {} died without a reason", entry.id()));
        }
    }

    fn lease_appears(&mut self, entry: &Entry) {
        let generation = entry.new("lease_generation").as_i64().unwrap_or(0);
        let listed: BTreeSet<i64> = entry
            .new("job_ids")
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
        let moved = entry.old("lease_expires_at") != entry.new("lease_expires_at");
        if !entry.old("ended_at").is_null() && (moved || entry.new("ended_at").is_null()) {
            self.say(entry, "J4: a lease that had ended came back");
        }
        if moved && entry.fence != entry.new("lease_generation").as_i64() {
            self.say(entry, "J4: somebody else's lease was renewed");
        }
    }
}

impl Entry {
    fn from(row: &Row) -> Self {
        Self {
            tx: row.get(0),
            actor: row.get(1),
            fence: row.get(2),
            place: row.get(3),
            action: row.get(4),
            before: row.get(5),
            after: row.get(6),
            overdue: row.get(7),
            due: row.get(8),
        }
    }

    fn old(&self, column: &str) -> Value {
        self.before.as_ref().map_or(Value::Null, |row| row[column].clone())
    }

    fn new(&self, column: &str) -> Value {
        self.after.as_ref().map_or(Value::Null, |row| row[column].clone())
    }

    fn id(&self) -> i64 {
        [self.new("id"), self.old("id")].iter().find_map(Value::as_i64).unwrap_or(0)
    }
}
