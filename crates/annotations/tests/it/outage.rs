//! The index is down while users write, change, move and delete, or it comes back as another one.
//! Afterwards no note is missing, stale, or where it should not be.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use annotations::index::{Query, SearchIndex as _, TantivyIndex, TantivySettings};
use annotations::{
    Annotation, AnnotationId, Annotations, Change, Filter, Index, IndexState, Settings, WORLD,
};
use leasehold::mirror::{Digest, Range, Targets as _};
use serde_json::json;

use crate::fixture::{Fixture, PAGE, TIMEOUT, each, each_with, on_page, settings, until};
use crate::index_kind::TempDir;

fn words(q: &str) -> Filter {
    Filter { q: Some(q.to_owned()), ..Filter::default() }
}

/// Returns what the index itself finds for these words, without a check of who may see it.
async fn indexed(fixture: &Fixture, q: &str) -> Vec<String> {
    fixture.index().ids(Query { words: Some(q.to_owned()), ..Query::default() }).await
}

async fn rewrite(fixture: &Fixture, author: &annotations::User, note: &Annotation, text: &str) {
    let change = Change { text: Some(text.to_owned()), ..Change::default() };
    fixture.notes.update(author, &note.id, change).await.unwrap();
}

async fn order(fixture: &Fixture, what: &str) {
    let sql = "select leasehold_internal.order_mirror($1, $2, 'alba')";
    fixture.client.execute(sql, &[&annotations::MIRROR, &what]).await.unwrap();
}

#[tokio::test]
async fn f11_index_equals_the_table_after_an_outage() {
    each_with(Settings { direct: true, ..settings() }, async |fixture| {
        let (alba, bela) = (fixture.user("alba").await, fixture.user("bela").await);
        let group = fixture.notes.make_group(alba.id, "Reading", false).await.unwrap();
        let kept = fixture.note(&alba, "kept giants").await;
        let changed = fixture.note(&alba, "former windmills").await;
        let deleted = fixture.note(&alba, "doomed sheep").await;
        let moved = fixture.note(&alba, "shy basin").await;
        fixture.work_all().await;
        fixture.assert_equal().await;

        // First the index executes requests, and only its responses are lost.
        fixture.index().set_answers_lost(true);
        let half = fixture.note(&alba, "half inn").await;
        rewrite(&fixture, &alba, &changed, "interim mills").await;
        fixture.work_all().await;
        fixture.index().set_down(true);
        let fresh = fixture.note(&alba, "fresh lion").await;
        let brief = fixture.note(&alba, "brief ducks").await;
        rewrite(&fixture, &alba, &changed, "present mills").await;
        fixture.notes.delete(&alba, &deleted.id).await.unwrap();
        fixture.notes.delete(&alba, &brief.id).await.unwrap();
        let away = Change { group: Some(group.id.clone()), ..Change::default() };
        fixture.notes.update(&alba, &moved.id, away).await.unwrap();
        fixture.work_all().await;

        // Users see the current notes, and none that are not for them.
        let found = fixture.notes.search(Some(alba.id), &on_page(), None, 50).await.unwrap();
        assert_eq!((found.index, found.rows.len()), (IndexState::Down, 5));
        assert_eq!(fixture.texts(Some(&alba), &words("fresh")).await, ["fresh lion"], "one's own");
        assert_eq!(fixture.texts(Some(&alba), &words("mills")).await, ["present mills"]);
        assert_eq!(fixture.texts(Some(&bela), &on_page()).await.len(), 4);
        assert!(fixture.texts(Some(&bela), &words("basin")).await.is_empty(), "it moved away");

        fixture.index().set_down(false);
        fixture.work_all().await;
        fixture.assert_equal().await;
        until(async || {
            let found = fixture.notes.search(Some(bela.id), &on_page(), None, 50).await.unwrap();
            found.index == IndexState::Ok && found.rows.len() == 4
        })
        .await;
        for (q, there) in [
            ("giants", Some(&kept)),
            ("inn", Some(&half)),
            ("lion", Some(&fresh)),
            ("present", Some(&changed)),
            ("former", None),
            ("interim", None),
            ("sheep", None),
            ("ducks", None),
        ] {
            let ids: Vec<String> = there.iter().map(|note| note.id.to_string()).collect();
            assert_eq!(indexed(&fixture, q).await, ids, "{q}");
        }
        let in_group = Query { groups: Some(vec![group.id.clone()]), ..Query::default() };
        assert_eq!(fixture.index().ids(in_group).await, [moved.id.to_string()]);
        assert_eq!(fixture.count("select count(*) from leasehold_internal.dead_job").await, 0);
    })
    .await;
}

