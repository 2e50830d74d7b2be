//! The benchmarks run at small sizes and print the figures that they promise. No figure is judged
//! here.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test stops at the first surprise"
)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold_testing::program::{self, Ran};
use leasehold_testing::until;
use serde_json::Value;

/// A benchmark starts its own servers and inserts rows; on a busy machine that takes a while.
const LIMIT: Duration = Duration::from_secs(240);

fn command(args: &[&str]) -> tokio::process::Command {
    program::command(env!("CARGO_BIN_EXE_leasehold-bench"), args)
}

/// Runs a benchmark on a private server, and returns its JSON.
async fn bench(args: &[&str]) -> Value {
    let mut command = command(&[args, &["--json"]].concat());
    // Commands in tests have no home directory, and would use another cache.
    command.env("LEASEHOLD_CACHE", leasehold_testing::cache_dir());
    let document = Ran::within(LIMIT, command).await.expect(0).json();
    assert_eq!(document["bench"], args[0], "{document}");
    document
}

#[track_caller]
fn has_numbers(document: &Value, fields: &[&str]) {
    for field in fields {
        assert!(document[field].is_number(), "{field} is missing in {document}");
    }
}

#[tokio::test]
async fn product_benchmarks_run_here() {
    has_numbers(&bench(&["drain", "--jobs", "1000"]).await, &["ours", "limit", "ratio"]);
    has_numbers(&bench(&["enqueue", "--jobs", "1000"]).await, &["ours", "limit", "ratio"]);
    has_numbers(&bench(&["flow", "--jobs", "2000"]).await, &["ours", "limit", "ratio"]);
}

#[tokio::test]
async fn claim_benchmarks_print_their_figures() {
    let small =
        ["lanes", "--names", "20", "--priorities", "3", "--claimers", "2", "--jobs", "10000"];
    let lanes = bench(&small).await;
    has_numbers(
        &lanes,
        &["ms", "ms_ratio", "wal_bytes", "wal_ratio", "throughput_ratio", "empty_claims"],
    );
    has_numbers(&bench(&["lost", "--jobs", "1000"]).await, &["ratio", "urgent_start_ms"]);
    has_numbers(&bench(&["idle", "--dead", "1000", "--seconds", "1"]).await, &["share", "scan_ms"]);
}

#[tokio::test]
async fn k19_batches_of_killed_and_paused_workers_have_one_follow_up_each() {
    let small =
        ["batches", "--batches", "150", "--largest", "60", "--processes", "3", "--slots", "20"];
    let found = bench(&small).await;
    has_numbers(&found, &["seconds", "kills", "pauses", "sessions_ended", "closed_by_a_look"]);
    for flaw in ["missing", "twice", "early", "wrong_follow_up", "wrong_counts", "rows_left"] {
        assert_eq!(found[flaw], 0, "{flaw} in {found}");
    }
    assert_eq!((&found["batches"], &found["follow_ups"]), (&150.into(), &150.into()), "{found}");
}

#[tokio::test]
async fn wake_up_benchmarks_print_their_figures() {
    for from in ["engine", "transaction", "sqlx", "insert", "copy"] {
        let latency = bench(&["latency", "--jobs", "100", "--from", from]).await;
        has_numbers(&latency, &["p50_ms", "p99_ms", "limit_p50_ms", "ratio"]);
        assert_eq!(latency["from"], from);
    }
    let few = ["producers", "--producers", "1,2", "--seconds", "1", "--rounds", "1"];
    let fields = ["without_1", "busy_ratio_1", "idle_ratio_2", "busy_wake_ups_per_job_1"];
    has_numbers(&bench(&few).await, &fields);
}

const SWEEP: &[&str] = &[
    "rows_per_s",
    "max_rss_mb",
    "rss_start_mb",
    "rss_middle_mb",
    "rss_end_mb",
    "create_p50_ms",
    "create_p99_ms",
    "seconds",
    "objects_deleted",
    "limit_rows_per_s",
    "ratio",
];

#[tokio::test]
async fn small_sweep_leaves_exact_counters_and_store() {
    let swept =
        bench(&["sweep", "--rows", "3000", "--limit-rows", "1000", "--creates", "100"]).await;
    has_numbers(&swept, SWEEP);
    assert_eq!(swept["ref_count_exact"], true, "{swept}");
    assert_eq!(swept["store_exact"], true, "{swept}");
    assert_eq!((&swept["rows"], &swept["store"]), (&3000.into(), &"local".into()));
    assert_eq!(swept["objects_left"], swept["live_contents"], "{swept}");
}

