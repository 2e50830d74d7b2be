//! Names that only some roles may enqueue.

use tokio_postgres::Client;

use crate::sql::{Sql, refused, run};

async fn as_role(sql: &Sql, role: &str) -> Client {
    let client = sql.actor().await;
    run(&client, &format!("set role {role}")).await;
    client
}

const RESERVED: [&str; 3] = ["mirror.notes.order", "leasehold.alarm.webhook", "leasehold.anything"];

#[tokio::test]
async fn h20_producer_enqueues_no_order_and_no_alarm() {
    let sql = Sql::new().await;
    let producer = as_role(&sql, "leasehold_producer").await;
    for name in RESERVED {
        for way in [
            format!("select leasehold.enqueue('{name}')"),
            format!("select leasehold.enqueue('{name}', key => 'k')"),
            format!(
                "select leasehold.enqueue_many(array['fine', '{name}'], array['{{}}', '{{}}']::jsonb[])"
            ),
            format!("insert into leasehold.job (name) values ('fine'), ('{name}')"),
        ] {
            let (code, text) = refused(&producer, &way, &[]).await;
            assert_eq!(code, "42501", "{way}");
            assert!(text.contains(name) && text.contains("leasehold_producer"), "{text}");
        }
    }
    assert_eq!(sql.count("job").await, 0, "and nothing that came with it");
    // Names that producers may send, and names that only look reserved.
    for name in ["leasehold.canary", "mirror.notes", "mirror.order", "leaseholder", "order"] {
        run(&producer, &format!("select leasehold.enqueue('{name}')")).await;
    }
    assert_eq!(sql.count("job").await, 5);
}

#[tokio::test]
async fn h20_producer_copies_no_reserved_name() {
    let sql = Sql::new().await;
    let producer = as_role(&sql, "leasehold_producer").await;
    for (name, stored) in [("mirror.notes.order", false), ("fine", true)] {
        let sink = producer.copy_in("copy leasehold.job (name) from stdin").await.expect("a COPY");
        let mut sink = Box::pin(sink);
        let rows = bytes::Bytes::from(format!("fine\n{name}\n"));
        let sent = futures_util::SinkExt::send(&mut sink, rows).await;
        let ended = match sent {
            Ok(()) => sink.as_mut().finish().await,
            Err(error) => Err(error),
        };
        assert_eq!(ended.is_ok(), stored, "{ended:?}");
    }
    assert_eq!(sql.count("job").await, 2);
}

#[tokio::test]
async fn h20_operator_housekeeper_and_owner_enqueue_reserved_names() {
    let sql = Sql::new().await;
    run(
        &sql.client,
        "select leasehold_internal.declare_mirror('notes', 'public.notes', 'id', 'text', 'version', 'notes', \
             'index', 'id', '1 minute', '1 day', '1 minute', 1000, 2500); \
         select leasehold_internal.declare_alarm_receiver('leasehold.alarm.webhook')",
    )
    .await;
    let operator = as_role(&sql, "leasehold_operator").await;
    run(&operator, "select leasehold_internal.order_mirror('notes', 'check', 'ann'); select leasehold_internal.test_alarm('ann')").await;
    assert_eq!(sql.count("job").await, 2);
    // Housekeeping raises an alarm.
    sql.run("insert into leasehold.job (name, scheduled_at, expires_at) values ('late', now() - interval '1 hour', now()); select leasehold_internal.expire_jobs()").await;
    crate::watch::age(&sql.client, "1 minute").await;
    let housekeeper = as_role(&sql, "leasehold_housekeeper").await;
    leasehold::measure::sample(&housekeeper).await.expect("a sample").expect("a minute has passed");
    assert_eq!(crate::watch::up(&sql.client).await, ["expired_jobs default"]);
    let notifications = "select count(*) from leasehold.job where name = 'leasehold.alarm.webhook'";
    assert_eq!(sql.one::<i64>(notifications, &[]).await, 2);
    // The owner of the schema may do everything.
    run(&sql.client, "select leasehold.enqueue('leasehold.self_test'); select leasehold.enqueue('mirror.notes.order')").await;
}

#[tokio::test]
async fn h20_housekeeper_schedules_no_order() {
    let sql = Sql::new().await;
    let housekeeper = as_role(&sql, "leasehold_housekeeper").await;
    let schedule = |name: &str| {
        format!(
            "insert into leasehold_internal.schedule (name, cron, job_name, next_slot) \
             values ('s-' || md5('{name}'), '* * * * *', '{name}', now())"
        )
    };
    let (code, text) = refused(&housekeeper, &schedule("mirror.notes.order"), &[]).await;
    assert_eq!(code, "42501");
    assert!(
        text.contains("'mirror.notes.order'") && text.contains("leasehold_housekeeper"),
        "{text}"
    );
    run(&housekeeper, &schedule("report")).await;
    let rename = "update leasehold_internal.schedule set job_name = 'mirror.notes.order'";
    assert_eq!(refused(&housekeeper, rename, &[]).await.0, "42501");
    run(&sql.client, &schedule("mirror.notes.order")).await;
    let rewrite = "update leasehold_internal.schedule set kwargs = '{\"order\": \"drop\"}' \
                   where job_name = 'mirror.notes.order'";
    assert_eq!(refused(&housekeeper, rewrite, &[]).await.0, "42501");
}
