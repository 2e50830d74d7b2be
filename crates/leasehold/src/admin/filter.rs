//! Which jobs: one type and one grammar for the library, the CLI and the console.
//!
//! A filter is a list of terms, and a job matches if it matches all of them:
//!
//! ```
//! use leasehold::admin::JobFilter;
//!
//! let text = r#"queue:mail state:retrying name:email.* error:"connection reset" older:1h"#;
//! let filter: JobFilter = text.parse()?;
//! assert_eq!(filter.to_string(), text);
//! assert_eq!(filter, JobFilter::any().queue("mail").states([leasehold::JobState::Retrying])
//!     .name("email.*").error("connection reset").older(std::time::Duration::from_secs(3600)));
//! # Ok::<(), leasehold::admin::FilterError>(())
//! ```
//!
//! | term | the job |
//! |---|---|
//! | `id:81230,81231` | has one of these ids |
//! | `queue:mail` | is in this queue |
//! | `state:retrying,dead` | is in one of these states; `waiting` is short for `scheduled,ready,retrying` |
//! | `cause:lost,expired` | is dead for one of these causes |
//! | `name:email.*` | has this name; `*` matches any text |
//! | `tag:import` | has this tag; `*` matches any text |
//! | `key:order-17` | has this idempotency key |
//! | `batch:17` | belongs to this batch, and waits, runs or is dead |
//! | `worker:mailer/*` | runs on this worker, or ran there last; `*` matches any text |
//! | `error:"no route"` | has this text in its last error, in upper or lower case |
//! | `older:1h` | was finished, claimed or else enqueued longer ago than this |
//! | `newer:2d12h` | was finished, claimed or else enqueued within this time |
//!
//! Put a value with blanks into double quotes, in which `\"` and `\\` are a quote and a backslash. Times have
//! the units `w`, `d`, `h`, `m`, `s` and `ms`, or whole words: `newer:"2 days"`. Each key occurs once. Terms that no job
//! can match, such as `state:ready cause:lost`, are an error. An empty list of ids, states or causes is printed as
//! `id:none`, and no job matches it: a program that has chosen no job must not get every job.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::duration;
use crate::job::{Cause, JobId, JobState};
use crate::queue::batch::BatchId;

/// Which jobs. See the [module](self) for the grammar that [`FromStr`] reads and [`Display`](fmt::Display)
/// prints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFilter {
    pub(super) ids: Option<BTreeSet<JobId>>,
    pub(super) queue: Option<String>,
    pub(super) states: Option<BTreeSet<JobState>>,
    pub(super) causes: Option<BTreeSet<Cause>>,
    pub(super) name: Option<String>,
    pub(super) tag: Option<String>,
    pub(super) key: Option<String>,
    pub(super) batch: Option<i64>,
    pub(super) worker: Option<String>,
    pub(super) error: Option<String>,
    pub(super) older: Option<Duration>,
    pub(super) newer: Option<Duration>,
}

impl JobFilter {
    /// Matches every job.
    pub fn any() -> Self {
        Self::default()
    }

    /// Returns true if the filter matches every job.
    pub fn is_any(&self) -> bool {
        *self == Self::default()
    }

    /// Jobs with one of these ids, or of those that were given before. Without any, no job matches.
    pub fn ids(mut self, ids: impl IntoIterator<Item = JobId>) -> Self {
        self.ids.get_or_insert_default().extend(ids);
        self
    }

    /// Jobs of this queue.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Jobs in one of these states, or of those that were given before. Without any, no job matches.
    pub fn states(mut self, states: impl IntoIterator<Item = JobState>) -> Self {
        self.states.get_or_insert_default().extend(states);
        self
    }

    /// Scheduled, ready and retrying jobs.
    pub fn waiting(self) -> Self {
        self.states(JobState::WAITING.iter().copied())
    }

    /// Jobs that died for one of these causes, or of those that were given before. Without any, no job matches.
    pub fn causes(mut self, causes: impl IntoIterator<Item = Cause>) -> Self {
        self.causes.get_or_insert_default().extend(causes);
        self
    }

