//! Sweeps and their counts.

use jiff::Timestamp;
use maud::{Markup, html};

use super::{counted, moment, number};
use crate::console::model::Sweep;

pub fn panel(sweeps: &[Sweep], now: Timestamp) -> Markup {
    html! { @if !sweeps.is_empty() { (super::panel("sweeps", "Sweeps", &html! {
        div.scroll tabindex="0" role="region" aria-labelledby="sweeps-title" {
            table {
                thead { tr {
                    th scope="col" { "Sweep" }
                    th scope="col" { "State" }
                    th scope="col" { "Next run" }
                    th.n scope="col" { "Due" }
                    th.n scope="col" { "Finished" }
                    th.n scope="col" { "Failing" }
                    th.n scope="col" { "Dead" }
                    th.n scope="col" { "Reset" }
                    th.n scope="col" { "Stuck" }
                } }
                tbody { @for sweep in sweeps {
                    tr {
                        th scope="row" { (sweep.name) " " span.hint { (sweep.table) } }
                        td { span.badge { (sweep.state) } }
                        td { (moment(sweep.next_run_at, now)) }
                        td.n { (counted(sweep.due)) }
                        td.n { (number(sweep.finished as f64)) }
                        td.n { (counted(sweep.failing)) }
                        td.n { (counted(sweep.dead)) }
                        td.n { (number(sweep.reset as f64)) }
                        td.n { (counted(sweep.stuck)) }
                    }
                } }
            }
        }
    })) } }
}
