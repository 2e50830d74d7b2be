//! Functions that run with the rights of the schema's owner run no code of their callers.

use leasehold::measure;
use leasehold_testing::TestDatabase;
use tokio_postgres::Client;

use crate::sql::{Sql, all, one, refused, run};

/// Words by which a function could run, or look up, what a caller names. Each function that uses one is
/// listed with it after a review: its names come from a date or from the catalogue, or are literals.
const REVIEWED: [&str; 7] = [
    "drop_history(interval): execute",
    "drop_history(interval): regclass",
    "extend_history(integer): execute",
    "extend_history(integer): regclass",
    "measure_tables(timestamp with time zone): regclass",
    "prune_queues(integer,interval,text): execute",
    "prune_queues(integer,interval,text): regclass",
];

/// Schemas in which a caller can create nothing; temporary objects come last.
const SEARCH_PATHS: [&str; 2] =
    ["search_path=leasehold, pg_temp", "search_path=pg_catalog, pg_temp"];

/// What dynamic SQL, and functions that take a name or a query as text, look like.
const WORDS: [&str; 9] = [
    "execute",
    "regclass",
    "regproc",
    "regprocedure",
    "query_to_xml",
    "table_to_xml",
    "cursor_to_xml",
    "dblink",
    "pg_read_file",
];

#[tokio::test]
async fn h19_owner_functions_run_no_object_that_a_caller_names() {
    let sql = Sql::new().await;
    let rows = sql
        .client
        .query(
            "select p.oid::regprocedure::text, p.prosrc, l.lanname::text,
                    coalesce(array_to_string(p.proconfig, '; '), '')
               from pg_proc p join pg_language l on l.oid = p.prolang
              where p.pronamespace in ('leasehold'::regnamespace, 'leasehold_internal'::regnamespace) and p.prosecdef",
            &[],
        )
        .await
        .expect("functions");
    assert!(rows.len() > 60, "there are {} of them", rows.len());
    let mut found = Vec::new();
    for row in &rows {
        let (name, source, language): (&str, &str, &str) = (row.get(0), row.get(1), row.get(2));
        let settings: &str = row.get(3);
        let name = name.split_once('.').map_or(name, |(_, name)| name);
        assert!(
            settings.split("; ").any(|one| SEARCH_PATHS.contains(&one)),
            "{name} fixes no search_path: {settings:?}"
        );
        assert!(["sql", "plpgsql"].contains(&language), "{name} is written in {language}");
        let text: String = source.lines().filter_map(|line| line.split("--").next()).collect();
        let text = text.to_lowercase();
        let words: Vec<&str> = text.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        let has = |word: &str| words.contains(&word) || words.contains(&&*format!("to_{word}"));
        found.extend(WORDS.iter().filter(|word| has(word)).map(|word| format!("{name}: {word}")));
    }
    found.sort();
    assert_eq!(found, REVIEWED, "read what is new, and list it if no caller can name anything");
}

/// A worker and housekeeper role that owns a view whose column calls a function of the role.
struct Mallory {
    role: String,
    client: Client,
}

impl Mallory {
    async fn new(sql: &Sql) -> Self {
        let role = format!("mallory_{:08x}", rand::random::<u32>());
        run(
            &sql.client,
            &format!(
                "create role {role} in role leasehold_worker, leasehold_housekeeper;
                 create schema {role} authorization {role};
                 create table public.ran_as (who text);
                 grant insert on public.ran_as to public"
            ),
        )
        .await;
        let client = sql.actor().await;
        run(
            &client,
            &format!(
                "set role {role};
                 create function {role}.note() returns bigint language plpgsql volatile as $$
                 begin insert into public.ran_as values (current_user); return 7; end $$;
                 create view {role}.v as select 1::bigint as id, now() as due, 'BUSY' as status,
                     now() - interval '1 day' as taken_at, {role}.note() as claim"
            ),
        )
        .await;
        Self { role, client }
    }

    /// Creates a worker role that owns no objects.
    async fn plain(sql: &Sql) -> Self {
        let role = format!("worker_{:08x}", rand::random::<u32>());
        run(&sql.client, &format!("create role {role} in role leasehold_worker")).await;
        let client = sql.actor().await;
        run(&client, &format!("set role {role}")).await;
        Self { role, client }
    }

    async fn declares(&self, name: &str, table: &str) {
        run(&self.client, &declaration(name, table)).await;
    }

