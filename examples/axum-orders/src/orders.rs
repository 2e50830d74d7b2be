//! The HTTP side: each order enqueues a job.

use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use leasehold::{Enqueue, EnqueueError};
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgPool, Row};

use crate::receipts::SendReceipt;

pub fn routes(pool: PgPool) -> Router {
    Router::new().route("/orders", post(create)).route("/orders/{id}", get(show)).with_state(pool)
}

#[derive(Debug, Deserialize)]
pub struct NewOrder {
    pub item: String,
    pub quantity: i32,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub id: i64,
    pub item: String,
    pub quantity: i32,
    /// The text of the receipt, once it has been sent.
    pub receipt: Option<String>,
}

/// Stores the order, enqueues the receipt and takes the goods from the shelf, all in one transaction.
///
/// A client that got no response repeats the request with the same `Idempotency-Key` and gets the
/// order that the first request created.
async fn create(
    State(pool): State<PgPool>,
    headers: HeaderMap,
    Json(new): Json<NewOrder>,
) -> Result<Response, Refusal> {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    let mut tx = pool.begin().await?;
    let Some(id) = insert(&mut tx, &new, key).await? else {
        let first = by_key(&mut tx, key).await?;
        if (&first.item, first.quantity) != (&new.item, new.quantity) {
            return Err(Refusal::KeyTaken);
        }
        return Ok((StatusCode::OK, Json(first)).into_response());
    };

    SendReceipt { order: id }.enqueue(&mut *tx).await?;

    let taken = sqlx::query(
        "update shelf set left_over = left_over - $2 where item = $1 and left_over >= $2",
    )
    .bind(&new.item)
    .bind(new.quantity)
    .execute(&mut *tx)
    .await?;
    if taken.rows_affected() == 0 {
        // Dropping the transaction rolls it back: no order, and no job.
        return Err(Refusal::OutOfStock);
    }
    tx.commit().await?;
    let order = Order { id, item: new.item, quantity: new.quantity, receipt: None };
    Ok((StatusCode::CREATED, Json(order)).into_response())
}

async fn show(State(pool): State<PgPool>, Path(id): Path<i64>) -> Result<Json<Order>, Refusal> {
    let row = sqlx::query(
        "select o.id, o.item, o.quantity, r.text from orders o \
         left join receipts r on r.order_id = o.id where o.id = $1",
    )
    .bind(id)
    .fetch_optional(&pool)
    .await?;
    row.map(|row| Json(read(&row))).ok_or(Refusal::NoSuchOrder)
}

/// Inserts an order. Returns `None` if the key is taken. Waits for a request with the same key that
/// has not committed yet.
async fn insert(
    tx: &mut PgConnection,
    new: &NewOrder,
    key: Option<&str>,
) -> Result<Option<i64>, sqlx::Error> {
    sqlx::query_scalar(
        "insert into orders (item, quantity, request_key) values ($1, $2, $3) \
         on conflict (request_key) do nothing returning id",
    )
    .bind(&new.item)
    .bind(new.quantity)
    .bind(key)
    .fetch_optional(tx)
    .await
}

async fn by_key(tx: &mut PgConnection, key: Option<&str>) -> Result<Order, sqlx::Error> {
    let row = sqlx::query(
        "select o.id, o.item, o.quantity, r.text from orders o \
         left join receipts r on r.order_id = o.id where o.request_key = $1",
    )
    .bind(key)
    .fetch_one(tx)
    .await?;
    Ok(read(&row))
}

fn read(row: &sqlx::postgres::PgRow) -> Order {
    Order { id: row.get(0), item: row.get(1), quantity: row.get(2), receipt: row.get(3) }
}

/// Why a request was refused. Clients never see the database's error.
#[derive(Debug)]
pub enum Refusal {
    OutOfStock,
    KeyTaken,
    NoSuchOrder,
    Database(sqlx::Error),
    Enqueue(EnqueueError),
}

impl From<sqlx::Error> for Refusal {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl From<EnqueueError> for Refusal {
    fn from(error: EnqueueError) -> Self {
        Self::Enqueue(error)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let (status, text) = match self {
            Self::OutOfStock => (StatusCode::CONFLICT, "not enough of this item on the shelf"),
            Self::KeyTaken => {
                (StatusCode::UNPROCESSABLE_ENTITY, "this Idempotency-Key belongs to another order")
            }
            Self::NoSuchOrder => (StatusCode::NOT_FOUND, "there is no such order"),
            Self::Database(error) => {
                eprintln!("a request failed: {error}");
                (StatusCode::SERVICE_UNAVAILABLE, "try again with the same Idempotency-Key")
            }
            Self::Enqueue(error) => {
                eprintln!("a receipt could not be enqueued: {error}");
                (StatusCode::SERVICE_UNAVAILABLE, "try again with the same Idempotency-Key")
            }
        };
        (status, Json(serde_json::json!({ "error": text }))).into_response()
    }
}
