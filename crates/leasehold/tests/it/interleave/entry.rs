//! One entry of the trail, as the judge reads it.

use serde_json::Value;
use tokio_postgres::Row;

/// One entry of the trail.
pub struct Entry {
    pub tx: i64,
    pub actor: String,
    pub fence: Option<i64>,
    pub place: String,
    pub action: String,
    before: Option<Value>,
    after: Option<Value>,
    pub overdue: Option<bool>,
    pub due: Option<bool>,
}

impl Entry {
    pub fn from(row: &Row) -> Self {
        Self {
            tx: row.get(0),
            actor: row.get(1),
            fence: row.get(2),
            place: row.get(3),
            action: row.get(4),
            before: row.get(5),
            after: row.get(6),
            overdue: row.get(7),
            due: row.get(8),
        }
    }

    pub fn before(&self, column: &str) -> Value {
        self.before.as_ref().map_or(Value::Null, |row| row[column].clone())
    }

    pub fn after(&self, column: &str) -> Value {
        self.after.as_ref().map_or(Value::Null, |row| row[column].clone())
    }

    pub fn id(&self) -> i64 {
        [self.after("id"), self.before("id")].iter().find_map(Value::as_i64).unwrap_or(0)
    }
}
