//! Selects jobs by id, or by queue, name and tag.

use std::time::Duration;

use leasehold::JobState;
use tokio_postgres::types::Type;

use super::db::Db;
use super::record::Record;
use crate::exit::Failure;

/// The flags that select jobs.
#[derive(clap::Args, Debug, Clone, Default)]
pub struct Filter {
    /// Jobs of this queue
    #[arg(long)]
    pub queue: Option<String>,
    /// Jobs of this name; `*` matches anything: 'email.*'
    #[arg(long)]
    pub name: Option<String>,
    /// Jobs with this tag
    #[arg(long)]
    pub tag: Option<String>,
}

impl Filter {
    pub fn is_empty(&self) -> bool {
        self.queue.is_none() && self.name.is_none() && self.tag.is_none()
    }
}

/// A complete query for jobs.
#[derive(Clone, Default)]
pub struct Question {
    pub filter: Filter,
    /// Empty: any state.
    pub states: Vec<JobState>,
    pub ids: Vec<i64>,
    pub cause: Option<String>,
    /// Only ids below this one.
    pub before: Option<i64>,
    /// How far back to look for finished jobs; `None`: the whole history.
    pub since: Option<Duration>,
    pub limit: i64,
}

impl Question {
    pub fn ids(ids: &[i64]) -> Self {
        Self {
            ids: ids.to_vec(),
            limit: i64::try_from(ids.len()).unwrap_or(i64::MAX),
            ..Self::default()
        }
    }

    pub async fn ask(&self, db: &Db) -> Result<Vec<Record>, Failure> {
        let rows = self.run(db, include_str!("../queries/jobs.sql")).await?;
        Ok(rows.iter().map(Record::read).collect())
    }

    /// Returns the number of matching jobs, up to the limit.
    pub async fn count(&self, db: &Db) -> Result<usize, Failure> {
        let counting =
            format!("select count(*) from ({}) matching", include_str!("../queries/jobs.sql"));
        let rows = self.run(db, &counting).await?;
        let count: i64 = rows.first().map_or(0, |row| row.get(0));
        Ok(usize::try_from(count).unwrap_or(0))
    }

    async fn run(&self, db: &Db, sql: &str) -> Result<Vec<tokio_postgres::Row>, Failure> {
        let states: Vec<&str> = self.states.iter().map(|state| state.as_str()).collect();
        let states = (!states.is_empty()).then_some(states);
        let ids = (!self.ids.is_empty()).then_some(&self.ids);
        let name = self.filter.name.as_deref().map(like);
        let since = self.since.map(|since| since.as_secs_f64());
        db.query(
            sql,
            &[
                (&states, Type::TEXT_ARRAY),
                (&self.filter.queue, Type::TEXT),
                (&name, Type::TEXT),
                (&self.filter.tag, Type::TEXT),
                (&ids, Type::INT8_ARRAY),
                (&self.before, Type::INT8),
                (&self.cause, Type::TEXT),
                (&since, Type::FLOAT8),
                (&self.limit, Type::INT8),
            ],
        )
        .await
    }
}

/// Converts `email.*` to a LIKE pattern, and escapes `_` and `%`.
fn like(pattern: &str) -> String {
    let mut text = String::with_capacity(pattern.len());
    for c in pattern.chars() {
        match c {
            '*' => text.push('%'),
            '%' | '_' | '\\' => text.extend(['\\', c]),
            c => text.push(c),
        }
    }
    text
}

/// Parses a state, by its stored name or by the common word.
pub fn parse_state(word: &str) -> Result<JobState, String> {
    match word {
        "waiting" => Ok(JobState::Pending),
        "running" => Ok(JobState::Processing),
        "dead" => Ok(JobState::DeadLetter),
        "completed" => Ok(JobState::Done),
        other => other.parse(),
    }
}

#[cfg(test)]
mod tests {
    use super::like;

    #[test]
    fn only_a_star_stands_for_anything() {
        assert_eq!(like("email.*"), "email.%");
        assert_eq!(like("a_b%"), "a\\_b\\%");
    }
}