#[tokio::test]
async fn f14_check_repairs_a_restored_index() {
    each(async |fixture| {
        let alba = fixture.user("alba").await;
        let lost = fixture.note(&alba, "lost giants").await;
        let strange = fixture.note(&alba, "familiar windmills").await;
        let kept = fixture.note(&alba, "kept sheep").await;
        fixture.work_all().await;
        // As another database would have written it.
        let other = |text: &str| {
            json!({
                "url": PAGE, "user": "alba", "group": WORLD, "kind": "page_note", "quote": "",
                "text": text, "tags": [], "parent": null, "root": null, "created": 1, "updated": 1,
            })
        };
        let ghost = AnnotationId::random();
        fixture.index().tamper(lost.id.as_str(), None).await;
        fixture
            .index()
            .tamper(strange.id.as_str(), Some((9_000_000_000_000_000, other("strange barber"))))
            .await;
        fixture.index().tamper(ghost.as_str(), Some((3, other("ghost of a basin")))).await;
        order(&fixture, "check").await;
        fixture.work_all().await;
        assert_eq!(fixture.count("select repaired_total from leasehold_internal.mirror").await, 3);
        fixture.assert_equal().await;
        for (q, there) in [
            ("giants", Some(&lost)),
            ("windmills", Some(&strange)),
            ("sheep", Some(&kept)),
            ("barber", None),
            ("ghost", None),
        ] {
            let ids: Vec<String> = there.iter().map(|note| note.id.to_string()).collect();
            assert_eq!(indexed(&fixture, q).await, ids, "{q}");
        }
        assert_eq!(
            fixture.count("select count(*) from leasehold_internal.mirror_difference").await,
            0
        );
    })
    .await;
}

#[tokio::test]
async fn f12_rebuild_under_writes_loses_nothing() {
    each(async |fixture| {
        let alba = fixture.user("alba").await;
        let mut notes = Vec::new();
        for number in 0..12 {
            notes.push(fixture.note(&alba, &format!("early {number}")).await);
        }
        fixture.work_all().await;
        fixture.index().hold_swap();
        order(&fixture, "rebuild").await;
        let changing = async {
            // Proven equal, and not searched yet.
            let at_swap = tokio::time::timeout(TIMEOUT, fixture.index().at_swap());
            at_swap.await.expect("the rebuild gets here");
            let late = fixture.note(&alba, "late giants").await;
            rewrite(&fixture, &alba, &notes[0], "late windmills").await;
            fixture.notes.delete(&alba, &notes[1].id).await.unwrap();
            until(async || {
                fixture.bring_forward().await;
                fixture.work().await;
                fixture.count("select count(*) from leasehold.job where name = 'index'").await == 0
            })
            .await;
            fixture.index().let_swap();
            late
        };
        // On a slow machine the rebuild or the swap may fail and is tried again.
        let rebuilding = until(async || {
            fixture.bring_forward().await;
            fixture.work().await;
            fixture
                .count("select count(*) from leasehold_internal.mirror where phase = 'swapped'")
                .await
                == 1
        });
        let ((), late) = tokio::join!(rebuilding, changing);
        fixture.work_all().await;
        fixture.assert_equal().await;
        assert_eq!(indexed(&fixture, "giants").await, [late.id.to_string()]);
        assert_eq!(indexed(&fixture, "windmills").await, [notes[0].id.to_string()]);
        assert_eq!(indexed(&fixture, "early").await.len(), 10, "one was changed, one deleted");
        // The former set was still written after the swap.
        order(&fixture, "rollback").await;
        fixture.work_all().await;
        fixture.assert_equal().await;
        assert_eq!(indexed(&fixture, "late").await.len(), 2);
        order(&fixture, "drop").await;
        fixture.work_all().await;
        assert_eq!(
            fixture
                .count("select count(*) from leasehold_internal.mirror where phase = 'none'")
                .await,
            1
        );
        fixture.assert_equal().await;
    })
    .await;
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(std::fs::copy(entry.path(), to).unwrap()),
        }
    }
}

