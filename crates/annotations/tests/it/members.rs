//! Membership: users join by their own act, a group keeps an owner, and members can be removed.

use annotations::Refused;

use crate::rig::{Rig, until};

async fn names(rig: &Rig, who: i64) -> Vec<String> {
    let groups = rig.notes.groups(Some(who)).await.unwrap();
    groups.into_iter().skip(1).map(|group| group.name).collect()
}

#[tokio::test]
async fn f20_an_owner_removes_a_member_and_stays() {
    let rig = Rig::alone().await;
    let (alba, bela, carl) =
        (rig.user("alba").await, rig.user("bela").await, rig.user("carl").await);
    let group = rig.notes.make_group(alba.id, "Reading", false).await.unwrap();
    rig.let_in(&alba, &group.id, &bela).await;
    let secret = rig.note_in(&alba, Some(&group.id), "for us").await;
    // Only the owner or an operator can remove a user, and only a member.
    for (who, name) in [(Some(bela.id), "alba"), (Some(carl.id), "bela")] {
        let refused = rig.notes.remove_member(who, &group.id, name).await;
        assert!(matches!(refused, Err(Refused::NoSuchGroup)), "{refused:?}");
    }
    for name in ["carl", "nobody"] {
        let refused = rig.notes.remove_member(Some(alba.id), &group.id, name).await;
        assert!(matches!(refused, Err(Refused::NoSuchPerson)), "{refused:?}");
    }
    rig.notes.remove_member(Some(alba.id), &group.id, "bela").await.unwrap();
    assert!(matches!(rig.notes.read(Some(bela.id), &secret.id).await, Err(Refused::NotFound)));
    assert_eq!(names(&rig, alba.id).await, ["Reading"]);
    let again = rig.notes.join_group(bela.id, &group.id).await;
    assert!(matches!(again, Err(Refused::NoSuchGroup)), "it is closed: {again:?}");
    // The owner withdraws an invitation in the same way.
    rig.notes.invite(alba.id, &group.id, "carl").await.unwrap();
    rig.notes.remove_member(None, &group.id, "carl").await.unwrap();
    let late = rig.notes.join_group(carl.id, &group.id).await;
    assert!(matches!(late, Err(Refused::NoSuchGroup)), "{late:?}");
}

#[tokio::test]
async fn f20_an_owner_hands_a_group_over_before_leaving_it() {
    let rig = Rig::alone().await;
    let (alba, bela, carl) =
        (rig.user("alba").await, rig.user("bela").await, rig.user("carl").await);
    let group = rig.notes.make_group(alba.id, "Reading", false).await.unwrap();
    rig.let_in(&alba, &group.id, &bela).await;
    for refused in [
        rig.notes.leave_group(alba.id, &group.id).await,
        rig.notes.remove_member(None, &group.id, "alba").await,
    ] {
        let text = refused.as_ref().map_err(ToString::to_string).unwrap_err();
        assert!(text.contains("hand it over"), "{text}");
        assert!(matches!(refused, Err(Refused::OwnerLeaves)));
    }
    let outside = rig.notes.hand_over(Some(alba.id), &group.id, "carl").await;
    assert!(matches!(outside, Err(Refused::NoSuchPerson)), "{outside:?}");
    let other = rig.notes.hand_over(Some(bela.id), &group.id, "bela").await;
    assert!(matches!(other, Err(Refused::NoSuchGroup)), "{other:?}");
    rig.notes.hand_over(Some(alba.id), &group.id, "bela").await.unwrap();
    rig.notes.leave_group(alba.id, &group.id).await.unwrap();
    assert!(names(&rig, alba.id).await.is_empty());
    rig.notes.invite(bela.id, &group.id, "carl").await.unwrap();
    // The last member may leave, although that is the owner.
    rig.notes.leave_group(bela.id, &group.id).await.unwrap();
    rig.notes.leave_group(bela.id, &group.id).await.unwrap();
    assert!(names(&rig, carl.id).await.is_empty());
}

#[tokio::test]
async fn f20_a_member_who_becomes_the_owner_while_leaving_stays() {
    let rig = Rig::alone().await;
    let (alba, bela) = (rig.user("alba").await, rig.user("bela").await);
    let group = rig.notes.make_group(alba.id, "Reading", false).await.unwrap();
    rig.let_in(&alba, &group.id, &bela).await;
    rig.client.batch_execute("begin").await.unwrap();
    let handing = "select annotations.hand_over($1, $2, 'bela')";
    rig.client.query(handing, &[&alba.id, &group.id]).await.unwrap();
    let (notes, which) = (rig.notes.clone(), group.id.clone());
    let leaving = tokio::spawn(async move { notes.leave_group(bela.id, &which).await });
    until(async || leaving.is_finished() || rig.is_waited_for().await).await;
    rig.client.batch_execute("commit").await.unwrap();
    assert!(matches!(leaving.await.unwrap(), Err(Refused::OwnerLeaves)));
    assert_eq!(rig.count("select count(*) from annotations.membership").await, 2);
}

