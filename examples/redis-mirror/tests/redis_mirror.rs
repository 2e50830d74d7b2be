//! The example of a mirror: what reaches Redis, what the mirror repairs, and its length.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::process::{Child, Command};
use std::time::Duration;

use leasehold_testing::{PrivateRedis, TestDatabase};
use redis::AsyncCommands;

const SAMPLE: &str = include_str!("../src/main.rs");

const TABLES: &str = "
    create table authors (id int primary key, name text not null);
    create table books (isbn text primary key, title text not null, author int not null);
    insert into authors values (1, 'Cervantes');
    insert into books values ('1', 'The Ingenious Gentleman', 1), ('2', 'Galatea', 1)";

/// Killed with the test, however the test ends.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a book in Redis, without its version, equals `wanted`.
async fn until(server: &PrivateRedis, isbn: &str, wanted: Option<&str>) {
    let mut client = server.connect().await.expect("Redis");
    let asking = async {
        loop {
            let field: Option<String> = client.hget("books", isbn).await.expect("a field");
            let book =
                field.as_deref().and_then(|field| field.split_once(' ')).map(|(_, book)| book);
            if book.filter(|book| !book.is_empty()) == wanted {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), asking)
        .await
        .unwrap_or_else(|_| panic!("{isbn} does not become {wanted:?}"));
}

#[tokio::test]
async fn redis_follows_the_table_of_books() {
    let server = PrivateRedis::start().expect("Redis");
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    client
        .batch_execute("drop schema leasehold, leasehold_internal cascade")
        .await
        .expect("an empty database");
    client.batch_execute(TABLES).await.expect("tables");
    let child = Command::new(env!("CARGO_BIN_EXE_redis-mirror"))
        .env("DATABASE_URL", database.url())
        .env("REDIS_URL", server.url())
        .spawn()
        .expect("it starts");
    let mut program = Ends(child);
    // The check finds books that were there before the mirror.
    until(&server, "2", Some(r#"{"author":"Cervantes","title":"Galatea"}"#)).await;
    client
        .batch_execute(
            "update books set title = 'Don Quixote' where isbn = '1'; delete from books where isbn = '2';
             insert into books values ('3', 'Persiles', 1)",
        )
        .await
        .expect("changes");
    until(&server, "1", Some(r#"{"author":"Cervantes","title":"Don Quixote"}"#)).await;
    until(&server, "2", None).await;
    until(&server, "3", Some(r#"{"author":"Cervantes","title":"Persiles"}"#)).await;
    // Redis loses everything, and the table does not change.
    server.flush().await.expect("flushed");
    until(&server, "3", Some(r#"{"author":"Cervantes","title":"Persiles"}"#)).await;
    let interrupt = ["-INT", &program.0.id().to_string()];
    assert!(Command::new("kill").args(interrupt).status().expect("sent").success());
    let ended = tokio::task::spawn_blocking(move || program.0.wait().expect("an end"));
    let status = tokio::time::timeout(Duration::from_secs(60), ended).await.expect("in time");
    assert!(status.expect("ended").success());
}

#[test]
fn example_has_fewer_than_60_lines() {
    assert!(SAMPLE.lines().count() < 60, "{} lines", SAMPLE.lines().count());
}
