//! Accounts: tokens, names that stay taken, renames and deletions.

use annotations::{AnnotationId, Refused, Token};

use crate::rig::{PAGE, Rig, each, on_page, passage, until};

#[tokio::test]
async fn h8_only_the_hash_of_a_token_is_kept() {
    let rig = Rig::alone().await;
    let (user, token) = rig.notes.sign_up("sophia", "Sophia").await.unwrap();
    assert_eq!(rig.notes.who(&token).await.unwrap(), Some(user));
    assert_eq!(rig.notes.who(&Token::random()).await.unwrap(), None);
    let dump: String = rig
        .client
        .query_one("select string_agg(t::text, '') from annotations.token t", &[])
        .await
        .unwrap()
        .get(0);
    assert!(!dump.contains(token.as_str()));
    let second = rig.notes.new_token("sophia").await.unwrap();
    rig.notes.forget_token(&token).await.unwrap();
    assert!(rig.notes.who(&token).await.unwrap().is_none());
    assert!(rig.notes.who(&second).await.unwrap().is_some());
    assert!(matches!(rig.notes.new_token("nobody").await, Err(Refused::NoSuchPerson)));
}

#[tokio::test]
async fn a_new_token_can_take_the_place_of_all_others() {
    let rig = Rig::alone().await;
    let (user, first) = rig.notes.sign_up("sophia", "").await.unwrap();
    let (_, strangers) = rig.notes.sign_up("sancho", "").await.unwrap();
    let second = rig.notes.new_token("sophia").await.unwrap();
    let (only, revoked) = rig.notes.only_token("sophia").await.unwrap();
    assert_eq!(revoked, 2);
    for void in [&first, &second] {
        assert_eq!(rig.notes.who(void).await.unwrap(), None);
    }
    assert_eq!(rig.notes.who(&only).await.unwrap(), Some(user));
    assert!(rig.notes.who(&strangers).await.unwrap().is_some(), "others keep theirs");
    assert!(matches!(rig.notes.only_token("nobody").await, Err(Refused::NoSuchPerson)));
}

#[tokio::test]
async fn a_name_is_one_persons_before_and_after() {
    let rig = Rig::alone().await;
    let (one, other) = (rig.user("one").await, rig.user("other").await);
    assert!(matches!(rig.notes.sign_up("one", "").await, Err(Refused::NameTaken)));
    assert!(matches!(rig.notes.rename_user(other.id, "one").await, Err(Refused::NameTaken)));
    rig.notes.rename_user(one.id, "uno").await.unwrap();
    assert!(matches!(rig.notes.sign_up("one", "").await, Err(Refused::NameTaken)), "a former name");
    assert!(matches!(rig.notes.rename_user(other.id, "one").await, Err(Refused::NameTaken)));
    rig.notes.rename_user(one.id, "one").await.unwrap();
    assert_eq!(rig.notes.rename_user(one.id, "one").await.unwrap(), None, "no work for nothing");
    rig.notes.delete_user(one.id).await.unwrap();
    assert!(matches!(rig.notes.sign_up("one", "").await, Err(Refused::NameTaken)), "of who left");
    assert!(matches!(rig.notes.sign_up("uno", "").await, Err(Refused::NameTaken)));
    assert!(matches!(rig.notes.rename_user(one.id, "eins").await, Err(Refused::NoSuchPerson)));
}

