//! Saving: a note and its job commit together; an idempotency key makes it happen once.

use annotations::{Change, Kind, NewAnnotation, Refused};

use crate::fixture::{Fixture, PAGE, on_page, passage, until};

#[tokio::test]
async fn note_is_stored_unchanged_and_found_on_its_page() {
    let fixture = Fixture::alone().await;
    let sophia = fixture.user("sophiathefirst").await;
    let new = NewAnnotation {
        tags: vec!["math".to_owned(), "Größe".to_owned()],
        ..passage("So he can do sums?")
    };
    let saved = fixture.notes.create(&sophia, new).await.unwrap();
    assert!(!saved.replayed);
    let read = fixture.notes.read(None, &saved.annotation.id).await.unwrap();
    assert_eq!((read.text.as_str(), read.kind), ("So he can do sums?", Kind::Annotation));
    assert_eq!(read.tags, ["math", "Größe"]);
    assert_eq!(
        (read.user_name.as_str(), read.url.as_str(), read.version),
        ("sophiathefirst", PAGE, saved.annotation.version)
    );
    assert_eq!(fixture.texts(None, &on_page()).await, ["So he can do sums?"]);
    let tagged = annotations::Filter { tag: Some("GRÖSSE".to_owned()), ..on_page() };
    assert!(fixture.texts(None, &tagged).await.is_empty(), "ß is not SS");
    let tagged = annotations::Filter { tag: Some("größe".to_owned()), ..on_page() };
    assert_eq!(fixture.texts(None, &tagged).await.len(), 1, "tags in any case");
}

#[tokio::test]
async fn save_commits_with_its_job_or_not_at_all() {
    let fixture = Fixture::alone().await;
    let sophia = fixture.user("sophia").await;
    let note = fixture.note(&sophia, "one").await;
    let row = fixture
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
    fixture.client.batch_execute("begin").await.unwrap();
    let sql = "select annotations.create_annotation($1, $2, $3, '', '__world__', 'page_note', null, '', \
               '[]', 'x', '{}', null, null)";
    let id = annotations::AnnotationId::random();
    fixture.client.query(sql, &[&sophia.id, &id.as_str(), &PAGE]).await.unwrap();
    assert_eq!(fixture.count("select count(*) from leasehold.job").await, 2);
    fixture.client.batch_execute("rollback").await.unwrap();
    assert_eq!(fixture.count("select count(*) from leasehold.job").await, 1);
    assert_eq!(fixture.count("select count(*) from annotations.annotation").await, 1);
}

#[tokio::test]
async fn every_change_raises_the_version_and_tags_its_job() {
    let fixture = Fixture::alone().await;
    let sophia = fixture.user("sophia").await;
    let note = fixture.note(&sophia, "one").await;
    fixture.client.execute("delete from leasehold.job", &[]).await.unwrap();
    let change = Change { text: Some("two".to_owned()), ..Change::default() };
    let changed = fixture.notes.update(&sophia, &note.id, change).await.unwrap();
    assert!(changed.version > note.version, "{} after {}", changed.version, note.version);
    assert_eq!(changed.text, "two");
    assert!(changed.updated_at > note.updated_at);
    let tags = "select string_agg(tag, ' ' order by id) from leasehold.job";
    let tag: String = fixture.client.query_one(tags, &[]).await.unwrap().get(0);
    assert_eq!(tag, "storage.update_annotation");
    fixture.client.execute("delete from leasehold.job", &[]).await.unwrap();
    fixture.notes.delete(&sophia, &note.id).await.unwrap();
    let tag: String = fixture.client.query_one(tags, &[]).await.unwrap().get(0);
    assert_eq!(tag, "storage.delete_annotation");
    assert!(matches!(fixture.notes.read(None, &note.id).await, Err(Refused::NotFound)));
}

#[tokio::test]
async fn h13_idempotency_key_makes_one_note_per_author_and_text() {
    let fixture = Fixture::alone().await;
    let (one, other) = (fixture.user("one").await, fixture.user("other").await);
    let keyed =
        |text: &str| NewAnnotation { idempotency_key: Some("k1".to_owned()), ..passage(text) };
    let first = fixture.notes.create(&one, keyed("x")).await.unwrap();
    let again = fixture.notes.create(&one, keyed("x")).await.unwrap();
    assert!(again.replayed && !first.replayed);
    assert_eq!(again.annotation.id, first.annotation.id);
    assert!(matches!(fixture.notes.create(&one, keyed("y")).await, Err(Refused::KeyReused)));
    assert!(!fixture.notes.create(&other, keyed("x")).await.unwrap().replayed);
    assert_eq!(fixture.count("select count(*) from annotations.annotation").await, 2);
    // Twenty concurrent saves make one note.
    let keyed = || NewAnnotation { idempotency_key: Some("k2".to_owned()), ..passage("z") };
    let all =
        futures_util::future::join_all((0..20).map(|_| fixture.notes.create(&one, keyed()))).await;
    let ids: std::collections::HashSet<_> =
        all.into_iter().map(|it| it.unwrap().annotation.id).collect();
    assert_eq!(ids.len(), 1);
}

