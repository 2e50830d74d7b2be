//! Creating, uploading, sweeping and deleting the same content in random orders.
//!
//! Each step of a process is one statement or one call to the store. Any of them may be late, out of
//! order, or never happen because its process died. The store is a set of keys here: the test covers
//! the protocol, with the service's own SQL on real Postgres.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use tokio_postgres::Client;

use crate::fixture::Fixture;

/// A random next step.
#[derive(Clone, Copy, Debug)]
enum Action {
    Create {
        content: u8,
    },
    Expire {
        which: u8,
    },
    Claim,
    Watchdog,
    TakeDeleteJob {
        which: u8,
    },
    /// A waiting step happens.
    Land {
        which: u8,
    },
    /// A process dies: a waiting step never happens.
    Die {
        which: u8,
    },
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let action = prop_oneof![
        3 => (0..2u8).prop_map(|content| Action::Create { content }),
        3 => any::<u8>().prop_map(|which| Action::Expire { which }),
        2 => Just(Action::Claim),
        1 => Just(Action::Watchdog),
        2 => any::<u8>().prop_map(|which| Action::TakeDeleteJob { which }),
        8 => any::<u8>().prop_map(|which| Action::Land { which }),
        1 => any::<u8>().prop_map(|which| Action::Die { which }),
    ];
    prop::collection::vec(action, 10..80)
}

/// What a process still has to do.
#[derive(Debug)]
enum Step {
    Put { content: i64 },
    FinishUpload { content: i64 },
    FinishSweep { claim: i64 },
    DeleteObjects { contents: Vec<i64> },
    ObjectsGone { contents: Vec<i64> },
}

struct World<'a> {
    client: &'a Client,
    objects: BTreeSet<String>,
    steps: Vec<Step>,
    claims: i64,
    pastes: usize,
    run: u64,
}

const KEY: &str =
    "select content_id || ' ' || object_id from pastes.contents where content_id = any ($1)";
const CREATE: &str = "select content_id from pastes.create_paste($1, gen_random_uuid(), false, null, \
    encode(sha256($2), 'hex'), $2, interval '1 day', null, false, null, null, interval '0')";
const CLAIM: &str = "update pastes.pastes set deletion_status = 'DELETION_IN_PROGRESS', \
    deletion_initiated_at = now(), deletion_claim = $1 where short_code in (\
    select short_code from pastes.pastes where deletion_status = 'NOT_EXPIRED' \
    and expires_at < statement_timestamp() order by expires_at limit 3)";
const FINISH: &str = "with finished as (update pastes.pastes set deletion_status = 'DELETED' \
    where deletion_status = 'DELETION_IN_PROGRESS' and deletion_claim = $1 returning *) \
    select pastes.drop_references(array_agg(content_id)) from finished";
const WATCHDOG: &str = "begin; select set_config('leasehold.watchdog', 'pastes.expiry', true); \
    update pastes.pastes set deletion_status = 'NOT_EXPIRED', deletion_initiated_at = null, \
    deletion_claim = null where deletion_status = 'DELETION_IN_PROGRESS'; commit;";

