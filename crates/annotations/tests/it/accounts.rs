//! Accounts: tokens, names that stay taken, renames and deletions.

use annotations::{AnnotationId, Refused, Token};

use crate::fixture::{Fixture, PAGE, each, on_page, passage, until};

#[tokio::test]
async fn h8_database_stores_only_the_hash_of_a_token() {
    let fixture = Fixture::alone().await;
    let (user, token) = fixture.notes.sign_up("sophia", "Sophia").await.unwrap();
    assert_eq!(fixture.notes.who(&token).await.unwrap(), Some(user));
    assert_eq!(fixture.notes.who(&Token::random()).await.unwrap(), None);
    let dump: String = fixture
        .client
        .query_one("select string_agg(t::text, '') from annotations.token t", &[])
        .await
        .unwrap()
        .get(0);
    assert!(!dump.contains(token.as_str()));
    let session = fixture.notes.log_in(&token).await.unwrap().unwrap();
    let sql = "select string_agg(s::text, '') from annotations.session s";
    let dump: String = fixture.client.query_one(sql, &[]).await.unwrap().get(0);
    assert!(!dump.contains(session.as_str()) && !dump.contains(token.as_str()));
    let second = fixture.notes.new_token("sophia").await.unwrap();
    assert!(fixture.notes.who(&second).await.unwrap().is_some());
    assert!(matches!(fixture.notes.new_token("unknown").await, Err(Refused::NoSuchPerson)));
}

#[tokio::test]
async fn only_token_revokes_all_other_tokens() {
    let fixture = Fixture::alone().await;
    let (user, first) = fixture.notes.sign_up("sophia", "").await.unwrap();
    let (_, strangers) = fixture.notes.sign_up("sancho", "").await.unwrap();
    let second = fixture.notes.new_token("sophia").await.unwrap();
    let (only, revoked) = fixture.notes.only_token("sophia").await.unwrap();
    assert_eq!(revoked, 2);
    for void in [&first, &second] {
        assert_eq!(fixture.notes.who(void).await.unwrap(), None);
    }
    assert_eq!(fixture.notes.who(&only).await.unwrap(), Some(user));
    assert!(fixture.notes.who(&strangers).await.unwrap().is_some(), "others keep theirs");
    assert!(matches!(fixture.notes.only_token("unknown").await, Err(Refused::NoSuchPerson)));
}

#[tokio::test]
async fn session_ends_with_its_token() {
    let fixture = Fixture::alone().await;
    let (user, token) = fixture.notes.sign_up("sophia", "").await.unwrap();
    let session = fixture.notes.log_in(&token).await.unwrap().unwrap();
    assert_eq!(fixture.notes.session_user(&session).await.unwrap(), Some(user.clone()));
    let (only, _) = fixture.notes.only_token("sophia").await.unwrap();
    assert_eq!(fixture.notes.session_user(&session).await.unwrap(), None, "its token is revoked");
    assert_eq!(fixture.notes.log_in(&token).await.unwrap(), None);
    let session = fixture.notes.log_in(&only).await.unwrap().unwrap();
    fixture.notes.delete_user(user.id).await.unwrap();
    assert_eq!(fixture.notes.session_user(&session).await.unwrap(), None, "the account is deleted");
    assert_eq!(fixture.count("select count(*) from annotations.session").await, 0);
}

#[tokio::test]
async fn log_in_that_races_a_revocation_leaves_no_session() {
    let fixture = Fixture::alone().await;
    let (_, token) = fixture.notes.sign_up("sophia", "").await.unwrap();
    fixture.client.batch_execute("begin").await.unwrap();
    let sql = "select annotations.log_in($1, 'session')";
    fixture.client.query(sql, &[&token.hash()]).await.unwrap();
    let notes = fixture.notes.clone();
    let revoking = tokio::spawn(async move { notes.only_token("sophia").await });
    until(async || revoking.is_finished() || fixture.is_waited_for().await).await;
    fixture.client.batch_execute("commit").await.unwrap();
    revoking.await.unwrap().unwrap();
    assert_eq!(fixture.count("select count(*) from annotations.session").await, 0);
}

