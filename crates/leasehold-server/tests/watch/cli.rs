//! `leasehold alarms`.

use crate::clock::age;
use crate::receiver::Receiver;
use crate::support::Place;
use crate::tower::{Tower, until};

async fn with_an_alarm() -> Tower {
    let tower = Tower::start().await;
    tower.sql("insert into leasehold.job (name, scheduled_at, expires_at) values ('late', now() - interval '1 minute', now())").await;
    tower.sql("select leasehold.expire_jobs()").await;
    tower.a_minute_passes().await;
    tower
}

#[tokio::test]
async fn an_alarm_is_listed_shown_acknowledged_and_silenced_with_a_reason() {
    let tower = with_an_alarm().await;
    let run = async |args: &[&str]| tower.place.run(&[&["alarms"], args].concat()).await;
    let list = run(&["list"]).await.expect(0);
    list.prints("expired_jobs").prints("open");
    let id = run(&["list", "--json"]).await.json()["alarms"][0]["id"].as_str().unwrap().to_owned();
    run(&["show", &id]).await.expect(0).prints("is kept");
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
    tower.sql("delete from leasehold.dead_job").await;
    tower.a_minute_passes().await;
    run(&["list"]).await.expect(0).says("no alarms");
    run(&["list", "--all"]).await.expect(0).prints("cleared");
    run(&["ack", &id, "--why", "late"]).await.expect(5).says("is over");
}

#[tokio::test]
async fn an_empty_list_that_nobody_looks_after_is_no_good_news() {
    let tower = Tower::start().await;
    let list = async || tower.place.run(&["alarms", "list"]).await.expect(0);
    list().await.says("nobody has measured yet");
    tower.a_minute_passes().await;
    list().await.says("no alarms");
    // The last sample is still there, but is too old to describe the present.
    age(&tower.place.client, "4 minutes").await;
    let late = list().await;
    late.says("nobody has measured since");
    assert!(!late.stderr.contains("no alarms"), "{}", late.stderr);
}

#[tokio::test]
async fn what_is_expected_of_a_queue_is_said_and_unsaid() {
    let place = Place::new().await;
    let run = async |args: &[&str]| place.run(&[&["alarms"], args].concat()).await;
    run(&["watch"]).await.expect(0).says("nothing is expected");
    run(&["watch", "mail", "--max-length", "50", "--bulk-tag", "import", "--over", "5m"])
        .await
        .expect(0)
        .prints("<= 50");
    let watch = run(&["watch", "--json"]).await.json()["watches"][0].clone();
    assert_eq!(
        (&watch["max_length"], &watch["over_seconds"], &watch["bulk_tags"][0]),
        (&50.into(), &300.0.into(), &"import".into())
    );
    run(&["watch", "mail", "--max-length", "-1"]).await.expect(0);
    assert!(run(&["watch", "--json"]).await.json()["watches"][0]["max_length"].is_null());
    run(&["watch", "mail", "--over", "1m"]).await.expect(2).says("2m to 23h");
    run(&["unwatch", "mail"]).await.expect(0);
    run(&["unwatch", "mail"]).await.expect(3).says("nothing is expected");
    run(&["watch"]).await.expect(0).prints("mail (off)");
}

#[tokio::test]
async fn a_test_reaches_everyone_who_would_be_told() {
    let place = Place::new().await;
    place.run(&["alarms", "test"]).await.expect(5).says("nobody would be told");
    let mut receiver = Receiver::start().await;
    let folder = std::env::temp_dir().join(format!("lh-watch-{}", uuid::Uuid::new_v4().simple()));
    let write = format!("sh -c 'cat > {}'", folder.display());
    let args =
        ["--alarm-webhook", &receiver.url, "--alarm-private-network", "--alarm-command", &write];
    let secret = [("LEASEHOLD_HTTP_SECRET", crate::tower::SECRET)];
    let tower = Tower::with(place, &args, &secret).await;
    tower.place.run(&["alarms", "test"]).await.expect(0).prints("2 receivers");
    assert!(receiver.next().await.text().starts_with("test test "));
    let waiting = async {
        while !std::fs::read_to_string(&folder).is_ok_and(|text| {
            text.contains("\"event\":\"test\"") || text.contains("\"event\": \"test\"")
        }) {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(crate::support::LIMIT, waiting).await.expect("the command has it");
    std::fs::remove_file(&folder).unwrap();
}

#[tokio::test]
async fn a_raise_that_comes_after_its_end_is_not_told() {
    let place = Place::new().await;
    place
        .client
        .batch_execute("select leasehold.declare_alarm_receiver('leasehold.alarm.webhook')")
        .await
        .unwrap();
    // Raised and cleared while no process delivers the notification.
    let tower = Tower::with(place, &[], &[]).await;
    tower.sql("insert into leasehold.job (name, scheduled_at, expires_at) values ('late', now() - interval '1 minute', now()); select leasehold.expire_jobs()").await;
    tower.a_minute_passes().await;
    tower.sql("delete from leasehold.dead_job").await;
    tower.a_minute_passes().await;
    let mut receiver = Receiver::start().await;
    let args = [
        "console",
        "--console",
        "127.0.0.1:0",
        "--no-housekeeping",
        "--alarm-webhook",
        &receiver.url,
        "--alarm-private-network",
    ];
    let _carrier = tower
        .place
        .command(&args)
        .env("LEASEHOLD_HTTP_SECRET", crate::tower::SECRET)
        .spawn()
        .unwrap();
    assert_eq!(receiver.next().await.text(), "cleared expired_jobs default");
    let words = "select count(*) from leasehold.job where queue = 'leasehold.alarms'";
    until("both words are done", async || tower.place.number(words).await == 0).await;
    assert_eq!(receiver.rest(), Vec::<String>::new());
}

#[tokio::test]
async fn a_command_that_hangs_does_not_delay_the_webhook() {
    let mut receiver = Receiver::start().await;
    let args = [
        "--alarm-webhook",
        &receiver.url,
        "--alarm-private-network",
        "--alarm-command",
        "sleep 600",
    ];
    let secret = [("LEASEHOLD_HTTP_SECRET", crate::tower::SECRET)];
    let tower = Tower::with(Place::new().await, &args, &secret).await;
    // All at once: a hanging command is killed only after a minute.
    tower.sql("select leasehold.test_alarm('ann') from generate_series(1, 6)").await;
    for _ in 0..6 {
        assert!(receiver.next().await.text().starts_with("test test "));
    }
    let hanging = "select count(*) from leasehold.job where name = 'leasehold.alarm.command' \
                   and last_error is null";
    assert_eq!(tower.place.number(hanging).await, 6, "none had to end first");
}

#[tokio::test]
async fn h12_a_webhook_needs_a_secret_and_a_public_address() {
    let place = Place::new().await;
    let run = async |args: &[&str]| place.run(&[&["console"], args].concat()).await;
    run(&["--alarm-webhook", "http://127.0.0.1:1/x"]).await.expect(2).says("--alarm-webhook");
    run(&["--alarm-webhook", "https://example.com/x"])
        .await
        .expect(2)
        .says("LEASEHOLD_HTTP_SECRET");
    run(&["--console", "0.0.0.0:0"]).await.expect(4).says("LEASEHOLD_CONSOLE_TOKEN");
    run(&["--alarm-command", "no-such-program-here"]).await.expect(2).says("no-such-program-here");
}
