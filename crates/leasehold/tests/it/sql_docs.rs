//! docs/sql.md is what the catalogue says about the schema `leasehold`.
//!
//! To write it anew: `LEASEHOLD_WRITE_DOCS=1 scripts/test sql_page`.

use std::fmt::Write;
use std::path::Path;

use crate::sql::Sql;

const HEAD: &str = "# SQL interface

Everything in schema `leasehold`, as `\\df+` and `\\d+` show it. Callers in every language use these
objects, and the library and the command line use them too. Objects in `leasehold_internal` change without
notice. This page is made from the comments in the database, and a test compares the two.

Times are compared with the database's clock. Functions that finish a job take its id and the generation of
its claim: together they are the [fence](glossary.md). A function that runs for an operator takes the
`actor`, and records the call in `leasehold.audit`.

A role needs the rights for what it calls: `leasehold_producer` enqueues, by `enqueue`, `enqueue_many` or a plain
INSERT without `returning`; `leasehold_worker` claims and finishes; `leasehold_housekeeper` runs `housekeep`;
`leasehold_viewer` reads the views; in `leasehold.jobs` it may not read `kwargs`, `last_error`, `errors`, `note` and
`trace_context`, so it names the columns it wants; `leasehold_operator` reads everything and acts. [SECURITY.md](../SECURITY.md) has the details.

An idempotency key belongs to its queue: the same key in two queues makes two jobs. Ids are an identity column, and
each session draws a block of them: they do not follow the order of time, and have gaps.

| SQLSTATE | what is wrong | what to do |
|---|---|---|
| `LH001` | the name of a queue is not allowed | use 1 to 64 of a-z, 0-9, dot, dash and underscore |
| `LH002` | another argument is not allowed | correct the value; message and hint name it |
| `LH003` | the key belongs to a job with another name or other kwargs | use a new key for a new request |
| `LH004` | `check_lease`: the lease was lost | roll back; another worker owns the job |
| `LH005` | as many jobs wait for the limit key, or for the queue, as may | enqueue again when some have started |
| `LH006` | the batch is sealed, closed or cancelled, or there is none; `extend_batch`: the job belongs to none | open another batch |
| `LH010` | the schema is newer than the program that migrates it | use that release or a newer one |
| `23514` | a plain INSERT or COPY violates a constraint of the table | correct the value; the table below names each |
| `42501` | the role lacks a right, or the name of the job is reserved | grant a role of the list above |

The error of `LH001` to `LH006` also has its code as the name of a constraint, for drivers that do not pass on the
SQLSTATE. A plain INSERT or COPY into `leasehold.job` has the constraints of the table. Its triggers
refuse an `expires_at` that is not after `scheduled_at`, and kwargs that are too large before compression, with `LH002`:

| constraint | rule |
|---|---|
| `job_queue_form` | `queue` has 1 to 64 bytes; the functions also check its characters |
| `job_name_form` | `name` has 1 to 200 bytes |
| `job_tag_form` | `tag` has at most 200 bytes |
| `job_kwargs_object`, `job_kwargs_size` | `kwargs` is a JSON object of at most 64 KiB |
| `job_max_attempts_positive` | `max_attempts` is null or at least 1 |
| `job_trace_context_length` | `trace_context` has at most 1 KiB |

A negative `wait` or `after` counts as none, and one of more than ten years as ten years: a worker must be able to let
go of its job, whatever its handler asked for.
";

/// Name, arguments, result and comment of each function, by the parts of the page.
const FUNCTIONS: &str = "
    select p.proname::text, pg_get_function_arguments(p.oid), pg_get_function_result(p.oid),
           obj_description(p.oid, 'pg_proc')
      from pg_proc p where p.pronamespace = 'leasehold'::regnamespace order by p.proname";

const COLUMNS: &str = "
    select c.relname::text, case c.relkind when 'v' then 'view' when 'c' then 'type' else 'table' end,
           coalesce(obj_description(c.oid, 'pg_class'), (
               select obj_description(t.oid, 'pg_type') from pg_type t where t.typrelid = c.oid)),
           a.attname::text, format_type(a.atttypid, a.atttypmod), col_description(c.oid, a.attnum)
      from pg_class c
      join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
     where c.relnamespace = 'leasehold'::regnamespace and c.relkind in ('r', 'v', 'c')
     order by c.relkind <> 'v', c.relkind <> 'r', c.relname, a.attnum";

fn short(text: &str) -> String {
    text.replace("timestamp with time zone", "timestamptz")
        .replace("::text", "")
        .replace("::interval", "")
        .replace("::jsonb", "")
        .replace("NULL::integer", "NULL")
        .replace("NULL::bigint", "NULL")
        .replace("NULL::boolean", "NULL")
        .replace("NULL::uuid", "NULL")
        .replace("NULL::timestamptz", "NULL")
        .replace("NULL[]", "NULL")
        .replace(" DEFAULT ", " = ")
}

async fn page(sql: &Sql) -> (String, Vec<String>) {
    let (mut page, mut bare) = (HEAD.to_owned(), Vec::new());
    page.push_str("\n## Functions\n");
    for row in sql.client.query(FUNCTIONS, &[]).await.expect("functions") {
        let (name, arguments, result): (&str, String, String) =
            (row.get(0), row.get(1), row.get(2));
        let text = row.get::<_, Option<String>>(3).unwrap_or_default();
        if text.is_empty() {
            bare.push(format!("function {name}"));
        }
        let (arguments, result) = (short(&arguments), short(&result));
        write!(page, "\n### {name}\n\n{text}\n\n```sql\nleasehold.{name}({arguments})\n  returns {result}\n```\n")
            .expect("text");
    }
    let mut last = String::new();
    for row in sql.client.query(COLUMNS, &[]).await.expect("columns") {
        let (relation, what, column): (&str, &str, &str) = (row.get(0), row.get(1), row.get(3));
        if relation != last {
            let text = row.get::<_, Option<String>>(2).unwrap_or_default();
            if text.is_empty() {
                bare.push(format!("{what} {relation}"));
            }
            write!(
                page,
                "\n## {what} {relation}\n\n{text}\n\n| column | type | |\n|---|---|---|\n"
            )
            .expect("text");
            relation.clone_into(&mut last);
        }
        let text = row.get::<_, Option<String>>(5).unwrap_or_default();
        if text.is_empty() {
            bare.push(format!("column {relation}.{column}"));
        }
        let kind = short(row.get(4));
        writeln!(page, "| `{column}` | {kind} | {text} |").expect("text");
    }
    (page, bare)
}

#[tokio::test]
async fn every_public_object_has_a_comment() {
    let sql = Sql::new().await;
    let (_, bare) = page(&sql).await;
    assert!(bare.is_empty(), "comment on these in functions/comments.sql: {bare:#?}");
}

#[tokio::test]
async fn sql_page_equals_the_catalogue() {
    let sql = Sql::new().await;
    let (page, _) = page(&sql).await;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sql.md");
    if std::env::var_os("LEASEHOLD_WRITE_DOCS").is_some() {
        std::fs::write(&path, &page).expect("written");
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == page,
        "docs/sql.md differs from the comments; write it anew: LEASEHOLD_WRITE_DOCS=1 scripts/test sql_page"
    );
}
