//! Worker processes.

use jiff::Timestamp;
use maud::{Markup, html};

use super::moment;
use crate::console::model::Worker;
use leasehold::admin::WorkerState;

pub fn panel(workers: &[Worker], now: Timestamp) -> Markup {
    super::panel(
        "workers",
        "Workers",
        &html! {
            @if workers.is_empty() {
                p.empty { "No worker was seen within a day. Start your own, or: " code { "leasehold worker -q default=10 --exec 'email.send=./send-email'" } }
            } @else {
                div.scroll tabindex="0" role="region" aria-labelledby="workers-title" {
                    table {
                        thead { tr {
                            th scope="col" { "Worker" }
                            th scope="col" { "State" }
                            th scope="col" { "Queues" }
                            th.n scope="col" { "Busy" }
                            th scope="col" { "Last seen" }
                            th scope="col" { "Started" }
                        } }
                        tbody { @for worker in workers {
                            tr {
                                th scope="row" { (worker.name) " " span.hint { (worker.host) " · " (worker.pid) " · " (worker.version) } }
                                td { span.badge.bad[worker.state == WorkerState::Dead] { (worker.state.as_str()) } }
                                td { (worker.queues.join(", ")) }
                                td.n { (worker.busy) " of " (worker.slots) @if worker.claimed_ahead > 0 { span.hint { " · " (worker.claimed_ahead) " claimed ahead" } } }
                                td { (moment(worker.last_seen_at, now)) }
                                td { (moment(worker.started_at, now)) }
                            }
                        } }
                    }
                }
            }
        },
    )
}
