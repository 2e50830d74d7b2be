//! Brings an empty database to the schema of this version.

use tokio_postgres::{Client, Error};

const FILES: [&str; 12] = [
    include_str!("../../../leasehold/migrations/0001_tables.sql"),
    include_str!("../../../leasehold/functions/010_settings.sql"),
    include_str!("../../../leasehold/functions/020_enqueue.sql"),
    include_str!("../../../leasehold/functions/030_claim.sql"),
    include_str!("../../../leasehold/functions/040_renew.sql"),
    include_str!("../../../leasehold/functions/050_finish.sql"),
    include_str!("../../../leasehold/functions/060_expire.sql"),
    include_str!("../../../leasehold/functions/070_people.sql"),
    include_str!("../../../leasehold/functions/080_once.sql"),
    include_str!("../../../leasehold/functions/090_housekeeping.sql"),
    include_str!("../../../leasehold/functions/100_views.sql"),
    include_str!("../../../leasehold/functions/110_roles.sql"),
];

pub(super) async fn migrate(client: &mut Client) -> Result<(), Error> {
    let transaction = client.transaction().await?;
    transaction
        .batch_execute(
            "create schema leasehold;
             create table leasehold.schema_version (
                 version int primary key, applied_at timestamptz not null default now())",
        )
        .await?;
    for file in FILES {
        transaction.batch_execute(file).await?;
    }
    transaction.commit().await
}
