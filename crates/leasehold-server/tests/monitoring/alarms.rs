//! The table of faults, row by row: each fault raises its alarms and no others, shows in every view,
//! sends one notification, and clears when it is fixed.
//!
//! | fault | alarm |
//! |---|---|
//! | consumer stops | completion rate |
//! | producer stops | completion rate |
//! | both stop | completion rate |
//! | producer outpaces consumer | queue length |
//! | stuck jobs | queue length in the end, expired jobs in the end, even if a single job sticks |

use serde_json::Value;

use crate::console_fixture::{ConsoleFixture, SECRET};
use crate::receiver::Receiver;
use leasehold_testing::until;

const QUEUE: &str = "annotations";
const LOW: &str = "completion_rate_low annotations";
const LONG: &str = "queue_length_high annotations";
const EXPIRED: &str = "expired_jobs annotations";

/// A service with a producer and a consumer that can be stopped.
struct Story {
    console: ConsoleFixture,
    receiver: Receiver,
    producing: bool,
    consuming: bool,
}

impl Story {
    /// Starts producer and consumer, and lets them run for a while.
    async fn begin() -> Self {
        let receiver = Receiver::start().await;
        let console = ConsoleFixture::with_receiver(&receiver).await;
        let watch = ["alarms", "watch", QUEUE, "--min-completed", "1", "--over", "10m"];
        let more = ["--max-length", "100", "--max-age", "1h", "--new-queue"];
        console.fixture.run(&[&watch[..], &more].concat()).await.expect(0);
        let mut story = Self { console, receiver, producing: true, consuming: true };
        story.minutes(12).await;
        assert_eq!(story.console.all_raised().await, Vec::<String>::new(), "all is well");
        story
    }

    async fn minutes(&mut self, count: usize) {
        for _ in 0..count {
            self.minute().await;
        }
    }

    /// Plays one minute.
    async fn minute(&mut self) {
        if self.producing {
            self.produce(3, "storage.create_annotation").await;
            // The producer's process sends canaries while it lives.
            self.console.engine.canary([QUEUE]).send_once().await.unwrap();
        }
        if self.consuming {
            let alive = format!(
                "select leasehold_internal.register_worker('w/1', 'w', 'host', 1, '0', array['{QUEUE}'], '{{}}', 1, 0, false)"
            );
            self.console.sql(&alive).await;
            self.consume(1000).await;
        } else {
            self.console.sql("delete from leasehold_internal.worker where name = 'w'").await;
        }
        self.console.a_minute_passes().await;
    }

    async fn produce(&self, jobs: u32, tag: &str) {
        let sql = format!(
            "insert into leasehold.job (queue, name, tag) select '{QUEUE}', 'index', '{tag}' from generate_series(1, {jobs})"
        );
        self.console.sql(&sql).await;
    }

    /// Completes up to `most` ready jobs; those named `stuck` fail instead.
    async fn consume(&self, most: u32) {
        let sql = format!(
            "select id, lease_generation, name from leasehold.claim('w/1', '{QUEUE}', {most})"
        );
        let client = &self.console.fixture.client;
        for row in client.query(&sql, &[]).await.unwrap() {
            let (id, generation, name): (i64, i64, String) = (row.get(0), row.get(1), row.get(2));
            let end = match name.as_str() {
                "stuck" => {
                    format!("select leasehold.fail({id}, {generation}, 'it sticks', '2 minutes')")
                }
                _ => format!("select leasehold.complete({id}::bigint, {generation}::bigint)"),
            };
            self.console.sql(&end).await;
        }
    }

    /// Checks that exactly these alarms are in the table, in the metrics and in the list.
    async fn shown(&self, alarms: &[&str]) {
        assert_eq!(self.console.active().await, alarms, "in the table");
        let metrics = self.console.metrics().await;
        let lines: Vec<&str> =
            metrics.lines().filter(|line| line.starts_with("leasehold_alarm{")).collect();
        let wanted: Vec<String> = alarms
            .iter()
            .map(|alarm| {
                let (rule, subject) = alarm.split_once(' ').unwrap();
                format!("leasehold_alarm{{rule=\"{rule}\",subject=\"{subject}\",state=\"open\"}} 1")
            })
            .collect();
        assert_eq!(lines, wanted, "in the metrics");
        let list = self.console.fixture.run(&["alarms", "list", "--json"]).await.expect(0).json();
        let word = |alarm: &Value, name: &str| alarm[name].as_str().unwrap().to_owned();
        let listed: Vec<String> = list["alarms"]
            .as_array()
            .unwrap()
            .iter()
            .map(|alarm| format!("{} {}", word(alarm, "rule"), word(alarm, "subject")))
            .collect();
        assert_eq!(listed, alarms, "in the list");
    }

    /// Checks that this alarm and no other is up, and that its notification was sent.
    async fn raised(&mut self, alarm: &str) {
        self.shown(&[alarm]).await;
        self.received(&format!("raised {alarm}")).await;
    }

    /// Checks that the alarm is gone everywhere, and that its notification was sent.
    async fn cleared(&mut self, alarm: &str) {
        self.shown(&[]).await;
        self.received(&format!("cleared {alarm}")).await;
    }

    async fn received(&mut self, text: &str) {
        let notification = self.receiver.next().await;
        assert_eq!(notification.text(), text);
        let header = |name: &str| notification.headers[name].to_str().unwrap().to_owned();
        let signed = format!(
            "{}.{}.{}",
            header("webhook-id"),
            header("webhook-timestamp"),
            notification.body
        );
        assert_eq!(header("webhook-signature"), signature(&signed), "signed as every job is");
    }

