//! Intervals of the database, read and shown as seconds.

use std::time::Duration;

use serde::Serializer;

/// Reads seconds. A negative interval is zero, and one that is too long is the longest.
pub(super) fn read(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or(Duration::MAX)
}

pub(super) fn show<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(time.as_secs_f64())
}

pub(super) fn show_if_any<S: Serializer>(
    time: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match time {
        Some(time) => show(time, serializer),
        None => serializer.serialize_none(),
    }
}
