//! The service on a store that fails on demand, and the store on every kind of server.

mod deletes;
mod full;
mod killed;
mod listing;
mod outage;
mod reads;
mod suite;
mod uploads;

use std::collections::HashSet;
use std::ops::Deref;
use std::time::Duration;

use leasehold_testing::S3Server;
use leasehold_testing::s3::{Op, Outcome};
use pastes::{S3Settings, Settings, Store};

use crate::fixture::{Fixture, settings};

/// Records the backoff of each failed attempt and delays the retry by one more hour: no retry runs by
/// itself during a test, however slow the machine is.
const DELAY_RETRIES: &str = "
    create table public.backoff (wait interval not null);
    create function public.delay_retry() returns trigger language plpgsql as $$
    begin
        insert into public.backoff values (new.scheduled_at - statement_timestamp());
        new.scheduled_at := new.scheduled_at + interval '1 hour';
        return new;
    end $$;
    create trigger delay_retry before update on leasehold.job for each row
        when (old.held and not new.held and new.scheduled_at > statement_timestamp())
        execute function public.delay_retry()";

/// A service with its own bucket.
pub struct S3Fixture {
    pub fixture: Fixture,
    pub s3: S3Server,
}

impl Deref for S3Fixture {
    type Target = Fixture;

    fn deref(&self) -> &Fixture {
        &self.fixture
    }
}

impl S3Fixture {
    /// Starts a service that caches nothing between two reads, so that each read asks the store.
    pub async fn new() -> Self {
        Self::with(settings()).await
    }

    pub async fn with(settings: Settings) -> Self {
        let s3 = S3Server::start().unwrap();
        let settings = Settings { cache_bytes: 0, recheck: Duration::ZERO, ..settings };
        let folder = std::env::temp_dir().join("pastes-no-folder");
        let fixture = Fixture::on(store_of(&s3.endpoint()), folder, settings).await;
        fixture.client.batch_execute(DELAY_RETRIES).await.unwrap();
        // Drop the requests of the start, which no test is about.
        s3.clear_log();
        Self { fixture, s3 }
    }

    /// Returns the keys in the bucket, without the id of the store.
    pub fn keys(&self) -> Vec<String> {
        self.s3.keys().into_iter().filter(|key| !key.ends_with("store-id")).collect()
    }

    /// Lets `time` pass for all jobs in the queue.
    pub async fn later(&self, time: Duration) {
        let sql =
            "update leasehold.job set scheduled_at = scheduled_at - make_interval(secs => $1)";
        self.client.execute(sql, &[&time.as_secs_f64()]).await.unwrap();
    }

    /// Returns the sum of the backoffs of failed attempts.
    pub async fn backoff(&self) -> Duration {
        let sql = "select coalesce(extract(epoch from sum(wait)), 0)::float8 from public.backoff";
        Duration::from_secs_f64(self.client.query_one(sql, &[]).await.unwrap().get(0))
    }

    /// Returns the time until the last job of the queue is due, or `None` if there is none.
    pub async fn wait(&self) -> Option<Duration> {
        let sql = "select extract(epoch from max(scheduled_at) - statement_timestamp())::float8 \
                   from leasehold.job";
        let seconds: Option<f64> = self.client.query_one(sql, &[]).await.unwrap().get(0);
        // A little more than that, so that the clock does not stop just before the moment.
        seconds.map(|left| Duration::from_secs_f64(left.max(0.0) + 0.001))
    }

    /// Works, skips the waiting times of jobs, and works again, until no job is left.
    pub async fn work_it_off(&self) {
        self.work().await;
        while let Some(wait) = self.wait().await {
            self.later(wait).await;
            self.work().await;
        }
    }

    /// Asserts that the store has exactly the objects that the table says are in use, with the right
    /// bytes, and that no key was written after it was deleted.
    pub async fn assert_settled(&self) {
        let sql = "select content_hash::text from pastes.contents where state = 'LIVE'";
        let rows = self.client.query(sql, &[]).await.unwrap();
        let live: HashSet<String> = rows.iter().map(|row| row.get(0)).collect();
        let mut found = HashSet::new();
        for key in self.keys() {
            let bytes = self.s3.read_object(&key).unwrap().unwrap();
            let hash = pastes::store::hash_of(&bytes);
            assert!(key.contains(&hash), "{key} does not have the bytes of its hash");
            assert!(found.insert(hash), "{key} has a duplicate");
        }
        assert_eq!(found, live, "the bucket and the table");
        let mut deleted = HashSet::new();
        for entry in self.s3.log() {
            match entry.op {
                Op::Delete | Op::DeleteMany => drop(deleted.insert(entry.key)),
                Op::Put if entry.outcome.is_applied() && entry.outcome != Outcome::Late => {
                    assert!(!deleted.contains(&entry.key), "{} was written again", entry.key);
                }
                _ => {}
            }
        }
        self.assert_ref_counts().await;
    }
}

pub fn store_of(endpoint: &str) -> Store {
    Store::s3(&S3Settings {
        bucket: S3Server::BUCKET.to_owned(),
        endpoint: Some(endpoint.to_owned()),
        region: Some(S3Server::REGION.to_owned()),
        access_key: Some(S3Server::ACCESS_KEY.to_owned()),
        secret_key: Some(S3Server::SECRET_KEY.to_owned()),
    })
    .unwrap()
}
