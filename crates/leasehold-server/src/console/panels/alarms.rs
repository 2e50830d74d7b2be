//! The panel of active alarms and their actions.

use jiff::Timestamp;
use leasehold::admin::AlarmState;
use maud::{Markup, html};

use super::moment;
use crate::console::model::Alarm;

pub fn panel(alarms: &[Alarm], now: Timestamp) -> Markup {
    html! {
        @if !alarms.is_empty() {
            section #alarms aria-label="Alarms" {
                @for alarm in alarms { (one(alarm, now)) }
            }
        }
    }
}

fn one(alarm: &Alarm, now: Timestamp) -> Markup {
    html! {
        article.alarm.quieted[alarm.state == AlarmState::Silenced] data-alarm=(alarm.id) data-rule=(alarm.rule) {
            div.alarm-head {
                h2 { (alarm.rule.replace('_', " ")) @if !alarm.subject.is_empty() { " · " (alarm.subject) } }
                span.badge.bad[alarm.state == AlarmState::Open] { (alarm.state) }
            }
            p { (alarm.summary) }
            p.hint {
                "Raised " (moment(alarm.raised_at, now))
                @if let Some(by) = &alarm.acknowledged_by {
                    ". Acknowledged by " (by) @if let Some(why) = &alarm.acknowledged_why { ": " (why) }
                }
                @if let (Some(until), Some(by)) = (alarm.silenced_until, &alarm.silenced_by) {
                    ". Silenced until " (moment(until, now)) " by " (by)
                    @if let Some(why) = &alarm.silenced_why { ": " (why) }
                }
            }
            details {
                summary { "Acknowledge or silence" }
                form.act method="post" action={ "/console/alarms/" (alarm.id) } {
                    label for={ "why-" (alarm.id) } { "Reason" }
                    input id={ "why-" (alarm.id) } type="text" name="why" required maxlength="500" autocomplete="off";
                    label for={ "for-" (alarm.id) } { "Silence for" }
                    select id={ "for-" (alarm.id) } name="for" {
                        option value="1h" { "1 hour" }
                        option value="4h" { "4 hours" }
                        option value="1d" { "1 day" }
                        option value="7d" { "7 days" }
                    }
                    div.buttons {
                        button.primary type="submit" name="act" value="ack" { "Acknowledge" }
                        button type="submit" name="act" value="silence" { "Silence" }
                    }
                }
            }
        }
    }
}
