//! Measurements: the sample that housekeeping takes every minute, and series for charts.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::types::Type;

use super::session::handle;
use crate::error::AdminError;

handle! {
    /// Samples of the database: [`Leasehold::measurements`](crate::Leasehold::measurements).
    Measurements
}

/// When the last sample was taken.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct SampleTime {
    /// The time of the database.
    pub now: Timestamp,
    /// When the last sample was taken; `None`: never.
    pub at: Option<Timestamp>,
    /// True if that was within three minutes. Otherwise the current state is unknown, and alarms are neither
    /// raised nor cleared.
    pub fresh: bool,
}

/// One value of a sample.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Measurement {
    /// The minute of the sample.
    pub at: Timestamp,
    /// What the subject is: `queue`, `tag`, `sweep`, `mirror` or `database`.
    pub kind: String,
    /// The name of the queue, tag, sweep or mirror; empty for the database.
    pub subject: String,
    /// The name of the metric, such as `ready`.
    pub metric: String,
    /// True: what happened in the minute. False: a level at its end.
    pub flow: bool,
    /// The value.
    pub value: f64,
}

/// One step of a series.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SeriesPoint {
    /// When the step begins.
    pub at: Timestamp,
    /// The sum of what happened, or the mean of a level; `None`: nothing was measured.
    pub value: Option<f64>,
    /// How many minutes of the step were measured.
    pub minutes: i64,
}

/// Which series: by default of the last 30 minutes, one step per minute, of all subjects together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeriesQuery {
    kind: String,
    metrics: Vec<String>,
    subject: Option<String>,
    back: Duration,
    step: Duration,
}

impl SeriesQuery {
    /// The sum of these metrics of a kind, such as `completed` of `queue`.
    pub fn new(
        kind: impl Into<String>,
        metrics: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        Self {
            kind: kind.into(),
            metrics: metrics.into_iter().map(Into::into).collect(),
            subject: None,
            back: Duration::from_secs(30 * 60),
            step: MINUTE,
        }
    }

    /// Only of this queue, tag, sweep or mirror.
    pub fn subject(mut self, subject: impl Into<String>) -> Self {
        self.subject = Some(subject.into());
        self
    }

    /// How far back. Beyond 24 hours there are hours instead of minutes, for 90 days.
    pub fn back(mut self, back: Duration) -> Self {
        self.back = back;
        self
    }

    /// The length of a step, one minute at least. A series has at most 2,000 steps.
    pub fn step(mut self, step: Duration) -> Self {
        self.step = step;
        self
    }
}

const MINUTE: Duration = Duration::from_secs(60);
/// The most steps of a series.
const MOST_STEPS: u32 = 2000;
/// The most values of a sample that are returned.
const MOST_VALUES: i64 = 20_000;

impl Measurements<'_> {
    /// Returns when the last sample was taken, and whether it is recent.
    pub async fn sampled(&self) -> Result<SampleTime, AdminError> {
        // Without the row of the duty, no sample was ever taken.
        let sql = "select statement_timestamp() as now, m.at, coalesce(m.fresh, false) as fresh \
                     from (values (1)) one left join leasehold_internal.measured() m on true";
        let rows = self.session.query(sql, &[]).await?;
        let Some(row) = rows.first() else {
            return Err(AdminError::Refused(
                "the database returned no row for its time".to_owned(),
            ));
        };
        Ok(SampleTime { now: row.get("now"), at: row.get("at"), fresh: row.get("fresh") })
    }

    /// Returns the values of these kinds in the last sample, up to 20,000; none if it is older than 15 minutes.
    pub async fn latest(&self, kinds: &[&str]) -> Result<Vec<Measurement>, AdminError> {
        let sql = "select * from leasehold_internal.latest() where kind = any ($1) limit $2";
        let params = [(&kinds as _, Type::TEXT_ARRAY), (&MOST_VALUES as _, Type::INT8)];
        let rows = self.session.query(sql, &params).await?;
        Ok(rows
            .iter()
            .map(|row| Measurement {
                at: row.get("at"),
                kind: row.get("kind"),
                subject: row.get("subject"),
                metric: row.get("metric"),
                flow: row.get("flow"),
                value: row.get("value"),
            })
            .collect())
    }

    /// Returns a series, the oldest step first.
    pub async fn series(&self, query: &SeriesQuery) -> Result<Vec<SeriesPoint>, AdminError> {
        let SeriesQuery { kind, metrics, subject, back, step } = query;
        if *step < MINUTE || back.div_duration_f64(*step) > f64::from(MOST_STEPS) {
            return Err(AdminError::Refused(format!(
                "a series of {back:?} in steps of {step:?} is not possible; a step takes one minute at least, \
                 and a series has at most {MOST_STEPS} steps"
            )));
        }
        let sql = "select at, value, minutes from leasehold_internal.series($1, $2, $3, \
                   make_interval(secs => $4), make_interval(secs => $5))";
        let params = [
            (&kind as _, Type::TEXT),
            (&metrics as _, Type::TEXT_ARRAY),
            (&subject as _, Type::TEXT),
            (&back.as_secs_f64() as _, Type::FLOAT8),
            (&step.as_secs_f64() as _, Type::FLOAT8),
        ];
        let rows = self.session.query(sql, &params).await?;
        Ok(rows
            .iter()
            .map(|row| SeriesPoint {
                at: row.get("at"),
                value: row.get("value"),
                minutes: row.get("minutes"),
            })
            .collect())
    }
}
