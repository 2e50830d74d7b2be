//! Who sees what: a group's notes are hidden from other users, however they ask.

use annotations::{Change, Counts, Filter, Refused, WORLD};

use crate::fixture::{Fixture, PAGE, each, on_page, passage};

/// Tries every way to a note, for a viewer who must not see it.
async fn assert_hidden(
    fixture: &Fixture,
    viewer: Option<i64>,
    secret: &annotations::Annotation,
    why: &str,
) {
    let read = fixture.notes.read(viewer, &secret.id).await;
    assert!(matches!(read, Err(Refused::NotFound)), "{why}: read by id");
    let ways = [
        Filter::default(),
        on_page(),
        Filter { user: Some(secret.user_name.clone()), ..Filter::default() },
        Filter { group: Some(secret.group.clone()), ..Filter::default() },
        Filter { tag: Some("hush".to_owned()), ..Filter::default() },
        Filter { q: Some("secret".to_owned()), ..Filter::default() },
        Filter { kind: Some("reply"), ..Filter::default() },
        Filter { references: Some(secret.id.clone()), ..Filter::default() },
        Filter {
            references: secret.root.as_ref().and_then(|root| root.parse().ok()),
            ..Filter::default()
        },
    ];
    for filter in ways {
        let found = fixture.notes.search(viewer, &filter, None, 200).await.unwrap();
        let leaked =
            found.rows.iter().any(|row| row.id == secret.id || row.text.contains("secret"));
        assert!(!leaked, "{why}: found by {filter:?}");
    }
}

async fn secret_of(
    fixture: &Fixture,
    author: &annotations::User,
    group: &str,
) -> annotations::Annotation {
    let mut new = passage("a secret");
    new.group = Some(group.to_owned());
    new.tags = vec!["hush".to_owned()];
    fixture.notes.create(author, new).await.unwrap().annotation
}

/// Runs a test with Postgres alone, and with indexes that return every note for every query.
async fn all_ways(story: impl AsyncFn(&Fixture)) {
    let alone = Fixture::alone().await;
    story(&alone).await;
    each(async |fixture| {
        fixture.index().set_gossip(true);
        story(&fixture).await;
    })
    .await;
}

#[tokio::test]
async fn h14_notes_of_a_group_are_visible_to_members_only() {
    all_ways(async |fixture| {
        let (alba, bela, carl) =
            (fixture.user("alba").await, fixture.user("bela").await, fixture.user("carl").await);
        let group = fixture.notes.make_group(alba.id, "Reading", false).await.unwrap();
        fixture.let_in(&alba, &group.id, &bela).await;
        fixture.note(&alba, "for all").await;
        let secret = secret_of(fixture, &alba, &group.id).await;
        let reply = fixture.reply(&bela, &secret, "another secret").await;
        assert_eq!(reply.group, group.id, "a reply is where its conversation is");
        fixture.work_all().await;
        for (viewer, why) in [(None, "without an account"), (Some(carl.id), "a stranger")] {
            assert_hidden(fixture, viewer, &secret, why).await;
            assert_hidden(fixture, viewer, &reply, why).await;
            let counts = fixture.notes.counts(viewer, PAGE).await.unwrap();
            assert_eq!(counts, Counts { annotations: 1, page_notes: 0, replies: 0 }, "{why}");
        }
        for member in [&alba, &bela] {
            assert_eq!(fixture.texts(Some(member), &on_page()).await.len(), 3);
            let counts = fixture.notes.counts(Some(member.id), PAGE).await.unwrap();
            assert_eq!(counts, Counts { annotations: 2, page_notes: 0, replies: 1 });
        }
    })
    .await;
}

