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
//! | `error:"no route"` | has this text in its last error, whatever the case of its letters |
//! | `older:1h` | was finished, claimed or else enqueued longer ago than this |
//! | `newer:2d12h` | was finished, claimed or else enqueued within this time |
//!
//! Put a value with blanks into double quotes, in which `\"` and `\\` are a quote and a backslash. Times have
//! the units `d`, `h`, `m`, `s` and `ms`. Each key occurs once.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::job::{Cause, JobId, JobState};
use crate::queue::batch::BatchId;

/// Which jobs. See the [module](self) for the grammar that [`FromStr`] reads and [`Display`](fmt::Display)
/// prints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobFilter {
    pub(super) ids: BTreeSet<JobId>,
    pub(super) queue: Option<String>,
    pub(super) states: BTreeSet<JobState>,
    pub(super) causes: BTreeSet<Cause>,
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

    /// Jobs with one of these ids.
    pub fn ids(mut self, ids: impl IntoIterator<Item = JobId>) -> Self {
        self.ids.extend(ids);
        self
    }

    /// Jobs of this queue.
    pub fn queue(mut self, queue: impl Into<String>) -> Self {
        self.queue = Some(queue.into());
        self
    }

    /// Jobs in one of these states, and in those that were given before.
    pub fn states(mut self, states: impl IntoIterator<Item = JobState>) -> Self {
        self.states.extend(states);
        self
    }

    /// Scheduled, ready and retrying jobs.
    pub fn waiting(self) -> Self {
        self.states(JobState::WAITING.iter().copied())
    }

    /// Jobs that died for one of these causes.
    pub fn causes(mut self, causes: impl IntoIterator<Item = Cause>) -> Self {
        self.causes.extend(causes);
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

    /// Jobs with this text in their last error, whatever the case of its letters.
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
        if self.states.is_empty() {
            self.states = states.iter().copied().collect();
        } else {
            self.states.retain(|state| states.contains(state));
        }
        (!self.states.is_empty()).then_some(self)
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
        fn many<T: Ord>(
            mine: &mut BTreeSet<T>,
            other: BTreeSet<T>,
            key: &'static str,
        ) -> Result<(), FilterError> {
            if !mine.is_empty() && !other.is_empty() && *mine != other {
                return Err(FilterError::Twice(key.to_owned()));
            }
            mine.extend(other);
            Ok(())
        }
        many(&mut self.ids, other.ids, "id")?;
        one(&mut self.queue, other.queue, "queue")?;
        many(&mut self.states, other.states, "state")?;
        many(&mut self.causes, other.causes, "cause")?;
        one(&mut self.name, other.name, "name")?;
        one(&mut self.tag, other.tag, "tag")?;
        one(&mut self.key, other.key, "key")?;
        one(&mut self.batch, other.batch, "batch")?;
        one(&mut self.worker, other.worker, "worker")?;
        one(&mut self.error, other.error, "error")?;
        one(&mut self.older, other.older, "older")?;
        one(&mut self.newer, other.newer, "newer")?;
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
    Value {
        /// The key.
        key: String,
        /// What was given for it.
        value: String,
        /// What is wrong with it.
        why: String,
    },
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

impl fmt::Display for JobFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut terms = Vec::new();
        let list = |words: Vec<String>| words.join(",");
        if !self.ids.is_empty() {
            terms.push(format!("id:{}", list(self.ids.iter().map(JobId::to_string).collect())));
        }
        if let Some(queue) = &self.queue {
            terms.push(format!("queue:{}", quoted(queue)));
        }
        if !self.states.is_empty() {
            let waiting = JobState::WAITING.iter().all(|state| self.states.contains(state));
            let rest = self.states.iter().filter(|state| !waiting || !state.is_waiting());
            let words = waiting.then(|| WAITING.to_owned()).into_iter();
            terms.push(format!(
                "state:{}",
                list(words.chain(rest.map(JobState::to_string)).collect())
            ));
        }
        if !self.causes.is_empty() {
            terms.push(format!(
                "cause:{}",
                list(self.causes.iter().map(Cause::to_string).collect())
            ));
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
                terms.push(format!("{key}:{}", print_time(time)));
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
        Ok(filter)
    }
}

