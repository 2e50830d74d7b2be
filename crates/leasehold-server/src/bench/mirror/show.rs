//! The answer of `bench mirror`.

use serde_json::json;

use super::{Args, Load, Outcome, Planted};
use crate::bench::report::{Report, whole};

pub fn report(args: &Args, outcome: &Outcome) -> Report {
    let Outcome { check, planted, visible, normal, outage, last, .. } = outcome;
    let seconds = outcome.replay.as_secs_f64();
    let rate = args.docs as f64 / seconds.max(1e-9);
    let mut report = Report::plain("mirror");
    report
        .set("docs", json!(args.docs))
        .set("target", json!(args.target.name()))
        .number("setup_seconds", outcome.setup.as_secs_f64())
        .number("enqueue_seconds", outcome.enqueue.as_secs_f64())
        .number("seconds", seconds)
        .number("docs_per_s", rate)
        .set("differences", json!(check.differences))
        .set("check_rows", json!(check.rows))
        .number("check_seconds", check.took.as_secs_f64())
        .set("planted", json!(Planted::count()))
        .set("planted_found", json!(planted.found.differences))
        .set("planted_written", json!(planted.written))
        .set("planted_left", json!(planted.last.differences))
        .number("save_visible_p50_ms", visible.ms(0.5))
        .number("save_visible_p99_ms", visible.ms(0.99))
        .number("saves_p99_ms", normal.saves.ms(0.99))
        .number("reads_p99_ms", normal.reads.ms(0.99))
        .number("outage_saves_p99_ms", outage.saves.ms(0.99))
        .number("outage_reads_p99_ms", outage.reads.ms(0.99))
        .number("outage_reads_max_ms", outage.reads.ms(1.0))
        .set("refused", json!(normal.failed + outage.failed))
        .number("recovery_seconds", outcome.recovery.as_secs_f64())
        .set("last_differences", json!(last.differences));
    report
        .line(format!(
            "mirror of {} annotations into {}",
            whole(args.docs as f64),
            args.target.name()
        ))
        .line(format!("  replay          {seconds:.1} s until equal, {} documents/s", whole(rate)))
        .line(format!(
            "  check           {} rows in {:.2} s, {} differ",
            whole(check.rows as f64),
            check.took.as_secs_f64(),
            check.differences
        ))
        .line(format!(
            "  planted         {} of {} found, {} documents written, {} differ afterwards",
            planted.found.differences,
            Planted::count(),
            planted.written,
            planted.last.differences
        ))
        .line(format!(
            "  save to search  p50 {:.0} ms, p99 {:.0} ms",
            visible.ms(0.5),
            visible.ms(0.99)
        ))
        .line(format!("  with the index  {}", people(normal)))
        .line(format!("  without it      {}", people(outage)))
        .line(format!(
            "  after it        equal again after {:.1} s",
            outcome.recovery.as_secs_f64()
        ));
    if !planted.is_exact() {
        report.fail(format!("planted differences were not mended exactly: {planted:?}"));
    }
    if check.differences + last.differences > 0 {
        report.fail("the index differs from the table".to_owned());
    }
    if normal.failed + outage.failed > 0 {
        report.fail(format!("{} saves or searches were refused", normal.failed + outage.failed));
    }
    report
}

fn people(load: &Load) -> String {
    format!(
        "saves p99 {:.0} ms, searches p99 {:.0} ms, {} refused",
        load.saves.ms(0.99),
        load.reads.ms(0.99),
        load.failed
    )
}
