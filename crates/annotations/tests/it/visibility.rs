//! Who sees what: a group's notes are hidden from other users, however they ask.

use annotations::{Change, Counts, Filter, Refused, WORLD};

use crate::rig::{PAGE, Rig, each, on_page, passage};

/// Tries every way to a note, for a viewer who must not see it.
async fn assert_hidden(
    rig: &Rig,
    viewer: Option<i64>,
    secret: &annotations::Annotation,
    why: &str,
) {
    let read = rig.notes.read(viewer, &secret.id).await;
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
        let found = rig.notes.search(viewer, &filter, None, 200).await.unwrap();
        let leaked =
            found.rows.iter().any(|row| row.id == secret.id || row.text.contains("secret"));
        assert!(!leaked, "{why}: found by {filter:?}");
    }
}

async fn secret_of(rig: &Rig, author: &annotations::User, group: &str) -> annotations::Annotation {
    let mut new = passage("a secret");
    new.group = Some(group.to_owned());
    new.tags = vec!["hush".to_owned()];
    rig.notes.create(author, new).await.unwrap().annotation
}

/// Runs a test with Postgres alone, and with indexes that return every note for every query.
async fn all_ways(story: impl AsyncFn(&Rig)) {
    let alone = Rig::alone().await;
    story(&alone).await;
    each(async |rig| {
        rig.index().set_gossip(true);
        story(&rig).await;
    })
    .await;
}

#[tokio::test]
async fn h14_notes_of_a_group_are_for_its_members_only() {
    all_ways(async |rig| {
        let (alba, bela, carl) =
            (rig.user("alba").await, rig.user("bela").await, rig.user("carl").await);
        let group = rig.notes.make_group(alba.id, "Reading", false).await.unwrap();
        rig.let_in(&alba, &group.id, &bela).await;
        rig.note(&alba, "for all").await;
        let secret = secret_of(rig, &alba, &group.id).await;
        let reply = rig.reply(&bela, &secret, "another secret").await;
        assert_eq!(reply.group, group.id, "a reply is where its conversation is");
        rig.work_all().await;
        for (viewer, why) in [(None, "nobody"), (Some(carl.id), "a stranger")] {
            assert_hidden(rig, viewer, &secret, why).await;
            assert_hidden(rig, viewer, &reply, why).await;
            let counts = rig.notes.counts(viewer, PAGE).await.unwrap();
            assert_eq!(counts, Counts { annotations: 1, page_notes: 0, replies: 0 }, "{why}");
        }
        for member in [&alba, &bela] {
            assert_eq!(rig.texts(Some(member), &on_page()).await.len(), 3);
            let counts = rig.notes.counts(Some(member.id), PAGE).await.unwrap();
            assert_eq!(counts, Counts { annotations: 2, page_notes: 0, replies: 1 });
        }
    })
    .await;
}

#[tokio::test]
async fn h14_strangers_cannot_answer_change_or_join_what_they_cannot_see() {
    all_ways(async |rig| {
        let (alba, carl) = (rig.user("alba").await, rig.user("carl").await);
        let group = rig.notes.make_group(alba.id, "Reading", false).await.unwrap();
        let secret = secret_of(rig, &alba, &group.id).await;
        let mut reply = passage("I heard that");
        reply.quote = String::new();
        reply.reply_to = Some(secret.id.clone());
        assert!(matches!(rig.notes.create(&carl, reply).await, Err(Refused::NotFound)));
        let change = Change { text: Some("x".to_owned()), ..Change::default() };
        assert!(matches!(
            rig.notes.update(&carl, &secret.id, change).await,
            Err(Refused::NotFound)
        ));
        assert!(matches!(rig.notes.delete(&carl, &secret.id).await, Err(Refused::NotFound)));
        let mut there = passage("me too");
        there.group = Some(group.id.clone());
        assert!(matches!(rig.notes.create(&carl, there).await, Err(Refused::NoSuchGroup)));
        assert!(matches!(
            rig.notes.join_group(carl.id, &group.id).await,
            Err(Refused::NoSuchGroup)
        ));
        assert!(matches!(
            rig.notes.invite(carl.id, &group.id, "carl").await,
            Err(Refused::NoSuchGroup)
        ));
        let own = rig.note(&carl, "mine").await;
        let change = Change { group: Some(group.id.clone()), ..Change::default() };
        assert!(matches!(
            rig.notes.update(&carl, &own.id, change).await,
            Err(Refused::NoSuchGroup)
        ));
    })
    .await;
}