#[tokio::test]
async fn small_sweep_deletes_from_s3() {
    let swept = bench(&["sweep", "--rows", "1000", "--limit-rows", "0", "--store", "s3"]).await;
    assert_eq!((&swept["ref_count_exact"], &swept["store_exact"]), (&true.into(), &true.into()));
    assert!(swept["objects_deleted"].as_u64().unwrap() > 500, "{swept}");
    assert!(swept.get("limit_rows_per_s").is_none(), "{swept}");
}

#[tokio::test]
async fn c25_short_run_with_keys_leaves_no_key_behind() {
    let keys = bench(&["keys", "--rate", "200", "--seconds", "2", "--key-ttl", "1"]).await;
    has_numbers(
        &keys,
        &["enqueued", "keys_peak", "keys_end", "pruned_per_second", "emptied_after_seconds"],
    );
    assert_eq!(keys["ran_exactly_once"], true, "{keys}");
}

const MIRROR: &[&str] = &[
    "seconds",
    "docs_per_s",
    "check_seconds",
    "save_visible_p50_ms",
    "save_visible_p99_ms",
    "saves_p99_ms",
    "reads_p99_ms",
    "outage_saves_p99_ms",
    "outage_reads_p99_ms",
    "recovery_seconds",
];

/// Fills an empty index, plants differences, and stops the store for a while. The check writes only
/// what differs, and the outage refuses no request.
async fn small_mirror(target: &str) {
    let few = ["--visible", "3", "--seconds", "1", "--rounds", "2", "--rate", "10"];
    let args = [&["mirror", "--docs", "2000", "--target", target], &few[..]].concat();
    let mirrored = bench(&args).await;
    has_numbers(&mirrored, MIRROR);
    for (field, value) in [
        ("docs", 2000),
        ("check_rows", 2000),
        ("differences", 0),
        ("planted_found", 30),
        ("planted_written", 30),
        ("planted_left", 0),
        ("refused", 0),
        ("last_differences", 0),
    ] {
        assert_eq!(mirrored[field], value, "{field} in {mirrored}");
    }
}

#[tokio::test]
async fn f11_f14_small_index_in_a_directory_becomes_equal_after_an_outage() {
    small_mirror("tantivy").await;
}

#[tokio::test]
async fn f11_f14_small_index_in_opensearch_becomes_equal_after_an_outage() {
    small_mirror("opensearch").await;
}

#[tokio::test]
async fn service_is_measured_without_peers() {
    // Only requests that are answered within the measured time count, and there are two rounds of
    // each kind.
    let small = ["--services", "leasehold", "--seconds", "1", "--warm-up", "0.05"];
    let few = ["--rounds", "2", "--pastes", "20", "--gone", "2"];
    let figures = bench(&[&["pastes"], &small[..], &few[..]].concat()).await;
    for kind in ["create", "raw", "page"] {
        for field in ["per_s", "p50_ms", "p99_ms"] {
            has_numbers(&figures, &[&format!("{kind}_{field}")]);
        }
        assert!(figures["services"][0][kind]["requests"].as_u64().unwrap() > 0, "{figures}");
        // There is no other service to compare with.
        assert!(figures.get(format!("{kind}_ratio")).is_none(), "{figures}");
    }
    has_numbers(&figures, &["deleted_gone_max_ms", "taken_down_gone_max_ms"]);
}

#[tokio::test]
async fn missing_peer_is_named_with_its_install_command() {
    let ran = Ran::of(command(&["pastes", "--peers", "/nonexistent"])).await.expect(3);
    ran.says("rustypaste is not installed in /nonexistent/bin");
    ran.says("bench/pastes/peers /nonexistent");
    let ran = Ran::of(command(&["pastes", "--services", "microbin"])).await.expect(3);
    ran.says("/nonexistent/.cache/leasehold/peers");
}

/// A directory for one test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path =
            std::env::temp_dir().join(format!("leasehold-test-{:08x}", rand::random::<u32>()));
        std::fs::create_dir(&path).expect("a directory");
        Self(path)
    }

    fn entries(&self) -> Vec<PathBuf> {
        std::fs::read_dir(&self.0)
            .expect("a directory")
            .map(|entry| entry.unwrap().path())
            .collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn interrupted_run_removes_its_files() {
    let folder = Folder::new();
    let dir = folder.0.to_str().unwrap();
    let mut run =
        command(&["sweep", "--rows", "200000", "--limit-rows", "0", "--dir", dir]).spawn().unwrap();
    let has_objects = |scratch: &PathBuf| scratch.join(Path::new("store/blobs/fff")).exists();
    until("the run has created objects", async || folder.entries().iter().any(has_objects)).await;
    let id = rustix::process::Pid::from_raw(run.id().unwrap() as i32).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    let status = tokio::time::timeout(LIMIT, run.wait()).await.expect("an end in time").unwrap();
    assert_eq!(status.code(), Some(130));
    assert_eq!(folder.entries(), Vec::<PathBuf>::new());
}
