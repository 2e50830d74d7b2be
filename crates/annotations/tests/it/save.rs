//! Saving: a note and its job commit together; an idempotency key makes it happen once.

use annotations::{Change, Kind, NewAnnotation, Refused};

use crate::rig::{PAGE, Rig, on_page, passage, until};

#[tokio::test]
async fn a_note_is_stored_as_it_was_written_and_found_on_its_page() {
    let rig = Rig::alone().await;
    let sophia = rig.user("sophiathefirst").await;
    let new = NewAnnotation {
        tags: vec!["math".to_owned(), "Größe".to_owned()],
        ..passage("So he can do sums?")
    };
    let saved = rig.notes.create(&sophia, new).await.unwrap();
    assert!(!saved.replayed);
    let read = rig.notes.read(None, &saved.annotation.id).await.unwrap();
    assert_eq!((read.text.as_str(), read.kind), ("So he can do sums?", Kind::Annotation));
    assert_eq!(read.tags, ["math", "Größe"]);
    assert_eq!(
        (read.user_name.as_str(), read.url.as_str(), read.version),
        ("sophiathefirst", PAGE, saved.annotation.version)
    );
    assert_eq!(rig.texts(None, &on_page()).await, ["So he can do sums?"]);
    let tagged = annotations::Filter { tag: Some("GRÖSSE".to_owned()), ..on_page() };
    assert!(rig.texts(None, &tagged).await.is_empty(), "ß is not SS");
    let tagged = annotations::Filter { tag: Some("größe".to_owned()), ..on_page() };
    assert_eq!(rig.texts(None, &tagged).await.len(), 1, "tags in any case");
}

#[tokio::test]
async fn a_save_commits_with_its_job_or_not_at_all() {
    let rig = Rig::alone().await;
    let sophia = rig.user("sophia").await;
    let note = rig.note(&sophia, "one").await;
    let row = rig
        .client
        .query_one(
            "select name, priority, tag, kwargs ->> 'annotation_id', queue, \
             extract(epoch from scheduled_at - enqueued_at)::float8, \
             expires_at = scheduled_at + interval '30 days' from leasehold.job",
            &[],
        )
        .await
        .unwrap();
    let facts: (&str, i32, &str, &str, &str) =
        (row.get(0), row.get(1), row.get(2), row.get(3), row.get(4));
    let id = note.id.to_string();
    assert_eq!(facts, ("index", 1, "storage.create_annotation", id.as_str(), "annotations"));
    // A minute after the statement, which may run some time after its transaction began.
    let due_after: f64 = row.get(5);
    assert!((60.0..120.0).contains(&due_after), "{due_after}");
    assert!(row.get::<_, bool>(6), "it is kept for 30 days");

    // A transaction that does not commit leaves neither.
    rig.client.batch_execute("begin").await.unwrap();
    let sql = "select annotations.create_annotation($1, $2, $3, '', '__world__', 'page_note', null, '', \
               '[]', 'x', '{}', null, null)";
    let id = annotations::AnnotationId::random();
    rig.client.query(sql, &[&sophia.id, &id.as_str(), &PAGE]).await.unwrap();
    assert_eq!(rig.count("select count(*) from leasehold.job").await, 2);
    rig.client.batch_execute("rollback").await.unwrap();
    assert_eq!(rig.count("select count(*) from leasehold.job").await, 1);
    assert_eq!(rig.count("select count(*) from annotations.annotation").await, 1);
}

#[tokio::test]
async fn every_change_raises_the_version_and_says_where_it_came_from() {
    let rig = Rig::alone().await;
    let sophia = rig.user("sophia").await;
    let note = rig.note(&sophia, "one").await;
    rig.client.execute("delete from leasehold.job", &[]).await.unwrap();
    let change = Change { text: Some("two".to_owned()), ..Change::default() };
    let changed = rig.notes.update(&sophia, &note.id, change).await.unwrap();
    assert!(changed.version > note.version, "{} after {}", changed.version, note.version);
    assert_eq!(changed.text, "two");
    assert!(changed.updated_at > note.updated_at);
    let tags = "select string_agg(tag, ' ' order by id) from leasehold.job";
    let said: String = rig.client.query_one(tags, &[]).await.unwrap().get(0);
    assert_eq!(said, "storage.update_annotation");
    rig.client.execute("delete from leasehold.job", &[]).await.unwrap();
    rig.notes.delete(&sophia, &note.id).await.unwrap();
    let said: String = rig.client.query_one(tags, &[]).await.unwrap().get(0);
    assert_eq!(said, "storage.delete_annotation");
    assert!(matches!(rig.notes.read(None, &note.id).await, Err(Refused::NotFound)));
}

#[tokio::test]
async fn h13_a_key_makes_one_note_and_belongs_to_its_content_and_its_author() {
    let rig = Rig::alone().await;
    let (one, other) = (rig.user("one").await, rig.user("other").await);
    let keyed =
        |text: &str| NewAnnotation { idempotency_key: Some("k1".to_owned()), ..passage(text) };
    let first = rig.notes.create(&one, keyed("x")).await.unwrap();
    let again = rig.notes.create(&one, keyed("x")).await.unwrap();
    assert!(again.replayed && !first.replayed);
    assert_eq!(again.annotation.id, first.annotation.id);
    assert!(matches!(rig.notes.create(&one, keyed("y")).await, Err(Refused::KeyReused)));
    assert!(!rig.notes.create(&other, keyed("x")).await.unwrap().replayed);
    assert_eq!(rig.count("select count(*) from annotations.annotation").await, 2);
    // Twenty concurrent saves make one note.
    let keyed = || NewAnnotation { idempotency_key: Some("k2".to_owned()), ..passage("z") };
    let all =
        futures_util::future::join_all((0..20).map(|_| rig.notes.create(&one, keyed()))).await;
    let ids: std::collections::HashSet<_> =
        all.into_iter().map(|it| it.unwrap().annotation.id).collect();
    assert_eq!(ids.len(), 1);
}