#[tokio::test]
async fn h14_whoever_leaves_a_group_sees_nothing_of_it_any_more() {
    all_ways(async |rig| {
        let (alba, bela) = (rig.user("alba").await, rig.user("bela").await);
        let group = rig.notes.make_group(alba.id, "Reading", true).await.unwrap();
        rig.notes.join_group(bela.id, &group.id).await.unwrap();
        let secret = secret_of(rig, &alba, &group.id).await;
        let own = secret_of(rig, &bela, &group.id).await;
        rig.work_all().await;
        assert!(rig.notes.read(Some(bela.id), &secret.id).await.is_ok());
        rig.notes.leave_group(bela.id, &group.id).await.unwrap();
        assert_hidden(rig, Some(bela.id), &secret, "left").await;
        assert_hidden(rig, Some(bela.id), &own, "left, and wrote it").await;
    })
    .await;
}

#[tokio::test]
async fn h14_a_note_that_moves_to_another_group_leaves_its_former_readers() {
    all_ways(async |rig| {
        let (alba, bela) = (rig.user("alba").await, rig.user("bela").await);
        let group = rig.notes.make_group(alba.id, "Reading", false).await.unwrap();
        let mut public = passage("a secret, it turns out");
        public.tags = vec!["hush".to_owned()];
        let note = rig.notes.create(&alba, public).await.unwrap().annotation;
        let own_reply = rig.reply(&alba, &note, "more of the secret").await;
        rig.work_all().await;
        assert!(rig.notes.read(Some(bela.id), &note.id).await.is_ok());
        let change = Change { group: Some(group.id.clone()), ..Change::default() };
        let moved = rig.notes.update(&alba, &note.id, change).await.unwrap();
        assert_eq!(moved.group, group.id);
        // The index does not know of it yet, and must not show it.
        assert_hidden(rig, Some(bela.id), &moved, "moved away").await;
        assert_hidden(rig, Some(bela.id), &own_reply, "its reply").await;
        rig.work_all().await;
        assert_hidden(rig, None, &moved, "moved away, and indexed").await;
    })
    .await;
}

#[tokio::test]
async fn h14_replies_of_others_keep_a_conversation_where_it_is() {
    let rig = Rig::alone().await;
    let (alba, bela) = (rig.user("alba").await, rig.user("bela").await);
    let group = rig.notes.make_group(alba.id, "Reading", true).await.unwrap();
    rig.notes.join_group(bela.id, &group.id).await.unwrap();
    let secret = secret_of(&rig, &alba, &group.id).await;
    let reply = rig.reply(&bela, &secret, "a secret between us").await;
    let to_all = || Change { group: Some(WORLD.to_owned()), ..Change::default() };
    assert!(matches!(
        rig.notes.update(&alba, &secret.id, to_all()).await,
        Err(Refused::HasReplies)
    ));
    // The reply has no replies itself: it cannot move because it is one.
    assert!(matches!(
        rig.notes.update(&bela, &reply.id, to_all()).await,
        Err(Refused::ReplyElsewhere)
    ));
    assert_hidden(&rig, None, &reply, "kept").await;
}

