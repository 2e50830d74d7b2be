//! Membership: users join by their own act, a group keeps an owner, and members can be removed.

use annotations::Refused;

use crate::fixture::{Fixture, until};

async fn names(fixture: &Fixture, who: i64) -> Vec<String> {
    let groups = fixture.notes.groups(Some(who)).await.unwrap();
    groups.into_iter().skip(1).map(|group| group.name).collect()
}

#[tokio::test]
async fn f20_owner_removes_a_member_and_stays() {
    let fixture = Fixture::alone().await;
    let (alba, bela, carl) =
        (fixture.user("alba").await, fixture.user("bela").await, fixture.user("carl").await);
    let group = fixture.notes.make_group(alba.id, "Reading", false).await.unwrap();
    fixture.let_in(&alba, &group.id, &bela).await;
    let secret = fixture.note_in(&alba, Some(&group.id), "for us").await;
    // Only the owner or an operator can remove a user, and only a member.
    for (who, name) in [(Some(bela.id), "alba"), (Some(carl.id), "bela")] {
        let refused = fixture.notes.remove_member(who, &group.id, name).await;
        assert!(matches!(refused, Err(Refused::NoSuchGroup)), "{refused:?}");
    }
    for name in ["carl", "unknown"] {
        let refused = fixture.notes.remove_member(Some(alba.id), &group.id, name).await;
        assert!(matches!(refused, Err(Refused::NoSuchPerson)), "{refused:?}");
    }
    fixture.notes.remove_member(Some(alba.id), &group.id, "bela").await.unwrap();
    assert!(matches!(fixture.notes.read(Some(bela.id), &secret.id).await, Err(Refused::NotFound)));
    assert_eq!(names(&fixture, alba.id).await, ["Reading"]);
    let again = fixture.notes.join_group(bela.id, &group.id).await;
    assert!(matches!(again, Err(Refused::NoSuchGroup)), "it is closed: {again:?}");
    // The owner withdraws an invitation in the same way.
    fixture.notes.invite(alba.id, &group.id, "carl").await.unwrap();
    fixture.notes.remove_member(None, &group.id, "carl").await.unwrap();
    let late = fixture.notes.join_group(carl.id, &group.id).await;
    assert!(matches!(late, Err(Refused::NoSuchGroup)), "{late:?}");
}

#[tokio::test]
async fn f20_owner_hands_the_group_over_before_leaving() {
    let fixture = Fixture::alone().await;
    let (alba, bela, carl) =
        (fixture.user("alba").await, fixture.user("bela").await, fixture.user("carl").await);
    let group = fixture.notes.make_group(alba.id, "Reading", false).await.unwrap();
    fixture.let_in(&alba, &group.id, &bela).await;
    for refused in [
        fixture.notes.leave_group(alba.id, &group.id).await,
        fixture.notes.remove_member(None, &group.id, "alba").await,
    ] {
        let text = refused.as_ref().map_err(ToString::to_string).unwrap_err();
        assert!(text.contains("hand it over"), "{text}");
        assert!(matches!(refused, Err(Refused::OwnerLeaves)));
    }
    let outside = fixture.notes.hand_over(Some(alba.id), &group.id, "carl").await;
    assert!(matches!(outside, Err(Refused::NoSuchPerson)), "{outside:?}");
    let other = fixture.notes.hand_over(Some(bela.id), &group.id, "bela").await;
    assert!(matches!(other, Err(Refused::NoSuchGroup)), "{other:?}");
    fixture.notes.hand_over(Some(alba.id), &group.id, "bela").await.unwrap();
    fixture.notes.leave_group(alba.id, &group.id).await.unwrap();
    assert!(names(&fixture, alba.id).await.is_empty());
    fixture.notes.invite(bela.id, &group.id, "carl").await.unwrap();
    // The last member may leave, although that is the owner.
    fixture.notes.leave_group(bela.id, &group.id).await.unwrap();
    fixture.notes.leave_group(bela.id, &group.id).await.unwrap();
    assert!(names(&fixture, carl.id).await.is_empty());
}

#[tokio::test]
async fn f20_member_who_becomes_the_owner_while_leaving_stays() {
    let fixture = Fixture::alone().await;
    let (alba, bela) = (fixture.user("alba").await, fixture.user("bela").await);
    let group = fixture.notes.make_group(alba.id, "Reading", false).await.unwrap();
    fixture.let_in(&alba, &group.id, &bela).await;
    fixture.client.batch_execute("begin").await.unwrap();
    let handing = "select annotations.hand_over($1, $2, 'bela')";
    fixture.client.query(handing, &[&alba.id, &group.id]).await.unwrap();
    let (notes, which) = (fixture.notes.clone(), group.id.clone());
    let leaving = tokio::spawn(async move { notes.leave_group(bela.id, &which).await });
    until(async || leaving.is_finished() || fixture.is_waited_for().await).await;
    fixture.client.batch_execute("commit").await.unwrap();
    assert!(matches!(leaving.await.unwrap(), Err(Refused::OwnerLeaves)));
    assert_eq!(fixture.count("select count(*) from annotations.membership").await, 2);
}

