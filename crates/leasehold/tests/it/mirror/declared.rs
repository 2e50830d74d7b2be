//! Declarations that contradict themselves or their table are refused, with what to do.

use std::sync::Arc;
use std::time::Duration;

use leasehold::mirror::{Mirror, MirrorError};
use leasehold_testing::ScriptedTarget;

use super::fixture::{Margin, bare, notes};
use crate::fixture::{run, until};

async fn refused(margin: &Margin, mirror: Mirror) -> String {
    let error = mirror.check_once(&margin.engine).await.expect_err("refused");
    assert!(matches!(error, MirrorError::Declaration(_) | MirrorError::Table(_)), "{error:?}");
    error.to_string()
}

#[tokio::test]
async fn invalid_declaration_is_refused_with_advice() {
    let margin = Margin::new().await;
    let store = || Arc::new(ScriptedTarget::new());
    let note = |name: &str| Mirror::new(name, "margin.note").document(super::fixture::DOCUMENT);
    for (mirror, words) in [
        (bare(), "no store"),
        (Mirror::new("Notes!", "margin.note").document("x").target(store()), "not allowed"),
        (Mirror::new("n", "margin.note").target(store()), ".document("),
        (Mirror::new("n", "margin.nothing").document("select 1").target(store()), "no table"),
        (note("n").key("body").target(store()), "tell rows apart"),
        (note("n").key("nothing").target(store()), ".key(column)"),
        (note("n").version("body").target(store()), "Mirror::install"),
        (note("n").target(store()), "triggers"),
        (notes(&margin.target).document("select id from margin.note"), "does not accept"),
        (notes(&margin.target).document("selec"), "does not accept"),
        (notes(&margin.target).claim_size(1), "claim_size is 1; it must be between 10 and 50000"),
        (
            notes(&margin.target)
                .limit(Duration::from_secs(3600))
                .tombstones(Duration::from_secs(60)),
            "tombstones is 60s; it must be at least ten times the limit of a call, which is 3600s",
        ),
    ] {
        let said = refused(&margin, mirror).await;
        assert!(said.contains(words), "{said} should say {words:?}");
    }
}

#[tokio::test]
async fn worker_with_an_invalid_mirror_does_not_start() {
    let margin = Margin::new().await;
    let bad = margin.mirror().document("select 1");
    let error = margin.engine.worker().mirror(bad).run_until(async {}).await.expect_err("refused");
    assert!(error.to_string().contains("does not accept"), "{error}");
    let twice = margin.engine.worker().mirror(margin.mirror()).mirror(margin.mirror());
    let error = twice.run_until(async {}).await.expect_err("refused");
    assert!(error.to_string().contains("named twice"), "{error}");
    let name = margin.mirror().job_name().to_owned();
    let taken = margin.engine.worker().handle_untyped(name, async |_| {}).mirror(margin.mirror());
    let error = taken.run_until(async {}).await.expect_err("refused");
    assert!(error.to_string().contains("two handlers"), "{error}");
}

#[tokio::test]
async fn repeated_install_changes_nothing() {
    let margin = Margin::new().await;
    margin.write(&["a"]).await;
    let mut client = margin.database.connect_directly().await;
    let version = margin.count("select version from margin.note").await;
    for _ in 0..2 {
        bare().install(&mut client).await.expect("installed");
    }
    assert_eq!(margin.count("select version from margin.note").await, version);
    let text = bare().install_sql("text").expect("text");
    assert!(text.contains("create or replace trigger"), "{text}");
    margin.sql(&format!("begin; {text}; commit")).await;
    assert!(bare().install_sql("json").is_err());
    margin.pass().await;
    margin.assert_equal().await;
}

#[tokio::test]
async fn mirror_works_with_the_rights_of_a_worker() {
    let margin = Margin::new().await;
    margin.write_many(1, 5).await;
    let user = format!("mirrorer_{:08x}", rand::random::<u32>());
    margin
        .sql(&format!(
            "create role {user} login in role leasehold_worker;
             grant usage on schema margin to {user}; grant select on margin.note, margin.author to {user};
             grant update (version) on margin.note to {user}"
        ))
        .await;
    let mut config = margin.database.direct_config();
    config.user(&user);
    let database = leasehold::database::Database::from_config(config).expect("a config");
    let engine = leasehold::Leasehold::from_database(database).await.expect("an engine");
    let worker = run(engine.worker().without_housekeeping().mirror(margin.mirror()));
    until("all are there", async || margin.target.documents().len() == 5).await;
    until("no job is left", async || margin.jobs().await == 0).await;
    margin.target.tamper("n00001", 1, None);
    margin.target.tamper("n00002", 9_000_000_000_000_000, Some(serde_json::json!({})));
    assert_eq!(margin.mirror().check_once(&engine).await.expect("a check").differences, 2);
    until("no job is left", async || margin.jobs().await == 0).await;
    worker.stop().await;
    margin.assert_equal().await;
    let client = engine.pool().get().await.expect("a connection");
    for forbidden in [
        "update leasehold_internal.mirror set serving = 'x'",
        "delete from leasehold_internal.mirror_gone",
        "insert into leasehold_internal.mirror_difference (mirror, key, kind) values ('notes', 'a', 'ghost')",
        "select leasehold_internal.order_mirror('notes', 'drop', 'me')",
    ] {
        let error = client.batch_execute(forbidden).await.expect_err(forbidden);
        assert_eq!(error.code().map(|code| code.code()), Some("42501"), "{forbidden}");
    }
    drop((client, engine));
    margin.sql(&format!("drop owned by {user}; drop role {user}")).await;
}
