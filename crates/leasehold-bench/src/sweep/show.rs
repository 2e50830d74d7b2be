//! The report of `leasehold-bench sweep`.

use serde_json::json;

use super::{Args, Outcome};
use leasehold_server::bench::report::{Report, whole};

pub fn report(args: &Args, outcome: &Outcome) -> Report {
    let Outcome { layout, setup, time, creates, memory, checked, limit } = outcome;
    let seconds = time.as_secs_f64().max(1e-9);
    let rate = layout.rows as f64 / seconds;
    let mut report = Report::plain("sweep");
    report
        .set("rows", json!(layout.rows))
        .set("contents", json!(layout.contents()))
        .set("store", json!(args.store.name()))
        .set("workers", json!(args.workers))
        .set("claim_size", json!(args.claim_size))
        .set("object_size", json!(if layout.empty { 0 } else { layout.object_size }))
        .number("setup_seconds", setup.as_secs_f64())
        .number("seconds", seconds)
        .number("rows_per_s", rate)
        .set("objects_deleted", json!(checked.gone))
        .set("objects_left", json!(checked.objects_left))
        .set("live_contents", json!(checked.live_contents))
        .set("ref_count_exact", json!(checked.ref_count_exact()))
        .set("store_exact", json!(checked.store_exact()))
        .set("creates", json!(creates.requests))
        .number("creates_per_s", creates.per_second())
        .number("create_p50_ms", creates.ms(0.5))
        .number("create_p99_ms", creates.ms(0.99))
        .number("create_max_ms", creates.ms(1.0))
        .number("rss_start_mb", memory.around(0.0))
        .number("rss_middle_mb", memory.around(0.5))
        .number("rss_end_mb", memory.around(1.0))
        .number("max_rss_mb", memory.max());
    report
        .line(format!(
            "sweep of {} expired pastes, {} objects, {} workers, store {}",
            whole(layout.rows as f64),
            whole(layout.contents() as f64),
            args.workers,
            args.store.name()
        ))
        .line(format!(
            "  leasehold       {} rows/s, {seconds:.1} s, objects included",
            whole(rate)
        ));
    if let Some(limit) = limit {
        report.number("limit_rows_per_s", *limit).number("ratio", rate / limit);
        report.line(format!(
            "  raw SQL limit   {} rows/s, rows alone (ratio {:.2})",
            whole(*limit),
            rate / limit
        ));
    }
    report
        .line(format!(
            "  creates         {} at {:.0}/s: p50 {:.1} ms, p99 {:.1} ms, at most {:.1} ms",
            creates.requests,
            creates.per_second(),
            creates.ms(0.5),
            creates.ms(0.99),
            creates.ms(1.0)
        ))
        .line(format!(
            "  memory          {:.0} MB at the start, {:.0} in the middle, {:.0} at the end, {:.0} at most",
            memory.around(0.0),
            memory.around(0.5),
            memory.around(1.0),
            memory.max()
        ))
        .line(format!(
            "  objects         {} left, of {} living contents ({} missing)",
            checked.objects_left, checked.live_contents, checked.missing_objects
        ))
        .line(format!("  ref_count       {} contents with a wrong counter", checked.wrong_counters));
    if !checked.ref_count_exact() || !checked.store_exact() {
        report.fail(format!("what is left is wrong: {checked:?}"));
    }
    if checked.not_deleted > 0 || checked.doomed > 0 {
        report.fail(format!("the sweep ended before its work: {checked:?}"));
    }
    report
}
