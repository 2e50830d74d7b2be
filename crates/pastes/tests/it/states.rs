//! Pastes and contents can make exactly the moves that docs/states.md draws.

use std::collections::BTreeSet;

use crate::fixture::Fixture;

const STATES: &str = include_str!("../../../../docs/states.md");

/// Returns the arrows between named states in the drawing under a heading.
fn drawn(heading: &str) -> BTreeSet<(String, String)> {
    let section = STATES.split("\n## ").find(|part| part.starts_with(heading)).unwrap();
    let drawing = section.split("```").nth(1).unwrap();
    drawing
        .lines()
        .filter_map(|line| line.split_once(" --> "))
        .map(|(from, rest)| (from.trim(), rest.split(':').next().unwrap().trim()))
        .filter(|(from, to)| *from != "[*]" && *to != "[*]")
        .map(|(from, to)| (from.to_owned(), to.to_owned()))
        .collect()
}

/// Returns the states that a CHECK of the table allows.
async fn words(fixture: &Fixture, table: &str, column: &str) -> Vec<String> {
    let sql = "select pg_get_constraintdef(c.oid) from pg_constraint c \
               where c.conrelid = $1::text::regclass and c.contype = 'c' \
                 and pg_get_constraintdef(c.oid) ~ ('^CHECK \\(\\(\\(' || $2 || '\\)?::text = ANY')";
    let row = fixture.client.query_one(sql, &[&table, &column]).await.unwrap();
    let text: String = row.get(0);
    text.split('\'').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Tries every move between two states of a fresh row. Returns the moves that succeeded.
async fn allowed(
    fixture: &Fixture,
    table: &str,
    column: &str,
    watchdog: bool,
) -> BTreeSet<(String, String)> {
    let words = words(fixture, table, column).await;
    assert!(words.len() >= 3, "{words:?}");
    let mut allowed = BTreeSet::new();
    for from in &words {
        for to in words.iter().filter(|to| *to != from) {
            let more = |word: &str| match (column, word) {
                ("status", "PROCESSED") => ", s3_url = 'x'",
                ("status", _) => ", s3_url = null",
                ("deletion_status", "NOT_EXPIRED") => {
                    ", deletion_claim = null, deletion_initiated_at = null"
                }
                ("deletion_status", _) => ", deletion_claim = 1, deletion_initiated_at = now()",
                ("state", "DOOMED" | "GONE") => ", ref_count = 0",
                _ => ", ref_count = 1",
            };
            let by = if watchdog { "pastes.expiry" } else { "" };
            let script = format!(
                "begin; alter table {table} disable trigger user; \
                 update {table} set {column} = '{from}'{}; \
                 alter table {table} enable trigger user; \
                 select set_config('leasehold.watchdog', '{by}', true); \
                 update {table} set {column} = '{to}'{}; rollback;",
                more(from),
                more(to),
            );
            match fixture.client.batch_execute(&script).await {
                Ok(()) => drop(allowed.insert((from.clone(), to.clone()))),
                Err(error) => {
                    assert_eq!(error.code().unwrap().code(), "PB001", "{from} to {to}: {error:?}");
                    fixture.client.batch_execute("rollback").await.unwrap();
                }
            }
        }
    }
    allowed
}

#[tokio::test]
async fn database_allows_exactly_the_documented_moves() {
    let fixture = Fixture::new().await;
    fixture.paste("hello").await;
    let status = allowed(&fixture, "pastes.pastes", "status", false).await;
    assert_eq!(status, drawn("A paste's upload"));
    let content = allowed(&fixture, "pastes.contents", "state", false).await;
    assert_eq!(content, drawn("Content"));
    let deletion = allowed(&fixture, "pastes.pastes", "deletion_status", true).await;
    assert_eq!(deletion, drawn("A paste's end"));
}

#[tokio::test]
async fn only_the_watchdog_moves_a_paste_back() {
    let fixture = Fixture::new().await;
    fixture.paste("hello").await;
    let mut forward = drawn("A paste's end");
    let back = ("DELETION_IN_PROGRESS".to_owned(), "NOT_EXPIRED".to_owned());
    assert!(forward.remove(&back));
    assert_eq!(allowed(&fixture, "pastes.pastes", "deletion_status", false).await, forward);
}

#[tokio::test]
async fn columns_have_the_published_types_and_defaults() {
    let fixture = Fixture::new().await;
    let sql = "select column_name::text, data_type::text, character_maximum_length, \
                      column_default::text, is_nullable::text \
               from information_schema.columns \
               where table_schema = 'pastes' and table_name = 'pastes'";
    let rows = fixture.client.query(sql, &[]).await.unwrap();
    let column = |name: &str| {
        let row = rows.iter().find(|row| row.get::<_, &str>(0) == name).unwrap();
        let (kind, length, default, null): (String, Option<i32>, Option<String>, String) =
            (row.get(1), row.get(2), row.get(3), row.get(4));
        (kind, length, default.map(|text| text.replace("::character varying", "")), null)
    };
    let varchar = |default: &str| {
        ("character varying".to_owned(), Some(20), Some(format!("'{default}'")), "NO".to_owned())
    };
    assert_eq!(column("status"), varchar("IN_PROGRESS"));
    assert_eq!(column("deletion_status"), varchar("NOT_EXPIRED"));
    let (kind, _, default, null) = column("deletion_initiated_at");
    assert_eq!((kind.as_str(), default, null.as_str()), ("timestamp with time zone", None, "YES"));
}
