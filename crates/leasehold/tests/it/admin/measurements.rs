use std::time::Duration;

use leasehold::AdminError;
use leasehold::admin::SeriesQuery;

use super::Office;
use crate::watch::{a_minute_passes, age};

#[tokio::test]
async fn sample_is_fresh_for_three_minutes() {
    let office = Office::new().await;
    let measurements = office.engine.measurements();
    let before = measurements.sampled().await.unwrap();
    assert!(before.at.is_none() && !before.fresh, "{before:?}");
    assert!(measurements.latest(&["queue", "database"]).await.unwrap().is_empty());
    office.ready().await;
    a_minute_passes(&office.sql).await;
    let sampled = measurements.sampled().await.unwrap();
    assert!(sampled.fresh && sampled.at.is_some(), "{sampled:?}");
    let latest = measurements.latest(&["queue"]).await.unwrap();
    assert!(latest.iter().all(|one| one.kind == "queue"));
    let ready = latest.iter().find(|one| one.subject == "default" && one.metric == "ready");
    assert_eq!(ready.map(|one| (one.value, one.flow)), Some((1.0, false)));
    age(&office.sql.client, "4 minutes").await;
    assert!(!measurements.sampled().await.unwrap().fresh);
}

#[tokio::test]
async fn series_has_one_point_per_step_and_a_bound() {
    let office = Office::new().await;
    let measurements = office.engine.measurements();
    office.ready().await;
    a_minute_passes(&office.sql).await;
    age(&office.sql.client, "1 minute").await;
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let query = SeriesQuery::new("queue", ["length"]).subject("default").back(minutes(10));
    let points = measurements.series(&query).await.unwrap();
    assert!((9..=10).contains(&points.len()), "{points:?}");
    assert!(
        points.iter().any(|point| point.value == Some(1.0) && point.minutes == 1),
        "{points:?}"
    );
    assert!(points.is_sorted_by_key(|point| point.at));
    let other = measurements.series(&query.clone().subject("mail")).await.unwrap();
    assert!(other.iter().all(|point| point.value.is_none_or(|value| value == 0.0)), "{other:?}");
    for bad in [query.clone().step(Duration::ZERO), query.back(minutes(2001))] {
        let error = measurements.series(&bad).await.expect_err("refused");
        assert!(matches!(error, AdminError::Refused(_)), "{error:?}");
    }
}

#[tokio::test]
async fn measurements_within_a_transaction_show_its_moment() {
    let office = Office::new().await;
    a_minute_passes(&office.sql).await;
    let mut client = office.sql.database.connect().await;
    let tx = client.transaction().await.unwrap();
    tx.batch_execute("delete from leasehold_internal.measure").await.unwrap();
    let inside = office.engine.measurements().within(&tx);
    assert!(inside.latest(&["database"]).await.unwrap().is_empty());
    assert!(!office.engine.measurements().latest(&["database"]).await.unwrap().is_empty());
    super::end(tx, false).await;
}
