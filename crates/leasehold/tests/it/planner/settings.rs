//! Which plans functions may use: none that reads a whole table of jobs or leases.

use crate::sql::{Sql, all};

/// A session keeps the plan that it made when a table was small (since PostgreSQL 18 for functions in SQL
/// as well), so every function that looks rows up in a table that grows forbids the plan that reads all
/// of it.
#[tokio::test]
async fn c23_functions_that_look_rows_up_forbid_plans_that_read_a_whole_table() {
    let sql = Sql::new().await;
    let careless = "select p.proname::text from pg_proc p join pg_namespace n on n.oid = p.pronamespace \
         where n.nspname = 'leasehold' and p.prosrc ~* \
               '(from|join|update|using)\\s+(only\\s+)?leasehold\\.(job|lease|dead_job|idempotency_key|once_marker|sweep_failure)\\M' \
           and not coalesce('enable_seqscan=off' = any (p.proconfig), false) order by 1";
    assert_eq!(all::<String>(&sql.client, careless, &[]).await, Vec::<String>::new());
}