    async fn gone(self, sql: &Sql) {
        drop(self.client);
        let role = self.role;
        run(&sql.client, &format!("drop owned by {role} cascade; drop role {role}")).await;
    }
}

fn declaration(name: &str, table: &str) -> String {
    format!(
        "select leasehold_internal.declare_sweep('{name}', '{table}', 'id', 'bigint', 'due', 'status', 'NEW', 'BUSY', \
         'DONE', 'taken_at', 'claim', 10, 5, '2 hours', '1 minute', 1000, null, null, '1 minute', null)"
    )
}

#[tokio::test]
async fn h19_sample_runs_no_code_of_the_role_that_declared_a_sweep() {
    let sql = Sql::new().await;
    let mallory = Mallory::new(&sql).await;
    mallory.declares("x", &format!("{}.v", mallory.role)).await;
    measure::sample(&mallory.client).await.expect("a sample").expect("a minute has passed");
    let measured =
        "select count(*) from leasehold_internal.measure where kind = 'sweep' and subject = 'x'";
    assert!(one::<i64>(&sql.client, measured, &[]).await > 0, "the sweep was measured");
    let ran: Vec<String> = all(&sql.client, "select who from public.ran_as", &[]).await;
    assert!(ran.is_empty(), "code of {} ran as {ran:?}", mallory.role);
    mallory.gone(&sql).await;
}

#[tokio::test]
async fn h19_sweep_of_another_role_keeps_its_table() {
    let sql = Sql::new().await;
    let (owner, mallory) = (Mallory::plain(&sql).await, Mallory::plain(&sql).await);
    owner.declares("loans", "public.loans").await;
    // The same declaration is accepted: workers run under several roles.
    mallory.declares("loans", "public.loans").await;
    let (code, text) =
        refused(&mallory.client, &declaration("loans", &format!("{}.v", mallory.role)), &[]).await;
    assert_eq!(code, "LH002");
    assert!(text.contains("belongs to role") && text.contains(&owner.role), "{text}");
    let stored = "select table_name || ' ' || declared_by from leasehold_internal.sweep";
    let kept: String = one(&sql.client, stored, &[]).await;
    assert_eq!(kept, format!("public.loans {}", owner.role));
    // A member of that role acts for it; a role that was dropped owns nothing.
    run(&sql.client, &format!("grant {} to {}", owner.role, mallory.role)).await;
    mallory.declares("loans", "public.other").await;
    run(&sql.client, &format!("revoke {} from {}", owner.role, mallory.role)).await;
    owner.gone(&sql).await;
    mallory.declares("loans", "public.third").await;
    let kept: String = one(&sql.client, stored, &[]).await;
    assert_eq!(kept, format!("public.third {}", mallory.role));
    mallory.gone(&sql).await;
}

#[tokio::test]
async fn h19_sweep_is_declared_by_the_role_of_set_role() {
    let database = TestDatabase::new().await;
    let client = database.connect_directly().await;
    run(&client, "set role leasehold_worker").await;
    run(&client, &declaration("a", "public.a")).await;
    run(&client, "reset role").await;
    run(&client, &declaration("b", "public.b")).await;
    let names = "select string_agg(declared_by, ' ' order by name) from leasehold_internal.sweep";
    let login: String = one(&client, "select session_user::text", &[]).await;
    assert_eq!(one::<String>(&client, names, &[]).await, format!("leasehold_worker {login}"));
}

#[tokio::test]
async fn h27_role_without_rights_on_a_table_declares_no_sweep_of_it() {
    let sql = Sql::new().await;
    let (owner, mallory) = (Mallory::plain(&sql).await, Mallory::plain(&sql).await);
    // Before the table is there, its rights are not known.
    mallory.declares("early", "public.victim").await;
    run(
        &sql.client,
        &format!(
            "create table public.victim (id bigint primary key, due timestamptz, status text, \
             taken_at timestamptz, claim bigint); grant select, update on public.victim to {}",
            owner.role
        ),
    )
    .await;
    let (code, text) = refused(&mallory.client, &declaration("squat", "public.victim"), &[]).await;
    assert_eq!(code, "42501", "{text}");
    assert!(text.contains("grant select, update on public.victim"), "{text}");
    owner.declares("mine", "public.victim").await;
    let (code, _) = refused(&owner.client, &declaration("second", "public.victim"), &[]).await;
    assert_eq!(code, "LH002", "its own second sweep would take the claims of the first");
    run(&sql.client, "drop table public.victim").await;
    mallory.gone(&sql).await;
    owner.gone(&sql).await;
}