#[tokio::test]
async fn f14_check_repairs_a_directory_restored_from_a_copy() {
    let fixture = Fixture::alone().await;
    let (dir, aside) = (TempDir::new(), TempDir::new());
    let limit = Duration::from_secs(120);
    let open = async || {
        let settings = TantivySettings { limit, ..TantivySettings::new(dir.path()) };
        TantivyIndex::open(settings).await.unwrap()
    };
    let work = async |index: &TantivyIndex| {
        let index = Some(Index::new(Arc::new(index.clone())));
        let served = Annotations::start(fixture.engine.clone(), index, settings()).await.unwrap();
        until(async || {
            fixture.bring_forward().await;
            let worker = annotations::worker(&served, fixture.engine.worker()).unwrap();
            worker.run_until_idle().await.unwrap();
            fixture.count("select count(*) from leasehold.job").await == 0
        })
        .await;
    };
    let digest = async |index: &TantivyIndex| {
        let set = index.open(&index.current().await.unwrap()).await.unwrap();
        set.digest(&Range::default()).await.unwrap()
    };
    let wanted = async || {
        let rows = fixture.client.query("select id, version from annotations.annotation", &[]);
        let mut wanted = Digest::default();
        for row in rows.await.unwrap() {
            wanted.add(row.get(0), row.get(1));
        }
        wanted
    };
    let alba = fixture.user("alba").await;
    for number in 0..20 {
        fixture.note(&alba, &format!("kept {number}")).await;
    }
    let changed = fixture.note(&alba, "former windmills").await;
    let deleted = fixture.note(&alba, "doomed sheep").await;
    let index = open().await;
    work(&index).await;
    drop(index);
    copy(dir.path(), aside.path());

    let index = open().await;
    rewrite(&fixture, &alba, &changed, "present mills").await;
    fixture.notes.delete(&alba, &deleted.id).await.unwrap();
    let fresh = fixture.note(&alba, "fresh lion").await;
    work(&index).await;
    assert_eq!(digest(&index).await, wanted().await);
    drop(index);
    std::fs::remove_dir_all(dir.path()).unwrap();
    copy(aside.path(), dir.path());

    let index = open().await;
    assert_ne!(digest(&index).await, wanted().await, "it is old");
    let jobs = fixture.count("select count(*) from leasehold.job where name = 'index'").await;
    assert_eq!(jobs, 0, "and no job exists for it");
    order(&fixture, "check").await;
    work(&index).await;
    assert_eq!(fixture.count("select repaired_total from leasehold_internal.mirror").await, 3);
    assert_eq!(digest(&index).await, wanted().await);
    for (words, there) in
        [("lion", Some(&fresh)), ("mills", Some(&changed)), ("former", None), ("sheep", None)]
    {
        let query = Query { words: Some(words.to_owned()), limit: 50, ..Query::default() };
        let found = index.search(&query).await.unwrap().hits;
        let found: Vec<&str> = found.iter().map(|hit| hit.id.as_str()).collect();
        let there: Vec<&str> = there.iter().map(|note| note.id.as_str()).collect();
        assert_eq!(found, there, "{words}");
    }
}
