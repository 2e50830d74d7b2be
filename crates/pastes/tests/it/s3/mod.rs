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

use crate::rig::{Rig, settings};

/// A failed attempt is written down and put off by an hour more than it wants: nothing is tried again
/// by itself while a test looks, however slow the machine is.
const PUT_OFF: &str = "
    create table public.backoff (wait interval not null);
    create function public.put_off() returns trigger language plpgsql as $$
    begin
        insert into public.backoff values (new.scheduled_at - statement_timestamp());
        new.scheduled_at := new.scheduled_at + interval '1 hour';
        return new;
    end $$;
    create trigger put_off before update on leasehold.job for each row
        when (old.held and not new.held and new.scheduled_at > statement_timestamp())
        execute function public.put_off()";

/// A service on a bucket of its own.
pub struct S3Rig {
    pub rig: Rig,
    pub s3: S3Server,
}

impl Deref for S3Rig {
    type Target = Rig;

    fn deref(&self) -> &Rig {
        &self.rig
    }
}

impl S3Rig {
    /// Nothing is remembered between two reads, so that each of them asks the store.
    pub async fn new() -> Self {
        Self::with(settings()).await
    }

    pub async fn with(settings: Settings) -> Self {
        let s3 = S3Server::start().unwrap();
        let settings = Settings { cache_bytes: 0, recheck: Duration::ZERO, ..settings };
        let folder = std::env::temp_dir().join("pastes-no-folder");
        let rig = Rig::on(store_of(&s3.endpoint()), folder, settings).await;
        rig.client.batch_execute(PUT_OFF).await.unwrap();
        Self { rig, s3 }
    }

    /// Lets so much time pass for everything that waits in the queue.
    pub async fn later(&self, time: Duration) {
        let sql =
            "update leasehold.job set scheduled_at = scheduled_at - make_interval(secs => $1)";
        self.client.execute(sql, &[&time.as_secs_f64()]).await.unwrap();
    }

    /// How long failed attempts wanted to wait, all together.
    pub async fn backoff(&self) -> Duration {
        let sql = "select coalesce(extract(epoch from sum(wait)), 0)::float8 from public.backoff";
        Duration::from_secs_f64(self.client.query_one(sql, &[]).await.unwrap().get(0))
    }

    /// How long the last job of the queue still waits; `None`: there is none.
    pub async fn wait(&self) -> Option<Duration> {
        let sql = "select extract(epoch from max(scheduled_at) - statement_timestamp())::float8 \
                   from leasehold.job";
        let seconds: Option<f64> = self.client.query_one(sql, &[]).await.unwrap().get(0);
        // A little more than is left: the clock must not stop just before the moment.
        seconds.map(|left| Duration::from_secs_f64(left.max(0.0) + 0.001))
    }

    /// Works, lets the time pass that jobs want to wait, and works again, until none are left.
    pub async fn work_it_off(&self) {
        self.work().await;
        while let Some(wait) = self.wait().await {
            self.later(wait).await;
            self.work().await;
        }
    }

    /// What the table says is in use is there with the right bytes, and nothing else is; no key was
    /// written after it was deleted.
    pub async fn assert_settled(&self) {
        let sql = "select content_hash::text from pastes.contents where state = 'LIVE'";
        let rows = self.client.query(sql, &[]).await.unwrap();
        let live: HashSet<String> = rows.iter().map(|row| row.get(0)).collect();
        let mut found = HashSet::new();
        for key in self.s3.keys() {
            let bytes = self.s3.read_object(&key).unwrap().unwrap();
            let hash = pastes::store::hash_of(&bytes);
            assert!(key.contains(&hash), "{key} has other bytes than it says");
            assert!(found.insert(hash), "{key} is there twice");
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