#[tokio::test]
async fn a_name_that_is_being_given_up_is_not_taken_by_whoever_waits_for_it() {
    let rig = Rig::alone().await;
    let (one, other) = (rig.user("one").await, rig.user("other").await);
    rig.client.batch_execute("begin").await.unwrap();
    rig.client.query("select annotations.rename_user($1, 'uno')", &[&one.id]).await.unwrap();
    let (signing_up, renaming) = (rig.notes.clone(), rig.notes.clone());
    let signing_up = tokio::spawn(async move { signing_up.sign_up("one", "").await.map(drop) });
    let renaming =
        tokio::spawn(async move { renaming.rename_user(other.id, "one").await.map(drop) });
    let waits = "select count(distinct l.pid) from pg_locks l where not l.granted \
                 and pg_backend_pid() = any (pg_blocking_pids(l.pid))";
    until(async || {
        let over = [&signing_up, &renaming].iter().filter(|task| task.is_finished()).count();
        rig.count(waits).await + i64::try_from(over).unwrap() == 2
    })
    .await;
    rig.client.batch_execute("commit").await.unwrap();
    for taken in [signing_up.await.unwrap(), renaming.await.unwrap()] {
        assert!(matches!(taken, Err(Refused::NameTaken)), "{taken:?}");
    }
    assert_eq!(rig.notes.user("other").await.unwrap().id, other.id, "it kept its own");
}

#[tokio::test]
async fn whoever_leaves_can_do_nothing_any_more_and_leaves_nothing_behind() {
    let rig = Rig::alone().await;
    let (user, token) = rig.notes.sign_up("sophia", "").await.unwrap();
    rig.note(&user, "one").await;
    rig.notes.delete_user(user.id).await.unwrap();
    assert!(rig.notes.who(&token).await.unwrap().is_none());
    assert!(rig.texts(None, &on_page()).await.is_empty(), "at once");
    rig.work().await;
    assert_eq!(rig.count("select count(*) from annotations.annotation").await, 0);
}

/// Saves in a session that commits when the test wants it.
async fn save_in_a_transaction(rig: &Rig, author: i64) {
    rig.client.batch_execute("begin").await.unwrap();
    let sql = "select annotations.create_annotation($1, $2, $3, '', '__world__', 'page_note', null, \
               '', '[]', 'x', '{}', null, null)";
    rig.client.query(sql, &[&author, &AnnotationId::random().as_str(), &PAGE]).await.unwrap();
}

#[tokio::test]
async fn a_departure_waits_for_a_save_that_is_on_its_way_and_removes_it() {
    let rig = Rig::alone().await;
    let user = rig.user("sophia").await;
    // The page exists already: otherwise saves would wait for each other at its unique URL.
    rig.note(&user, "before").await;
    save_in_a_transaction(&rig, user.id).await;
    // Saves of one author do not wait for each other.
    rig.note(&user, "another").await;
    let notes = rig.notes.clone();
    let leaving = tokio::spawn(async move { notes.delete_user(user.id).await });
    until(async || leaving.is_finished() || rig.is_waited_for().await).await;
    rig.work().await;
    rig.client.batch_execute("commit").await.unwrap();
    leaving.await.unwrap().unwrap();
    rig.work().await;
    assert_eq!(rig.count("select count(*) from annotations.annotation").await, 0);
}

#[tokio::test]
async fn a_save_that_comes_after_a_departure_is_refused_and_leaves_nothing() {
    let rig = Rig::alone().await;
    let user = rig.user("sophia").await;
    rig.client.batch_execute("begin").await.unwrap();
    rig.client.query("select annotations.delete_user($1)", &[&user.id]).await.unwrap();
    let notes = rig.notes.clone();
    let saving = tokio::spawn(async move { notes.create(&user, passage("late")).await });
    until(async || saving.is_finished() || rig.is_waited_for().await).await;
    rig.client.batch_execute("commit").await.unwrap();
    assert!(matches!(saving.await.unwrap(), Err(Refused::AccountGone)));
    rig.work().await;
    assert_eq!(rig.count("select count(*) from annotations.annotation").await, 0);
}

#[tokio::test]
async fn readers_see_a_new_name_at_once() {
    let rig = Rig::alone().await;
    let user = rig.user("sophia").await;
    let note = rig.note(&user, "one").await;
    rig.notes.rename_user(user.id, "sophiathefirst").await.unwrap();
    assert_eq!(rig.notes.read(None, &note.id).await.unwrap().user_name, "sophiathefirst");
    let by = |name: &str| annotations::Filter { user: Some(name.to_owned()), ..on_page() };
    assert_eq!(rig.texts(None, &by("sophiathefirst")).await.len(), 1);
    assert!(rig.texts(None, &by("sophia")).await.is_empty());
}

