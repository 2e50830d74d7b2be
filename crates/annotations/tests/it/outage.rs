//! The index is away while people write, change, move and delete, or it comes back as another one.
//! Afterwards nothing is missing, nothing is old and nothing is there that should not be.

use annotations::index::Query;
use annotations::{Annotation, AnnotationId, Change, Filter, IndexState, Settings, WORLD};
use serde_json::json;

use crate::rig::{PAGE, Rig, each, each_with, on_page, settings, until};

fn words(q: &str) -> Filter {
    Filter { q: Some(q.to_owned()), ..Filter::default() }
}

/// What the index itself answers to words, whoever may see it.
async fn indexed(rig: &Rig, q: &str) -> Vec<String> {
    rig.index().ids(Query { words: Some(q.to_owned()), ..Query::default() }).await
}

async fn rewrite(rig: &Rig, author: &annotations::User, note: &Annotation, text: &str) {
    let change = Change { text: Some(text.to_owned()), ..Change::default() };
    rig.notes.update(author, &note.id, change).await.unwrap();
}

#[tokio::test]
async fn f11_after_an_outage_of_the_index_nothing_is_missing_stale_or_a_ghost() {
    each_with(Settings { direct: true, ..settings() }, async |rig| {
        let (alba, bela) = (rig.user("alba").await, rig.user("bela").await);
        let group = rig.notes.make_group(alba.id, "Reading", false).await.unwrap();
        let kept = rig.note(&alba, "kept giants").await;
        let changed = rig.note(&alba, "former windmills").await;
        let deleted = rig.note(&alba, "doomed sheep").await;
        let moved = rig.note(&alba, "shy basin").await;
        rig.work_all().await;
        rig.assert_equal().await;

        // At first what is asked of it is done, and only the answers are lost.
        rig.index().set_answers_lost(true);
        let half = rig.note(&alba, "half inn").await;
        rewrite(&rig, &alba, &changed, "interim mills").await;
        rig.work_all().await;
        rig.index().set_down(true);
        let fresh = rig.note(&alba, "fresh lion").await;
        let brief = rig.note(&alba, "brief ducks").await;
        rewrite(&rig, &alba, &changed, "present mills").await;
        rig.notes.delete(&alba, &deleted.id).await.unwrap();
        rig.notes.delete(&alba, &brief.id).await.unwrap();
        let away = Change { group: Some(group.id.clone()), ..Change::default() };
        rig.notes.update(&alba, &moved.id, away).await.unwrap();
        rig.work_all().await;

        // Everybody sees what is so, and nobody what is not for them.
        let found = rig.notes.search(Some(alba.id), &on_page(), None, 50).await.unwrap();
        assert_eq!((found.index, found.rows.len()), (IndexState::Down, 5));
        assert_eq!(rig.texts(Some(&alba), &words("fresh")).await, ["fresh lion"], "one's own");
        assert_eq!(rig.texts(Some(&alba), &words("mills")).await, ["present mills"]);
        assert_eq!(rig.texts(Some(&bela), &on_page()).await.len(), 4);
        assert!(rig.texts(Some(&bela), &words("basin")).await.is_empty(), "it moved away");

        rig.index().set_down(false);
        rig.work_until_none_waits().await;
        rig.assert_equal().await;
        until(async || {
            let found = rig.notes.search(Some(bela.id), &on_page(), None, 50).await.unwrap();
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
            assert_eq!(indexed(&rig, q).await, ids, "{q}");
        }
        let in_group = Query { groups: Some(vec![group.id.clone()]), ..Query::default() };
        assert_eq!(rig.index().ids(in_group).await, [moved.id.to_string()]);
        assert_eq!(rig.count("select count(*) from leasehold.dead_job").await, 0);
    })
    .await;
}

#[tokio::test]
async fn f14_an_index_that_was_restored_is_mended_by_the_check() {
    each(async |rig| {
        let alba = rig.user("alba").await;
        let lost = rig.note(&alba, "lost giants").await;
        let strange = rig.note(&alba, "familiar windmills").await;
        let kept = rig.note(&alba, "kept sheep").await;
        rig.work_all().await;
        // What another database would have put there.
        let other = |text: &str| {
            json!({
                "url": PAGE, "user": "alba", "group": WORLD, "kind": "page_note", "quote": "",
                "text": text, "tags": [], "parent": null, "root": null, "created": 1, "updated": 1,
            })
        };
        let ghost = AnnotationId::random();
        rig.index().tamper(lost.id.as_str(), None).await;
        rig.index().tamper(strange.id.as_str(), Some((9_000_000_000_000_000, other("strange barber")))).await;
        rig.index().tamper(ghost.as_str(), Some((3, other("ghost of a basin")))).await;
        let sql = "select leasehold.order_mirror($1, 'check', 'alba')";
        rig.client.execute(sql, &[&annotations::MIRROR]).await.unwrap();
        rig.work_all().await;
        rig.work_until_none_waits().await;
        assert_eq!(rig.count("select repaired_total from leasehold.mirror").await, 3);
        rig.assert_equal().await;
        for (q, there) in [
            ("giants", Some(&lost)),
            ("windmills", Some(&strange)),
            ("sheep", Some(&kept)),
            ("barber", None),
            ("ghost", None),
        ] {
            let ids: Vec<String> = there.iter().map(|note| note.id.to_string()).collect();
            assert_eq!(indexed(&rig, q).await, ids, "{q}");
        }
        assert_eq!(rig.count("select count(*) from leasehold.mirror_difference").await, 0);
    })
    .await;
}
