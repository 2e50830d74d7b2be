//! The statements of `leasehold doctor` fit the tables.

use leasehold::admin::diagnosis;

use super::Office;

#[tokio::test]
async fn doctor_statements_are_valid_on_the_current_schema() {
    let office = Office::new().await;
    let removals = diagnosis::TEST_REMOVE.iter().map(|sql| (*sql, *sql));
    for (name, sql) in diagnosis::ALL.iter().copied().chain(removals) {
        if let Err(error) = office.sql.client.prepare(sql).await {
            panic!("{name}: {}", leasehold::error::describe(&error));
        }
    }
}
