use super::shelf::{Shelf, loans};
use leasehold::sweep::States;
use leasehold::sweep::Sweep;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore]
async fn speed() {
    let n: i64 = std::env::var("SPEED_ROWS").ok().and_then(|n| n.parse().ok()).unwrap_or(500_000);
    let shelf = Shelf::new().await;
    shelf.sql("drop trigger note_state on library.loans").await;
    for (what, sweep) in [
        ("effect", loans().batch(1000)),
        (
            "plain",
            Sweep::new("loans.end", "library.loans")
                .due("ends_at < statement_timestamp()")
                .order_by("ends_at")
                .status("state", States::new("out", "coming", "back"))
                .claimed_at("taken_at")
                .claim("taken_by"),
        ),
    ] {
        shelf.sql("truncate library.loans; update library.books set out_on_loan = 0").await;
        shelf.lend(1, n).await;
        if std::env::var("SPEED_ANALYZE").is_ok() {
            shelf.sql("analyze library.loans").await;
        }
        let started = std::time::Instant::now();
        let (one, two) = tokio::join!(sweep.run_once(&shelf.engine), sweep.run_once(&shelf.engine));
        let took = started.elapsed();
        let (one, two) = (one.unwrap(), two.unwrap());
        println!(
            "{what}: {} + {} rows in {took:?}: {:.0} rows/s",
            one.finished,
            two.finished,
            n as f64 / took.as_secs_f64()
        );
        shelf.assert_all_back(n).await;
    }
}
