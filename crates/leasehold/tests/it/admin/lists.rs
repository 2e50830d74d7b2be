use std::time::Duration;

use leasehold::admin::{JobFilter, Page};
use leasehold::{JobId, JobState};

use super::Office;

async fn list(office: &Office, filter: &str) -> Vec<JobId> {
    let filter: JobFilter = filter.parse().expect("a filter");
    let page = office.engine.jobs().list(&filter, &Page::first(100)).await.expect("a list");
    assert_eq!(page.next, None);
    page.jobs.iter().map(|job| job.id).collect()
}

#[tokio::test]
async fn pages_are_in_order_of_time_and_not_of_ids() {
    let office = Office::new().await;
    // Each session draws a block of ids: the first job of a later session has a higher one.
    let other = office.sql.actor().await;
    let enqueue = "select job_id from leasehold.enqueue('note')";
    let mut made = Vec::new();
    for n in 0..6 {
        let id: i64 = match n % 2 {
            0 => office.sql.one(enqueue, &[]).await,
            _ => crate::sql::one(&other, enqueue, &[]).await,
        };
        made.push(JobId(id));
    }
    assert!(!made.is_sorted(), "{made:?}");
    made.reverse();
    assert_eq!(list(&office, "").await, made);
    let (mut seen, mut page) = (Vec::new(), Page::first(4));
    loop {
        let found = office.engine.jobs().list(&JobFilter::any(), &page).await.unwrap();
        assert!(found.jobs.len() <= 4);
        seen.extend(found.jobs.iter().map(|job| job.id));
        let Some(next) = found.next else { break };
        page = Page::first(4).after(next.to_string().parse().unwrap());
    }
    assert_eq!(seen, made);
}

#[tokio::test]
async fn job_that_ends_moves_to_the_front_of_the_list() {
    let office = Office::new().await;
    let first = office.completed().await;
    let second = office.ready().await;
    assert_eq!(list(&office, "").await, [second, first]);
    office.sql.run(&format!("select leasehold.cancel({second}, 'ann')")).await;
    let third = office.ready().await;
    assert_eq!(list(&office, "").await, [third, second, first]);
    assert_eq!(list(&office, "state:completed,cancelled").await, [second, first]);
}

#[tokio::test]
async fn finished_jobs_of_any_age_are_found_after_newer_ones() {
    let office = Office::new().await;
    let old = office.completed().await;
    office
        .sql
        .run("update leasehold_internal.history set finished_at = now() - interval '3 days'")
        .await;
    let middle = office.completed().await;
    let back = "update leasehold_internal.history set finished_at = now() - interval '5 hours' where job_ids @> array[$1::bigint]";
    office.sql.client.execute(back, &[&middle.0]).await.unwrap();
    let new = office.completed().await;
    let waits = office.ready().await;
    office.sql.run("update leasehold.job set enqueued_at = now() - interval '4 days'").await;
    assert_eq!(list(&office, "").await, [new, middle, old, waits]);
    for limit in 1..=4 {
        let (mut seen, mut page) = (Vec::new(), Page::first(limit));
        loop {
            let found = office.engine.jobs().list(&JobFilter::any(), &page).await.unwrap();
            seen.extend(found.jobs.iter().map(|job| job.id));
            let Some(next) = found.next else { break };
            page = Page::first(limit).after(next);
        }
        assert_eq!(seen, [new, middle, old, waits], "{limit} per page");
    }
    assert_eq!(list(&office, "newer:6h").await, [new, middle]);
    assert_eq!(list(&office, "older:6h").await, [old, waits]);
    assert_eq!(office.state(old).await, Some(JobState::Completed));
    let both = format!("id:{old},{waits}");
    assert_eq!(list(&office, &both).await, [old, waits]);
}

#[tokio::test]
async fn each_term_of_a_filter_selects() {
    let office = Office::new().await;
    let dead = office.dead("Connection reset by peer (os error 104)").await;
    let retrying = office.retrying().await;
    let made = "select job_id from leasehold.enqueue('email.send', queue => 'mail', tag => 'a_b', key => 'k1')";
    let mail = JobId(office.sql.one(made, &[]).await);
    let running = office.running().await;
    for (filter, wanted) in [
        ("queue:mail", vec![mail]),
        ("name:email.*", vec![mail]),
        ("name:email_send", vec![]),
        ("name:note state:retrying", vec![retrying]),
        ("tag:a_b", vec![mail]),
        ("tag:a*", vec![mail]),
        ("tag:a.b", vec![]),
        ("key:k1", vec![mail]),
        ("worker:first state:running", vec![running]),
        ("worker:fir*", vec![running, dead]),
        ("state:waiting", vec![mail, retrying]),
        ("state:dead", vec![dead]),
        ("cause:rejected", vec![dead]),
        ("cause:lost", vec![]),
        ("error:\"connection RESET\"", vec![dead]),
        ("error:100%", vec![]),
        ("older:1h", vec![]),
        ("newer:1h queue:mail", vec![mail]),
    ] {
        assert_eq!(list(&office, filter).await, wanted, "{filter}");
        let filter: JobFilter = filter.parse().unwrap();
        let count = office.engine.jobs().count(&filter, 100).await.unwrap();
        assert_eq!(count, wanted.len() as u64, "{filter}");
    }
    assert!(
        "state:ready cause:rejected".parse::<JobFilter>().is_err(),
        "only dead jobs have a cause"
    );
    assert_eq!(office.engine.jobs().count(&JobFilter::any(), 2).await.unwrap(), 2, "capped");
}

#[tokio::test]
async fn page_is_bounded_in_bytes() {
    let office = Office::new().await;
    let large = "insert into leasehold.job (name, kwargs) \
                 select 'large', jsonb_build_object('text', repeat('x', 60000)) from generate_series(1, 300)";
    office.sql.run(large).await;
    let (mut seen, mut pages, mut page) = (0, 0, Page::first(1000));
    loop {
        let found = office.engine.jobs().list(&JobFilter::any(), &page).await.unwrap();
        assert!((1..=140).contains(&found.jobs.len()), "{}", found.jobs.len());
        (seen, pages) = (seen + found.jobs.len(), pages + 1);
        let Some(next) = found.next else { break };
        page = Page::first(1000).after(next);
    }
    assert_eq!((seen, pages), (300, 3));
}

#[tokio::test]
async fn infinite_times_are_listed_and_paged() {
    let office = Office::new().await;
    let odd = "insert into leasehold.job (name, enqueued_at, scheduled_at, expires_at) values \
               ('past', '-infinity', '-infinity', 'infinity'), ('future', 'infinity', now(), 'infinity'), \
               ('now', now(), now(), 'infinity')";
    office.sql.run(odd).await;
    let (mut seen, mut page) = (Vec::new(), Page::first(1));
    loop {
        let found = office.engine.jobs().list(&JobFilter::any(), &page).await.unwrap();
        seen.extend(found.jobs.into_iter().map(|job| job.name));
        let Some(next) = found.next else { break };
        page = Page::first(1).after(next);
    }
    assert_eq!(seen, ["future", "now", "past"]);
    let long = JobFilter::any().newer(Duration::MAX);
    assert_eq!(office.engine.jobs().count(&long, 10).await.unwrap(), 2);
}