#[tokio::test]
async fn session_expires_and_is_purged() {
    let fixture = Fixture::alone().await;
    let (_, token) = fixture.notes.sign_up("sophia", "").await.unwrap();
    let session = fixture.notes.log_in(&token).await.unwrap().unwrap();
    let lasts = "select round(extract(epoch from expires_at - now()) / 86400)::bigint \
                 from annotations.session";
    assert_eq!(fixture.count(lasts).await, 30);
    let past = "update annotations.session set expires_at = now() - interval '1 second'";
    fixture.client.execute(past, &[]).await.unwrap();
    assert_eq!(fixture.notes.session_user(&session).await.unwrap(), None);
    assert_eq!(fixture.count("select annotations.purge()").await, 1);
    assert_eq!(fixture.count("select count(*) from annotations.session").await, 0);
}

#[tokio::test]
async fn log_in_ends_the_oldest_session_beyond_fifty() {
    let fixture = Fixture::alone().await;
    let (_, token) = fixture.notes.sign_up("sophia", "").await.unwrap();
    let mut sessions = Vec::new();
    for _ in 0..52 {
        sessions.push(fixture.notes.log_in(&token).await.unwrap().unwrap());
    }
    assert_eq!(fixture.count("select count(*) from annotations.session").await, 50);
    for (number, session) in sessions.iter().enumerate() {
        let user = fixture.notes.session_user(session).await.unwrap();
        assert_eq!(user.is_some(), number >= 2, "{number}");
    }
}

#[tokio::test]
async fn name_stays_reserved_after_rename_and_deletion() {
    let fixture = Fixture::alone().await;
    let (one, other) = (fixture.user("one").await, fixture.user("other").await);
    assert!(matches!(fixture.notes.sign_up("one", "").await, Err(Refused::NameTaken)));
    assert!(matches!(fixture.notes.rename_user(other.id, "one").await, Err(Refused::NameTaken)));
    fixture.notes.rename_user(one.id, "uno").await.unwrap();
    assert!(
        matches!(fixture.notes.sign_up("one", "").await, Err(Refused::NameTaken)),
        "a former name"
    );
    assert!(matches!(fixture.notes.rename_user(other.id, "one").await, Err(Refused::NameTaken)));
    fixture.notes.rename_user(one.id, "one").await.unwrap();
    assert_eq!(fixture.notes.rename_user(one.id, "one").await.unwrap(), None, "no bulk operation");
    fixture.notes.delete_user(one.id).await.unwrap();
    assert!(
        matches!(fixture.notes.sign_up("one", "").await, Err(Refused::NameTaken)),
        "of a deleted account"
    );
    assert!(matches!(fixture.notes.sign_up("uno", "").await, Err(Refused::NameTaken)));
    assert!(matches!(fixture.notes.rename_user(one.id, "eins").await, Err(Refused::NoSuchPerson)));
}

#[tokio::test]
async fn name_abandoned_in_a_concurrent_rename_stays_reserved() {
    let fixture = Fixture::alone().await;
    let (one, other) = (fixture.user("one").await, fixture.user("other").await);
    fixture.client.batch_execute("begin").await.unwrap();
    fixture.client.query("select annotations.rename_user($1, 'uno')", &[&one.id]).await.unwrap();
    let (signing_up, renaming) = (fixture.notes.clone(), fixture.notes.clone());
    let signing_up = tokio::spawn(async move { signing_up.sign_up("one", "").await.map(drop) });
    let renaming =
        tokio::spawn(async move { renaming.rename_user(other.id, "one").await.map(drop) });
    let waits = "select count(distinct l.pid) from pg_locks l where not l.granted \
                 and pg_backend_pid() = any (pg_blocking_pids(l.pid))";
    until(async || {
        let over = [&signing_up, &renaming].iter().filter(|task| task.is_finished()).count();
        fixture.count(waits).await + i64::try_from(over).unwrap() == 2
    })
    .await;
    fixture.client.batch_execute("commit").await.unwrap();
    for taken in [signing_up.await.unwrap(), renaming.await.unwrap()] {
        assert!(matches!(taken, Err(Refused::NameTaken)), "{taken:?}");
    }
    assert_eq!(fixture.notes.user("other").await.unwrap().id, other.id, "it kept its own");
}