impl JobFilter {
    fn set(&mut self, key: &str, value: &str) -> Result<(), FilterError> {
        let bad =
            |why: String| FilterError::Value { key: key.to_owned(), value: value.to_owned(), why };
        let text = || Some(value.to_owned());
        match key {
            "id" => {
                for id in value.split(',') {
                    let id = id.parse().map_err(|_| bad("an id is a whole number".to_owned()))?;
                    self.ids.insert(id);
                }
            }
            "state" => {
                for word in value.split(',') {
                    if word == WAITING {
                        self.states.extend(JobState::WAITING);
                    } else {
                        let state = word.parse::<JobState>();
                        self.states
                            .insert(state.map_err(|error| bad(format!("{error}, {WAITING}")))?);
                    }
                }
            }
            "cause" => {
                for word in value.split(',') {
                    let cause = word.parse::<Cause>();
                    self.causes.insert(cause.map_err(|error| bad(error.to_string()))?);
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

const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// The longest time that is kept: 1,000 years, which Postgres can subtract from any date.
const LONGEST: u64 = 1000 * 365 * 86_400_000;

fn whole(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX).min(LONGEST))
}

fn print_time(time: Duration) -> String {
    let mut left = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for (unit, length) in UNITS {
        if left >= length {
            text.push_str(&format!("{}{unit}", left / length));
            left %= length;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

fn read_time(text: &str) -> Option<Duration> {
    let (mut sum, mut rest) = (0_u64, text);
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit())?;
        let (number, after) = rest.split_at_checked(digits)?;
        let end = after.find(|letter: char| letter.is_ascii_digit()).unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(end)?;
        let (_, length) = UNITS.iter().find(|(known, _)| *known == unit)?;
        sum = sum.checked_add(number.parse::<u64>().ok()?.checked_mul(*length)?)?;
        rest = after;
    }
    (!text.is_empty()).then(|| whole(Duration::from_millis(sum)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text() -> impl Strategy<Value = Option<String>> {
        proptest::option::of(prop_oneof!["[a-z.*]{1,8}", "\\PC{0,12}", "[ \"\\\\:,\n\t]{0,6}"])
    }

    fn time() -> impl Strategy<Value = Option<Duration>> {
        proptest::option::of((0..=LONGEST).prop_map(Duration::from_millis))
    }

    fn some<T: Copy + Ord + fmt::Debug>(of: &'static [T]) -> impl Strategy<Value = BTreeSet<T>> {
        proptest::sample::subsequence(of, 0..=of.len()).prop_map(|some| some.into_iter().collect())
    }

    prop_compose! {
        fn filter()(
            ids in proptest::collection::btree_set(any::<i64>().prop_map(JobId), 0..3),
            (states, causes) in (some(JobState::ALL), some(Cause::ALL)),
            (queue, name, tag, key) in (text(), text(), text(), text()),
            (worker, error, older, newer) in (text(), text(), time(), time()),
        ) -> JobFilter {
            JobFilter { ids, queue, states, causes, name, tag, key, worker, error, older, newer }
        }
    }

    proptest! {
        #[test]
        fn a_filter_is_read_as_it_is_printed(filter in filter()) {
            let printed = filter.to_string();
            prop_assert_eq!(printed.parse::<JobFilter>(), Ok(filter));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,60}") {
            if let Ok(filter) = text.parse::<JobFilter>() {
                prop_assert_eq!(filter.to_string().parse(), Ok(filter));
            }
        }
    }

    #[test]
    fn waiting_is_three_states_in_one_word() {
        let filter: JobFilter = "state:dead,waiting".parse().unwrap();
        assert_eq!(filter, JobFilter::any().waiting().states([JobState::Dead]));
        assert_eq!(filter.to_string(), "state:waiting,dead");
        assert_eq!(JobFilter::any().waiting().only(&[JobState::Dead]), None);
    }

    #[test]
    fn a_mistake_is_named_with_what_to_write() {
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