    /// Jobs of this name; `*` matches any text.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Jobs with this tag; `*` matches any text.
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tag = Some(tag.into());
        self
    }

    /// Jobs with this idempotency key.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Jobs of this batch that wait, run or are dead: finished ones keep no batch.
    pub fn batch(mut self, batch: BatchId) -> Self {
        self.batch = Some(batch.0);
        self
    }

    /// Jobs that this worker runs, or ran last; `*` matches any text.
    pub fn worker(mut self, worker: impl Into<String>) -> Self {
        self.worker = Some(worker.into());
        self
    }

    /// Jobs with this text in their last error, in upper or lower case.
    pub fn error(mut self, text: impl Into<String>) -> Self {
        self.error = Some(text.into());
        self
    }

    /// Jobs that were finished, claimed or else enqueued longer ago than this, in whole milliseconds.
    pub fn older(mut self, than: Duration) -> Self {
        self.older = Some(whole(than));
        self
    }

    /// Jobs that were finished, claimed or else enqueued within this time, in whole milliseconds.
    pub fn newer(mut self, than: Duration) -> Self {
        self.newer = Some(whole(than));
        self
    }

    /// Keeps only these states. A filter that names states keeps those that both name; `None`: there is
    /// no such state, and no job can match.
    pub fn only(mut self, states: &[JobState]) -> Option<Self> {
        let named = self.states.get_or_insert_with(|| states.iter().copied().collect());
        named.retain(|state| states.contains(state));
        let matches_some = !named.is_empty();
        matches_some.then_some(self)
    }

    /// Adds the terms of another filter.
    pub fn and(mut self, other: Self) -> Result<Self, FilterError> {
        fn one<T: PartialEq>(
            mine: &mut Option<T>,
            other: Option<T>,
            key: &'static str,
        ) -> Result<(), FilterError> {
            match (&mine, other) {
                (_, None) => {}
                (None, other) => *mine = other,
                (Some(mine), Some(other)) if *mine == other => {}
                _ => return Err(FilterError::Twice(key.to_owned())),
            }
            Ok(())
        }
        one(&mut self.ids, other.ids, "id")?;
        one(&mut self.queue, other.queue, "queue")?;
        one(&mut self.states, other.states, "state")?;
        one(&mut self.causes, other.causes, "cause")?;
        one(&mut self.name, other.name, "name")?;
        one(&mut self.tag, other.tag, "tag")?;
        one(&mut self.key, other.key, "key")?;
        one(&mut self.batch, other.batch, "batch")?;
        one(&mut self.worker, other.worker, "worker")?;
        one(&mut self.error, other.error, "error")?;
        one(&mut self.older, other.older, "older")?;
        one(&mut self.newer, other.newer, "newer")?;
        self.checked()
    }

    /// Refuses terms that no job can match: the list would be empty, and its reader would conclude that there is
    /// no such job.
    fn checked(self) -> Result<Self, FilterError> {
        if self.causes.is_some()
            && self.states.as_ref().is_some_and(|states| !states.contains(&JobState::Dead))
        {
            return Err(FilterError::Contradiction("only dead jobs have a cause; add state:dead"));
        }
        if let (Some(older), Some(newer)) = (self.older, self.newer)
            && older > newer
        {
            return Err(FilterError::Contradiction(
                "older is longer than newer; exchange the times",
            ));
        }
        Ok(self)
    }
}