#[tokio::test]
async fn f20_group_of_a_deleted_owner_passes_to_its_oldest_member() {
    let fixture = Fixture::alone().await;
    let (alba, bela, carl) =
        (fixture.user("alba").await, fixture.user("bela").await, fixture.user("carl").await);
    let group = fixture.notes.make_group(alba.id, "Reading", false).await.unwrap();
    fixture.let_in(&alba, &group.id, &carl).await;
    fixture.let_in(&alba, &group.id, &bela).await;
    fixture.notes.delete_user(alba.id).await.unwrap();
    let refused = fixture.notes.invite(bela.id, &group.id, "carl").await;
    assert!(matches!(refused, Err(Refused::NoSuchGroup)), "{refused:?}");
    fixture.user("dora").await;
    fixture.notes.invite(carl.id, &group.id, "dora").await.unwrap();
    fixture.notes.remove_member(Some(carl.id), &group.id, "bela").await.unwrap();
    // The last member: the group has no other one to pass to, and its invitation ends.
    fixture.notes.delete_user(carl.id).await.unwrap();
    assert_eq!(fixture.count("select count(*) from annotations.invitation").await, 0);
}

#[tokio::test]
async fn f20_group_handed_to_an_account_in_deletion_returns_to_a_member() {
    let fixture = Fixture::alone().await;
    let (alba, bela) = (fixture.user("alba").await, fixture.user("bela").await);
    let group = fixture.notes.make_group(alba.id, "Reading", false).await.unwrap();
    fixture.let_in(&alba, &group.id, &bela).await;
    fixture.client.batch_execute("begin").await.unwrap();
    let handing = "select annotations.hand_over($1, $2, 'bela')";
    fixture.client.query(handing, &[&alba.id, &group.id]).await.unwrap();
    let notes = fixture.notes.clone();
    let deleting = tokio::spawn(async move { notes.delete_user(bela.id).await });
    until(async || deleting.is_finished() || fixture.is_waited_for().await).await;
    fixture.client.batch_execute("commit").await.unwrap();
    deleting.await.unwrap().unwrap();
    fixture.user("carl").await;
    fixture.notes.invite(alba.id, &group.id, "carl").await.expect("alba has the group again");
}

#[tokio::test]
async fn f20_invitations_end_when_the_last_member_leaves() {
    let fixture = Fixture::alone().await;
    let (alba, bela, carl) =
        (fixture.user("alba").await, fixture.user("bela").await, fixture.user("carl").await);
    let group = fixture.notes.make_group(alba.id, "Reading", false).await.unwrap();
    fixture.notes.invite(alba.id, &group.id, "bela").await.unwrap();
    fixture.let_in(&alba, &group.id, &carl).await;
    fixture.notes.leave_group(carl.id, &group.id).await.unwrap();
    assert_eq!(
        fixture.notes.invitations(bela.id).await.unwrap().len(),
        1,
        "the owner is still there"
    );
    fixture.notes.leave_group(alba.id, &group.id).await.unwrap();
    assert!(fixture.notes.invitations(bela.id).await.unwrap().is_empty());
    let late = fixture.notes.join_group(bela.id, &group.id).await;
    assert!(matches!(late, Err(Refused::NoSuchGroup)), "{late:?}");
}

#[tokio::test]
async fn f21_owner_cannot_undo_a_decline() {
    let fixture = Fixture::alone().await;
    let (alba, bela) = (fixture.user("alba").await, fixture.user("bela").await);
    let group = fixture.notes.make_group(alba.id, "Buy now", false).await.unwrap();
    fixture.notes.invite(alba.id, &group.id, "bela").await.unwrap();
    fixture.notes.decline(bela.id, &group.id).await.unwrap();
    // The owner gets the response of a withdrawal that worked.
    fixture.notes.remove_member(Some(alba.id), &group.id, "bela").await.unwrap();
    fixture.notes.invite(alba.id, &group.id, "bela").await.unwrap();
    assert!(fixture.notes.invitations(bela.id).await.unwrap().is_empty());
}

#[tokio::test]
async fn f21_user_joins_a_group_only_by_their_own_action() {
    let fixture = Fixture::alone().await;
    let (alba, bela) = (fixture.user("alba").await, fixture.user("bela").await);
    let group = fixture.notes.make_group(alba.id, "Reading", false).await.unwrap();
    let secret = fixture.note_in(&alba, Some(&group.id), "for us").await;
    fixture.notes.invite(alba.id, &group.id, "bela").await.unwrap();
    assert!(names(&fixture, bela.id).await.is_empty(), "asked, and not put there");
    assert!(matches!(fixture.notes.read(Some(bela.id), &secret.id).await, Err(Refused::NotFound)));
    let asked = fixture.notes.invitations(bela.id).await.unwrap();
    assert_eq!(asked.len(), 1);
    assert_eq!((asked[0].group_name.as_str(), asked[0].by.as_str()), ("Reading", "alba"));
    // After a decline the group cannot invite again; the user may still join.
    fixture.notes.decline(bela.id, &group.id).await.unwrap();
    fixture.notes.invite(alba.id, &group.id, "bela").await.unwrap();
    assert!(fixture.notes.invitations(bela.id).await.unwrap().is_empty());
    fixture.notes.join_group(bela.id, &group.id).await.unwrap();
    assert_eq!(names(&fixture, bela.id).await, ["Reading"]);
    assert!(fixture.notes.read(Some(bela.id), &secret.id).await.is_ok());
    assert_eq!(fixture.count("select count(*) from annotations.invitation").await, 0);
    let again = fixture.notes.decline(bela.id, &group.id).await;
    assert!(matches!(again, Err(Refused::NoSuchGroup)), "{again:?}");
}

