//! Queues and what is in them.

use maud::{Markup, html};

use super::number;
use crate::console::model::Queue;
use crate::text::seconds;

pub fn panel(queues: &[Queue]) -> Markup {
    super::panel(
        "queues",
        "Queues",
        &html! {
            @if queues.is_empty() {
                p.empty { "No queues yet. The first job creates one: " code { "leasehold enqueue email.send '{}'" } }
            } @else {
                div.scroll tabindex="0" role="region" aria-labelledby="queues-title" {
                    table {
                        thead { tr {
                            th scope="col" { "Queue" }
                            th.n scope="col" { "Ready" }
                            th.n scope="col" { "Running" }
                            th.n scope="col" { "Scheduled" }
                            th.n scope="col" { "Retrying" }
                            th.n scope="col" { "Completed/min" }
                            th.n scope="col" { "Oldest" }
                            th.n scope="col" { "Dead" }
                            th.n scope="col" { "Dead, expired" }
                            th.n scope="col" { "Workers" }
                        } }
                        tbody { @for queue in queues { (row(queue)) } }
                    }
                }
            }
        },
    )
}

fn row(queue: &Queue) -> Markup {
    let oldest = queue.oldest_ready_age_seconds;
    html! {
        tr data-queue=(queue.name) {
            th scope="row" {
                (queue.name) " "
                @if queue.paused { span.badge { "paused" } " " }
                // Only when it matters: a queue without jobs needs no worker.
                @if queue.ready > 0.0 && queue.workers == 0.0 { span.badge.bad { "no workers" } " " }
                @if queue.watched { span.badge.faint title="It has thresholds of its own: leasehold alarms watch" { "watched" } }
            }
            td.n { (number(queue.ready)) }
            td.n { (number(queue.running)) }
            td.n { (number(queue.scheduled)) }
            td.n { (number(queue.retrying)) }
            td.n { (number(queue.completed_last_minute)) }
            td.n { @if oldest >= 1.0 { (seconds(oldest)) } @else { span.none { "–" } } }
            td.n { (number(queue.dead)) }
            td.n { (number(queue.dead_expired)) }
            td.n { (number(queue.workers)) }
        }
    }
}