/// What is wrong with a filter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FilterError {
    /// A word without a key.
    #[error("{0:?} is not a term of a filter; write key:value, such as queue:mail")]
    NoTerm(String),
    /// A key that the grammar does not have.
    #[error("{0:?} is not a key of a filter; use one of {keys}", keys = KEYS.join(", "))]
    UnknownKey(String),
    /// A key that occurs twice.
    #[error(
        "{0} is given twice; separate several ids, states or causes by commas: state:ready,dead"
    )]
    Twice(String),
    /// A value that does not fit its key.
    #[error("the value of {key} is {value:?}: {why}")]
    #[non_exhaustive]
    Value {
        /// The key.
        key: String,
        /// What was given for it.
        value: String,
        /// What is wrong with it.
        why: String,
    },
    /// Terms that no job can match.
    #[error("no job can match this filter: {0}")]
    Contradiction(&'static str),
    /// A quote that is not closed.
    #[error(
        "the quoted value of {0} has no end; close it with a double quote and put a blank after it"
    )]
    OpenQuote(String),
}

const KEYS: [&str; 12] = [
    "id", "queue", "state", "cause", "name", "tag", "key", "batch", "worker", "error", "older",
    "newer",
];

/// The states that are printed and read as one word.
const WAITING: &str = "waiting";

/// An empty list.
const NONE: &str = "none";

impl fmt::Display for JobFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut terms = Vec::new();
        let list = |words: Vec<String>| match words.is_empty() {
            true => NONE.to_owned(),
            false => words.join(","),
        };
        if let Some(ids) = &self.ids {
            terms.push(format!("id:{}", list(ids.iter().map(JobId::to_string).collect())));
        }
        if let Some(queue) = &self.queue {
            terms.push(format!("queue:{}", quoted(queue)));
        }
        if let Some(states) = &self.states {
            let waiting = JobState::WAITING.iter().all(|state| states.contains(state));
            let rest = states.iter().filter(|state| !waiting || !state.is_waiting());
            let words = waiting.then(|| WAITING.to_owned()).into_iter();
            terms.push(format!(
                "state:{}",
                list(words.chain(rest.map(JobState::to_string)).collect())
            ));
        }
        if let Some(causes) = &self.causes {
            terms.push(format!("cause:{}", list(causes.iter().map(Cause::to_string).collect())));
        }
        let batch = self.batch.map(|batch| batch.to_string());
        for (key, value) in [
            ("name", &self.name),
            ("tag", &self.tag),
            ("key", &self.key),
            ("batch", &batch),
            ("worker", &self.worker),
            ("error", &self.error),
        ] {
            if let Some(value) = value {
                terms.push(format!("{key}:{}", quoted(value)));
            }
        }
        for (key, time) in [("older", self.older), ("newer", self.newer)] {
            if let Some(time) = time {
                terms.push(format!("{key}:{}", duration::unspaced(time)));
            }
        }
        f.write_str(&terms.join(" "))
    }
}

impl FromStr for JobFilter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let (mut filter, mut seen) = (Self::default(), BTreeSet::new());
        let mut rest = text.trim_start();
        while !rest.is_empty() {
            let word = || rest.split_whitespace().next().unwrap_or_default().to_owned();
            let (key, after) = rest
                .split_once(':')
                .filter(|(key, _)| !key.contains(char::is_whitespace))
                .ok_or_else(|| FilterError::NoTerm(word()))?;
            if !KEYS.contains(&key) {
                return Err(FilterError::UnknownKey(key.to_owned()));
            }
            if !seen.insert(key) {
                return Err(FilterError::Twice(key.to_owned()));
            }
            let (value, after) = read_value(key, after)?;
            filter.set(key, &value)?;
            rest = after.trim_start();
        }
        filter.checked()
    }
}

