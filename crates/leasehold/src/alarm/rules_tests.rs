use super::super::snapshot::{MirrorView, SweepView, Watch};
use super::*;

fn watch() -> Watch {
    Watch {
        off: false,
        min_completed: 1.0,
        over: 600.0,
        max_length: Some(100.0),
        max_age: Some(1800.0),
        max_dead: 10.0,
        max_lost: 10.0,
        watched_for: 86_400.0,
    }
}

/// A healthy queue.
fn queue() -> QueueView {
    QueueView {
        queue: "mail".to_owned(),
        completed: 10.0,
        length: 5.0,
        oldest_ready_age: 2.0,
        watch: Some(watch()),
        ..QueueView::default()
    }
}

fn rules(snapshot: &Snapshot) -> Vec<(Rule, String)> {
    evaluate(snapshot, &Thresholds::default())
        .into_iter()
        .map(|found| (found.rule, found.subject))
        .collect()
}

fn of(view: QueueView) -> Vec<Rule> {
    let snapshot = Snapshot { queues: vec![view], ..Snapshot::default() };
    rules(&snapshot).into_iter().map(|(rule, _)| rule).collect()
}

#[test]
fn empty_snapshot_raises_no_alarm() {
    assert_eq!(rules(&Snapshot::default()), []);
    assert_eq!(of(queue()), []);
}

#[test]
fn low_completion_rate_raises_one_alarm() {
    let silent =
        QueueView { completed: 0.0, oldest_ready_age: 1e6, starved_minutes: 5.0, ..queue() };
    assert_eq!(of(silent.clone()), [Rule::CompletionRateLow]);
    // The window has not passed yet.
    let young = Watch { watched_for: 599.0, max_age: None, ..watch() };
    assert_eq!(of(QueueView { watch: Some(young), ..silent.clone() }), []);
    // An operator paused it.
    assert_eq!(of(QueueView { paused: true, ..silent.clone() }), []);
    // Without a watch, its age or its missing workers raise the alarm.
    assert_eq!(of(QueueView { watch: None, ..silent.clone() }), [Rule::NoWorkers]);
    let served = QueueView { watch: None, starved_minutes: 4.0, ..silent.clone() };
    assert_eq!(of(served), [Rule::OldestReadyAge]);
    let off = Watch { off: true, ..watch() };
    assert_eq!(of(QueueView { watch: Some(off), ..silent }), [Rule::NoWorkers]);
}

#[test]
fn completions_at_the_threshold_raise_no_alarm() {
    assert_eq!(of(QueueView { completed: 1.0, ..queue() }), []);
    let four = Watch { min_completed: 4.0, ..watch() };
    let view = QueueView { completed: 3.0, watch: Some(four), ..queue() };
    assert_eq!(of(view), [Rule::CompletionRateLow]);
}

#[test]
fn level_alarm_clears_ten_percent_below_its_threshold() {
    let evaluated = |length: f64, up: bool| {
        let open = match up {
            true => vec![Open { rule: "queue_length_high".into(), subject: "mail".into() }],
            false => Vec::new(),
        };
        let view = QueueView { length, ..queue() };
        rules(&Snapshot { queues: vec![view], open, ..Snapshot::default() }).len()
    };
    assert_eq!([evaluated(100.0, false), evaluated(101.0, false)], [0, 1]);
    assert_eq!([evaluated(95.0, true), evaluated(90.0, true)], [1, 0]);
}

/// Returns whether the alarm is raised when it is not open, and whether it stays when it is.
fn raised_and_kept(rule: Rule, view: &QueueView) -> [bool; 2] {
    [false, true].map(|up| {
        let up = up.then(|| Open { rule: rule.as_str().into(), subject: "mail".into() });
        let queues = vec![view.clone()];
        let snapshot = Snapshot { queues, open: up.into_iter().collect(), ..Snapshot::default() };
        rules(&snapshot).iter().any(|(found, _)| *found == rule)
    })
}

#[test]
fn completion_rate_alarm_clears_a_tenth_above_its_threshold() {
    let low = |completed: f64, min_completed: f64| {
        let watch = Some(Watch { min_completed, ..watch() });
        raised_and_kept(Rule::CompletionRateLow, &QueueView { completed, watch, ..queue() })
    };
    assert_eq!([low(0.0, 1.0), low(1.0, 1.0)], [[true, true], [false, false]]);
    assert_eq!([low(99.0, 100.0), low(109.0, 100.0)], [[true, true], [false, true]]);
    assert_eq!(low(110.0, 100.0), [false, false]);
}

#[test]
fn count_alarms_clear_with_hysteresis() {
    let died: fn(f64) -> QueueView = |died| QueueView { died, ..queue() };
    let lost: fn(f64) -> QueueView = |lost| QueueView { lost, ..queue() };
    for (rule, many) in [(Rule::DeadJobsGrowing, died), (Rule::LeaseLosses, lost)] {
        assert_eq!(raised_and_kept(rule, &many(10.0)), [true, true]);
        assert_eq!(raised_and_kept(rule, &many(9.0)), [false, true]);
        assert_eq!(raised_and_kept(rule, &many(8.0)), [false, false]);
    }
}

