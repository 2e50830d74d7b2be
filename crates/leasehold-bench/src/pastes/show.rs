//! The report of `leasehold-bench pastes`: a table for readers, fields for programs.

use anyhow::Result;
use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::figures::{Figures, Ratio};
use super::gone::Gone;
use super::{Args, Measurements, Which};
use leasehold_server::bench::report::{Report, whole};

type Pick = fn(&Measurements) -> &Figures;

const KINDS: [(&str, Pick); 3] =
    [("create", |one| &one.create), ("raw", |one| &one.raw), ("page", |one| &one.page)];

pub fn report(args: &Args, all: &[Measurements], gone: Option<&Gone>) -> Result<Report> {
    let mut report = Report::plain("pastes");
    report
        .set("connections", json!(args.connections))
        .set("size", json!(args.size))
        .set("seconds", json!(args.seconds))
        .set("rounds", json!(args.rounds))
        .set("pastes", json!(args.pastes));
    report.line(format!(
        "pastes of {} B, {} connections, {} rounds of {} s",
        args.size, args.connections, args.rounds, args.seconds
    ));
    report.line(format!(
        "  {:<12}{:>12}{:>9}{:>9}{:>12}{:>9}{:>9}{:>12}{:>9}{:>9}",
        "", "create/s", "p50", "p99 ms", "raw/s", "p50", "p99 ms", "page/s", "p50", "p99 ms"
    ));
    for one in all {
        let mut line = format!("  {:<12}", one.service.name());
        for (_, pick) in KINDS {
            let figures = pick(one);
            line.push_str(&format!(
                "{:>12}{:>9.2}{:>9.2}",
                whole(figures.per_second()),
                figures.p50(),
                figures.p99()
            ));
        }
        report.line(line);
    }
    for (kind, pick) in KINDS {
        ratio(&mut report, kind, pick, all);
    }
    for one in all {
        let (name, durability) = (one.service.name(), one.service.durability());
        report.line(format!("  {name}: {durability}; page: {}", one.service.page_is()));
    }
    let services: Vec<Value> = all.iter().map(service).collect();
    report.set("services", json!(services));
    if let Some(gone) = gone {
        show_gone(&mut report, gone);
    }
    Ok(report)
}

/// Reports our figures as separate fields, and the ratio to the faster peer.
fn ratio(report: &mut Report, kind: &str, pick: Pick, all: &[Measurements]) {
    let is_ours = |one: &&Measurements| one.service.name() == Which::Leasehold.name();
    let Some(ours) = all.iter().find(is_ours).map(pick) else {
        return;
    };
    report
        .number(&format!("{kind}_per_s"), ours.per_second())
        .number(&format!("{kind}_p50_ms"), ours.p50())
        .number(&format!("{kind}_p99_ms"), ours.p99());
    let peers = all.iter().filter(|one| !is_ours(one)).map(|one| (one.service.name(), pick(one)));
    if let Some(ratio) = Ratio::of(ours, peers) {
        report
            .number(&format!("{kind}_ratio"), ratio.rate)
            .number(&format!("{kind}_p99_ratio"), ratio.p99)
            .set(&format!("{kind}_fastest_peer"), json!(ratio.peer))
            .line(format!(
                "  {kind}: {:.2} times {}, p99 {:.2} times",
                ratio.rate, ratio.peer, ratio.p99
            ));
    }
}

fn service(one: &Measurements) -> Value {
    let mut fields = json!({
        "name": one.service.name(),
        "durability": one.service.durability(),
        "page_is": one.service.page_is(),
    });
    for (kind, pick) in KINDS {
        if let Some(fields) = fields.as_object_mut() {
            fields.insert(kind.to_owned(), pick(one).json());
        }
    }
    fields
}

fn show_gone(report: &mut Report, gone: &Gone) {
    let ms = |times: &Histogram<u64>, quantile| times.value_at_quantile(quantile) as f64 / 1e3;
    for (name, times) in [("deleted", &gone.deleted), ("taken_down", &gone.taken_down)] {
        report
            .number(&format!("{name}_gone_p50_ms"), ms(times, 0.5))
            .number(&format!("{name}_gone_max_ms"), times.max() as f64 / 1e3)
            .line(format!(
                "  {}: gone on a second node after {:.0} ms (p50), {:.0} ms at most, of {}",
                name.replace('_', " "),
                ms(times, 0.5),
                times.max() as f64 / 1e3,
                times.len()
            ));
    }
}
