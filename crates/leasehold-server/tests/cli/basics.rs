use super::fixture::{Fixture, Ran, command};

#[tokio::test]
async fn help_lists_every_exit_code() {
    let ran = Ran::of(command(&["--help"])).await.expect(0);
    for code in [
        "0    ok",
        "1    failed",
        "2    usage",
        "3    not found",
        "4    refused",
        "5    conflict",
        "6    cannot reach",
        "7    timeout",
        "130  ",
    ] {
        ran.prints(code);
    }
}

#[tokio::test]
async fn every_command_has_a_help_text() {
    for name in [
        "dev",
        "serve",
        "paste",
        "pastes",
        "enqueue",
        "jobs",
        "dead",
        "batches",
        "queues",
        "limits",
        "schedules",
        "workers",
        "doctor",
        "migrate",
        "completions",
        "version",
    ] {
        Ran::of(command(&[name, "--help"])).await.expect(0).prints("Usage: leasehold");
    }
}

#[tokio::test]
async fn bad_command_line_exits_with_2() {
    for bad in [
        &["nonsense"][..],
        &["jobs", "show"],
        &["jobs", "show", "x"],
        &["jobs", "list", "--state", "asleep"],
        &["enqueue", "a", "--at", "5m"],
        &["queues", "set", "mail"],
        &["-o", "xml", "version"],
        &["queues", "set", "a", "--backoff", "1h..1s"],
    ] {
        Ran::of(command(bad)).await.expect(2);
    }
}

#[tokio::test]
async fn missing_database_hint_names_leasehold_dev() {
    let mut alone = command(&["jobs", "list"]);
    alone.env("XDG_DATA_HOME", "/nonexistent");
    Ran::of(alone).await.expect(2).says("leasehold dev");
}

#[tokio::test]
async fn unreachable_database_exits_with_6_without_its_password() {
    for args in [&["jobs", "list"][..], &["doctor"], &["migrate", "status"], &["enqueue", "a"]] {
        let mut lost = command(args);
        lost.env("DATABASE_URL", "postgres://me:s3cret@127.0.0.1:1/nowhere");
        let ran = Ran::of(lost).await.expect(6);
        let all = ran.stdout + &ran.stderr;
        assert!(!all.contains("s3cret") && all.contains("127.0.0.1:1"), "{all}");
    }
}

#[tokio::test]
async fn flag_overrides_variables_and_those_pg_variables() {
    let fixture = Fixture::new().await;
    let mut flag = command(&["jobs", "list", "--database-url", &fixture.database.url()]);
    flag.env("LEASEHOLD_DATABASE_URL", "postgres://127.0.0.1:1/a")
        .env("DATABASE_URL", "postgres://127.0.0.1:1/b");
    Ran::of(flag).await.expect(0);
    let mut named = command(&["jobs", "list"]);
    named
        .env("LEASEHOLD_DATABASE_URL", fixture.database.url())
        .env("DATABASE_URL", "postgres://127.0.0.1:1/b");
    Ran::of(named).await.expect(0);
    let mut url = command(&["jobs", "list"]);
    url.env("DATABASE_URL", fixture.database.url()).env("PGHOST", "127.0.0.1").env("PGPORT", "1");
    Ran::of(url).await.expect(0);
}

#[tokio::test]
async fn closed_stdout_is_not_a_failure() {
    let fixture = Fixture::new().await;
    fixture.sql("insert into leasehold.job (name, tag) select 'n', repeat('x', 200) from generate_series(1, 5000)").await;
    let script = format!(
        "'{}' jobs list --limit 5000 -o ndjson | head -1; echo ${{PIPESTATUS[0]}}",
        env!("CARGO_BIN_EXE_leasehold")
    );
    let mut shell = tokio::process::Command::new("bash");
    shell.args(["-c", &script]).env("DATABASE_URL", fixture.database.url());
    let ran = Ran::of(shell).await.expect(0);
    assert!(ran.stdout.ends_with("\n0\n") && ran.stderr.is_empty(), "{ran:?}");
}

#[tokio::test]
async fn version_and_completions_need_no_database() {
    let version = Ran::of(command(&["version", "--json"])).await.expect(0).json();
    assert_eq!(version["leasehold"]["version"], env!("CARGO_PKG_VERSION"));
    for shell in ["bash", "zsh", "fish", "powershell"] {
        Ran::of(command(&["completions", shell])).await.expect(0).prints("leasehold");
    }
}

#[tokio::test]
async fn colours_are_off_without_a_terminal_unless_forced() {
    let fixture = Fixture::new().await;
    fixture.job("default", "a").await;
    let plain = fixture.run(&["jobs", "list"]).await.expect(0);
    assert!(!plain.stdout.contains('\u{1b}'));
    fixture.run(&["jobs", "list", "--color", "always"]).await.expect(0).prints("\u{1b}[1m");
}

#[tokio::test]
async fn workers_are_listed_with_their_state() {
    let fixture = Fixture::new().await;
    let register = "select leasehold_internal.register_worker($1, 'w', 'host', 1, '0', array['mail'], array['a'], 5, 2, false)";
    for id in ["w/1", "w/2"] {
        fixture.client.query(register, &[&id]).await.unwrap();
    }
    fixture.client.query("select leasehold_internal.unregister_worker('w/2')", &[]).await.unwrap();
    fixture.keep_workers_alive().await;
    let listed = fixture.run(&["workers", "list", "--json"]).await.expect(0).json();
    let workers = listed["workers"].as_array().unwrap();
    assert_eq!((workers.len(), &workers[0]["state"]), (1, &"alive".into()));
    let all = fixture.run(&["workers", "list", "--all", "--json"]).await.expect(0).json();
    assert_eq!(all["workers"].as_array().unwrap().len(), 2);
}
