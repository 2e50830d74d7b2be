//! The schema: is it ours, of this release, and unchanged?

use leasehold::SchemaError;
use leasehold::migrate::{self, Functions, Schema, Status};

use super::finding::{Finding, Level, check};
use crate::cli::Db;
use crate::exit::Failure;

/// Adds its findings. Returns false if the schema is unusable: further checks would only repeat that.
pub async fn examine(db: &Db, findings: &mut Vec<Finding>) -> bool {
    let schema = check("schema", version(db)).await;
    let usable = schema.level != Level::Fail;
    findings.push(schema);
    if usable {
        findings.push(check("functions", functions(db)).await);
        findings.push(check("interference", interference(db)).await);
        findings.push(check("roles", roles(db)).await);
        findings.push(check("dead tuples", dead_rows(db)).await);
        for (name, schema) in [("annotations", annotations::SCHEMA), ("pastes", pastes::SCHEMA)] {
            match service(db, name, &schema).await {
                Ok(found) => findings.extend(found),
                Err(failure) => findings.push(Finding::unknown(name, &failure)),
            }
        }
    }
    usable
}

async fn version(db: &Db) -> Result<Finding, Failure> {
    let status = migrate::status(db.client()).await?;
    Ok(match status.problem() {
        Some(problem) => {
            let advice = match problem {
                SchemaError::Missing => {
                    "run: leasehold migrate up; if it ran before, this is another database"
                }
                SchemaError::Old { .. } | SchemaError::OldFunctions => "run: leasehold migrate up",
                _ => "see: leasehold migrate status",
            };
            Finding::fail("schema", problem.to_string(), advice)
        }
        None => Finding::ok("schema", installed(&status)),
    })
}

/// Describes the version of a schema that this release works with.
fn installed(status: &Status) -> String {
    let found = status.found.unwrap_or(0);
    match status.functions {
        Functions::Newer => format!("version {found} of a newer release, which supports this one"),
        _ => format!("version {found}, checksums fit"),
    }
}

/// Checks the tables of a service. Returns `None` if it is not installed.
async fn service(db: &Db, name: &'static str, schema: &Schema) -> Result<Option<Finding>, Failure> {
    let status = schema.status(db.client()).await?;
    let Some(found) = status.found else { return Ok(None) };
    let up = format!("migrate them: leasehold migrate up --service {name}");
    Ok(Some(match status.problem() {
        // The service does not start on these.
        Some(problem) if found > status.newest => Finding::fail(
            name,
            problem.to_string(),
            "use the release that created these tables, or a newer one",
        ),
        Some(problem) if !status.changed.is_empty() => Finding::fail(
            name,
            problem.to_string(),
            format!("see: leasehold migrate status --service {name}"),
        ),
        Some(SchemaError::OldFunctions) => Finding::fail(
            name,
            "the functions and views in the database are older than this program, or of another build",
            up,
        ),
        Some(_) => Finding::fail(name, "the tables are older than this release needs", up),
        None => Finding::ok(name, installed(&status)),
    }))
}

/// Compares the text of each stored function with this release's: a recorded checksum shows only what
/// was installed, not later changes.
async fn functions(db: &Db) -> Result<Finding, Failure> {
    if migrate::status(db.client()).await?.functions == Functions::Newer {
        let text = "of a newer release, which supports this one; not compared";
        return Ok(Finding::ok("functions", text));
    }
    let rows = db
        .query(
            "select p.proname::text, p.prosrc from pg_proc p join pg_namespace n on n.oid = p.pronamespace \
              where n.nspname in ('leasehold', 'leasehold_internal') and p.prokind = 'f'",
            &[],
        )
        .await?;
    let ours = release_functions();
    let (mut changed, mut strange, mut same) = (Vec::new(), Vec::new(), 0);
    for row in &rows {
        let (name, body): (String, String) = (row.get(0), row.get(1));
        if ours.contains(&(name.as_str(), body.as_str())) {
            same += 1;
        } else if ours.iter().any(|(known, _)| *known == name) {
            changed.push(name);
        } else {
            strange.push(name);
        }
    }
    let wanted = ours.len();
    Ok(if !changed.is_empty() || same < wanted {
        // `migrate up` compares the recorded checksum, so the record must be deleted first.
        let missing = if same + changed.len() < wanted { " (some are missing)" } else { "" };
        Finding::fail(
            "functions",
            format!("changed since they were installed: {}{missing}", changed.join(", ")),
            "replace them: delete from leasehold.schema_version where version = 0; then run: leasehold migrate up",
        )
    } else if !strange.is_empty() {
        Finding::warn(
            "functions",
            format!("not of this release: {}", strange.join(", ")),
            "move your own functions to another schema",
        )
    } else {
        Finding::ok("functions", format!("{same} functions, all of this release"))
    })
}