#[tokio::test]
async fn f20_group_of_a_deleted_owner_passes_to_its_oldest_member() {
    let rig = Rig::alone().await;
    let (alba, bela, carl) =
        (rig.user("alba").await, rig.user("bela").await, rig.user("carl").await);
    let group = rig.notes.make_group(alba.id, "Reading", false).await.unwrap();
    rig.let_in(&alba, &group.id, &carl).await;
    rig.let_in(&alba, &group.id, &bela).await;
    rig.notes.delete_user(alba.id).await.unwrap();
    let refused = rig.notes.invite(bela.id, &group.id, "carl").await;
    assert!(matches!(refused, Err(Refused::NoSuchGroup)), "{refused:?}");
    rig.user("dora").await;
    rig.notes.invite(carl.id, &group.id, "dora").await.unwrap();
    rig.notes.remove_member(Some(carl.id), &group.id, "bela").await.unwrap();
    // The last member: the group has no other one to pass to, and its invitation ends.
    rig.notes.delete_user(carl.id).await.unwrap();
    assert_eq!(rig.count("select count(*) from annotations.invitation").await, 0);
}

#[tokio::test]
async fn f20_member_who_becomes_the_owner_while_the_account_is_deleted_is_none() {
    let rig = Rig::alone().await;
    let (alba, bela) = (rig.user("alba").await, rig.user("bela").await);
    let group = rig.notes.make_group(alba.id, "Reading", false).await.unwrap();
    rig.let_in(&alba, &group.id, &bela).await;
    rig.client.batch_execute("begin").await.unwrap();
    let handing = "select annotations.hand_over($1, $2, 'bela')";
    rig.client.query(handing, &[&alba.id, &group.id]).await.unwrap();
    let notes = rig.notes.clone();
    let deleting = tokio::spawn(async move { notes.delete_user(bela.id).await });
    until(async || deleting.is_finished() || rig.is_waited_for().await).await;
    rig.client.batch_execute("commit").await.unwrap();
    deleting.await.unwrap().unwrap();
    rig.user("carl").await;
    rig.notes.invite(alba.id, &group.id, "carl").await.expect("alba has the group again");
}

#[tokio::test]
async fn f20_invitations_end_when_the_last_member_leaves() {
    let rig = Rig::alone().await;
    let (alba, bela, carl) =
        (rig.user("alba").await, rig.user("bela").await, rig.user("carl").await);
    let group = rig.notes.make_group(alba.id, "Reading", false).await.unwrap();
    rig.notes.invite(alba.id, &group.id, "bela").await.unwrap();
    rig.let_in(&alba, &group.id, &carl).await;
    rig.notes.leave_group(carl.id, &group.id).await.unwrap();
    assert_eq!(rig.notes.invitations(bela.id).await.unwrap().len(), 1, "the owner is still there");
    rig.notes.leave_group(alba.id, &group.id).await.unwrap();
    assert!(rig.notes.invitations(bela.id).await.unwrap().is_empty());
    let late = rig.notes.join_group(bela.id, &group.id).await;
    assert!(matches!(late, Err(Refused::NoSuchGroup)), "{late:?}");
}

#[tokio::test]
async fn f21_owner_cannot_undo_a_decline() {
    let rig = Rig::alone().await;
    let (alba, bela) = (rig.user("alba").await, rig.user("bela").await);
    let group = rig.notes.make_group(alba.id, "Buy now", false).await.unwrap();
    rig.notes.invite(alba.id, &group.id, "bela").await.unwrap();
    rig.notes.decline(bela.id, &group.id).await.unwrap();
    // The owner gets the response of a withdrawal that worked.
    rig.notes.remove_member(Some(alba.id), &group.id, "bela").await.unwrap();
    rig.notes.invite(alba.id, &group.id, "bela").await.unwrap();
    assert!(rig.notes.invitations(bela.id).await.unwrap().is_empty());
}

#[tokio::test]
async fn f21_nobody_is_in_a_group_but_by_their_own_act() {
    let rig = Rig::alone().await;
    let (alba, bela) = (rig.user("alba").await, rig.user("bela").await);
    let group = rig.notes.make_group(alba.id, "Reading", false).await.unwrap();
    let secret = rig.note_in(&alba, Some(&group.id), "for us").await;
    rig.notes.invite(alba.id, &group.id, "bela").await.unwrap();
    assert!(names(&rig, bela.id).await.is_empty(), "asked, and not put there");
    assert!(matches!(rig.notes.read(Some(bela.id), &secret.id).await, Err(Refused::NotFound)));
    let asked = rig.notes.invitations(bela.id).await.unwrap();
    assert_eq!(asked.len(), 1);
    assert_eq!((asked[0].group_name.as_str(), asked[0].by.as_str()), ("Reading", "alba"));
    // After a decline the group cannot invite again; the user may still join.
    rig.notes.decline(bela.id, &group.id).await.unwrap();
    rig.notes.invite(alba.id, &group.id, "bela").await.unwrap();
    assert!(rig.notes.invitations(bela.id).await.unwrap().is_empty());
    rig.notes.join_group(bela.id, &group.id).await.unwrap();
    assert_eq!(names(&rig, bela.id).await, ["Reading"]);
    assert!(rig.notes.read(Some(bela.id), &secret.id).await.is_ok());
    assert_eq!(rig.count("select count(*) from annotations.invitation").await, 0);
    let again = rig.notes.decline(bela.id, &group.id).await;
    assert!(matches!(again, Err(Refused::NoSuchGroup)), "{again:?}");
}

