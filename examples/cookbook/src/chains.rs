use leasehold::tokio_postgres::Transaction;
use leasehold::{Enqueue, EnqueueError, Enqueued, Job};
use serde::{Deserialize, Serialize};

#[derive(Job, Serialize, Deserialize)]
#[job(name = "order.pay")]
pub struct PayOrder {
    pub order: i64,
}

#[derive(Job, Serialize, Deserialize)]
#[job(name = "order.ship")]
pub struct ShipOrder {
    pub order: i64,
}

#[derive(Job, Serialize, Deserialize)]
#[job(name = "order.alert")]
pub struct AlertStaff {
    pub order: i64,
}

/// Pays an order, then ships it. The alert is enqueued if the payment is dead.
pub async fn pay_and_ship(tx: &Transaction<'_>, order: i64) -> Result<Enqueued, EnqueueError> {
    PayOrder { order }
        .draft()?
        .then(ShipOrder { order }.draft()?)
        .on_death(AlertStaff { order }.draft()?)
        .enqueue(tx)
        .await
}
