//! What the catalogue has about a table of the user, and whether it fits a declaration.

use std::collections::HashMap;

use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};

use super::quote::quote_table;
use crate::error::CallError;
use crate::link::Link;

const TABLE: &str = include_str!("../../queries/table.sql");

/// Why a table cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// The table, or SQL on it, does not fit the declaration; the text says what to do.
    #[error("{0}")]
    Unfit(String),
    /// The database did not respond, or refused.
    #[error(transparent)]
    Call(#[from] CallError),
}

/// A plain table, and those of its columns that a declaration names.
#[derive(Clone, Debug)]
pub struct UserTable {
    /// As the declaration names it, quoted.
    quoted: String,
    full_name: String,
    columns: HashMap<String, Column>,
}

/// A column.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Column {
    /// The type without a length, such as `character`.
    pub base_type: String,
    /// The whole type, such as `character(26)`.
    pub full_type: String,
    /// It is declared `not null`.
    pub not_null: bool,
    /// A unique index without a predicate is on this column alone.
    pub is_unique: bool,
    /// A partial index begins with this column.
    pub begins_partial_index: bool,
}

impl UserTable {
    /// Reads a table, named as `table` or `schema.table`, and the columns of these names. Fails if it does
    /// not exist, or has partitions or children: statements that go by row address would mix up their rows.
    pub async fn read(link: &Link, table: &str, columns: &[&str]) -> Result<Self, TableError> {
        let quoted = quote_table(table);
        let rows =
            link.query(TABLE, &[(&quoted, Type::TEXT), (&columns, Type::TEXT_ARRAY)]).await?;
        Self::from_rows(quoted, &rows)
    }

    /// The same on a client or in a transaction.
    pub async fn read_in(
        client: &impl GenericClient,
        table: &str,
        columns: &[&str],
    ) -> Result<Self, TableError> {
        let quoted = quote_table(table);
        let params = [(&quoted as _, Type::TEXT), (&columns as _, Type::TEXT_ARRAY)];
        let rows = client.query_typed(TABLE, &params).await.map_err(CallError::Database)?;
        Self::from_rows(quoted, &rows)
    }

    fn from_rows(quoted: String, rows: &[Row]) -> Result<Self, TableError> {
        let Some(first) = rows.first() else {
            return unfit(format!(
                "there is no table {quoted}; create it, or write it as schema.table"
            ));
        };
        let (schema, relation): (&str, &str) = (first.get("schema"), first.get("relation"));
        if schema.contains('.') {
            return unfit(format!(
                "the schema {schema:?} of {quoted} has a dot in its name; rename it"
            ));
        }
        if first.get::<_, &str>("relkind") != "r" || first.get::<_, bool>("has_children") {
            return unfit(format!(
                "{quoted} is not a plain table; declare each partition or child by itself"
            ));
        }
        let column = |row: &Row| {
            let column = Column {
                base_type: row.get::<_, Option<String>>("base_type")?,
                full_type: row.get::<_, Option<String>>("full_type")?,
                not_null: row.get::<_, Option<bool>>("not_null").unwrap_or(false),
                is_unique: row.get("is_unique"),
                begins_partial_index: row.get("begins_partial_index"),
            };
            Some((row.get("name"), column))
        };
        let columns = rows.iter().filter_map(column).collect();
        Ok(Self { quoted, full_name: format!("{schema}.{relation}"), columns })
    }

    /// Returns the table with its schema.
    pub fn full_name(&self) -> &str {
        &self.full_name
    }

    /// Returns a column that was asked for, if the table has it.
    pub fn find(&self, column: &str) -> Option<&Column> {
        self.columns.get(column)
    }

    /// Returns a column; `advice` is the end of the error if the table does not have it.
    pub fn column(&self, column: &str, advice: &str) -> Result<&Column, TableError> {
        self.find(column).ok_or_else(|| {
            TableError::Unfit(format!("{} has no column {column:?}; {advice}", self.quoted))
        })
    }

    /// Checks that a column has this type, with or without a length.
    pub fn must_be(&self, column: &str, wanted: &str, advice: &str) -> Result<(), TableError> {
        match &*self.column(column, advice)?.base_type {
            found if found == wanted => Ok(()),
            found => unfit(format!("{}.{column} is {found}; it must be {wanted}", self.quoted)),
        }
    }

    /// Checks that a column identifies a row: it is not null, and no two rows have the same value.
    pub fn must_identify(&self, column: &str) -> Result<(), TableError> {
        match self.find(column) {
            Some(Column { not_null: true, is_unique: true, .. }) => Ok(()),
            _ => unfit(format!(
                "{}.{column} does not tell rows apart; it must be not null and have a unique index",
                self.quoted
            )),
        }
    }
}

fn unfit<T>(text: String) -> Result<T, TableError> {
    Err(TableError::Unfit(text))
}
