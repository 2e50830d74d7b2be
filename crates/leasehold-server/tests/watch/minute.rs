//! A minute that ends when a test says so, independent of the real clock.

use jiff::Timestamp;
use leasehold::alarm;
use tokio_postgres::Client;

use crate::clock::age;

/// Takes the sample of the previous minute. Minutes of the real clock may have ended since the last
/// sample: earlier samples are shifted so that there is no gap, and everything since the last sample
/// moves into the sampled minute. One message has one time, so no minute can end in between.
const SAMPLE: &str = "do $$
declare
    minute constant timestamptz := date_trunc('minute', statement_timestamp()) - interval '1 minute';
    last constant timestamptz := (select ran_at from leasehold.duty where name = 'measure');
    passed constant interval := case when isfinite(last) then minute - last else interval '0' end;
    earliest constant timestamptz := case when isfinite(last) then '-infinity' else minute end;
    latest constant timestamptz := minute + interval '59 seconds';
begin
    if passed <> interval '0' then
        -- In two steps: in one the rows would meet each other on the way.
        update leasehold.measure set at = at + passed + interval '1000 days';
        update leasehold.measure set at = at - interval '1000 days';
        update leasehold.duty set ran_at = ran_at + passed where isfinite(ran_at);
    end if;
    update leasehold.history
       set finished_at = greatest(least(finished_at + passed, latest), earliest);
    update leasehold.tally set at = greatest(least(at + passed, latest), earliest);
    if leasehold.take_sample() is distinct from minute then
        raise exception 'the sample was not taken';
    end if;
    perform leasehold.measure_sweeps(minute);
end $$";

/// Lets a minute pass, then samples and evaluates it. Live workers stay alive.
pub async fn passes(client: &Client) {
    age(client, "1 minute").await;
    client.batch_execute(SAMPLE).await.expect("a sample");
    let sql = "select ran_at - interval '1 minute' from leasehold.duty where name = 'measure'";
    let minute: Timestamp = client.query_one(sql, &[]).await.expect("a sample").get(0);
    alarm::evaluate(client, minute).await.expect("a judgement");
}
