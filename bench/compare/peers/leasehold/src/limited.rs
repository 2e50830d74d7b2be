//! The work `limit`: jobs of many keys, at most one of each key at a time. It is in SQL alone, so that this driver
//! also builds against an engine without limits per key.

use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::Result;
use compare_driver::{Lacking, Options};
use leasehold::Leasehold;
use leasehold::futures_util::future::try_join_all;
use serde_json::Value;

use crate::QUEUE;

/// The text before the first colon of a key names the limit of all such keys.
const PREFIX: &str = "key";

/// Declares the limit: one running job of each key.
pub async fn declare(engine: &Leasehold) -> Result<()> {
    let client = engine.pool().get().await?;
    let has_limits = "select exists (select from pg_proc \
                      where pronamespace = 'leasehold'::regnamespace and proname = 'set_limit')";
    if !client.query_one(has_limits, &[]).await?.get::<_, bool>(0) {
        return Err(Lacking("not in this build").into());
    }
    let set_limit = "select leasehold.set_limit($1, $2, 'bench/compare', max_running => 1)";
    client.query(set_limit, &[&QUEUE, &PREFIX]).await?;
    Ok(())
}

/// Stores jobs that the limit holds back: a call for each key, all in one transaction and without waiting for replies
/// in between.
pub async fn enqueue(engine: &Leasehold, options: &Options, jobs: Range<u64>) -> Result<()> {
    let mut by_key: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
    for n in jobs {
        by_key.entry(n % options.keys).or_default().push(options.data(n));
    }
    let mut client = engine.pool().get().await?;
    let transaction = client.transaction().await?;
    let sql = "select count(*) from leasehold.enqueue_many(names => $1, kwargs => $2, queue => $3, limit_key => $4)";
    let enqueue = transaction.prepare_cached(sql).await?;
    let (transaction_ref, enqueue) = (&transaction, &enqueue);
    try_join_all(by_key.into_iter().map(|(key, kwargs)| async move {
        let names = vec![options.name(0); kwargs.len()];
        let key = format!("{PREFIX}:{key}");
        transaction_ref.query_one(enqueue, &[&names, &kwargs, &QUEUE, &key]).await
    }))
    .await?;
    transaction.commit().await?;
    Ok(())
}