#[tokio::test]
async fn h14_non_members_cannot_reply_change_or_join() {
    all_ways(async |fixture| {
        let (alba, carl) = (fixture.user("alba").await, fixture.user("carl").await);
        let group = fixture.notes.make_group(alba.id, "Reading", false).await.unwrap();
        let secret = secret_of(fixture, &alba, &group.id).await;
        let mut reply = passage("I heard that");
        reply.quote = String::new();
        reply.reply_to = Some(secret.id.clone());
        assert!(matches!(fixture.notes.create(&carl, reply).await, Err(Refused::NotFound)));
        let change = Change { text: Some("x".to_owned()), ..Change::default() };
        assert!(matches!(
            fixture.notes.update(&carl, &secret.id, change).await,
            Err(Refused::NotFound)
        ));
        assert!(matches!(fixture.notes.delete(&carl, &secret.id).await, Err(Refused::NotFound)));
        let mut there = passage("me too");
        there.group = Some(group.id.clone());
        assert!(matches!(fixture.notes.create(&carl, there).await, Err(Refused::NoSuchGroup)));
        assert!(matches!(
            fixture.notes.join_group(carl.id, &group.id).await,
            Err(Refused::NoSuchGroup)
        ));
        assert!(matches!(
            fixture.notes.invite(carl.id, &group.id, "carl").await,
            Err(Refused::NoSuchGroup)
        ));
        let own = fixture.note(&carl, "mine").await;
        let change = Change { group: Some(group.id.clone()), ..Change::default() };
        assert!(matches!(
            fixture.notes.update(&carl, &own.id, change).await,
            Err(Refused::NoSuchGroup)
        ));
    })
    .await;
}

#[tokio::test]
async fn h14_former_member_sees_no_notes_of_the_group() {
    all_ways(async |fixture| {
        let (alba, bela) = (fixture.user("alba").await, fixture.user("bela").await);
        let group = fixture.notes.make_group(alba.id, "Reading", true).await.unwrap();
        fixture.notes.join_group(bela.id, &group.id).await.unwrap();
        let secret = secret_of(fixture, &alba, &group.id).await;
        let own = secret_of(fixture, &bela, &group.id).await;
        fixture.work_all().await;
        assert!(fixture.notes.read(Some(bela.id), &secret.id).await.is_ok());
        fixture.notes.leave_group(bela.id, &group.id).await.unwrap();
        assert_hidden(fixture, Some(bela.id), &secret, "left").await;
        assert_hidden(fixture, Some(bela.id), &own, "left, and wrote it").await;
    })
    .await;
}

#[tokio::test]
async fn h14_moved_note_is_hidden_from_its_former_readers() {
    all_ways(async |fixture| {
        let (alba, bela) = (fixture.user("alba").await, fixture.user("bela").await);
        let group = fixture.notes.make_group(alba.id, "Reading", false).await.unwrap();
        let mut public = passage("a secret, it turns out");
        public.tags = vec!["hush".to_owned()];
        let note = fixture.notes.create(&alba, public).await.unwrap().annotation;
        let own_reply = fixture.reply(&alba, &note, "more of the secret").await;
        fixture.work_all().await;
        assert!(fixture.notes.read(Some(bela.id), &note.id).await.is_ok());
        let change = Change { group: Some(group.id.clone()), ..Change::default() };
        let moved = fixture.notes.update(&alba, &note.id, change).await.unwrap();
        assert_eq!(moved.group, group.id);
        // The index does not know of it yet, and must not show it.
        assert_hidden(fixture, Some(bela.id), &moved, "moved away").await;
        assert_hidden(fixture, Some(bela.id), &own_reply, "its reply").await;
        fixture.work_all().await;
        assert_hidden(fixture, None, &moved, "moved away, and indexed").await;
    })
    .await;
}

#[tokio::test]
async fn h14_conversation_with_replies_of_others_cannot_move() {
    let fixture = Fixture::alone().await;
    let (alba, bela) = (fixture.user("alba").await, fixture.user("bela").await);
    let group = fixture.notes.make_group(alba.id, "Reading", true).await.unwrap();
    fixture.notes.join_group(bela.id, &group.id).await.unwrap();
    let secret = secret_of(&fixture, &alba, &group.id).await;
    let reply = fixture.reply(&bela, &secret, "a secret between us").await;
    let to_all = || Change { group: Some(WORLD.to_owned()), ..Change::default() };
    assert!(matches!(
        fixture.notes.update(&alba, &secret.id, to_all()).await,
        Err(Refused::HasReplies)
    ));
    // The reply has no replies itself: it cannot move because it is one.
    assert!(matches!(
        fixture.notes.update(&bela, &reply.id, to_all()).await,
        Err(Refused::ReplyElsewhere)
    ));
    assert_hidden(&fixture, None, &reply, "kept").await;
}

