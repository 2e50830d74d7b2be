//! Groups: how many a user can be in, and what happens to users who join while a group moves.

use annotations::{Change, Refused, WORLD};

use crate::rig::{Rig, until};

/// Makes a user a member of `number` own groups, by one statement.
async fn many(rig: &Rig, owner: i64, number: i32) {
    let sql = "with made as (\
                   insert into annotations.user_group (id, name, owner_id) \
                   select 'group' || lpad(n::text, 6, '0'), 'Group ' || n, $1 \
                   from generate_series(1, $2) n returning id) \
               insert into annotations.membership (group_id, user_id) select id, $1 from made";
    rig.client.execute(sql, &[&owner, &number]).await.unwrap();
}

#[tokio::test]
async fn somebody_is_in_a_thousand_groups_and_in_no_more() {
    let rig = Rig::alone().await;
    let (alba, bela) = (rig.user("alba").await, rig.user("bela").await);
    let open = rig.notes.make_group(bela.id, "Open", true).await.unwrap();
    many(&rig, alba.id, 999).await;
    let last = rig.notes.make_group(alba.id, "Last", false).await.unwrap();
    let listed = rig.notes.groups(Some(alba.id)).await.unwrap();
    assert_eq!(listed.len(), 1001, "all of them, and everybody's");
    assert_eq!(listed[0].id, WORLD);
    let refused = [
        rig.notes.make_group(alba.id, "One more", false).await.map(drop),
        rig.notes.join_group(alba.id, &open.id).await,
        rig.notes.let_in(alba.id, &open.id).await,
    ];
    for refused in refused {
        assert!(matches!(refused, Err(Refused::TooManyGroups)), "{refused:?}");
    }
    assert_eq!(rig.count("select count(*) from annotations.user_group").await, 1002);
    // A member may join again; and leaving a group makes room for another one.
    rig.notes.join_group(alba.id, &last.id).await.unwrap();
    rig.notes.leave_group(alba.id, &last.id).await.unwrap();
    rig.notes.join_group(alba.id, &open.id).await.unwrap();
    let note = rig.note_in(&alba, Some(&open.id), "here").await;
    assert_eq!(rig.notes.read(Some(bela.id), &note.id).await.unwrap().text, "here");
}

#[tokio::test]
async fn whoever_joins_while_a_group_moves_is_not_left_in_it() {
    let rig = Rig::alone().await;
    let (alba, bela) = (rig.user("alba").await, rig.user("bela").await);
    let old = rig.notes.make_group(alba.id, "Old", true).await.unwrap();
    let new = rig.notes.make_group(alba.id, "New", true).await.unwrap();
    rig.client.batch_execute("begin").await.unwrap();
    let moving = "select annotations.move_group($1, $2, $3)";
    rig.client.query(moving, &[&alba.id, &old.id, &new.id]).await.unwrap();
    let (notes, group) = (rig.notes.clone(), old.id.clone());
    let joining = tokio::spawn(async move { notes.join_group(bela.id, &group).await });
    until(async || joining.is_finished() || rig.is_waited_for().await).await;
    rig.client.batch_execute("commit").await.unwrap();
    assert!(matches!(joining.await.unwrap(), Err(Refused::NoSuchGroup)));
    assert_eq!(
        rig.count("select count(*) from annotations.membership").await,
        1,
        "alba, in the new one"
    );
}

#[tokio::test]
async fn a_note_is_changed_under_the_group_that_people_see_while_its_row_is_on_the_way() {
    let rig = Rig::alone().await;
    let (alba, bela) = (rig.user("alba").await, rig.user("bela").await);
    let old = rig.notes.make_group(alba.id, "Old", true).await.unwrap();
    let new = rig.notes.make_group(alba.id, "New", true).await.unwrap();
    for group in [&old, &new] {
        rig.notes.join_group(bela.id, &group.id).await.unwrap();
    }
    let note = rig.note_in(&alba, Some(&old.id), "one").await;
    let reply = rig.reply(&bela, &note, "two").await;
    rig.notes.move_group(Some(alba.id), &old.id, &new.id).await.unwrap();
    let change = |group: &str| Change {
        text: Some("changed".to_owned()),
        group: Some(group.to_owned()),
        ..Change::default()
    };
    for (author, kept) in [(&alba, &note), (&bela, &reply)] {
        let seen = rig.notes.read(Some(author.id), &kept.id).await.unwrap();
        assert_eq!(seen.group, new.id);
        // By the id that is shown, and by the former one, for a client that read the note before the
        // move.
        for group in [&new.id, &old.id] {
            let changed = rig.notes.update(author, &kept.id, change(group)).await.unwrap();
            assert_eq!((&changed.group, changed.text.as_str()), (&new.id, "changed"));
        }
    }
    // Any other group is refused.
    let elsewhere = rig.notes.update(&alba, &note.id, change(WORLD)).await;
    assert!(matches!(elsewhere, Err(Refused::HasReplies)), "{elsewhere:?}");
    let elsewhere = rig.notes.update(&bela, &reply.id, change(WORLD)).await;
    assert!(matches!(elsewhere, Err(Refused::ReplyElsewhere)), "{elsewhere:?}");
    rig.work().await;
    let changed = rig.notes.update(&alba, &note.id, change(&new.id)).await.unwrap();
    assert_eq!(changed.group, new.id);
}