#[tokio::test]
async fn deleted_account_loses_its_token_and_its_notes() {
    let fixture = Fixture::alone().await;
    let (user, token) = fixture.notes.sign_up("sophia", "").await.unwrap();
    fixture.note(&user, "one").await;
    fixture.notes.delete_user(user.id).await.unwrap();
    assert!(fixture.notes.who(&token).await.unwrap().is_none());
    assert!(fixture.texts(None, &on_page()).await.is_empty(), "at once");
    fixture.work().await;
    assert_eq!(fixture.count("select count(*) from annotations.annotation").await, 0);
}

/// Saves in a session that commits when the test wants it.
async fn save_in_a_transaction(fixture: &Fixture, author: i64) {
    fixture.client.batch_execute("begin").await.unwrap();
    let sql = "select annotations.create_annotation($1, $2, $3, '', '__world__', 'page_note', null, \
               '', '[]', 'x', '{}', null, null)";
    fixture.client.query(sql, &[&author, &AnnotationId::random().as_str(), &PAGE]).await.unwrap();
}

#[tokio::test]
async fn deleting_an_account_waits_for_a_save_in_flight() {
    let fixture = Fixture::alone().await;
    let user = fixture.user("sophia").await;
    // The page exists already: otherwise saves would wait for each other at its unique URL.
    fixture.note(&user, "before").await;
    save_in_a_transaction(&fixture, user.id).await;
    // Saves of one author do not wait for each other.
    fixture.note(&user, "another").await;
    let notes = fixture.notes.clone();
    let leaving = tokio::spawn(async move { notes.delete_user(user.id).await });
    until(async || leaving.is_finished() || fixture.is_waited_for().await).await;
    fixture.work().await;
    fixture.client.batch_execute("commit").await.unwrap();
    leaving.await.unwrap().unwrap();
    fixture.work().await;
    assert_eq!(fixture.count("select count(*) from annotations.annotation").await, 0);
}

#[tokio::test]
async fn save_after_the_account_was_deleted_is_refused() {
    let fixture = Fixture::alone().await;
    let user = fixture.user("sophia").await;
    fixture.client.batch_execute("begin").await.unwrap();
    fixture.client.query("select annotations.delete_user($1)", &[&user.id]).await.unwrap();
    let notes = fixture.notes.clone();
    let saving = tokio::spawn(async move { notes.create(&user, passage("late")).await });
    until(async || saving.is_finished() || fixture.is_waited_for().await).await;
    fixture.client.batch_execute("commit").await.unwrap();
    assert!(matches!(saving.await.unwrap(), Err(Refused::AccountGone)));
    fixture.work().await;
    assert_eq!(fixture.count("select count(*) from annotations.annotation").await, 0);
}

#[tokio::test]
async fn rename_is_visible_at_once() {
    let fixture = Fixture::alone().await;
    let user = fixture.user("sophia").await;
    let note = fixture.note(&user, "one").await;
    fixture.notes.rename_user(user.id, "sophiathefirst").await.unwrap();
    assert_eq!(fixture.notes.read(None, &note.id).await.unwrap().user_name, "sophiathefirst");
    let by = |name: &str| annotations::Filter { user: Some(name.to_owned()), ..on_page() };
    assert_eq!(fixture.texts(None, &by("sophiathefirst")).await.len(), 1);
    assert!(fixture.texts(None, &by("sophia")).await.is_empty());
}