#[tokio::test]
async fn f21_a_stranger_cannot_fill_up_what_somebody_has_room_for() {
    let rig = Rig::alone().await;
    let (mallory, alba, bela) =
        (rig.user("mallory").await, rig.user("alba").await, rig.user("bela").await);
    let mut groups = Vec::new();
    for number in 0..11 {
        let name = format!("Buy now {number}");
        groups.push(rig.notes.make_group(mallory.id, &name, false).await.unwrap());
    }
    let (last, first) = groups.split_last().unwrap();
    for group in first {
        rig.notes.invite(mallory.id, &group.id, "alba").await.unwrap();
    }
    let refused = rig.notes.invite(mallory.id, &last.id, "alba").await;
    assert!(matches!(refused, Err(Refused::TooManyInvitations)), "{refused:?}");
    // Others can still invite alba, and alba can create groups.
    let group = rig.notes.make_group(bela.id, "Reading", false).await.unwrap();
    rig.notes.invite(bela.id, &group.id, "alba").await.unwrap();
    rig.notes.make_group(alba.id, "Own", false).await.unwrap();
    assert_eq!(names(&rig, alba.id).await, ["Own"]);
    // Blocking mallory removes these invitations and stops new ones; mallory does not learn of it.
    rig.notes.block_user(alba.id, "mallory").await.unwrap();
    assert_eq!(rig.notes.invitations(alba.id).await.unwrap().len(), 1, "bela's");
    rig.notes.invite(mallory.id, &last.id, "alba").await.unwrap();
    assert_eq!(rig.notes.invitations(alba.id).await.unwrap().len(), 1);
    assert_eq!(rig.notes.blocked(alba.id).await.unwrap(), ["mallory"]);
    rig.notes.unblock_user(alba.id, "mallory").await.unwrap();
    rig.notes.invite(mallory.id, &last.id, "alba").await.unwrap();
    assert_eq!(rig.notes.invitations(alba.id).await.unwrap().len(), 2);
}

#[tokio::test]
async fn f21_invitations_end_with_their_group_and_with_the_account() {
    let rig = Rig::alone().await;
    let (alba, bela, carl) =
        (rig.user("alba").await, rig.user("bela").await, rig.user("carl").await);
    let old = rig.notes.make_group(alba.id, "Old", false).await.unwrap();
    let new = rig.notes.make_group(alba.id, "New", false).await.unwrap();
    for group in [&old, &new] {
        rig.notes.invite(alba.id, &group.id, "bela").await.unwrap();
    }
    rig.notes.move_group(Some(alba.id), &old.id, &new.id).await.unwrap();
    let asked = rig.notes.invitations(bela.id).await.unwrap();
    assert_eq!(asked.iter().map(|it| it.group_name.as_str()).collect::<Vec<_>>(), ["New"]);
    rig.notes.invite(alba.id, &new.id, "carl").await.unwrap();
    rig.notes.block_user(carl.id, "bela").await.unwrap();
    rig.notes.delete_user(bela.id).await.unwrap();
    rig.notes.delete_user(alba.id).await.unwrap();
    assert_eq!(rig.count("select count(*) from annotations.invitation").await, 0);
    assert_eq!(rig.count("select count(*) from annotations.blocked").await, 0);
}

#[tokio::test]
async fn who_left_a_group_deletes_what_they_wrote_there() {
    let rig = Rig::alone().await;
    let (alba, bela) = (rig.user("alba").await, rig.user("bela").await);
    let group = rig.notes.make_group(alba.id, "Reading", false).await.unwrap();
    rig.let_in(&alba, &group.id, &bela).await;
    let (hers, other) = (
        rig.note_in(&bela, Some(&group.id), "hers").await,
        rig.note_in(&alba, Some(&group.id), "other").await,
    );
    rig.notes.leave_group(bela.id, &group.id).await.unwrap();
    assert!(matches!(rig.notes.delete(&bela, &other.id).await, Err(Refused::NotFound)));
    rig.notes.delete(&bela, &hers.id).await.unwrap();
    assert!(matches!(rig.notes.delete(&bela, &hers.id).await, Err(Refused::NotFound)));
    assert_eq!(rig.count("select count(*) from annotations.annotation").await, 1);
}
