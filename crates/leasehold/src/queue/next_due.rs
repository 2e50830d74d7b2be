//! When the next job of a queue is due: how long an idle worker may sleep.

use std::time::Duration;

use tokio_postgres::types::Type;

use super::cursors::Lane;
use crate::link::Links;

// The duration is the server's, without the network.
const NEXT_DUE: &str = "select leasehold_internal.next_due($1, $2, $3, $4, make_interval(secs => $5)), \
                        extract(epoch from clock_timestamp() - statement_timestamp())::float8";

/// What an idle worker waits for, and how long the server took to find out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextDue {
    pub(crate) wait: Wait,
    pub(crate) took: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Wait {
    /// The next job falls due after this time.
    In(Duration),
    /// None is due within the requested time, or the database did not reply: the caller polls.
    Unknown,
    /// The queue is paused.
    Paused,
}

/// Returns when the next job of these names is due, if that is within `within`. `lanes`: those
/// that the worker knows, in order.
pub(crate) async fn next_due(
    links: &Links,
    queue: &str,
    names: &[String],
    lanes: &[Lane],
    within: Duration,
) -> NextDue {
    let seconds = within.as_secs_f64();
    let deferred: Vec<bool> = lanes.iter().map(|lane| lane.deferred).collect();
    let priorities: Vec<i32> = lanes.iter().map(|lane| lane.priority).collect();
    let params = [
        (&queue as _, Type::TEXT),
        (&names as _, Type::TEXT_ARRAY),
        (&deferred as _, Type::BOOL_ARRAY),
        (&priorities as _, Type::INT4_ARRAY),
        (&seconds as _, Type::FLOAT8),
    ];
    let rows = links.query(NEXT_DUE, &params).await.unwrap_or_default();
    let Some(row) = rows.first() else {
        return NextDue { wait: Wait::Unknown, took: Duration::ZERO };
    };
    let time = |seconds: f64| Duration::try_from_secs_f64(seconds.max(0.0));
    let wait = match row.get::<_, Option<f64>>(0).map(time) {
        None => Wait::Unknown,
        Some(Ok(time)) => Wait::In(time),
        Some(Err(_)) => Wait::Paused,
    };
    NextDue { wait, took: time(row.get(1)).unwrap_or_default() }
}