impl JobFilter {
    fn set(&mut self, key: &str, value: &str) -> Result<(), FilterError> {
        let bad =
            |why: String| FilterError::Value { key: key.to_owned(), value: value.to_owned(), why };
        let text = || Some(value.to_owned());
        let words = || value.split(',').filter(move |_| value != NONE);
        match key {
            "id" => {
                let ids = self.ids.get_or_insert_default();
                for id in words() {
                    let id = id.parse().map_err(|_| bad("an id is a whole number".to_owned()))?;
                    ids.insert(id);
                }
            }
            "state" => {
                let states = self.states.get_or_insert_default();
                for word in words() {
                    if word == WAITING {
                        states.extend(JobState::WAITING);
                    } else {
                        let state = word.parse::<JobState>();
                        states.insert(state.map_err(|error| bad(format!("{error}, {WAITING}")))?);
                    }
                }
            }
            "cause" => {
                let causes = self.causes.get_or_insert_default();
                for word in words() {
                    let cause = word.parse::<Cause>();
                    causes.insert(cause.map_err(|error| bad(error.to_string()))?);
                }
            }
            "queue" => self.queue = text(),
            "name" => self.name = text(),
            "tag" => self.tag = text(),
            "key" => self.key = text(),
            "batch" => {
                let id = value
                    .parse()
                    .map_err(|_| bad("the id of a batch is a whole number".to_owned()));
                self.batch = Some(id?);
            }
            "worker" => self.worker = text(),
            "error" => self.error = text(),
            "older" => self.older = Some(read_time(value).ok_or_else(|| bad(TIME.to_owned()))?),
            _ => self.newer = Some(read_time(value).ok_or_else(|| bad(TIME.to_owned()))?),
        }
        Ok(())
    }
}

/// Reads a value, up to the next blank or to its closing quote. Returns it and what follows.
fn read_value<'a>(key: &str, text: &'a str) -> Result<(String, &'a str), FilterError> {
    let Some(inside) = text.strip_prefix('"') else {
        let end = text.find(char::is_whitespace).unwrap_or(text.len());
        let (value, rest) = text.split_at_checked(end).unwrap_or((text, ""));
        if value.is_empty() || value.contains('"') {
            let why = match value.is_empty() {
                true => format!("put a value behind {key}:, in double quotes if it has blanks"),
                false => "put it in double quotes".to_owned(),
            };
            return Err(FilterError::Value { key: key.to_owned(), value: value.to_owned(), why });
        }
        return Ok((value.to_owned(), rest));
    };
    let open = || FilterError::OpenQuote(key.to_owned());
    let (mut value, mut letters) = (String::new(), inside.chars());
    loop {
        match letters.next().ok_or_else(open)? {
            '"' => break,
            '\\' => value.push(letters.next().ok_or_else(open)?),
            letter => value.push(letter),
        }
    }
    let rest = letters.as_str();
    match rest.chars().next().is_none_or(char::is_whitespace) {
        true => Ok((value, rest)),
        false => Err(open()),
    }
}

