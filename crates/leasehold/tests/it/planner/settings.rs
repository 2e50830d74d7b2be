//! Which plans functions may use: none that reads a whole table of jobs or leases.

use crate::sql::{Sql, all};

/// A session keeps the plan that it made when a table was small (since PostgreSQL 18 for functions in SQL
/// as well), so every function that looks rows up in a table that grows forbids the plan that reads all
/// of it.
#[tokio::test]
async fn c23_functions_that_look_up_rows_disable_sequential_scans() {
    let sql = Sql::new().await;
    let careless = "select p.proname::text from pg_proc p join pg_namespace n on n.oid = p.pronamespace \
         where n.nspname in ('leasehold', 'leasehold_internal') and p.prosrc ~* \
               '(from|join|update|using)\\s+(only\\s+)?leasehold(_internal)?\\.(job|lease|dead_job|idempotency_key|once_marker|sweep_failure)\\M' \
           and not coalesce('enable_seqscan=off' = any (p.proconfig), false) order by 1";
    assert_eq!(all::<String>(&sql.client, careless, &[]).await, Vec::<String>::new());
}
