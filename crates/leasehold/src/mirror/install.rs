//! Adds to a table what a mirror needs.

use tokio_postgres::types::Type;
use tokio_postgres::{Client, GenericClient};

use super::declare::Mirror;
use super::prepare::{MirrorError, refused};
use super::statements::KeyKind;
use crate::error::CallError;
use crate::sweep::{ident, literal, short, table};

/// The database's clock in microseconds, as a version.
const NOW: &str =
    "(extract(epoch from pg_catalog.statement_timestamp()) * 1000000)::pg_catalog.int8";

impl Mirror {
    /// Adds what is missing, in one transaction: the version column, the triggers that raise it and
    /// enqueue jobs, for text keys an index in byte order, and the mirror's own entry. For migrations:
    /// it locks the table. The check finds the rows that exist already.
    ///
    /// The triggers run with the rights of the role that installs them, so that a role that changes
    /// rows needs no rights of Leasehold; the owner of the table needs those of `leasehold_producer`.
    pub async fn install(mirror: &Mirror, client: &mut Client) -> Result<(), MirrorError> {
        mirror.check()?;
        let transaction = client.transaction().await.map_err(CallError::Database)?;
        let (table, kind) = mirror.found(&transaction).await?;
        let script = install_sql(mirror, kind);
        transaction.batch_execute(&script).await.map_err(|error| refused(mirror, error))?;
        let sql = "select leasehold.declare_mirror($1, $2, $3, $4, $5, $6, $7, $8, \
                   make_interval(secs => $9), make_interval(secs => $10), make_interval(secs => $11), \
                   $12, $13)";
        let values = mirror.declaration(table, kind);
        transaction.query_typed(sql, &values.params()).await.map_err(CallError::Database)?;
        transaction.commit().await.map_err(CallError::Database)?;
        Ok(())
    }

    /// Returns the SQL that [`Mirror::install`] runs on the table, for programs with their own
    /// migrations. `key_type` is the type of the key's column.
    pub fn install_sql(&self, key_type: &str) -> Result<String, MirrorError> {
        self.check()?;
        let kind = KeyKind::of_type(key_type).ok_or_else(|| {
            MirrorError::Declaration(format!(
                "mirror {:?}: a key of type {key_type} cannot be mirrored; use text, uuid or bigint",
                self.name
            ))
        })?;
        Ok(install_sql(self, kind))
    }

    /// Returns the table with its schema, and the kind of its key.
    async fn found(&self, client: &impl GenericClient) -> Result<(String, KeyKind), MirrorError> {
        let sql = "select format_type(a.atttypid, null), n.nspname || '.' || c.relname \
                     from pg_attribute a join pg_class c on c.oid = a.attrelid \
                     join pg_namespace n on n.oid = c.relnamespace \
                    where a.attrelid = to_regclass($1) and a.attname = $2 and a.attnum > 0 \
                      and not a.attisdropped";
        let quoted = table(&self.table);
        let params = [(&quoted as _, Type::TEXT), (&self.key as _, Type::TEXT)];
        let rows = client.query_typed(sql, &params).await.map_err(CallError::Database)?;
        let found = rows.first().and_then(|row| Some((row.get(1), KeyKind::of_type(row.get(0))?)));
        found.ok_or_else(|| {
            MirrorError::Table(format!(
                "mirror {:?}: {quoted} has no column {:?} of type text, uuid or bigint; name the \
                 one that tells rows apart with .key(column)",
                self.name, self.key
            ))
        })
    }
}

/// Returns the name of an object that is created for one mirror.
pub(super) fn made(mirror: &Mirror, what: &str) -> String {
    named(&mirror.name, what)
}

fn named(mirror: &str, what: &str) -> String {
    short(&format!("mirror_{mirror}_{what}"))
}

/// Returns the triggers that [`Mirror::install`] creates on the table of the mirror of this name.
/// Without one of the first three, only the check finds those changes; without the last, a change may
/// not be found at all.
pub fn trigger_names(mirror: &str) -> [String; 4] {
    ["insert", "update", "delete", "version"].map(|what| named(mirror, what))
}

/// Returns SQL that refuses an existing version column that does not belong to a mirror.
fn version_is_new(mirror: &Mirror, quoted: &str) -> String {
    let (table, column) = (literal(quoted), literal(&mirror.version));
    let name = literal(&mirror.name);
    let hint = literal(&format!(
        "If the mirror may raise it with every change, say so with .version({:?}); otherwise name \
         another column there.",
        mirror.version
    ));
    format!(
        "do $mirror$ begin\n    if exists (\n        select from pg_catalog.pg_attribute a\n         \
         where a.attrelid = pg_catalog.to_regclass({table}) and a.attname = {column}\n           \
         and a.attnum > 0 and not a.attisdropped)\n       \
         and not exists (\n        select from pg_catalog.pg_trigger t\n         \
         where t.tgrelid = pg_catalog.to_regclass({table})\n           \
         and t.tgname ~ '^(mirror_|x[0-9a-f]{{8}}_).*_version$') then\n        \
         raise exception 'table % has a column % already, which mirror % would overwrite', {table}, {column}, {name}\n            \
         using errcode = 'LH002', hint = {hint};\n    end if;\nend $mirror$;\n"
    )
}