#[tokio::test]
async fn h14_moved_group_is_read_by_the_other_group_at_once() {
    all_ways(async |fixture| {
        let (alba, bela, carl) =
            (fixture.user("alba").await, fixture.user("bela").await, fixture.user("carl").await);
        let old = fixture.notes.make_group(alba.id, "Old", true).await.unwrap();
        let new = fixture.notes.make_group(alba.id, "New", true).await.unwrap();
        fixture.notes.join_group(bela.id, &old.id).await.unwrap();
        fixture.notes.join_group(carl.id, &new.id).await.unwrap();
        let secret = secret_of(fixture, &bela, &old.id).await;
        fixture.work_all().await;
        assert_hidden(fixture, Some(carl.id), &secret, "before").await;
        assert!(
            matches!(
                fixture.notes.move_group(Some(bela.id), &old.id, &new.id).await,
                Err(Refused::NoSuchGroup)
            ),
            "only its owner moves a group"
        );
        assert!(
            matches!(
                fixture.notes.move_group(Some(alba.id), &old.id, WORLD).await,
                Err(Refused::NoSuchGroup)
            ),
            "and not public"
        );
        fixture.notes.move_group(Some(alba.id), &old.id, &new.id).await.unwrap();
        for moment in ["at once", "once the rows have it", "once the index has it"] {
            assert_hidden(fixture, Some(bela.id), &secret, moment).await;
            assert_hidden(fixture, None, &secret, moment).await;
            let read = fixture.notes.read(Some(carl.id), &secret.id).await.unwrap();
            assert_eq!(read.group, new.id, "{moment}");
            let filter = Filter { group: Some(new.id.clone()), ..Filter::default() };
            assert_eq!(fixture.texts(Some(&carl), &filter).await, ["a secret"], "{moment}");
            match moment {
                "at once" => fixture.work().await,
                _ => fixture.work_all().await,
            }
        }
        let left = "select count(*) from annotations.annotation a join annotations.user_group g \
                    on g.id = a.group_id where g.moved_to is not null";
        assert_eq!(fixture.count(left).await, 0, "every row has its new group");
    })
    .await;
}

#[tokio::test]
async fn h14_former_owner_cannot_move_the_notes_of_a_group() {
    all_ways(async |fixture| {
        let (alba, bela) = (fixture.user("alba").await, fixture.user("bela").await);
        let old = fixture.notes.make_group(alba.id, "Old", false).await.unwrap();
        let own = fixture.notes.make_group(alba.id, "Own", false).await.unwrap();
        fixture.let_in(&alba, &old.id, &bela).await;
        // A state that an earlier release can have left in a database.
        let out = "delete from annotations.membership where group_id = $1 and user_id = $2";
        fixture.client.execute(out, &[&old.id, &alba.id]).await.unwrap();
        let secret = secret_of(fixture, &bela, &old.id).await;
        for (from, to) in [(&old, &own), (&own, &old)] {
            let moved = fixture.notes.move_group(Some(alba.id), &from.id, &to.id).await;
            assert!(matches!(moved, Err(Refused::NoSuchGroup)), "{} to {}", from.name, to.name);
        }
        assert_hidden(fixture, Some(alba.id), &secret, "left").await;
        assert!(fixture.notes.read(Some(bela.id), &secret.id).await.is_ok());
        // An operator may.
        fixture.notes.move_group(None, &old.id, &own.id).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn h14_notes_of_a_deleted_account_are_hidden_at_once() {
    all_ways(async |fixture| {
        let (alba, bela) = (fixture.user("alba").await, fixture.user("bela").await);
        let note = fixture.note(&alba, "a secret").await;
        fixture.work_all().await;
        fixture.notes.delete_user(alba.id).await.unwrap();
        assert_hidden(fixture, Some(bela.id), &note, "deleted, not removed").await;
        assert_eq!(fixture.notes.counts(None, PAGE).await.unwrap(), Counts::default());
        fixture.work_all().await;
        assert_eq!(fixture.count("select count(*) from annotations.annotation").await, 0);
    })
    .await;
}
