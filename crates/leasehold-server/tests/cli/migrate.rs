use super::support::Place;

#[tokio::test]
async fn a_current_schema_has_nothing_to_do() {
    let place = Place::new().await;
    let status = place.run(&["migrate", "status", "--json"]).await.expect(0).json();
    assert_eq!(status["migrate"]["current"], true);
    place.run(&["migrate", "up"]).await.expect(0).prints("is current");
    place.run(&["migrate", "up", "--dry-run"]).await.expect(0).says("nothing to do");
}

#[tokio::test]
async fn an_empty_database_is_pending_until_up() {
    let place = Place::new().await;
    place.client.batch_execute("drop schema leasehold cascade").await.unwrap();
    place.run(&["migrate", "status"]).await.expect(5).says("leasehold migrate up");
    place.run(&["jobs", "list"]).await.expect(5).says("leasehold migrate up");
    let dry = place.run(&["migrate", "up", "--dry-run"]).await.expect(0);
    dry.prints("create table leasehold.job").says("nothing was changed");
    assert_eq!(
        place.number("select count(*) from pg_namespace where nspname = 'leasehold'").await,
        0,
        "a dry run changes nothing"
    );
    place.run(&["migrate", "up"]).await.expect(0).prints("0001");
    place.run(&["migrate", "status"]).await.expect(0);
    place.run(&["jobs", "list"]).await.expect(0);
}

#[tokio::test]
async fn functions_of_another_release_are_pending_and_replaced() {
    let place = Place::new().await;
    place
        .client
        .batch_execute("update leasehold.schema_version set checksum = '\\x00' where version = 0")
        .await
        .unwrap();
    place.run(&["migrate", "status"]).await.expect(5).prints("functions and views");
    place.run(&["migrate", "up"]).await.expect(0).prints("replaced");
    place.run(&["migrate", "status"]).await.expect(0);
}

#[tokio::test]
async fn a_changed_migration_and_a_newer_schema_are_conflicts() {
    let place = Place::new().await;
    place
        .client
        .batch_execute("update leasehold.schema_version set checksum = '\\x00' where version = 1")
        .await
        .unwrap();
    for args in [
        &["migrate", "status"][..],
        &["migrate", "up"],
        &["migrate", "up", "--dry-run"],
        &["jobs", "list"],
    ] {
        place.run(args).await.expect(5).says("checksum differs");
    }
    let newer = "delete from leasehold.schema_version where version = 1; \
                 insert into leasehold.schema_version (version, name, checksum) values (999, 'x', '\\x00')";
    place.client.batch_execute(newer).await.unwrap();
    place.run(&["migrate", "status"]).await.expect(5).says("upgrade this program");
}

#[tokio::test]
async fn the_printed_sql_makes_the_same_schema() {
    let place = Place::new().await;
    let sql = place.run(&["migrate", "sql"]).await.expect(0).stdout;
    place.client.batch_execute("drop schema leasehold cascade").await.unwrap();
    place.client.batch_execute(&sql).await.unwrap();
    place.run(&["migrate", "status"]).await.expect(0);
}

#[tokio::test]
async fn a_service_brings_its_tables_beside_the_engines() {
    let place = Place::new().await;
    place.run(&["migrate", "status", "--service", "pastes"]).await.expect(5).says("migrate up");
    let up = place.run(&["migrate", "up", "--service", "pastes"]).await.expect(0);
    up.prints("schema leasehold is current").prints("schema pastes: migrations applied: 0001");
    place.run(&["migrate", "status", "--service", "pastes"]).await.expect(0);
    let sql = place.run(&["migrate", "sql", "--service", "pastes"]).await.expect(0);
    sql.prints("create table pastes.pastes");
}