#[tokio::test]
async fn f21_one_owner_cannot_use_up_the_invitations_of_a_user() {
    let fixture = Fixture::alone().await;
    let (mallory, alba, bela) =
        (fixture.user("mallory").await, fixture.user("alba").await, fixture.user("bela").await);
    let mut groups = Vec::new();
    for number in 0..11 {
        let name = format!("Buy now {number}");
        groups.push(fixture.notes.make_group(mallory.id, &name, false).await.unwrap());
    }
    let (last, first) = groups.split_last().unwrap();
    for group in first {
        fixture.notes.invite(mallory.id, &group.id, "alba").await.unwrap();
    }
    let refused = fixture.notes.invite(mallory.id, &last.id, "alba").await;
    assert!(matches!(refused, Err(Refused::TooManyInvitations)), "{refused:?}");
    // Others can still invite alba, and alba can create groups.
    let group = fixture.notes.make_group(bela.id, "Reading", false).await.unwrap();
    fixture.notes.invite(bela.id, &group.id, "alba").await.unwrap();
    fixture.notes.make_group(alba.id, "Own", false).await.unwrap();
    assert_eq!(names(&fixture, alba.id).await, ["Own"]);
    // Blocking mallory removes these invitations and stops new ones; mallory does not learn of it.
    fixture.notes.block_user(alba.id, "mallory").await.unwrap();
    assert_eq!(fixture.notes.invitations(alba.id).await.unwrap().len(), 1, "bela's");
    fixture.notes.invite(mallory.id, &last.id, "alba").await.unwrap();
    assert_eq!(fixture.notes.invitations(alba.id).await.unwrap().len(), 1);
    assert_eq!(fixture.notes.blocked(alba.id).await.unwrap(), ["mallory"]);
    fixture.notes.unblock_user(alba.id, "mallory").await.unwrap();
    fixture.notes.invite(mallory.id, &last.id, "alba").await.unwrap();
    assert_eq!(fixture.notes.invitations(alba.id).await.unwrap().len(), 2);
}

#[tokio::test]
async fn f21_invitations_end_with_their_group_or_account() {
    let fixture = Fixture::alone().await;
    let (alba, bela, carl) =
        (fixture.user("alba").await, fixture.user("bela").await, fixture.user("carl").await);
    let old = fixture.notes.make_group(alba.id, "Old", false).await.unwrap();
    let new = fixture.notes.make_group(alba.id, "New", false).await.unwrap();
    for group in [&old, &new] {
        fixture.notes.invite(alba.id, &group.id, "bela").await.unwrap();
    }
    fixture.notes.move_group(Some(alba.id), &old.id, &new.id).await.unwrap();
    let asked = fixture.notes.invitations(bela.id).await.unwrap();
    assert_eq!(asked.iter().map(|it| it.group_name.as_str()).collect::<Vec<_>>(), ["New"]);
    fixture.notes.invite(alba.id, &new.id, "carl").await.unwrap();
    fixture.notes.block_user(carl.id, "bela").await.unwrap();
    fixture.notes.delete_user(bela.id).await.unwrap();
    fixture.notes.delete_user(alba.id).await.unwrap();
    assert_eq!(fixture.count("select count(*) from annotations.invitation").await, 0);
    assert_eq!(fixture.count("select count(*) from annotations.blocked").await, 0);
}

#[tokio::test]
async fn former_member_deletes_their_own_notes() {
    let fixture = Fixture::alone().await;
    let (alba, bela) = (fixture.user("alba").await, fixture.user("bela").await);
    let group = fixture.notes.make_group(alba.id, "Reading", false).await.unwrap();
    fixture.let_in(&alba, &group.id, &bela).await;
    let (hers, other) = (
        fixture.note_in(&bela, Some(&group.id), "hers").await,
        fixture.note_in(&alba, Some(&group.id), "other").await,
    );
    fixture.notes.leave_group(bela.id, &group.id).await.unwrap();
    assert!(matches!(fixture.notes.delete(&bela, &other.id).await, Err(Refused::NotFound)));
    fixture.notes.delete(&bela, &hers.id).await.unwrap();
    assert!(matches!(fixture.notes.delete(&bela, &hers.id).await, Err(Refused::NotFound)));
    assert_eq!(fixture.count("select count(*) from annotations.annotation").await, 1);
}