#[tokio::test]
async fn renamed_user_is_found_before_the_index_follows() {
    each(async |fixture| {
        let (user, other) = (fixture.user("sophia").await, fixture.user("sancho").await);
        for text in ["one", "two", "three"] {
            fixture.note(&user, text).await;
        }
        fixture.note(&other, "not hers").await;
        fixture.work_all().await;
        // Twice: the index may be two names behind.
        fixture.notes.rename_user(user.id, "sofia").await.unwrap();
        fixture.notes.rename_user(user.id, "sophiathefirst").await.unwrap();
        let by = |name: &str| annotations::Filter { user: Some(name.to_owned()), ..on_page() };
        let new = by("sophiathefirst");
        assert_eq!(fixture.texts(Some(&other), &new).await, ["three", "two", "one"]);
        let words = annotations::Filter { q: Some("two".to_owned()), ..new.clone() };
        assert_eq!(fixture.texts(None, &words).await, ["two"], "by words, too");
        let found = fixture.notes.search(None, &new, None, 2).await.unwrap();
        let rest = fixture.notes.search(None, &new, found.next.as_ref(), 2).await.unwrap();
        assert_eq!((found.rows.len(), rest.rows.len()), (2, 1), "page by page");
        for former in ["sophia", "sofia"] {
            assert!(
                fixture.texts(Some(&other), &by(former)).await.is_empty(),
                "{former} finds nothing"
            );
        }
        fixture.note(&user, "four").await;
        fixture.work_all().await;
        assert_eq!(fixture.texts(None, &new).await, ["four", "three", "two", "one"]);
    })
    .await;
}

#[tokio::test]
async fn search_queries_former_names_until_the_index_follows() {
    let fixture = Fixture::new().await;
    let user = fixture.user("sophia").await;
    fixture.note(&user, "one").await;
    fixture.work_all().await;
    let name = "sophiathefirst".to_owned();
    let by = annotations::Filter { user: Some(name), ..on_page() };
    let questions = async || {
        let (texts, questions) = fixture.by_index(None, &by).await;
        assert_eq!(texts, ["one"]);
        questions
    };
    fixture.notes.rename_user(user.id, "sofia").await.unwrap();
    fixture.notes.rename_user(user.id, "sophiathefirst").await.unwrap();
    assert_eq!(questions().await, 3, "the work has not begun");
    fixture.work_all().await;
    // An `equal_as_of` from before the end of the operation proves nothing about it.
    let seen_equal = async |when: &str| {
        let sql = format!("update leasehold_internal.mirror set equal_as_of = {when}");
        fixture.client.execute(&sql, &[]).await.unwrap();
    };
    seen_equal("(select min(finished_at) from annotations.bulk) - interval '1 second'").await;
    assert_eq!(questions().await, 3, "its jobs may be behind");
    seen_equal("(select max(finished_at) from annotations.bulk) + interval '1 second'").await;
    assert_eq!(questions().await, 1, "the index has the new name everywhere");
    fixture.notes.rename_user(user.id, "sophia").await.unwrap();
    fixture.notes.rename_user(user.id, "sophiathefirst").await.unwrap();
    assert_eq!(questions().await, 2, "only for the name that was abandoned since");
}

#[tokio::test]
async fn search_queries_at_most_twenty_former_names() {
    let fixture = Fixture::new().await;
    let user = fixture.user("sophia").await;
    fixture.note(&user, "one").await;
    fixture.work_all().await;
    for number in 0..25 {
        fixture.notes.rename_user(user.id, &format!("sophia{number}")).await.unwrap();
    }
    let by = annotations::Filter { user: Some("sophia24".to_owned()), ..on_page() };
    let (_, questions) = fixture.by_index(None, &by).await;
    assert_eq!(questions, 21, "the last twenty");
}