#[tokio::test]
async fn h1_h2_invalid_notes_are_refused_with_a_reason() {
    let fixture = Fixture::alone().await;
    let sophia = fixture.user("sophia").await;
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
        let refused = fixture.notes.create(&sophia, new.clone()).await;
        assert!(matches!(refused, Err(Refused::Malformed(_))), "{refused:?} for {new:?}");
    }
    assert_eq!(fixture.count("select count(*) from annotations.annotation").await, 0);
    assert_eq!(fixture.count("select count(*) from leasehold.job").await, 0);
}

#[tokio::test]
async fn note_without_a_passage_keeps_its_text() {
    let fixture = Fixture::alone().await;
    let sophia = fixture.user("sophia").await;
    let about_page = NewAnnotation { quote: String::new(), selectors: Vec::new(), ..passage("x") };
    let page_note = fixture.notes.create(&sophia, about_page).await.unwrap().annotation;
    let reply = fixture.reply(&sophia, &page_note, "y").await;
    let quoting = fixture.note(&sophia, "z").await;
    for empty in ["", " \u{a0}\n\t"] {
        let change = || Change { text: Some(empty.to_owned()), ..Change::default() };
        for note in [&page_note, &reply] {
            let refused = fixture.notes.update(&sophia, &note.id, change()).await;
            assert!(matches!(refused, Err(Refused::Malformed(_))), "{refused:?}");
            assert_eq!(fixture.notes.read(None, &note.id).await.unwrap().text, note.text);
        }
        // A note with a quote may have no text.
        assert_eq!(fixture.notes.update(&sophia, &quoting.id, change()).await.unwrap().text, "");
    }
}

#[tokio::test]
async fn only_authors_change_and_delete_and_replies_stay() {
    let fixture = Fixture::alone().await;
    let (one, other) = (fixture.user("one").await, fixture.user("other").await);
    let note = fixture.note(&one, "mine").await;
    let change = Change { text: Some("stolen".to_owned()), ..Change::default() };
    assert!(matches!(fixture.notes.update(&other, &note.id, change).await, Err(Refused::NotYours)));
    assert!(matches!(fixture.notes.delete(&other, &note.id).await, Err(Refused::NotYours)));
    let reply = fixture.reply(&other, &note, "why?").await;
    let deeper = fixture.reply(&one, &reply, "because").await;
    assert_eq!(deeper.root.as_deref(), Some(note.id.as_str()));
    assert_eq!(deeper.parent.as_deref(), Some(reply.id.as_str()));
    assert_eq!(deeper.url, PAGE);
    fixture.notes.delete(&one, &note.id).await.unwrap();
    assert_eq!(fixture.texts(None, &on_page()).await, ["because", "why?"]);
}

#[tokio::test]
async fn c6_reply_and_move_of_its_conversation_do_not_deadlock() {
    let fixture = Fixture::alone().await;
    let alba = fixture.user("alba").await;
    let group = fixture.notes.make_group(alba.id, "Reading", false).await.unwrap();
    // The reply that is answered has the smaller id: locking in the order of ids would begin with it.
    let mut roots = Vec::new();
    for _ in 0..8 {
        roots.push(fixture.note(&alba, "beginning").await);
    }
    let root = roots.into_iter().max_by_key(|root| root.id.to_string()).unwrap();
    let mut reply = fixture.reply(&alba, &root, "reply").await;
    while reply.id.as_str() > root.id.as_str() {
        reply = fixture.reply(&alba, &root, "reply").await;
    }
    fixture.client.batch_execute("begin").await.unwrap();
    let lock = "select annotations.own($1, $2, null)";
    fixture.client.query(lock, &[&alba.id, &root.id.as_str()]).await.unwrap();
    let (notes, author) = (fixture.notes.clone(), alba.clone());
    let answer = NewAnnotation {
        reply_to: Some(reply.id.clone()),
        text: "deeper".to_owned(),
        ..NewAnnotation::default()
    };
    let replying = tokio::spawn(async move { notes.create(&author, answer).await });
    until(async || fixture.is_waited_for().await).await;
    let moving = "select annotations.update_annotation($1, $2, null, null, $3, null)";
    fixture.client.query(moving, &[&alba.id, &root.id.as_str(), &group.id]).await.unwrap();
    fixture.client.batch_execute("commit").await.unwrap();
    let deeper = replying.await.unwrap().unwrap().annotation;
    assert_eq!(deeper.group, group.id, "it went along");
}