#[tokio::test]
async fn others_find_a_renamed_person_before_the_index_has_heard_of_it() {
    each(async |rig| {
        let (user, other) = (rig.user("sophia").await, rig.user("sancho").await);
        for text in ["one", "two", "three"] {
            rig.note(&user, text).await;
        }
        rig.note(&other, "not hers").await;
        rig.work_all().await;
        // Twice: the index may be two names behind.
        rig.notes.rename_user(user.id, "sofia").await.unwrap();
        rig.notes.rename_user(user.id, "sophiathefirst").await.unwrap();
        let by = |name: &str| annotations::Filter { user: Some(name.to_owned()), ..on_page() };
        let new = by("sophiathefirst");
        assert_eq!(rig.texts(Some(&other), &new).await, ["three", "two", "one"]);
        let words = annotations::Filter { q: Some("two".to_owned()), ..new.clone() };
        assert_eq!(rig.texts(None, &words).await, ["two"], "by words, too");
        let found = rig.notes.search(None, &new, None, 2).await.unwrap();
        let rest = rig.notes.search(None, &new, found.next.as_ref(), 2).await.unwrap();
        assert_eq!((found.rows.len(), rest.rows.len()), (2, 1), "page by page");
        for former in ["sophia", "sofia"] {
            assert!(rig.texts(Some(&other), &by(former)).await.is_empty(), "{former} is nobody");
        }
        rig.note(&user, "four").await;
        rig.work_all().await;
        assert_eq!(rig.texts(None, &new).await, ["four", "three", "two", "one"]);
    })
    .await;
}

#[tokio::test]
async fn the_index_is_asked_for_former_names_until_it_has_followed() {
    let rig = Rig::new().await;
    let user = rig.user("sophia").await;
    rig.note(&user, "one").await;
    rig.work_all().await;
    let name = "sophiathefirst".to_owned();
    let by = annotations::Filter { user: Some(name), ..on_page() };
    let questions = async || {
        let (texts, questions) = rig.by_index(None, &by).await;
        assert_eq!(texts, ["one"]);
        questions
    };
    rig.notes.rename_user(user.id, "sofia").await.unwrap();
    rig.notes.rename_user(user.id, "sophiathefirst").await.unwrap();
    assert_eq!(questions().await, 3, "the work has not begun");
    rig.work_all().await;
    // An `equal_as_of` from before the end of the operation proves nothing about it.
    let seen_equal = async |when: &str| {
        let sql = format!("update leasehold.mirror set equal_as_of = {when}");
        rig.client.execute(&sql, &[]).await.unwrap();
    };
    seen_equal("(select min(finished_at) from annotations.bulk) - interval '1 second'").await;
    assert_eq!(questions().await, 3, "its jobs may be behind");
    seen_equal("(select max(finished_at) from annotations.bulk) + interval '1 second'").await;
    assert_eq!(questions().await, 1, "the index has the new name everywhere");
    rig.notes.rename_user(user.id, "sophia").await.unwrap();
    rig.notes.rename_user(user.id, "sophiathefirst").await.unwrap();
    assert_eq!(questions().await, 2, "only for the name that was given up since");
}

#[tokio::test]
async fn however_often_somebody_is_renamed_the_index_is_asked_for_a_few_names() {
    let rig = Rig::new().await;
    let user = rig.user("sophia").await;
    rig.note(&user, "one").await;
    rig.work_all().await;
    for number in 0..25 {
        rig.notes.rename_user(user.id, &format!("sophia{number}")).await.unwrap();
    }
    let by = annotations::Filter { user: Some("sophia24".to_owned()), ..on_page() };
    let (_, questions) = rig.by_index(None, &by).await;
    assert_eq!(questions, 21, "the last twenty");
}
