//! `leasehold bench` runs at small sizes and prints the figures that it promises. No figure is judged
//! here.

use std::time::Duration;

use crate::fixture::{Ran, command};

/// A benchmark starts its own server and inserts rows; on a busy machine that takes a while.
const LIMIT: Duration = Duration::from_secs(240);

#[tokio::test]
async fn small_benchmarks_print_the_ratio_to_bare_sql() {
    for bench in ["drain", "enqueue", "latency"] {
        let command = command(&["bench", bench, "--jobs", "100", "--json"]);
        let document = Ran::within(LIMIT, command).await.expect(0).json();
        assert_eq!(document["bench"], bench, "{document}");
        for field in ["ours", "limit", "ratio", "wal_bytes_per_job"] {
            assert!(document[field].is_number(), "{field} is missing in {document}");
        }
    }
}

#[tokio::test]
async fn benchmarks_that_need_test_servers_are_not_in_the_product() {
    let ran = Ran::of(command(&["bench", "sweep"])).await.expect(2);
    ran.says("unrecognized subcommand 'sweep'");
}
