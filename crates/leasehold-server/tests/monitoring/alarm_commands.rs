//! `leasehold alarms`.

use crate::console_fixture::ConsoleFixture;
use crate::fixture::Fixture;
use crate::receiver::Receiver;
use leasehold_testing::minutes::age;
use leasehold_testing::until;

async fn with_an_alarm() -> ConsoleFixture {
    let console = ConsoleFixture::start().await;
    console.sql("insert into leasehold.job (name, scheduled_at, expires_at) values ('late', now() - interval '1 minute', now())").await;
    console.sql("select leasehold_internal.expire_jobs()").await;
    console.a_minute_passes().await;
    console
}

#[tokio::test]
async fn alarm_commands_acknowledge_and_silence_with_a_reason() {
    let console = with_an_alarm().await;
    let run = async |args: &[&str]| console.fixture.run(&[&["alarms"], args].concat()).await;
    let list = run(&["list"]).await.expect(0);
    list.prints("expired_jobs").prints("open");
    let id = run(&["list", "--json"]).await.json()["alarms"][0]["id"].as_str().unwrap().to_owned();
    run(&["show", &id]).await.expect(0).prints("expired before starting");
    run(&["ack", &id]).await.expect(2).says("a reason is missing");
    run(&["ack", &id, "--why", "on it"]).await.expect(0).prints("acknowledged");
    run(&["show", &id]).await.expect(0).prints("on it").prints("acknowledged");
    run(&["silence", &id, "--for", "2h", "--why", "known"])
        .await
        .expect(0)
        .prints("silenced for 2h");
    assert_eq!(run(&["list", "--json"]).await.json()["alarms"][0]["state"], "silenced");
    run(&["silence", &id, "--for", "0s", "--why", "done"]).await.expect(0);
    assert_eq!(run(&["list", "--json"]).await.json()["alarms"][0]["state"], "acknowledged");
    run(&["show", "999"]).await.expect(3).says("there is no alarm 999");
    console.sql("delete from leasehold_internal.dead_job").await;
    console.a_minute_passes().await;
    run(&["list"]).await.expect(0).says("no alarms");
    run(&["list", "--all"]).await.expect(0).prints("cleared");
    run(&["ack", &id, "--why", "late"]).await.expect(5).says("is cleared");
}

#[tokio::test]
async fn alarms_list_reports_missing_samples_instead_of_no_alarms() {
    let console = ConsoleFixture::start().await;
    let list = async || console.fixture.run(&["alarms", "list"]).await.expect(0);
    list().await.says("no sample has been taken yet");
    console.a_minute_passes().await;
    list().await.says("no alarms");
    // The last sample is still there, but is too old to describe the present.
    age(&console.fixture.client, "4 minutes").await;
    let late = list().await;
    late.says("no sample has been taken since");
    assert!(!late.stderr.contains("no alarms"), "{}", late.stderr);
}

#[tokio::test]
async fn watch_sets_thresholds_and_unwatch_removes_them() {
    let fixture = Fixture::new().await;
    let run = async |args: &[&str]| fixture.run(&[&["alarms"], args].concat()).await;
    run(&["watch"]).await.expect(0).says("no queue has thresholds");
    run(&[
        "watch",
        "mail",
        "--max-length",
        "50",
        "--bulk-tag",
        "import",
        "--over",
        "5m",
        "--new-queue",
    ])
    .await
    .expect(0)
    .prints("<= 50");
    let watch = run(&["watch", "--json"]).await.json()["watches"][0].clone();
    assert_eq!(
        (&watch["max_length"], &watch["over_seconds"], &watch["bulk_tags"][0]),
        (&50.into(), &300.0.into(), &"import".into())
    );
    run(&["watch", "mail", "--max-length", "-1", "--new-queue"]).await.expect(0);
    assert!(run(&["watch", "--json"]).await.json()["watches"][0]["max_length"].is_null());
    run(&["watch", "mail", "--over", "1m", "--new-queue"]).await.expect(2).says("2m to 23h");
    run(&["unwatch", "mail"]).await.expect(0);
    run(&["unwatch", "mail"]).await.expect(3).says("has no thresholds");
    run(&["watch"]).await.expect(0).prints("mail (off)");
}

