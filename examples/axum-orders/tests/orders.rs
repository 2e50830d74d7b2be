//! The shop as a separate process, called over HTTP.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::process::Stdio;
use std::time::Duration;

use axum_orders::orders::Order;
use leasehold_testing::TestDatabase;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use tokio_postgres::Client;

const LIMIT: Duration = Duration::from_secs(60);

/// The running shop. Killed when the test ends.
struct Shop {
    process: Child,
    address: String,
    http: reqwest::Client,
}

impl Shop {
    async fn open(database: &TestDatabase) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_axum-orders"))
            .env("DATABASE_URL", database.url())
            .env("LISTEN", "127.0.0.1:0")
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("the shop starts");
        let mut lines = BufReader::new(process.stdout.take().expect("a pipe")).lines();
        let first = timeout(LIMIT, lines.next_line()).await.expect("a first line in time");
        let first = first.expect("readable").expect("the shop prints its address");
        let address = first.strip_prefix("listening on ").expect("an address").to_owned();
        Self { process, address, http: leasehold_testing::http::client() }
    }

    async fn order(&self, key: Option<&str>, body: Value) -> (StatusCode, Value) {
        let mut request = self.http.post(format!("{}/orders", self.address)).json(&body);
        if let Some(key) = key {
            request = request.header("Idempotency-Key", key);
        }
        let response = request.timeout(LIMIT).send().await.expect("a response");
        let status = response.status();
        (status, response.json().await.expect("JSON"))
    }

    async fn read(&self, id: i64) -> (StatusCode, Value) {
        let request = self.http.get(format!("{}/orders/{id}", self.address)).timeout(LIMIT);
        let response = request.send().await.expect("a response");
        let status = response.status();
        (status, response.json().await.expect("JSON"))
    }

    /// Polls until the receipt has been sent.
    async fn receipt(&self, id: i64) -> String {
        let asking = async {
            loop {
                if let (_, Value::Object(order)) = self.read(id).await
                    && let Some(Value::String(text)) = order.get("receipt")
                {
                    return text.clone();
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(LIMIT, asking).await.expect("the receipt in time")
    }

    /// Ends the shop as a crash does, and waits.
    async fn kill(mut self) {
        timeout(LIMIT, self.process.kill()).await.expect("it ends in time").expect("killed");
    }

    /// Ends the shop as a deployment does, and waits.
    async fn close(mut self) {
        let id = self.process.id().expect("it runs").to_string();
        let asked = Command::new("kill").args(["-TERM", &id]).status().await;
        assert!(asked.expect("kill runs").success());
        let status = timeout(LIMIT, self.process.wait()).await.expect("it ends in time");
        assert!(status.expect("a status").success());
    }
}

async fn count(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.expect(sql).get(0)
}

/// Polls until the query returns 1.
async fn until(client: &Client, sql: &str) {
    let asking = async {
        while count(client, sql).await != 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(LIMIT, asking).await.unwrap_or_else(|_| panic!("none in time: {sql}"));
}

#[tokio::test]
async fn order_gets_one_receipt() {
    let database = TestDatabase::new().await;
    let shop = Shop::open(&database).await;
    let (status, body) = shop.order(None, json!({"item": "teapot", "quantity": 2})).await;
    assert_eq!(status, StatusCode::CREATED, "{body}");
    let order: Order = serde_json::from_value(body).expect("an order");
    assert_eq!(shop.receipt(order.id).await, "The Tea Shop: 2 × teapot");
    shop.close().await;

    let client = database.connect_directly().await;
    assert_eq!(count(&client, "select count(*) from receipts").await, 1);
    assert_eq!(count(&client, "select count(*) from leasehold.job").await, 0);
    assert_eq!(count(&client, "select count(*) from leasehold_internal.finished_job").await, 1);
    let stopped = "select count(*) from leasehold_internal.worker where stopped_at is not null";
    // The worker waits only briefly for the database to confirm that it unregistered.
    until(&client, stopped).await;
}

#[tokio::test]
async fn rolled_back_request_leaves_no_order_and_no_job() {
    let database = TestDatabase::new().await;
    let shop = Shop::open(&database).await;
    let (status, body) = shop.order(None, json!({"item": "teapot", "quantity": 11})).await;
    assert_eq!(status, StatusCode::CONFLICT, "{body}");
    shop.close().await;

    let client = database.connect_directly().await;
    assert_eq!(count(&client, "select count(*) from orders").await, 0);
    assert_eq!(count(&client, "select count(*) from leasehold.jobs").await, 0);
    assert_eq!(
        count(&client, "select left_over::bigint from shelf where item = 'teapot'").await,
        10
    );
}

#[tokio::test]
async fn repeated_request_with_its_key_makes_one_order_and_one_job() {
    let database = TestDatabase::new().await;
    let shop = Shop::open(&database).await;
    let ask = || shop.order(Some("k-1"), json!({"item": "cup", "quantity": 3}));
    let (one, two, three) = tokio::join!(ask(), ask(), ask());
    let mut statuses = [one.0, two.0, three.0];
    statuses.sort();
    assert_eq!(statuses, [StatusCode::OK, StatusCode::OK, StatusCode::CREATED]);
    assert_eq!(one.1["id"], two.1["id"]);
    assert_eq!(two.1["id"], three.1["id"]);
    let (status, body) = shop.order(Some("k-1"), json!({"item": "cup", "quantity": 4})).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{body}");
    shop.receipt(one.1["id"].as_i64().expect("an id")).await;
    shop.close().await;

    let client = database.connect_directly().await;
    assert_eq!(count(&client, "select count(*) from orders").await, 1);
    assert_eq!(count(&client, "select count(*) from receipts").await, 1);
    assert_eq!(count(&client, "select count(*) from leasehold.jobs").await, 1);
    assert_eq!(count(&client, "select left_over::bigint from shelf where item = 'cup'").await, 97);
}

#[tokio::test]
async fn killed_shop_writes_one_receipt_after_a_restart() {
    let database = TestDatabase::new().await;
    let shop = Shop::open(&database).await;
    // The receipt cannot be written while this lock is held.
    let mut holder = database.connect_directly().await;
    let lock = holder.transaction().await.expect("a transaction");
    lock.batch_execute("lock table receipts in share mode").await.expect("the lock");
    let (_, body) = shop.order(None, json!({"item": "teapot", "quantity": 1})).await;
    let client = database.connect_directly().await;
    let waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' \
                   and query like 'insert into receipts%' and datname = current_database()";
    until(&client, waiting).await;
    shop.kill().await;
    // More than one if the handler waited for the lock longer than the statement timeout.
    let begun = count(&client, "select attempts::bigint from leasehold.job").await;
    lock.rollback().await.expect("unlocked");
    client
        .batch_execute(
            "update leasehold_internal.lease set lease_expires_at = now() - interval '1 second'",
        )
        .await
        .expect("the lease is over");

    let shop = Shop::open(&database).await;
    assert_eq!(shop.receipt(body["id"].as_i64().expect("an id")).await, "The Tea Shop: 1 × teapot");
    shop.close().await;
    assert_eq!(count(&client, "select count(*) from receipts").await, 1);
    let attempts = "select attempts::bigint from leasehold_internal.finished_job";
    assert_eq!(count(&client, attempts).await, begun + 1);
}

#[tokio::test]
async fn unknown_order_is_not_found() {
    let database = TestDatabase::new().await;
    let shop = Shop::open(&database).await;
    assert_eq!(shop.read(7).await.0, StatusCode::NOT_FOUND);
    shop.close().await;
}
