//! An outage of two hours: the index is down, users save, and afterwards nothing is missing.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use annotations::{Change, IndexState, Settings};
use futures_util::StreamExt;

use crate::fixture::{Fixture, on_page, passage, settings, until};

/// Returns how many saves a busy service gets in that time. `LEASEHOLD_STORY_SAVES` overrides it for
/// shorter runs.
fn saves() -> usize {
    let given = std::env::var("LEASEHOLD_STORY_SAVES").ok().and_then(|text| text.parse().ok());
    given.unwrap_or(21_500)
}

#[tokio::test(flavor = "multi_thread")]
async fn f11_outage_under_load_loses_no_save() {
    let fixture = Arc::new(Fixture::with(Settings { direct: true, ..settings() }).await);
    let number = saves();
    let mut readers = Vec::new();
    for name in 0..10 {
        readers.push(fixture.user(&format!("reader{name}")).await);
    }
    let mut before = Vec::new();
    for number in 0..100 {
        let note = fixture.note(&readers[0], &format!("before {number}")).await;
        before.push((0, note.id));
    }
    fixture.bring_forward().await;
    fixture.work_all().await;
    fixture.assert_equal().await;
    let store = Arc::clone(fixture.store.as_ref().unwrap());
    // Writes fail, and searches hang: reports of such outages have both.
    store.set_down(true);
    store.set_hanging(true);
    let worker = annotations::worker(&fixture.notes, fixture.engine.worker()).unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = tokio::spawn(worker.run_until(async {
        let _ = stopped.await;
    }));

    let saved: Vec<_> = futures_util::stream::iter(0..number)
        .map(|at| {
            let (fixture, author) = (Arc::clone(&fixture), readers[at % readers.len()].clone());
            async move {
                let word = format!("note{at:05}");
                let note = fixture.notes.create(&author, passage(&word));
                let note = answered(note).await;
                let note = note.expect("no save fails").annotation;
                // Now and then an author searches the page, and finds what was just written.
                if at % 100 == 0 {
                    // Other authors save while the search waits for the index, and could fill the page.
                    let (q, user) = (Some(word), Some(author.name.clone()));
                    let own = annotations::Filter { user, q, ..on_page() };
                    let found = fixture.notes.search(Some(author.id), &own, None, 50);
                    let found = answered(found).await;
                    let found = found.expect("no search fails");
                    assert_eq!(found.index, IndexState::Down);
                    assert!(
                        found.rows.iter().any(|row| row.id == note.id),
                        "saved, then disappeared"
                    );
                }
                (at % 10, note.id)
            }
        })
        .buffer_unordered(8)
        .collect()
        .await;
    let distinct: HashSet<_> = saved.iter().collect();
    assert_eq!(distinct.len(), number);
    assert_eq!(rows(&fixture).await, before.len() + number);
    // Authors change their minds: of the notes that were in the index before the outage one half is
    // changed and the other half deleted, and so is one in ten of those saved since.
    let again: Vec<_> = before.iter().chain(saved.iter().step_by(10)).enumerate().collect();
    let taken_back = again.len().div_ceil(2);
    futures_util::stream::iter(again)
        .for_each_concurrent(8, |(at, (author, id))| {
            let (fixture, author) = (&fixture, &readers[*author]);
            async move {
                if at % 2 == 0 {
                    answered(fixture.notes.delete(author, id)).await.expect("no deletion fails");
                } else {
                    let text = Some("on second thought".to_owned());
                    let change = Change { text, ..Change::default() };
                    answered(fixture.notes.update(author, id, change))
                        .await
                        .expect("no change fails");
                }
            }
        })
        .await;
    assert_eq!(rows(&fixture).await, before.len() + number - taken_back);
    let jobs = fixture.count("select count(*) from leasehold.job where name = 'index'").await;
    assert!(usize::try_from(jobs).unwrap() >= number + before.len(), "a job for every change");

    store.set_down(false);
    store.set_hanging(false);
    // Jobs become due while the worker runs. As long as their number falls, the worker is not stuck.
    let mut waiting = i64::MAX;
    while waiting > 0 {
        let before = waiting;
        until(async || {
            fixture.bring_forward().await;
            waiting =
                fixture.count("select count(*) from leasehold.job where name = 'index'").await;
            waiting < before || waiting == 0
        })
        .await;
    }
    fixture.assert_equal().await;
    until(async || {
        let found = fixture.notes.search(None, &on_page(), None, 200).await.unwrap();
        found.index == IndexState::Ok && found.rows.len() == 200
    })
    .await;
    stop.send(()).unwrap();
    worker.await.unwrap().unwrap();
}

/// Fails if a request takes more than a minute.
async fn answered<T>(request: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), request).await.expect("no request hangs")
}

async fn rows(fixture: &Fixture) -> usize {
    let rows = fixture.count("select count(*) from annotations.annotation").await;
    usize::try_from(rows).unwrap()
}