/// Prints a value so that [`read_value`] returns it.
fn quoted(value: &str) -> String {
    let plain = |letter: char| !letter.is_whitespace() && !letter.is_control() && letter != '"';
    if !value.is_empty() && value.chars().all(plain) {
        return value.to_owned();
    }
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

const TIME: &str = "write a time such as 30s, 1h or 2d12h";

/// The longest time that is kept: 1,000 years, which Postgres can subtract from any date.
const LONGEST: Duration = Duration::from_secs(1000 * 365 * 24 * 60 * 60);

/// Returns the time as it is printed: in whole milliseconds, at most [`LONGEST`].
fn whole(time: Duration) -> Duration {
    let time = time.min(LONGEST);
    time - Duration::from_nanos(u64::from(time.subsec_nanos() % 1_000_000))
}

fn read_time(text: &str) -> Option<Duration> {
    duration::parse(text).map(whole)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text() -> impl Strategy<Value = Option<String>> {
        proptest::option::of(prop_oneof!["[a-z.*]{1,8}", "\\PC{0,12}", "[ \"\\\\:,\n\t]{0,6}"])
    }

    fn time() -> impl Strategy<Value = Option<Duration>> {
        proptest::option::of(
            (0..=LONGEST.as_secs(), 0..1000_u32)
                .prop_map(|(seconds, millis)| whole(Duration::new(seconds, millis * 1_000_000))),
        )
    }

    fn some<T: Copy + Ord + fmt::Debug>(
        of: &'static [T],
    ) -> impl Strategy<Value = Option<BTreeSet<T>>> {
        let some = proptest::sample::subsequence(of, 0..=of.len());
        proptest::option::of(some.prop_map(|some| some.into_iter().collect()))
    }

    prop_compose! {
        fn filter()(
            ids in proptest::option::of(proptest::collection::btree_set(any::<i64>().prop_map(JobId), 0..3)),
            (states, causes) in (some(JobState::ALL), some(Cause::ALL)),
            (queue, name, tag, key) in (text(), text(), text(), text()),
            batch in proptest::option::of(any::<i64>()),
            (worker, error, older, newer) in (text(), text(), time(), time()),
        ) -> JobFilter {
            JobFilter { ids, queue, states, causes, name, tag, key, batch, worker, error, older, newer }
        }
    }

    proptest! {
        #[test]
        fn filter_is_read_as_it_is_printed(filter in filter()) {
            let printed = filter.to_string();
            prop_assert_eq!(printed.parse::<JobFilter>(), filter.checked());
        }

        #[test]
        fn text_of_any_kind_is_read_or_refused(text in "\\PC{0,60}") {
            if let Ok(filter) = text.parse::<JobFilter>() {
                prop_assert_eq!(filter.to_string().parse(), Ok(filter));
            }
        }
    }

    #[test]
    fn times_are_read_as_flags_read_them() {
        for text in [
            "newer:2d",
            "newer:48h",
            "newer:1d24h",
            "newer:2days",
            "newer:\"2 days\"",
            "newer:\"1 day 24 hours\"",
        ] {
            let filter = JobFilter::any().newer(Duration::from_secs(172_800));
            assert_eq!(text.parse(), Ok(filter), "{text}");
        }
        assert!("newer:\"2 months\"".parse::<JobFilter>().is_err());
    }

    #[test]
    fn waiting_filter_matches_three_states() {
        let filter: JobFilter = "state:dead,waiting".parse().unwrap();
        assert_eq!(filter, JobFilter::any().waiting().states([JobState::Dead]));
        assert_eq!(filter.to_string(), "state:waiting,dead");
        assert_eq!(JobFilter::any().waiting().only(&[JobState::Dead]), None);
    }

    #[test]
    fn filter_with_an_empty_list_matches_no_job() {
        for (filter, text) in [
            (JobFilter::any().ids([]), "id:none"),
            (JobFilter::any().states([]), "state:none"),
            (JobFilter::any().causes([]), "cause:none"),
        ] {
            assert!(!filter.is_any(), "{text}");
            assert_eq!((filter.to_string().as_str(), text.parse()), (text, Ok(filter)));
        }
        assert_eq!(JobFilter::any().states([]).only(&[JobState::Dead]), None);
        assert!("id:none,1".parse::<JobFilter>().is_err());
    }

    #[test]
    fn invalid_filter_is_refused_with_the_correct_form() {
        for (text, words) in [
            ("mail", "write key:value"),
            ("colour:red", "is not a key of a filter; use one of id, queue"),
            ("queue:a queue:b", "queue is given twice"),
            ("state:pending", "is not a state"),
            ("cause:bored", "is not a cause"),
            ("id:x", "whole number"),
            ("older:soon", "write a time such as"),
            ("older:", "double quotes"),
            ("error:\"no end", "no end"),
            ("tag:\"a\"b", "no end"),
            ("cause:lost state:ready", "only dead jobs have a cause"),
            ("older:2d newer:1h", "older is longer than newer"),
        ] {
            let error = text.parse::<JobFilter>().expect_err(text).to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn filters_are_joined_unless_they_contradict_each_other() {
        let read = |text: &str| text.parse::<JobFilter>().unwrap();
        assert_eq!(read("queue:a").and(read("tag:b")), Ok(read("queue:a tag:b")));
        assert_eq!(read("queue:a").and(read("queue:a")), Ok(read("queue:a")));
        assert!(read("queue:a").and(read("queue:b")).is_err());
        assert!(read("state:dead").and(read("state:ready")).is_err());
    }
}