#[tokio::test]
async fn h14_a_group_that_moves_into_another_is_read_by_the_other_from_that_commit_on() {
    all_ways(async |rig| {
        let (alba, bela, carl) =
            (rig.user("alba").await, rig.user("bela").await, rig.user("carl").await);
        let old = rig.notes.make_group(alba.id, "Old", true).await.unwrap();
        let new = rig.notes.make_group(alba.id, "New", true).await.unwrap();
        rig.notes.join_group(bela.id, &old.id).await.unwrap();
        rig.notes.join_group(carl.id, &new.id).await.unwrap();
        let secret = secret_of(rig, &bela, &old.id).await;
        rig.work_all().await;
        assert_hidden(rig, Some(carl.id), &secret, "before").await;
        assert!(
            matches!(
                rig.notes.move_group(Some(bela.id), &old.id, &new.id).await,
                Err(Refused::NoSuchGroup)
            ),
            "only its owner moves a group"
        );
        assert!(
            matches!(
                rig.notes.move_group(Some(alba.id), &old.id, WORLD).await,
                Err(Refused::NoSuchGroup)
            ),
            "and not to everybody"
        );
        rig.notes.move_group(Some(alba.id), &old.id, &new.id).await.unwrap();
        for moment in ["at once", "when the rows say so", "when the index says so"] {
            assert_hidden(rig, Some(bela.id), &secret, moment).await;
            assert_hidden(rig, None, &secret, moment).await;
            let read = rig.notes.read(Some(carl.id), &secret.id).await.unwrap();
            assert_eq!(read.group, new.id, "{moment}");
            let filter = Filter { group: Some(new.id.clone()), ..Filter::default() };
            assert_eq!(rig.texts(Some(&carl), &filter).await, ["a secret"], "{moment}");
            match moment {
                "at once" => rig.work().await,
                _ => rig.work_all().await,
            }
        }
        let left = "select count(*) from annotations.annotation a join annotations.user_group g \
                    on g.id = a.group_id where g.moved_to is not null";
        assert_eq!(rig.count(left).await, 0, "every row says so");
    })
    .await;
}

#[tokio::test]
async fn h14_an_owner_who_left_a_group_cannot_take_its_notes_along() {
    all_ways(async |rig| {
        let (alba, bela) = (rig.user("alba").await, rig.user("bela").await);
        let old = rig.notes.make_group(alba.id, "Old", false).await.unwrap();
        let own = rig.notes.make_group(alba.id, "Own", false).await.unwrap();
        rig.let_in(&alba, &old.id, &bela).await;
        // A state that an earlier release can have left in a database.
        let out = "delete from annotations.membership where group_id = $1 and user_id = $2";
        rig.client.execute(out, &[&old.id, &alba.id]).await.unwrap();
        let secret = secret_of(rig, &bela, &old.id).await;
        for (from, to) in [(&old, &own), (&own, &old)] {
            let moved = rig.notes.move_group(Some(alba.id), &from.id, &to.id).await;
            assert!(matches!(moved, Err(Refused::NoSuchGroup)), "{} to {}", from.name, to.name);
        }
        assert_hidden(rig, Some(alba.id), &secret, "left").await;
        assert!(rig.notes.read(Some(bela.id), &secret.id).await.is_ok());
        // An operator may.
        rig.notes.move_group(None, &old.id, &own.id).await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn h14_nothing_of_somebody_who_left_can_be_seen_before_it_is_removed() {
    all_ways(async |rig| {
        let (alba, bela) = (rig.user("alba").await, rig.user("bela").await);
        let note = rig.note(&alba, "a secret").await;
        rig.work_all().await;
        rig.notes.delete_user(alba.id).await.unwrap();
        assert_hidden(rig, Some(bela.id), &note, "deleted, not removed").await;
        assert_eq!(rig.notes.counts(None, PAGE).await.unwrap(), Counts::default());
        rig.work_all().await;
        assert_eq!(rig.count("select count(*) from annotations.annotation").await, 0);
    })
    .await;
}
