//! Follow-ups: drafts of jobs that are stored as JSON with a job or a batch, and enqueued when it ends.

use serde::Serialize;
use serde_json::value::RawValue;

use super::enqueue::Draft;
use crate::error::EnqueueError;

/// The longest chain, and the deepest nesting of follow-ups.
const LONGEST_CHAIN: usize = 100;
/// The longest JSON text that is sent; the database checks its own form.
const LONGEST: usize = 256 * 1024;

/// What follows a job or a batch.
#[derive(Clone, Debug, Default)]
pub(crate) struct FollowUps {
    pub(crate) on_success: Option<Box<Draft>>,
    pub(crate) on_end: Option<Box<Draft>>,
    pub(crate) on_death: Option<Box<Draft>>,
}

impl FollowUps {
    /// Adds a job behind the last one of the chain.
    pub(crate) fn then(&mut self, next: Draft) {
        match &mut self.on_success {
            Some(first) => first.follow_ups.then(next),
            None => self.on_success = Some(Box::new(next)),
        }
    }

    fn each(&self) -> impl Iterator<Item = (&'static str, &Draft)> {
        [("on_success", &self.on_success), ("on_end", &self.on_end), ("on_death", &self.on_death)]
            .into_iter()
            .filter_map(|(what, draft)| Some((what, draft.as_deref()?)))
    }

    fn depth(&self) -> usize {
        self.each().map(|(_, draft)| 1 + draft.follow_ups.depth()).max().unwrap_or(0)
    }

    /// Rejects follow-ups that could not be enqueued later.
    pub(crate) fn check(&self) -> Result<(), EnqueueError> {
        let depth = self.depth();
        if depth > LONGEST_CHAIN {
            return Err(EnqueueError::Refused(format!(
                "{depth} follow-ups are inside each other; there are at most {LONGEST_CHAIN}: let the \
                 last job enqueue the others"
            )));
        }
        for (what, draft) in self.each() {
            let refused = |why: &str| Err(EnqueueError::Refused(format!("{what} {why}")));
            if draft.key.is_some() {
                return refused("has an idempotency key; a follow-up is enqueued once without one");
            }
            if draft.batch.is_some() {
                return refused(
                    "belongs to a batch; add it when it runs, or open a batch in its handler",
                );
            }
            draft.check()?;
            let bytes = text(draft)?.len();
            if bytes > LONGEST {
                return refused(&format!(
                    "takes {bytes} bytes of JSON with the jobs that follow it; it must take at most 64 KiB"
                ));
            }
        }
        Ok(())
    }

    /// Returns the JSON of `on_success`, `on_end` and `on_death`.
    pub(crate) fn texts(&self) -> [Option<String>; 3] {
        [&self.on_success, &self.on_end, &self.on_death]
            .map(|draft| draft.as_deref().and_then(|draft| text(draft).ok()))
    }
}

/// A draft as the database reads it: see `leasehold.open_batch`.
#[derive(Serialize)]
struct Stored<'a> {
    name: &'a str,
    kwargs: &'a RawValue,
    queue: &'a str,
    priority: i32,
    tag: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_attempts: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_context: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduled_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_after: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expire_after: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_success: Option<Box<Stored<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_end: Option<Box<Stored<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_death: Option<Box<Stored<'a>>>,
}

impl<'a> Stored<'a> {
    fn of(draft: &'a Draft) -> Self {
        let next = |draft: &'a Option<Box<Draft>>| {
            draft.as_deref().map(|draft| Box::new(Stored::of(draft)))
        };
        Self {
            name: &draft.name,
            kwargs: &draft.kwargs,
            queue: &draft.queue,
            priority: draft.priority,
            tag: &draft.tag,
            max_attempts: draft.max_attempts,
            limit_key: draft.limit_key.as_deref(),
            trace_context: draft.trace_context.as_deref(),
            scheduled_at: draft.run_at.map(|at| at.to_string()),
            run_after: draft.run_after.map(|time| time.as_secs_f64()),
            expire_after: draft.expire_after.map(|time| time.as_secs_f64()),
            on_success: next(&draft.follow_ups.on_success),
            on_end: next(&draft.follow_ups.on_end),
            on_death: next(&draft.follow_ups.on_death),
        }
    }
}

fn text(draft: &Draft) -> Result<String, serde_json::Error> {
    serde_json::to_string(&Stored::of(draft))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draft(name: &str) -> Draft {
        Draft::untyped(name, &serde_json::json!({})).expect("a draft")
    }

    #[test]
    fn k10_chain_is_written_in_its_order() {
        let chain = draft("a").then(draft("b")).then(draft("c"));
        let [success, end, death] = chain.follow_ups.texts();
        let next: serde_json::Value = serde_json::from_str(&success.expect("b")).expect("JSON");
        assert_eq!((&next["name"], &next["on_success"]["name"]), (&"b".into(), &"c".into()));
        assert_eq!((end, death), (None, None));
    }

    #[test]
    fn k20_follow_up_with_a_key_or_too_many_of_them_are_refused() {
        let keyed = draft("a").then(draft("b").key("k")).check().expect_err("a key").to_string();
        assert!(keyed.contains("on_success has an idempotency key"), "{keyed}");
        let long = (0..101).fold(draft("a"), |chain, _| chain.then(draft("b")));
        let long = long.check().expect_err("101 follow-ups").to_string();
        assert!(long.contains("at most 100"), "{long}");
        assert!((0..100).fold(draft("a"), |chain, _| chain.then(draft("b"))).check().is_ok());
    }
}