#[tokio::test]
async fn h1_h2_what_cannot_be_stored_is_refused_with_words_and_stores_nothing() {
    let rig = Rig::alone().await;
    let sophia = rig.user("sophia").await;
    let bad: Vec<NewAnnotation> = vec![
        NewAnnotation { url: "javascript:alert(1)".to_owned(), ..passage("x") },
        NewAnnotation { url: String::new(), ..passage("x") },
        passage("nul \0 inside"),
        NewAnnotation { quote: "nul \0".to_owned(), ..passage("x") },
        passage(&"x".repeat(65_537)),
        NewAnnotation { quote: "x".repeat(16_385), ..passage("x") },
        NewAnnotation { tags: vec!["x".to_owned(); 21], ..passage("x") },
        NewAnnotation { tags: vec![String::new()], ..passage("x") },
        NewAnnotation { quote: String::new(), selectors: Vec::new(), ..passage("   ") },
        NewAnnotation { idempotency_key: Some("ä".to_owned()), ..passage("x") },
    ];
    for new in bad {
        let refused = rig.notes.create(&sophia, new.clone()).await;
        assert!(matches!(refused, Err(Refused::Malformed(_))), "{refused:?} for {new:?}");
    }
    assert_eq!(rig.count("select count(*) from annotations.annotation").await, 0);
    assert_eq!(rig.count("select count(*) from leasehold.job").await, 0);
}

#[tokio::test]
async fn a_note_without_a_passage_cannot_be_emptied() {
    let rig = Rig::alone().await;
    let sophia = rig.user("sophia").await;
    let about_page = NewAnnotation { quote: String::new(), selectors: Vec::new(), ..passage("x") };
    let page_note = rig.notes.create(&sophia, about_page).await.unwrap().annotation;
    let reply = rig.reply(&sophia, &page_note, "y").await;
    let quoting = rig.note(&sophia, "z").await;
    for empty in ["", " \u{a0}\n\t"] {
        let change = || Change { text: Some(empty.to_owned()), ..Change::default() };
        for note in [&page_note, &reply] {
            let refused = rig.notes.update(&sophia, &note.id, change()).await;
            assert!(matches!(refused, Err(Refused::Malformed(_))), "{refused:?}");
            assert_eq!(rig.notes.read(None, &note.id).await.unwrap().text, note.text);
        }
        // A note with a quote may have no text.
        assert_eq!(rig.notes.update(&sophia, &quoting.id, change()).await.unwrap().text, "");
    }
}

#[tokio::test]
async fn only_authors_change_and_delete_and_replies_outlive_what_they_answer() {
    let rig = Rig::alone().await;
    let (one, other) = (rig.user("one").await, rig.user("other").await);
    let note = rig.note(&one, "mine").await;
    let change = Change { text: Some("stolen".to_owned()), ..Change::default() };
    assert!(matches!(rig.notes.update(&other, &note.id, change).await, Err(Refused::NotYours)));
    assert!(matches!(rig.notes.delete(&other, &note.id).await, Err(Refused::NotYours)));
    let reply = rig.reply(&other, &note, "why?").await;
    let deeper = rig.reply(&one, &reply, "because").await;
    assert_eq!(deeper.root.as_deref(), Some(note.id.as_str()));
    assert_eq!(deeper.parent.as_deref(), Some(reply.id.as_str()));
    assert_eq!(deeper.url, PAGE);
    rig.notes.delete(&one, &note.id).await.unwrap();
    assert_eq!(rig.texts(None, &on_page()).await, ["because", "why?"]);
}

#[tokio::test]
async fn c6_a_reply_and_a_move_of_its_conversation_do_not_lock_each_other_out() {
    let rig = Rig::alone().await;
    let alba = rig.user("alba").await;
    let group = rig.notes.make_group(alba.id, "Reading", false).await.unwrap();
    // The reply that is answered has the smaller id: locking in the order of ids would begin with it.
    let mut roots = Vec::new();
    for _ in 0..8 {
        roots.push(rig.note(&alba, "beginning").await);
    }
    let root = roots.into_iter().max_by_key(|root| root.id.to_string()).unwrap();
    let mut reply = rig.reply(&alba, &root, "reply").await;
    while reply.id.as_str() > root.id.as_str() {
        reply = rig.reply(&alba, &root, "reply").await;
    }
    rig.client.batch_execute("begin").await.unwrap();
    let lock = "select annotations.own($1, $2, null)";
    rig.client.query(lock, &[&alba.id, &root.id.as_str()]).await.unwrap();
    let (notes, author) = (rig.notes.clone(), alba.clone());
    let answer = NewAnnotation {
        reply_to: Some(reply.id.clone()),
        text: "deeper".to_owned(),
        ..NewAnnotation::default()
    };
    let replying = tokio::spawn(async move { notes.create(&author, answer).await });
    until(async || rig.is_waited_for().await).await;
    let moving = "select annotations.update_annotation($1, $2, null, null, $3, null)";
    rig.client.query(moving, &[&alba.id, &root.id.as_str(), &group.id]).await.unwrap();
    rig.client.batch_execute("commit").await.unwrap();
    let deeper = replying.await.unwrap().unwrap().annotation;
    assert_eq!(deeper.group, group.id, "it went along");
}
