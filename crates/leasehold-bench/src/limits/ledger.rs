//! What triggers write down about each start and each end, and whether it keeps the limits.

use std::collections::{BTreeMap, HashMap, HashSet};

use anyhow::Result;
use leasehold::database::Session;

/// Returns the statements that make the ledger and its triggers. A bucket that is full again later than `whole`
/// seconds from now has given more tokens than it had.
pub fn triggers(whole: f64) -> String {
    format!(
        "{TRIGGERS}
create function public.bench_tokens() returns trigger language plpgsql as $$ begin
    insert into public.bench_ledger (key, job_id, seq, what)
    select new.key, 0, 0, 'overdrawn' where new.full_at > clock_timestamp() + {whole} * interval '1 second';
    return null;
end $$;
create trigger bench_tokens after update on leasehold_internal.limit_key for each row
    execute function public.bench_tokens()"
    )
}

/// A start, an end of an attempt, or the end of the job. Triggers write in the transaction of the change, with
/// the clock at that moment: the end of one job is earlier than every start that saw it.
const TRIGGERS: &str = "
create table public.bench_ledger (
    at timestamptz not null default clock_timestamp(), key text not null, job_id bigint not null,
    seq int not null, what text not null);
create function public.bench_note() returns trigger language plpgsql as $$ begin
    if tg_op = 'DELETE' then
        insert into public.bench_ledger (key, job_id, seq, what)
        values (old.limit_key, old.id, (old.kwargs ->> 'seq')::int, 'gone');
        return null;
    end if;
    insert into public.bench_ledger (key, job_id, seq, what)
    values (new.limit_key, new.id, (new.kwargs ->> 'seq')::int, case when new.held then 'start' else 'back' end);
    return null;
end $$;
create trigger bench_held after update of held on leasehold.job for each row
    when (old.held <> new.held and new.limit_key is not null) execute function public.bench_note();
create trigger bench_gone after delete on leasehold.job for each row
    when (old.limit_key is not null) execute function public.bench_note();";

/// The limit of a key.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub max_running: usize,
    /// Starts per second, and how many at once.
    pub rate: Option<(f64, f64)>,
    pub ordered: bool,
}

/// What was broken, by the ledger.
#[derive(Debug, Default)]
pub struct Broken {
    pub starts: u64,
    pub over_limit: u64,
    pub over_rate: u64,
    pub out_of_order: u64,
    pub most_running: usize,
    pub first: Option<String>,
}

/// Between the moment at which a claim counts its tokens and the moment at which the trigger writes.
const SLACK: f64 = 0.25;

impl Broken {
    fn note(&mut self, text: impl FnOnce() -> String) {
        self.first.get_or_insert_with(text);
    }
}

/// Reads the ledger in order and checks each key against its rule.
pub async fn check(session: &Session, rule: impl Fn(&str) -> Rule) -> Result<Broken> {
    let mut broken = Broken::default();
    let mut running: HashMap<String, HashSet<i64>> = HashMap::new();
    let mut full_at: HashMap<String, f64> = HashMap::new();
    let mut waiting: HashMap<String, BTreeMap<i32, ()>> = HashMap::new();
    let stored = "select distinct key, seq from public.bench_ledger where what <> 'overdrawn'";
    for row in session.query_typed(stored, &[]).await? {
        waiting.entry(row.get(0)).or_default().insert(row.get(1), ());
    }
    let sql = "select key, job_id, seq, what, extract(epoch from at)::float8 from public.bench_ledger \
                order by at, what <> 'gone', what <> 'back'";
    for row in session.query_typed(sql, &[]).await? {
        let (key, job, seq): (String, i64, i32) = (row.get(0), row.get(1), row.get(2));
        let (what, at): (&str, f64) = (row.get(3), row.get(4));
        let rule = rule(&key);
        let now = running.entry(key.clone()).or_default();
        match what {
            "overdrawn" => {
                broken.over_rate += 1;
                broken.note(|| format!("{key} gave more tokens than it had at {at}"));
            }
            "start" => {
                broken.starts += 1;
                now.insert(job);
                broken.most_running = broken.most_running.max(now.len());
                if now.len() > rule.max_running {
                    broken.over_limit += 1;
                    broken.note(|| format!("{} jobs of {key} ran at {at}", now.len()));
                }
                if let Some((rate, burst)) = rule.rate {
                    let full = full_at.entry(key.clone()).or_insert(at);
                    *full = full.max(at) + 1.0 / rate;
                    if *full - at > burst / rate + SLACK {
                        broken.over_rate += 1;
                        broken.note(|| format!("{key} started more than its rate at {at}"));
                    }
                }
                if rule.ordered {
                    let first = waiting.get(&key).and_then(|left| left.keys().next().copied());
                    if first != Some(seq) {
                        broken.out_of_order += 1;
                        broken.note(|| format!("job {seq} of {key} ran before {first:?}"));
                    }
                }
            }
            end => {
                now.remove(&job);
                if end == "gone" {
                    if let Some(left) = waiting.get_mut(&key) {
                        left.remove(&seq);
                    }
                }
            }
        }
    }
    Ok(broken)
}
