//! Rights: whether this role may keep house. A role that may not would fail at every tick, in silence.

use crate::engine::Leasehold;
use crate::error::EnqueueError;

/// What a tick calls and reads.
const MAY: &str = "select coalesce(bool_and(has_function_privilege(p.oid, 'execute')), false) \
      and has_table_privilege('leasehold.schedule', 'select') \
     from pg_proc p join pg_namespace n on n.oid = p.pronamespace \
    where n.nspname = 'leasehold' \
      and p.proname in ('sample_due', 'take_sample', 'alarm_snapshot', 'apply_alarms', \
                        'rescue', 'walk_jobs', 'prune')";

impl Leasehold {
    /// Whether the role of this connection may expire leases, fire schedules, measure and raise
    /// alarms: the owner of the schema and members of `leasehold_housekeeper` may.
    pub async fn may_keep_house(&self) -> Result<bool, EnqueueError> {
        let client = self.client().await?;
        let rows = client.query_typed(MAY, &[]).await?;
        Ok(rows.first().is_some_and(|row| row.get(0)))
    }
}
