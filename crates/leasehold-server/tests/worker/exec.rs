//! Commands: their input, and what their exit means.

use leasehold_testing::TestDatabase;
use serde_json::Value;

use crate::fixture::{Folder, Worker, enqueue, job_until, look};

#[tokio::test]
async fn command_gets_the_job_and_completes_it() {
    let (database, folder) = (TestDatabase::new().await, Folder::new("done"));
    let client = database.connect().await;
    let (job, env) = (folder.file("job"), folder.file("env"));
    let script = format!("letter=sh -c 'cat >{}; env >{}'", job.display(), env.display());
    let id = enqueue(&client, "letter", r#"{"to": "ann", "n": [1, 2.50]}"#).await;
    let _worker = Worker::start(&database, &["--exec", &script]).await;
    let row = job_until(&client, id, |row| row.is("completed")).await;
    assert_eq!(row.attempts, 1);

    let seen: Value = serde_json::from_slice(&std::fs::read(&job).expect("written")).expect("JSON");
    assert_eq!(seen["v"], 1);
    assert_eq!(seen["id"], id.to_string());
    assert_eq!((&seen["name"], &seen["queue"]), (&"letter".into(), &"default".into()));
    assert_eq!((&seen["attempt"], &seen["max_attempts"]), (&1.into(), &25.into()));
    assert_eq!(seen["kwargs"]["to"], "ann");
    assert_eq!(seen["key"], Value::Null);
    let generation = seen["generation"].as_str().expect("a string");
    assert!(seen["fence"].as_str().expect("a string").ends_with(generation));
    assert!(seen["outside_key"].as_str().expect("a string").contains(&format!(":{id}:")));

    let env = std::fs::read_to_string(&env).expect("written");
    assert!(env.contains(&format!("LEASEHOLD_JOB_ID={id}\n")), "{env}");
    assert!(env.contains("LEASEHOLD_ATTEMPT=1\n"), "{env}");
    assert!(env.contains(&format!("LEASEHOLD_GENERATION={generation}\n")), "{env}");
}

#[tokio::test]
async fn h12_command_does_not_see_the_secrets_of_the_worker() {
    let (database, folder) = (TestDatabase::new().await, Folder::new("secrets"));
    let client = database.connect().await;
    let env = folder.file("env");
    let script = format!("peek=sh -c 'env >{}'", env.display());
    let id = enqueue(&client, "peek", "{}").await;
    let canary = [("LEASEHOLD_ANYTHING", "canary-of-ours"), ("THEIRS", "for-the-command")];
    let _worker = Worker::start_with(&database, &["--exec", &script], &canary).await;
    job_until(&client, id, |row| row.is("completed")).await;
    let env = std::fs::read_to_string(&env).expect("written");
    assert!(!env.contains(crate::fixture::SECRET) && !env.contains("canary-of-ours"), "{env}");
    assert!(!env.contains("DATABASE_URL") && env.contains("for-the-command"), "{env}");
}

#[tokio::test]
async fn h21_command_sees_no_credential_unless_it_is_passed() {
    let (database, folder) = (TestDatabase::new().await, Folder::new("credentials"));
    let client = database.connect().await;
    let env = folder.file("env");
    let script = format!("peek=sh -c 'env >{}'", env.display());
    let credentials = [
        ("DATABASE_URL", "canary-url"),
        ("PGPASSWORD", "canary-password"),
        ("PGPASSFILE", "canary-file"),
        ("AWS_SECRET_ACCESS_KEY", "canary-key"),
        ("AWS_SESSION_TOKEN", "canary-token"),
        ("LEASEHOLD_HTTP_SECRET_PEEK", "canary-secret-of-one"),
    ];
    let worker = Worker::start_with(&database, &["--exec", &script], &credentials).await;
    let id = enqueue(&client, "peek", "{}").await;
    job_until(&client, id, |row| row.is("completed")).await;
    let seen = std::fs::read_to_string(&env).expect("written");
    assert!(!seen.contains("canary-"), "{seen}");
    drop(worker);

    let args = ["--exec", &script, "--exec-env", "DATABASE_URL"];
    let _worker = Worker::start_with(&database, &args, &credentials).await;
    let id = enqueue(&client, "peek", "{}").await;
    job_until(&client, id, |row| row.is("completed")).await;
    let seen = std::fs::read_to_string(&env).expect("written");
    assert!(seen.contains("DATABASE_URL=canary-url"), "{seen}");
    assert_eq!(seen.matches("canary-").count(), 1, "{seen}");
}

#[tokio::test]
async fn exit_code_and_last_line_decide_the_outcome() {
    let database = TestDatabase::new().await;
    let client = database.connect().await;
    let _worker = Worker::start(
        &database,
        &[
            "--exec",
            "busy=sh -c 'echo line busy >&2; exit 75'",
            "--exec",
            r#"broken=sh -c 'echo "{\"cancel\":\"x\"}"; exit 1'"#,
            "--exec",
            "bad=sh -c 'echo no such customer >&2; exit 65'",
            "--exec",
            r#"later=echo '{"snooze":"1h"}'"#,
            "--exec",
            r#"again=echo '{"retry":"2h","why":"the shop is closed"}'"#,
            "--exec",
            r#"moot=echo '{"cancel":"the order is gone"}'"#,
            "--exec",
            r#"unclear=echo '{"snooze":"soon"}'"#,
            "--exec",
            r#"mistyped=echo '{"snoze":"1s"}'"#,
            "--exec",
            "killed=sh -c 'kill -9 $$'",
        ],
    )
    .await;
    let run = async |name: &str| {
        let id = enqueue(&client, name, "{}").await;
        job_until(&client, id, |row| !row.is("running") && (!row.is("waiting") || row.due_in > 0.1))
            .await
    };
    let row = run("busy").await;
    assert!(
        row.is("waiting") && row.attempts == 1 && row.error == "exit code 75: line busy",
        "{row:?}"
    );
    let row = run("broken").await;
    assert!(row.is("waiting") && row.attempts == 1 && row.error == "exit code 1", "{row:?}");
    let row = run("bad").await;
    assert!(row.is("dead") && row.error == "exit code 65: no such customer", "{row:?}");
    let row = run("later").await;
    assert!(row.is("waiting") && row.attempts == 0 && row.due_in > 3000.0, "{row:?}");
    let row = run("again").await;
    assert!(row.is("waiting") && row.attempts == 1 && row.due_in > 6000.0, "{row:?}");
    assert_eq!(row.error, "the shop is closed");
    let row = run("moot").await;
    assert!(row.is("cancelled") && row.error == "the order is gone", "{row:?}");
    let row = run("unclear").await;
    assert!(
        row.is("waiting")
            && row.attempts == 1
            && row.error.contains("cannot be read as a decision"),
        "{row:?}"
    );
    let row = run("mistyped").await;
    assert!(row.is("waiting") && row.error.contains("snoze"), "{row:?}");
    let row = run("killed").await;
    assert!(row.is("waiting") && row.error == "ended by signal 9", "{row:?}");
}

#[tokio::test]
async fn command_may_ignore_its_input_and_write_much() {
    let database = TestDatabase::new().await;
    let client = database.connect().await;
    // Does not compress, so it is near the limit for arguments and larger than a pipe's buffer.
    let long: String = (0..6000u64)
        .map(|n| format!("{:010}", n.wrapping_mul(2_654_435_761) % 9_999_999_967))
        .collect();
    let id = enqueue(&client, "flood", &format!(r#"{{"long": "{long}"}}"#)).await;
    let script = r#"flood=sh -c 'yes | head -c 20000000; yes | head -c 9000000 >&2; echo; echo "{\"snooze\":\"1h\"}"'"#;
    let _worker = Worker::start(&database, &["--exec", script]).await;
    let row = job_until(&client, id, |row| row.due_in > 3000.0).await;
    assert_eq!(row.attempts, 0);
}

#[tokio::test]
async fn command_runs_in_a_shell_only_with_the_flag() {
    let (database, folder) = (TestDatabase::new().await, Folder::new("shell"));
    let client = database.connect().await;
    let (plain, shell) = (folder.file("plain"), folder.file("shell"));
    let id = enqueue(&client, "say", "{}").await;
    let script = format!("say=echo a > {}", plain.display());
    let worker = Worker::start(&database, &["--exec", &script]).await;
    job_until(&client, id, |row| row.is("completed")).await;
    assert!(!plain.exists(), "the words went to echo");
    drop(worker);
    let id = enqueue(&client, "say", "{}").await;
    let script = format!("say=echo a > {}", shell.display());
    let _worker = Worker::start(&database, &["--shell", "--exec", &script]).await;
    job_until(&client, id, |row| row.is("completed")).await;
    assert!(shell.exists());
}

#[tokio::test]
async fn h15_worker_leaves_names_without_a_program() {
    let database = TestDatabase::new().await;
    let client = database.connect().await;
    let other = enqueue(&client, "of.another", "{}").await;
    let mine = enqueue(&client, "mine", "{}").await;
    let _worker = Worker::start(&database, &["--exec", "mine=true"]).await;
    job_until(&client, mine, |row| row.is("completed")).await;
    // Enqueued after the worker's first claim, so that at least one more claim has skipped the other
    // job.
    let again = enqueue(&client, "mine", "{}").await;
    job_until(&client, again, |row| row.is("completed")).await;
    let row = look(&client, other).await;
    assert!(row.is("waiting") && row.attempts == 0, "{row:?}");
    let claimed: i64 = client
        .query_one("select lease_generation from leasehold.job where id = $1", &[&other])
        .await
        .expect("waiting")
        .get(0);
    assert_eq!(claimed, 0, "never claimed");
}
