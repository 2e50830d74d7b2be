//! The health of the system in one sentence.

use leasehold::admin::{AlarmState, WorkerState};
use maud::{Markup, html};

use crate::console::chart::exact;
use crate::console::model::{Health, Overview, State, Worker};
use crate::housekeeping::Kept;
use crate::text::{seconds, since};

/// The value before anything was read.
pub fn unknown() -> Health {
    Health { state: State::Unknown, sentence: String::new(), facts: String::new() }
}

pub fn of(overview: &Overview) -> Health {
    let active = overview.alarms.iter().filter(|alarm| alarm.state != AlarmState::Silenced).count();
    let state = match (active, overview.fresh) {
        (1.., _) => State::Alarmed,
        // The last sample is too old to trust.
        (0, false) => State::Unknown,
        (0, true) if overview.queues.is_empty() => State::Empty,
        (0, true) => State::Well,
    };
    let sentence = match state {
        State::Alarmed => plural(active as f64, "active alarm"),
        State::Unknown => match overview.measured_at {
            Some(at) => format!("No worker has taken a sample since {}.", since(at, overview.now)),
            None => "No worker takes samples.".to_owned(),
        },
        State::Empty => "No jobs yet".to_owned(),
        State::Well => "No active alarms".to_owned(),
    };
    Health { state, sentence, facts: facts(overview, state) }
}

fn facts(overview: &Overview, state: State) -> String {
    match state {
        State::Unknown => {
            return format!(
                "A sample is due every minute. Without one no alarm is raised, and the figures below are old. {}",
                advice(overview.housekeeping)
            );
        }
        State::Alarmed if !overview.fresh => {
            let last = match overview.measured_at {
                Some(at) => format!(" since {}", since(at, overview.now)),
                None => String::new(),
            };
            return format!(
                "No worker has taken a sample{last}: no other alarm is raised, and this one may have cleared. {}",
                advice(overview.housekeeping)
            );
        }
        State::Empty => {
            return "Enqueue the first one: leasehold enqueue email.send '{\"to\":\"a@b.c\"}'"
                .to_owned();
        }
        State::Well | State::Alarmed => {}
    }
    let sum =
        |of: fn(&crate::console::model::Queue) -> f64| overview.queues.iter().map(of).sum::<f64>();
    // Processes that only run housekeeping have no slots.
    let runs = |worker: &&Worker| worker.state == WorkerState::Alive && worker.slots > 0;
    let alive = overview.workers.iter().filter(runs).count();
    let oldest =
        overview.queues.iter().map(|queue| queue.oldest_ready_age_seconds).fold(0.0, f64::max);
    let mut facts = vec![
        plural(overview.queues.len() as f64, "queue"),
        plural(alive as f64, "worker"),
        format!(
            "{} waiting",
            plural(sum(|queue| queue.ready + queue.scheduled + queue.retrying), "job")
        ),
        format!("{} running", exact(sum(|queue| queue.running))),
    ];
    if oldest >= 1.0 {
        facts.push(format!("the oldest ready job waits {}", seconds(oldest)));
    }
    let dead = sum(|queue| queue.dead + queue.dead_expired);
    if dead > 0.0 {
        facts.push(format!("{} dead", exact(dead)));
    }
    let silenced = overview.alarms.len()
        - overview.alarms.iter().filter(|alarm| alarm.state != AlarmState::Silenced).count();
    if silenced > 0 {
        facts.push(plural(silenced as f64, "silenced alarm"));
    }
    facts.join(", ") + "."
}

/// Advises how to get samples.
fn advice(housekeeping: Kept) -> &'static str {
    match housekeeping {
        Kept::Here => "This process takes samples; its log shows why none arrives.",
        Kept::Elsewhere => "Start a worker, or leasehold console without --no-housekeeping.",
        Kept::NotAllowed => {
            "Start a worker, or grant leasehold_housekeeper to the role of this process."
        }
    }
}

fn plural(count: f64, noun: &str) -> String {
    let end = if count == 1.0 { "" } else { "s" };
    format!("{} {noun}{end}", exact(count))
}

pub fn panel(health: &Health) -> Markup {
    let class = match health.state {
        State::Well => "well",
        State::Alarmed => "alarmed",
        State::Unknown | State::Empty => "unknown",
    };
    html! {
        section.health.(class) aria-label="Health" {
            h1 { (health.sentence) }
            p { (health.facts) }
        }
    }
}