#[test]
fn low_completion_rate_stays_raised_while_the_watch_is_young() {
    let young = Some(Watch { watched_for: 60.0, ..watch() });
    let silent = QueueView { completed: 0.0, watch: young, ..queue() };
    assert_eq!(raised_and_kept(Rule::CompletionRateLow, &silent), [false, true]);
}

#[test]
fn one_expired_job_raises_an_alarm_in_paused_and_unwatched_queues() {
    for view in
        [queue(), QueueView { paused: true, ..queue() }, QueueView { watch: None, ..queue() }]
    {
        assert_eq!(of(QueueView { dead_expired: 1.0, ..view }), [Rule::ExpiredJobs]);
    }
}

#[test]
fn deaths_and_losses_raise_alarms_from_their_threshold_on() {
    assert_eq!(of(QueueView { died: 9.0, lost: 9.0, ..queue() }), []);
    let both = QueueView { died: 10.0, lost: 10.0, ..queue() };
    assert_eq!(of(both.clone()), [Rule::DeadJobsGrowing, Rule::LeaseLosses]);
    let unwatched = QueueView { watch: None, ..both.clone() };
    assert_eq!(of(unwatched), [Rule::DeadJobsGrowing, Rule::LeaseLosses]);
    let off = Watch { max_dead: 0.0, max_lost: 0.0, ..watch() };
    assert_eq!(of(QueueView { watch: Some(off), ..both }), []);
}

fn mirror(name: &str, oldest_difference_age: f64, uncompared_age: f64) -> MirrorView {
    MirrorView { mirror: name.to_owned(), differences: 3.0, oldest_difference_age, uncompared_age }
}

#[test]
fn sweeps_mirrors_and_vacuum_raise_alarms() {
    let sick = Snapshot {
        sweeps: vec![
            SweepView { sweep: "a".to_owned(), stuck: 1.0, dead: 0.0 },
            SweepView { sweep: "b".to_owned(), stuck: 0.0, dead: 2.0 },
            SweepView { sweep: "c".to_owned(), ..SweepView::default() },
        ],
        mirrors: vec![
            mirror("i", 601.0, 3601.0),
            mirror("j", 600.0, 3600.0),
            mirror("k", 0.0, 3601.0),
        ],
        oldest_xact_age: 901.0,
        ..Snapshot::default()
    };
    let expected = [
        (Rule::SweepStuckRows, "a"),
        (Rule::SweepStuckRows, "b"),
        (Rule::MirrorDifferenceAge, "i"),
        (Rule::MirrorNotCompared, "k"),
        (Rule::VacuumHeldBack, ""),
    ];
    assert_eq!(rules(&sick), expected.map(|(rule, subject)| (rule, subject.to_owned())));
}

#[test]
fn vacuum_alarm_names_the_transaction_and_how_to_end_it() {
    let holder =
        |who: &str, age: f64| Holder { who: who.to_owned(), remedy: format!("end {who}"), age };
    let sick = Snapshot {
        oldest_xact_age: 1000.0,
        vacuum_held_by: vec![holder("one", 1000.0), holder("two", 600.0)],
        ..Snapshot::default()
    };
    let found = evaluate(&sick, &Thresholds::default());
    assert_eq!(
        found[0].summary,
        "vacuum has removed no dead rows for 17 minutes: claims will slow down; \
         held back by one, 17 minutes; end one; and by two, 10 minutes; end two"
    );
    // The holder may have ended by the time of the sample.
    let gone = Snapshot { vacuum_held_by: Vec::new(), ..sick };
    assert!(evaluate(&gone, &Thresholds::default())[0].summary.ends_with("claims will slow down"));
}

#[test]
fn thresholds_of_the_program_apply_to_queues_without_a_watch() {
    let strict = Thresholds::default()
        .max_age(Duration::from_secs(5))
        .max_dead(1)
        .max_starved(Duration::from_secs(90));
    let found = |view: QueueView| -> Vec<Rule> {
        let snapshot = Snapshot { queues: vec![view], ..Snapshot::default() };
        evaluate(&snapshot, &strict).into_iter().map(|found| found.rule).collect()
    };
    let sick = QueueView { watch: None, oldest_ready_age: 6.0, died: 1.0, ..queue() };
    assert_eq!(found(sick.clone()), [Rule::OldestReadyAge, Rule::DeadJobsGrowing]);
    assert_eq!(found(QueueView { watch: Some(watch()), ..sick }), []);
    // 90 s are two whole minutes.
    let starved = |minutes| QueueView { watch: None, starved_minutes: minutes, ..queue() };
    assert_eq!([found(starved(1.0)), found(starved(2.0))], [vec![], vec![Rule::NoWorkers]]);
}

#[test]
fn rule_name_equals_its_json() {
    for rule in Rule::ALL {
        let json = serde_json::to_value(rule).expect("a word");
        assert_eq!(json, rule.as_str());
    }
}
