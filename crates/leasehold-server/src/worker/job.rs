//! The job as another program sees it: one JSON object.
//!
//! Ids are strings: a generation does not fit into the numbers of every JSON reader.

use leasehold::Ctx;
use leasehold::worker::Fence;
use serde::Serialize;
use serde_json::value::RawValue;

#[derive(Serialize)]
struct JobText<'a> {
    v: u8,
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

/// The job of this attempt, as JSON.
pub fn to_json(ctx: &Ctx) -> Result<Vec<u8>, serde_json::Error> {
    serde_json::to_vec(&JobText {
        v: 1,
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

/// The same in every attempt of the job, however it is handed over.
pub fn outside_key(ctx: &Ctx) -> String {
    ctx.outside_key("run")
}

/// Padded, so that a later fence is the greater text: receivers compare strings.
pub fn fence_text(fence: Fence) -> String {
    format!("{:010}-{:019}", fence.timeline, fence.generation.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold::Generation;

    #[test]
    fn fences_compare_as_texts() {
        let fences = [(1, 9), (1, 10), (1, i64::MAX), (2, 1), (10, 1)]
            .map(|(timeline, generation)| Fence { timeline, generation: Generation(generation) });
        assert!(fences.windows(2).all(|two| fence_text(two[0]) < fence_text(two[1])));
    }
}
