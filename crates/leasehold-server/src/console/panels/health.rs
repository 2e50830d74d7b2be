//! How it goes, in words.

use maud::{Markup, html};

use crate::console::chart::exact;
use crate::console::model::{Health, Overview, State, Worker};
use crate::housekeeping::Kept;
use leasehold::alarm::rules::span;

/// Before anything was read.
pub fn unknown() -> Health {
    Health { state: State::Unknown, sentence: String::new(), facts: String::new() }
}

pub fn of(overview: &Overview) -> Health {
    let heard = overview.alarms.iter().filter(|alarm| alarm.state != "silenced").count();
    let state = match (heard, overview.sampled_at) {
        (1.., _) => State::Alarmed,
        (0, None) => State::Unknown,
        (0, Some(_)) if overview.queues.is_empty() => State::Empty,
        (0, Some(_)) => State::Well,
    };
    let sentence = match state {
        State::Alarmed if heard == 1 => "One alarm is up.".to_owned(),
        State::Alarmed => format!("{heard} alarms are up."),
        State::Unknown => "Nobody measures.".to_owned(),
        State::Empty => "Nothing to do yet.".to_owned(),
        State::Well => "All is well.".to_owned(),
    };
    Health { state, sentence, facts: facts(overview, state) }
}

fn facts(overview: &Overview, state: State) -> String {
    match state {
        State::Unknown => {
            let advice = match overview.housekeeping {
                Kept::Here => {
                    "This process takes a sample every minute; its log says why none comes."
                }
                Kept::Elsewhere => {
                    "Start a worker, or leasehold console without --no-housekeeping."
                }
                Kept::NotAllowed => {
                    "Start a worker; this process would measure, and its role is not a member of leasehold_housekeeper."
                }
            };
            return format!(
                "No sample has come for a quarter of an hour, and without one no alarm can be raised. {advice}"
            );
        }
        State::Empty => {
            return "No queue has been used. Enqueue a job: leasehold enqueue email.send '{\"to\":\"a@b.c\"}'"
                .to_owned();
        }
        State::Well | State::Alarmed => {}
    }
    let sum =
        |of: fn(&crate::console::model::Queue) -> f64| overview.queues.iter().map(of).sum::<f64>();
    // Those that only keep house run no jobs.
    let runs = |worker: &&Worker| worker.state == "alive" && worker.slots > 0;
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
        facts.push(format!("the oldest that could run waits {}", span(oldest)));
    }
    let dead = sum(|queue| queue.dead + queue.expired);
    if dead > 0.0 {
        facts.push(format!("{} dead", exact(dead)));
    }
    let silenced = overview.alarms.len()
        - overview.alarms.iter().filter(|alarm| alarm.state != "silenced").count();
    if silenced > 0 {
        facts.push(plural(silenced as f64, "silenced alarm"));
    }
    facts.join(", ") + "."
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