#[tokio::test]
async fn alarms_test_reaches_every_receiver() {
    let fixture = Fixture::new().await;
    fixture.run(&["alarms", "test"]).await.expect(5).says("no receiver of alarms is registered");
    let mut receiver = Receiver::start().await;
    let folder = std::env::temp_dir().join(format!("lh-watch-{}", uuid::Uuid::new_v4().simple()));
    let write = format!("sh -c 'cat > {}'", folder.display());
    let args =
        ["--alarm-webhook", &receiver.url, "--alarm-private-network", "--alarm-command", &write];
    let secret = [("LEASEHOLD_HTTP_SECRET", crate::console_fixture::SECRET)];
    let console = ConsoleFixture::with(fixture, &args, &secret).await;
    console.fixture.run(&["alarms", "test"]).await.expect(0).prints("2 receivers");
    assert!(receiver.next().await.text().starts_with("test test "));
    until("the command has the notification", async || {
        std::fs::read_to_string(&folder).is_ok_and(|text| {
            text.contains("\"event\":\"test\"") || text.contains("\"event\": \"test\"")
        })
    })
    .await;
    std::fs::remove_file(&folder).unwrap();
}

#[tokio::test]
async fn raised_notification_is_dropped_once_the_alarm_has_cleared() {
    let fixture = Fixture::new().await;
    fixture
        .sql("select leasehold_internal.declare_alarm_receiver('leasehold.alarm.webhook')")
        .await;
    // Raised and cleared while no process delivers the notification.
    let console = ConsoleFixture::with(fixture, &[], &[]).await;
    console.sql("insert into leasehold.job (name, scheduled_at, expires_at) values ('late', now() - interval '1 minute', now()); select leasehold_internal.expire_jobs()").await;
    console.a_minute_passes().await;
    console.sql("delete from leasehold_internal.dead_job").await;
    console.a_minute_passes().await;
    let mut receiver = Receiver::start().await;
    let args = [
        "console",
        "--listen",
        "127.0.0.1:0",
        "--no-housekeeping",
        "--alarm-webhook",
        &receiver.url,
        "--alarm-private-network",
    ];
    let _carrier = console
        .fixture
        .command(&args)
        .env("LEASEHOLD_HTTP_SECRET", crate::console_fixture::SECRET)
        .spawn()
        .unwrap();
    assert_eq!(receiver.next().await.text(), "cleared expired_jobs default");
    let words = "select count(*) from leasehold.job where queue = 'leasehold.alarms'";
    until("both notifications are completed", async || console.fixture.count(words).await == 0)
        .await;
    assert_eq!(receiver.rest(), Vec::<String>::new());
}

#[tokio::test]
async fn hanging_command_does_not_delay_the_webhook() {
    let mut receiver = Receiver::start().await;
    let args = [
        "--alarm-webhook",
        &receiver.url,
        "--alarm-private-network",
        "--alarm-command",
        "sleep 600",
    ];
    let secret = [("LEASEHOLD_HTTP_SECRET", crate::console_fixture::SECRET)];
    let console = ConsoleFixture::with(Fixture::new().await, &args, &secret).await;
    // All at once: a hanging command is killed only after a minute.
    console.sql("select leasehold_internal.test_alarm('ann') from generate_series(1, 6)").await;
    for _ in 0..6 {
        assert!(receiver.next().await.text().starts_with("test test "));
    }
    let hanging = "select count(*) from leasehold.job where name = 'leasehold.alarm.command' \
                   and last_error is null";
    assert_eq!(console.fixture.count(hanging).await, 6, "none had to end first");
}

#[tokio::test]
async fn h12_webhook_needs_a_secret_and_a_public_address() {
    let fixture = Fixture::new().await;
    let run = async |args: &[&str]| fixture.run(&[&["console"], args].concat()).await;
    run(&["--alarm-webhook", "http://127.0.0.1:1/x"]).await.expect(2).says("--alarm-webhook");
    run(&["--alarm-webhook", "https://example.com/x"])
        .await
        .expect(2)
        .says("LEASEHOLD_HTTP_SECRET");
    run(&["--listen", "0.0.0.0:0"]).await.expect(4).says("LEASEHOLD_CONSOLE_TOKEN");
    run(&["--alarm-command", "no-such-program-here"]).await.expect(2).says("no-such-program-here");
}
