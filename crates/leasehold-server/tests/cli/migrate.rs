use super::fixture::Fixture;

#[tokio::test]
async fn migrate_changes_nothing_on_a_current_schema() {
    let fixture = Fixture::new().await;
    let status = fixture.run(&["migrate", "status", "--json"]).await.expect(0).json();
    assert_eq!(status["migrate"]["current"], true);
    fixture.run(&["migrate", "up"]).await.expect(0).prints("is current");
    fixture.run(&["migrate", "up", "--dry-run"]).await.expect(0).says("nothing would run");
}

#[tokio::test]
async fn migrate_status_conflicts_until_up() {
    let fixture = Fixture::new().await;
    fixture.sql("drop schema leasehold, leasehold_internal cascade").await;
    fixture.run(&["migrate", "status"]).await.expect(5).says("leasehold migrate up");
    fixture.run(&["jobs", "list"]).await.expect(5).says("leasehold migrate up");
    let dry = fixture.run(&["migrate", "up", "--dry-run"]).await.expect(0);
    dry.prints("create table leasehold.job").says("nothing was changed");
    assert_eq!(
        fixture.count("select count(*) from pg_namespace where nspname = 'leasehold'").await,
        0,
        "a dry run changes nothing"
    );
    fixture.run(&["migrate", "up"]).await.expect(0).prints("0001");
    fixture.run(&["migrate", "status"]).await.expect(0);
    fixture.run(&["jobs", "list"]).await.expect(0);
}

#[tokio::test]
async fn migrate_up_replaces_functions_of_another_release() {
    let fixture = Fixture::new().await;
    fixture.sql("update leasehold.schema_version set checksum = '\\x00' where version = 0").await;
    fixture.run(&["migrate", "status"]).await.expect(5).prints("functions and views");
    fixture.run(&["migrate", "up"]).await.expect(0).prints("replaced");
    fixture.run(&["migrate", "status"]).await.expect(0);
}

#[tokio::test]
async fn changed_migrations_and_newer_schemas_are_conflicts() {
    let fixture = Fixture::new().await;
    fixture.sql("update leasehold.schema_version set checksum = '\\x00' where version = 1").await;
    for args in [
        &["migrate", "status"][..],
        &["migrate", "up"],
        &["migrate", "up", "--dry-run"],
        &["jobs", "list"],
    ] {
        fixture.run(args).await.expect(5).says("checksum differs");
    }
    let newer = "delete from leasehold.schema_version where version = 1; \
                 insert into leasehold.schema_version (version, name, checksum) values (999, 'x', '\\x00')";
    fixture.sql(newer).await;
    fixture.run(&["migrate", "status"]).await.expect(5).says("upgrade this program");
}

#[tokio::test]
async fn migrate_sql_creates_the_same_schema() {
    let fixture = Fixture::new().await;
    let sql = fixture.run(&["migrate", "sql"]).await.expect(0).stdout;
    fixture.sql("drop schema leasehold, leasehold_internal cascade").await;
    fixture.sql(&sql).await;
    fixture.run(&["migrate", "status"]).await.expect(0);
}

#[tokio::test]
async fn migrate_up_includes_the_tables_of_a_service() {
    let fixture = Fixture::new().await;
    fixture.run(&["migrate", "status", "--service", "pastes"]).await.expect(5).says("migrate up");
    let up = fixture.run(&["migrate", "up", "--service", "pastes"]).await.expect(0);
    up.prints("schema leasehold is current").prints("schema pastes: migrations applied: 0001");
    fixture.run(&["migrate", "status", "--service", "pastes"]).await.expect(0);
    let sql = fixture.run(&["migrate", "sql", "--service", "pastes"]).await.expect(0);
    sql.prints("create table pastes.pastes");
}
