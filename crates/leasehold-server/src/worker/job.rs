//! The job as other programs get it: one JSON object.
//!
//! Ids are strings: a generation does not fit into the numbers of every JSON reader.

use leasehold::worker::StopReason;
use leasehold::{Ctx, Generation};
use serde::Serialize;
use serde_json::value::RawValue;

#[derive(Serialize)]
struct JobText<'a> {
    v: u8,
    /// The name of its database in a fleet.
    #[serde(skip_serializing_if = "Option::is_none")]
    database: Option<&'a str>,
    id: String,
    name: &'a str,
    queue: &'a str,
    tag: &'a str,
    attempt: i32,
    max_attempts: i32,
    lost_count: i16,
    generation: String,
    fence: String,
    key: Option<&'a str>,
    outside_key: String,
    enqueued_at: String,
    scheduled_at: String,
    trace_context: Option<&'a str>,
    kwargs: &'a RawValue,
}

/// Formats the job of this attempt as JSON.
pub fn to_json(ctx: &Ctx) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&JobText {
        v: 1,
        database: ctx.database(),
        id: ctx.id().to_string(),
        name: ctx.name(),
        queue: ctx.queue(),
        tag: ctx.tag(),
        attempt: ctx.attempt(),
        max_attempts: ctx.max_attempts(),
        lost_count: ctx.lost_count(),
        generation: ctx.generation().to_string(),
        fence: fence_text(ctx.fence()),
        key: ctx.key(),
        outside_key: outside_key(ctx),
        enqueued_at: ctx.enqueued_at().to_string(),
        scheduled_at: ctx.scheduled_at().to_string(),
        trace_context: ctx.trace_context(),
        kwargs: serde_json::from_slice(ctx.kwargs())?,
    })
}

/// Returns a key that is the same in every attempt of the job, for commands and receivers.
pub fn outside_key(ctx: &Ctx) -> String {
    ctx.outside_key("run")
}

/// Pads the fence, so that a later one is the greater text: receivers compare strings.
pub fn fence_text(fence: Generation) -> String {
    format!("{:019}", fence.0)
}

/// Explains why an attempt was stopped, for its error text.
pub fn stopped_because(reason: StopReason) -> &'static str {
    match reason {
        StopReason::Cancelled => "its job was cancelled",
        StopReason::LeaseLost => "the worker lost the lease of the job",
        StopReason::RunLimit => "it ran longer than the run limit of its queue",
        StopReason::Shutdown => "the worker shuts down",
        _ => "the worker asked it to stop",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fence_text_sorts_like_the_number() {
        let fences = [9, 10, 1 << 40, i64::MAX].map(Generation);
        assert!(fences.windows(2).all(|two| fence_text(two[0]) < fence_text(two[1])));
    }
}
