//! The report of `leasehold-bench mirror`.

use serde_json::json;

use super::{Args, Load, Outages, Outcome, Planted};
use crate::load::Measured;
use leasehold_server::bench::report::{Report, whole};

pub fn report(args: &Args, outcome: &Outcome) -> Report {
    let Outcome { check, planted, visible, renamed, .. } = outcome;
    let Outages { normal, away: outage, recovery, last } = &outcome.outages;
    let seconds = outcome.replay.as_secs_f64();
    let rate = args.docs as f64 / seconds.max(1e-9);
    let refused = normal.failed + outage.failed + renamed.before.failed + renamed.load.failed;
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
        .set("period_seconds", json!(args.period))
        .number("pass_visible_p50_ms", outcome.visible_by_pass.ms(0.5))
        .number("pass_visible_p99_ms", outcome.visible_by_pass.ms(0.99))
        .set("rounds", json!(args.rounds))
        .number("saves_p99_ms", normal.saves.ms(0.99))
        .number("reads_p99_ms", normal.reads.ms(0.99))
        .number("outage_saves_p99_ms", outage.saves.ms(0.99))
        .number("outage_reads_p99_ms", outage.reads.ms(0.99))
        .number("outage_reads_max_ms", outage.reads.ms(1.0))
        .number("outage_saves_ratio", ratio(&outage.saves, &normal.saves))
        .number("outage_reads_ratio", ratio(&outage.reads, &normal.reads))
        .set("rename_rows", json!(args.of_one()))
        .number("rename_seconds", renamed.took.as_secs_f64())
        .number("rename_wal_mb", renamed.wal_bytes / 1e6)
        .number("rename_before_saves_p50_ms", renamed.before.saves.ms(0.5))
        .number("rename_before_saves_p99_ms", renamed.before.saves.ms(0.99))
        .number("rename_saves_p50_ms", renamed.load.saves.ms(0.5))
        .number("rename_saves_p99_ms", renamed.load.saves.ms(0.99))
        .number("rename_saves_max_ms", renamed.load.saves.ms(1.0))
        .number("rename_before_reads_p99_ms", renamed.before.reads.ms(0.99))
        .number("rename_reads_p99_ms", renamed.load.reads.ms(0.99))
        .number("rename_saves_ratio", ratio(&renamed.load.saves, &renamed.before.saves))
        .number("rename_reads_ratio", ratio(&renamed.load.reads, &renamed.before.reads))
        .set("rename_differences", json!(renamed.check.differences))
        .set("refused", json!(refused))
        .number("recovery_seconds", recovery.as_secs_f64())
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
        .line(format!(
            "  by pass alone   p50 {:.0} ms, p99 {:.0} ms; a pass leaves a save {} s to the direct path",
            outcome.visible_by_pass.ms(0.5),
            outcome.visible_by_pass.ms(0.99),
            args.period
        ))
        .line(format!("  with the index  {}", describe(normal)))
        .line(format!("  without it      {}", describe(outage)))
        .line(format!(
            "  after it        equal again after {:.1} s",
            recovery.as_secs_f64()
        ))
        .line(format!("  before a rename {}", describe(&renamed.before)))
        .line(format!(
            "  while renaming  {}; {} annotations in {:.1} s, {:.0} MB of log",
            describe(&renamed.load),
            whole(args.of_one() as f64),
            renamed.took.as_secs_f64(),
            renamed.wal_bytes / 1e6
        ));
    if !planted.is_exact() {
        report.fail(format!("planted differences were not repaired exactly: {planted:?}"));
    }
    if check.differences + last.differences + renamed.check.differences > 0 {
        report.fail("the index differs from the table".to_owned());
    }
    if refused > 0 {
        report.fail(format!("{refused} saves or searches were refused"));
    }
    report
}

fn describe(load: &Load) -> String {
    format!(
        "saves p99 {:.0} ms, searches p99 {:.0} ms, {} refused",
        load.saves.ms(0.99),
        load.reads.ms(0.99),
        load.failed
    )
}

/// Returns the ratio of the p99 latencies.
fn ratio(then: &Measured, normal: &Measured) -> f64 {
    then.ms(0.99) / normal.ms(0.99).max(1e-9)
}