pub(super) fn install_sql(mirror: &Mirror, kind: KeyKind) -> String {
    let (bare, quoted) =
        (mirror.table.rsplit('.').next().unwrap_or(&mirror.table), table(&mirror.table));
    let (key, version) = (ident(&mirror.key), ident(&mirror.version));
    let name = literal(&mirror.name);
    let function = |what: &str| match mirror.table.split_once('.') {
        Some((schema, _)) => format!("{}.{}", ident(schema), ident(&made(mirror, what))),
        None => ident(&made(mirror, what)),
    };
    let text = |row: &str| kind.text_of(&format!("{row}.{key}"));
    let no_negative = match kind {
        KeyKind::Integer => format!(
            "    if new.{key} < 0 then\n        \
             raise exception 'the key % of mirror {} is negative', new.{key}\n            \
             using errcode = 'LH002', hint = 'Mirrored rows have keys from 0 on.';\n    end if;\n",
            mirror.name
        ),
        _ => String::new(),
    };
    let mut script = "set local lock_timeout = '10s';\n".to_owned();
    if !mirror.version_is_named {
        script += &version_is_new(mirror, &quoted);
    }
    script += &format!(
        "alter table {quoted} add column if not exists {version} bigint not null default 1;\n"
    );
    if kind == KeyKind::Text {
        // If the column's own collation is "C", its index is in byte order already.
        script += &format!(
            "do $mirror$ begin\n    if not exists (\n        select from pg_attribute a \
             join pg_collation c on c.oid = a.attcollation\n         \
             where a.attrelid = {}::regclass and a.attname = {} and c.collname = 'C') then\n        \
             create unique index if not exists {} on {quoted} ({key} collate \"C\");\n    \
             end if;\nend $mirror$;\n",
            literal(&quoted),
            literal(&mirror.key),
            ident(&short(&format!("{bare}_{}_bytes_idx", mirror.key)))
        );
    }
    // Before a row is stored, its version grows, under the row lock, for every kind of change. The
    // version is at least the current time: a database restored to yesterday must not assign versions
    // that the store has already received to other contents.
    script += &format!(
        "create or replace function {version_function}() returns trigger\n\
         language plpgsql as $mirror$\nbegin\n{no_negative}\
         \x20   if tg_op = 'INSERT' then\n        \
         new.{version} := greatest(coalesce(new.{version}, 1), {NOW});\n        return new;\n    end if;\n    \
         if new.{key} is distinct from old.{key} then\n        \
         raise exception 'the key of a row that mirror {plain} follows does not change'\n            \
         using errcode = 'LH002', hint = 'Delete the row and insert it under its new key.';\n    end if;\n    \
         new.{version} := greatest(old.{version} + 1, coalesce(new.{version}, 0), {NOW});\n    \
         return new;\n\
         end $mirror$;\n",
        version_function = function("version"),
        plain = mirror.name,
    );
    // After the insert: a row inserted again under a deleted key starts above the version of the
    // deletion. Only now has the insert waited for a transaction that deletes the same key.
    let raise = format!(
        "update %s t set {version} = r.version + 1 from leasehold.mirror_revived($1, $2) r \
          where {} = r.key and t.{key} = any ({}) and t.{version} <= r.version",
        text("t").replace('%', "%%"),
        kind.values_of("$2"),
    );
    let revive = format!(
        "if exists (select from leasehold.mirror_revived({name}, keys)) then\n        \
         execute pg_catalog.format({}, tg_relid::pg_catalog.regclass) using {name}, keys;\n    end if;\n    ",
        literal(&raise)
    );
    // Old and new rows have the same keys, so both lists have the same order.
    let befores =
        |table: &str| format!("array(select c.{version} from {table} c order by c.{key})");
    let inserted = format!(
        "{revive}perform leasehold.mirror_saved({name}, keys,\n        \
         pg_catalog.array_fill(null::pg_catalog.int8, array[pg_catalog.cardinality(keys)]));"
    );
    let updated = format!("perform leasehold.mirror_saved({name}, keys, {});", befores("former"));
    let removed = format!(
        "perform leasehold.mirror_saved({name}, keys, {},\n        \
         array(select greatest(c.{version} + 1, {NOW}) from changed c order by c.{key}));",
        befores("changed")
    );
    for (what, rows, body) in [
        ("insert", "new table as changed", inserted),
        ("update", "old table as former new table as changed", updated),
        ("delete", "old table as changed", removed),
    ] {
        // The functions run with the owner's rights, so that a role that changes rows needs no rights
        // of Leasehold.
        script += &format!(
            "create or replace function {made}() returns trigger\n\
             language plpgsql security definer set search_path = pg_catalog, pg_temp as $mirror$\n\
             declare\n    keys text[] := array(select {} from changed c order by c.{key});\n\
             begin\n    {body}\n    return null;\nend $mirror$;\n\
             revoke all on function {made}() from public;\n\
             create or replace trigger {trigger} after {what} on {quoted}\n    \
             referencing {rows} for each statement execute function {made}();\n",
            text("c"),
            made = function(what),
            trigger = ident(&made(mirror, what)),
        );
    }
    script += &format!(
        "create or replace trigger {} before insert or update on {quoted}\n    \
         for each row execute function {}();\n",
        ident(&made(mirror, "version")),
        function("version"),
    );
    script
}
