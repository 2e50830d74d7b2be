//! Groups: how many a user can be in, and what happens to users who join while a group moves.

use annotations::{Change, Refused, WORLD};

use crate::fixture::{Fixture, until};

/// Makes a user a member of `number` own groups, by one statement.
async fn many(fixture: &Fixture, owner: i64, number: i32) {
    let sql = "with made as (\
                   insert into annotations.user_group (id, name, owner_id) \
                   select 'group' || lpad(n::text, 6, '0'), 'Group ' || n, $1 \
                   from generate_series(1, $2) n returning id) \
               insert into annotations.membership (group_id, user_id) select id, $1 from made";
    fixture.client.execute(sql, &[&owner, &number]).await.unwrap();
}

#[tokio::test]
async fn user_joins_a_thousand_groups_and_no_more() {
    let fixture = Fixture::alone().await;
    let (alba, bela) = (fixture.user("alba").await, fixture.user("bela").await);
    let open = fixture.notes.make_group(bela.id, "Open", true).await.unwrap();
    many(&fixture, alba.id, 999).await;
    let last = fixture.notes.make_group(alba.id, "Last", false).await.unwrap();
    let listed = fixture.notes.groups(Some(alba.id)).await.unwrap();
    assert_eq!(listed.len(), 1001, "all of them, and the public one");
    assert_eq!(listed[0].id, WORLD);
    let refused = [
        fixture.notes.make_group(alba.id, "One more", false).await.map(drop),
        fixture.notes.join_group(alba.id, &open.id).await,
        fixture.notes.let_in(alba.id, &open.id).await,
    ];
    for refused in refused {
        assert!(matches!(refused, Err(Refused::TooManyGroups)), "{refused:?}");
    }
    assert_eq!(fixture.count("select count(*) from annotations.user_group").await, 1002);
    // A member may join again; and leaving a group makes room for another one.
    fixture.notes.join_group(alba.id, &last.id).await.unwrap();
    fixture.notes.leave_group(alba.id, &last.id).await.unwrap();
    fixture.notes.join_group(alba.id, &open.id).await.unwrap();
    let note = fixture.note_in(&alba, Some(&open.id), "here").await;
    assert_eq!(fixture.notes.read(Some(bela.id), &note.id).await.unwrap().text, "here");
}

#[tokio::test]
async fn join_during_a_move_leaves_no_membership_in_the_old_group() {
    let fixture = Fixture::alone().await;
    let (alba, bela) = (fixture.user("alba").await, fixture.user("bela").await);
    let old = fixture.notes.make_group(alba.id, "Old", true).await.unwrap();
    let new = fixture.notes.make_group(alba.id, "New", true).await.unwrap();
    fixture.client.batch_execute("begin").await.unwrap();
    let moving = "select annotations.move_group($1, $2, $3)";
    fixture.client.query(moving, &[&alba.id, &old.id, &new.id]).await.unwrap();
    let (notes, group) = (fixture.notes.clone(), old.id.clone());
    let joining = tokio::spawn(async move { notes.join_group(bela.id, &group).await });
    until(async || joining.is_finished() || fixture.is_waited_for().await).await;
    fixture.client.batch_execute("commit").await.unwrap();
    assert!(matches!(joining.await.unwrap(), Err(Refused::NoSuchGroup)));
    assert_eq!(
        fixture.count("select count(*) from annotations.membership").await,
        1,
        "alba, in the new one"
    );
}

#[tokio::test]
async fn note_of_a_moved_group_changes_under_either_group_id() {
    let fixture = Fixture::alone().await;
    let (alba, bela) = (fixture.user("alba").await, fixture.user("bela").await);
    let old = fixture.notes.make_group(alba.id, "Old", true).await.unwrap();
    let new = fixture.notes.make_group(alba.id, "New", true).await.unwrap();
    for group in [&old, &new] {
        fixture.notes.join_group(bela.id, &group.id).await.unwrap();
    }
    let note = fixture.note_in(&alba, Some(&old.id), "one").await;
    let reply = fixture.reply(&bela, &note, "two").await;
    fixture.notes.move_group(Some(alba.id), &old.id, &new.id).await.unwrap();
    let change = |group: &str| Change {
        text: Some("changed".to_owned()),
        group: Some(group.to_owned()),
        ..Change::default()
    };
    for (author, kept) in [(&alba, &note), (&bela, &reply)] {
        let seen = fixture.notes.read(Some(author.id), &kept.id).await.unwrap();
        assert_eq!(seen.group, new.id);
        // By the id that is shown, and by the former one, for a client that read the note before the
        // move.
        for group in [&new.id, &old.id] {
            let changed = fixture.notes.update(author, &kept.id, change(group)).await.unwrap();
            assert_eq!((&changed.group, changed.text.as_str()), (&new.id, "changed"));
        }
    }
    // Any other group is refused.
    let elsewhere = fixture.notes.update(&alba, &note.id, change(WORLD)).await;
    assert!(matches!(elsewhere, Err(Refused::HasReplies)), "{elsewhere:?}");
    let elsewhere = fixture.notes.update(&bela, &reply.id, change(WORLD)).await;
    assert!(matches!(elsewhere, Err(Refused::ReplyElsewhere)), "{elsewhere:?}");
    fixture.work().await;
    let changed = fixture.notes.update(&alba, &note.id, change(&new.id)).await.unwrap();
    assert_eq!(changed.group, new.id);
}