    /// Checks that no other alarm was ever raised, none twice, and that no other notification was
    /// sent.
    async fn end(mut self, alarms: &[&str]) {
        assert_eq!(self.console.all_raised().await, alarms);
        self.shown(&[]).await;
        let words = "select count(*) from leasehold.job where queue = 'leasehold.alarms'";
        until("every notification is delivered", async || {
            self.console.fixture.count(words).await == 0
        })
        .await;
        assert_eq!(self.receiver.rest(), Vec::<String>::new());
    }
}

fn signature(signed: &str) -> String {
    use base64::{Engine, prelude::BASE64_STANDARD};
    use hmac::{Hmac, KeyInit, Mac};
    let key = BASE64_STANDARD.decode(SECRET.trim_start_matches("whsec_")).unwrap();
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&key).unwrap();
    mac.update(signed.as_bytes());
    format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
}

#[tokio::test]
async fn stopped_consumer_raises_the_completion_rate_alarm() {
    let mut story = Story::begin().await;
    story.consuming = false;
    story.minutes(9).await;
    assert_eq!(story.console.all_raised().await, Vec::<String>::new(), "not yet");
    story.minutes(1).await;
    story.raised(LOW).await;
    story.minutes(3).await;
    story.consuming = true;
    story.minutes(1).await;
    story.cleared(LOW).await;
    story.end(&[LOW]).await;
}

#[tokio::test]
async fn stopped_producer_raises_the_completion_rate_alarm() {
    let mut story = Story::begin().await;
    story.producing = false;
    story.minutes(10).await;
    story.raised(LOW).await;
    story.producing = true;
    story.minutes(1).await;
    story.cleared(LOW).await;
    story.end(&[LOW]).await;
}

#[tokio::test]
async fn stopped_consumer_and_producer_raise_the_completion_rate_alarm() {
    let mut story = Story::begin().await;
    (story.producing, story.consuming) = (false, false);
    story.minutes(10).await;
    story.raised(LOW).await;
    story.consuming = true;
    story.minutes(2).await;
    assert_eq!(story.console.active().await, [LOW], "there is nothing to complete yet");
    story.producing = true;
    story.minutes(1).await;
    story.cleared(LOW).await;
    story.end(&[LOW]).await;
}

#[tokio::test]
async fn fast_producer_raises_the_queue_length_alarm() {
    let mut story = Story::begin().await;
    // The jobs of a re-index do not count: it is long on purpose.
    story.produce(500, "reindex_user").await;
    story.consuming = false;
    let alive = format!(
        "select leasehold_internal.register_worker('w/1', 'w', 'host', 1, '0', array['{QUEUE}'], '{{}}', 1, 0, false)"
    );
    for minute in 1..=3 {
        assert_eq!(
            story.console.all_raised().await,
            Vec::<String>::new(),
            "not before minute {minute}"
        );
        story.produce(40, "storage.create_annotation").await;
        story.consume(5).await;
        story.minute().await;
        story.console.sql(&alive).await;
    }
    // Two minutes of 43 jobs are below the threshold and three are above it, however many canaries
    // there are: one per minute of the real clock. The consumer took jobs of the re-index, which came
    // first.
    story.raised(LONG).await;
    story.consuming = true;
    story.minutes(1).await;
    story.cleared(LONG).await;
    story.end(&[LONG]).await;
}

#[tokio::test]
async fn stuck_jobs_raise_the_queue_length_alarm_then_the_expired_jobs_alarm() {
    let mut story = Story::begin().await;
    let stuck = "insert into leasehold.job (queue, name, max_attempts, expires_at) \
         select 'annotations', 'stuck', 1000, now() + interval '20 minutes' from generate_series(1, 110)";
    story.console.sql(stuck).await;
    story.minutes(1).await;
    story.raised(LONG).await;
    // Other jobs complete; these are retried again and again, until they expire.
    story.minutes(20).await;
    assert_eq!(story.console.active().await, [LONG]);
    story.console.sql("select leasehold_internal.expire_jobs()").await;
    story.minutes(1).await;
    // Notifications of one minute may overtake each other; the alarms do not.
    story.shown(&[EXPIRED]).await;
    let mut texts = [story.receiver.next().await.text(), story.receiver.next().await.text()];
    texts.sort();
    assert_eq!(texts, [format!("cleared {LONG}"), format!("raised {EXPIRED}")]);
    // The jobs are kept, and an operator redrives them when the cause is fixed.
    story.console.sql("select leasehold.redrive(array(select id from leasehold_internal.dead_job), 'ann'); update leasehold.job set name = 'index' where name = 'stuck'").await;
    story.minutes(1).await;
    story.cleared(EXPIRED).await;
    story.end(&[EXPIRED, LONG]).await;
}

#[tokio::test]
async fn single_stuck_job_raises_the_expired_jobs_alarm() {
    let mut story = Story::begin().await;
    story.console.sql("insert into leasehold.job (queue, name, max_attempts, expires_at) values ('annotations', 'stuck', 1000, now() + interval '3 minutes')").await;
    story.minutes(3).await;
    assert_eq!(story.console.all_raised().await, Vec::<String>::new());
    story.console.sql("select leasehold_internal.expire_jobs()").await;
    story.minutes(1).await;
    story.raised(EXPIRED).await;
    story.console.sql("delete from leasehold_internal.dead_job").await;
    story.minutes(1).await;
    story.cleared(EXPIRED).await;
    story.end(&[EXPIRED]).await;
}