impl World<'_> {
    async fn act(&mut self, action: Action) {
        match action {
            Action::Create { content } => {
                self.pastes += 1;
                let code = format!("p{}-{}", self.run, self.pastes);
                let bytes = format!("content {} {content}", self.run).into_bytes();
                let row = self.client.query_one(CREATE, &[&code, &bytes]).await.unwrap();
                self.steps.push(Step::Put { content: row.get(0) });
            }
            Action::Expire { which } => {
                let sql = "update pastes.pastes set expires_at = statement_timestamp() - interval '1 s' \
                           where short_code = $1 and deletion_status = 'NOT_EXPIRED'";
                let code = format!("p{}-{}", self.run, usize::from(which) % (self.pastes + 1));
                self.client.execute(sql, &[&code]).await.unwrap();
            }
            Action::Claim => {
                self.claims += 1;
                self.client.execute(CLAIM, &[&self.claims]).await.unwrap();
                self.steps.push(Step::FinishSweep { claim: self.claims });
            }
            Action::Watchdog => self.client.batch_execute(WATCHDOG).await.unwrap(),
            Action::TakeDeleteJob { which } => {
                let jobs = self.delete_jobs().await;
                if !jobs.is_empty() {
                    let contents = jobs[usize::from(which) % jobs.len()].clone();
                    self.steps.push(Step::DeleteObjects { contents });
                }
            }
            Action::Land { which } => {
                if !self.steps.is_empty() {
                    let next = self.steps.remove(usize::from(which) % self.steps.len());
                    self.land(next).await;
                }
            }
            Action::Die { which } => {
                if !self.steps.is_empty() {
                    drop(self.steps.remove(usize::from(which) % self.steps.len()));
                }
            }
        }
    }

    async fn land(&mut self, step: Step) {
        match step {
            Step::Put { content } => {
                self.objects.extend(self.keys(&[content]).await);
                self.steps.push(Step::FinishUpload { content });
            }
            Step::FinishUpload { content } => {
                let sql = "select pastes.finish_uploads($1, $2)";
                let (ids, urls) = ([content], ["s3://bucket/object"]);
                let kept = self.client.query(sql, &[&&ids[..], &&urls[..]]).await.unwrap();
                if kept.is_empty() {
                    self.steps.push(Step::DeleteObjects { contents: vec![content] });
                }
            }
            Step::FinishSweep { claim } => {
                self.client.execute(FINISH, &[&claim]).await.unwrap();
            }
            Step::DeleteObjects { contents } => {
                let sql = include_str!("../../queries/doomed.sql");
                let rows = self.client.query(sql, &[&contents]).await.unwrap();
                let doomed: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
                for key in self.keys(&doomed).await {
                    self.objects.remove(&key);
                }
                self.steps.push(Step::ObjectsGone { contents: doomed });
            }
            Step::ObjectsGone { contents } => {
                self.client.execute("select pastes.objects_gone($1)", &[&contents]).await.unwrap();
            }
        }
    }

    async fn keys(&self, contents: &[i64]) -> Vec<String> {
        let rows = self.client.query(KEY, &[&contents]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }

    async fn delete_jobs(&self) -> Vec<Vec<i64>> {
        let sql = "select array(select jsonb_array_elements_text(kwargs -> 'contents')::bigint) \
                   from leasehold.job where name = 'pastes.delete_objects' order by id";
        self.client.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
    }

    /// Checks the invariants after every step.
    async fn check(&self) {
        let sql = "select c.content_id, c.ref_count, c.state::text, \
                          (select count(*) from pastes.pastes p where p.content_id = c.content_id \
                            and p.deletion_status <> 'DELETED')::int \
                   from pastes.contents c";
        for row in self.client.query(sql, &[]).await.unwrap() {
            let (id, counted, state, pastes): (i64, i32, String, i32) =
                (row.get(0), row.get(1), row.get(2), row.get(3));
            assert_eq!(counted, pastes, "ref_count of content {id} ({state})");
        }
        let sql = "select distinct content_id from pastes.pastes \
                   where status = 'PROCESSED' and deletion_status <> 'DELETED'";
        let rows = self.client.query(sql, &[]).await.unwrap();
        let ids: Vec<i64> = rows.iter().map(|row| row.get(0)).collect();
        for key in self.keys(&ids).await {
            assert!(self.objects.contains(&key), "object {key} of a readable paste is gone");
        }
    }

    /// Takes all waiting steps, without failures, and checks that the store and the tables agree.
    async fn heal(&mut self) {
        while let Some(next) = self.steps.pop() {
            self.land(next).await;
        }
        let waiting = "select distinct content_id from pastes.pastes where status = 'IN_PROGRESS' \
                       and deletion_status = 'NOT_EXPIRED' and expires_at > statement_timestamp()";
        for row in self.client.query(waiting, &[]).await.unwrap() {
            self.land(Step::Put { content: row.get(0) }).await;
        }
        self.act(Action::Watchdog).await;
        for _ in 0..self.pastes {
            self.act(Action::Claim).await;
            while let Some(next) = self.steps.pop() {
                self.land(next).await;
            }
        }
        for contents in self.delete_jobs().await {
            self.land(Step::DeleteObjects { contents }).await;
        }
        while let Some(next) = self.steps.pop() {
            self.land(next).await;
        }
        self.check().await;
        let sql = "select content_id || ' ' || object_id, state::text from pastes.contents";
        let rows = self.client.query(sql, &[]).await.unwrap();
        let states: BTreeMap<String, String> =
            rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        for (key, state) in &states {
            match state.as_str() {
                "LIVE" => assert!(self.objects.contains(key), "a live object is missing"),
                "GONE" => {}
                other => panic!("content {key} is left {other}"),
            }
        }
        for key in &self.objects {
            // A put that landed after the deletion leaves an orphan, which the orphan check knows to be
            // dead. Any other leftover would go unnoticed.
            assert!(
                matches!(states[key].as_str(), "LIVE" | "GONE"),
                "{key} belongs to no content in use"
            );
        }
    }
}

#[test]
fn e4_e5_e7_create_and_deletion_of_the_same_content_keep_the_invariants() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let fixture = runtime.block_on(Fixture::new());
    let mut config = ProptestConfig::with_cases(96);
    config.failure_persistence = None;
    let run = std::cell::Cell::new(0u64);
    let outcome = TestRunner::new(config).run(&actions(), |actions| {
        run.set(run.get() + 1);
        runtime.block_on(async {
            let clean = "truncate pastes.pastes, pastes.contents, pastes.staged; \
                         delete from leasehold.job";
            fixture.client.batch_execute(clean).await.unwrap();
            let (objects, steps) = (BTreeSet::new(), Vec::new());
            let mut world = World {
                client: &fixture.client,
                objects,
                steps,
                claims: 0,
                pastes: 0,
                run: run.get(),
            };
            for action in actions {
                world.act(action).await;
                world.check().await;
            }
            world.heal().await;
        });
        Ok(())
    });
    outcome.unwrap();
}