/// Returns the name and the body of every function of this release.
fn release_functions() -> Vec<(&'static str, &'static str)> {
    let one = |text: &'static str| -> Option<(&'static str, &'static str)> {
        let (name, rest) = text.split_once('(')?;
        let begin = rest.find(" as ")? + 4;
        let rest = rest.get(begin..)?;
        let quote = if rest.starts_with("$$") { "$$" } else { "'" };
        let (body, _) = rest.strip_prefix(quote)?.split_once(quote)?;
        Some((name, body))
    };
    migrate::FUNCTIONS
        .iter()
        .flat_map(|(_, sql)| {
            let after = |text: &'static str| {
                text.strip_prefix("_internal.").or_else(|| text.strip_prefix('.')).and_then(one)
            };
            sql.split("create or replace function leasehold").skip(1).filter_map(after)
        })
        .collect()
}

/// Triggers, rules and row policies on our tables can make writes vanish without an error. The engine's
/// own triggers (reserved names, the default expiry, the wake-up) run after the row is written, and
/// remove nothing.
async fn interference(db: &Db) -> Result<Finding, Failure> {
    let sql = "select 'trigger ' || t.tgname || ' on ' || c.relname from pg_trigger t \
                 join pg_class c on c.oid = t.tgrelid join pg_namespace n on n.oid = c.relnamespace \
                 join pg_proc p on p.oid = t.tgfoid join pg_namespace f on f.oid = p.pronamespace \
                where n.nspname in ('leasehold', 'leasehold_internal') and not t.tgisinternal \
                  and (t.tgname, f.nspname) not in (('job_reserved_name', 'leasehold_internal'), ('job_stored_kwargs', 'leasehold_internal'), ('schedule_reserved_name', 'leasehold_internal'), ('job_wakes_idle', 'leasehold_internal'), ('limit_signal_wakes_idle', 'leasehold_internal'), \
                                                    ('audit_has_an_actor', 'leasehold_internal'), \
                                                    ('default_expiry', 'leasehold_internal')) \
               union all \
               select 'row security on ' || c.relname from pg_class c join pg_namespace n on n.oid = c.relnamespace \
                where n.nspname in ('leasehold', 'leasehold_internal') and c.relrowsecurity \
               union all \
               select 'rule ' || r.rulename || ' on ' || c.relname from pg_rewrite r \
                 join pg_class c on c.oid = r.ev_class join pg_namespace n on n.oid = c.relnamespace \
                where n.nspname in ('leasehold', 'leasehold_internal') and r.rulename <> '_RETURN' \
               order by 1";
    let found: Vec<String> = db.query(sql, &[]).await?.iter().map(|row| row.get(0)).collect();
    Ok(match found.is_empty() {
        true => Finding::ok(
            "interference",
            "no triggers, rules or row policies of other programs on the tables",
        ),
        false => Finding::warn(
            "interference",
            found.join(", "),
            "remove them: they can make writes vanish without an error; the self-test shows whether they do",
        ),
    })
}

async fn roles(db: &Db) -> Result<Finding, Failure> {
    let sql = "select r.wanted from unnest(array['leasehold_producer', 'leasehold_worker', \
               'leasehold_housekeeper', 'leasehold_operator', 'leasehold_viewer']) as r (wanted) \
               where not exists (select from pg_roles p where p.rolname = r.wanted)";
    let missing: Vec<String> = db.query(sql, &[]).await?.iter().map(|row| row.get(0)).collect();
    Ok(match missing.is_empty() {
        true => Finding::ok("roles", "producer, worker, housekeeper, operator and viewer exist"),
        false => Finding::warn(
            "roles",
            format!("missing: {}", missing.join(", ")),
            "as a role with CREATEROLE: delete from leasehold.schema_version where version = 0; then run: leasehold migrate up",
        ),
    })
}

async fn dead_rows(db: &Db) -> Result<Finding, Failure> {
    let sql = "select relname::text, n_live_tup, n_dead_tup, coalesce(last_autovacuum::text, 'never') \
                 from pg_stat_user_tables where schemaname in ('leasehold', 'leasehold_internal') and relname in ('job', 'lease') \
                order by relname";
    let rows = db.query(sql, &[]).await?;
    let mut worst = None;
    let mut words = Vec::new();
    for row in &rows {
        let (table, live, dead, vacuumed): (String, i64, i64, String) =
            (row.get(0), row.get(1), row.get(2), row.get(3));
        words.push(format!("{table} {dead}"));
        if dead > 50_000 && dead > 5 * live {
            worst = Some(format!(
                "{table} has {dead} dead rows beside {live} live ones; last autovacuum: {vacuumed}"
            ));
        }
    }
    Ok(match worst {
        Some(text) => Finding::warn(
            "dead tuples",
            text,
            "end the old transactions listed above; then run: vacuum leasehold.job, leasehold_internal.lease",
        ),
        None => Finding::ok("dead tuples", words.join(", ")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_functions_finds_every_function() {
        let made: usize = migrate::FUNCTIONS
            .iter()
            .map(|(_, sql)| sql.matches("create or replace function").count())
            .sum();
        let read = release_functions();
        assert_eq!(read.len(), made);
        assert!(read.contains(&("contract", "select 1")));
    }
}
