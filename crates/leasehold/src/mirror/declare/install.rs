//! Adds to a table what a mirror needs.

use tokio_postgres::{Client, GenericClient};

use super::declaration::Mirror;
use super::key::KeyKind;
use super::prepare::{DECLARE, MirrorError};
use crate::error::{CallError, describe};
use crate::table::{UserTable, quote_literal, quote_name, quote_table, short_name};

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
    pub async fn install(&self, client: &mut Client) -> Result<(), MirrorError> {
        self.check()?;
        let transaction = client.transaction().await.map_err(CallError::Database)?;
        let (table, kind) = self.found(&transaction).await?;
        let script = install_sql(self, kind);
        transaction.batch_execute(&script).await.map_err(|error| self.refused(error))?;
        let values = self.declaration(&table, kind);
        transaction.query_typed(DECLARE, &values.params()).await.map_err(CallError::Database)?;
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
        let table = UserTable::read_in(client, &self.table, &[&self.key]).await;
        let table = table.map_err(|error| MirrorError::of_table(self, error))?;
        Ok((table.full_name().to_owned(), self.key_kind(&table)?))
    }

    /// Converts the error of a statement that the declaration makes.
    fn refused(&self, error: tokio_postgres::Error) -> MirrorError {
        if error.as_db_error().is_none() {
            return MirrorError::Call(CallError::Database(error));
        }
        let why = describe(&error);
        MirrorError::Table(format!(
            "mirror {:?}: the table could not be prepared: {why}",
            self.name
        ))
    }
}

/// Returns the name of an object that is created for one mirror.
pub(super) fn made(mirror: &Mirror, what: &str) -> String {
    named(&mirror.name, what)
}

fn named(mirror: &str, what: &str) -> String {
    short_name(&format!("mirror_{mirror}_{what}"))
}

/// Returns the triggers that [`Mirror::install`] creates on the table of the mirror of this name.
/// Without one of the first three, only the check finds those changes; without the last, a change may
/// not be found at all.
pub fn trigger_names(mirror: &str) -> Vec<String> {
    ["insert", "update", "delete", "version"].map(|what| named(mirror, what)).into()
}

/// Returns SQL that refuses an existing version column that does not belong to a mirror.
fn version_is_new(mirror: &Mirror, quoted: &str) -> String {
    let (table, column) = (quote_literal(quoted), quote_literal(&mirror.version));
    let name = quote_literal(&mirror.name);
    let hint = quote_literal(&format!(
        "If the mirror may raise it with every change, add .version({:?}); otherwise name another \
         column there.",
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
        (mirror.table.rsplit('.').next().unwrap_or(&mirror.table), quote_table(&mirror.table));
    let (key, version) = (quote_name(&mirror.key), quote_name(&mirror.version));
    let name = quote_literal(&mirror.name);
    let function = |what: &str| match mirror.table.split_once('.') {
        Some((schema, _)) => format!("{}.{}", quote_name(schema), quote_name(&made(mirror, what))),
        None => quote_name(&made(mirror, what)),
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
            quote_literal(&quoted),
            quote_literal(&mirror.key),
            quote_name(&short_name(&format!("{bare}_{}_bytes_idx", mirror.key)))
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
        "update %s t set {version} = r.version + 1 from leasehold_internal.mirror_restored($1, $2) r \
          where {} = r.key and t.{key} = any ({}) and t.{version} <= r.version",
        text("t").replace('%', "%%"),
        kind.values_of("$2"),
    );
    let restore = format!(
        "if exists (select from leasehold_internal.mirror_restored({name}, keys)) then\n        \
         execute pg_catalog.format({}, tg_relid::pg_catalog.regclass) using {name}, keys;\n    end if;\n    ",
        quote_literal(&raise)
    );
    // Old and new rows have the same keys, so both lists have the same order.
    let former_versions =
        |table: &str| format!("array(select c.{version} from {table} c order by c.{key})");
    let inserted = format!(
        "{restore}perform leasehold_internal.mirror_saved({name}, keys,\n        \
         pg_catalog.array_fill(null::pg_catalog.int8, array[pg_catalog.cardinality(keys)]));"
    );
    let updated = format!(
        "perform leasehold_internal.mirror_saved({name}, keys, {});",
        former_versions("former")
    );
    let removed = format!(
        "perform leasehold_internal.mirror_saved({name}, keys, {},\n        \
         array(select greatest(c.{version} + 1, {NOW}) from changed c order by c.{key}));",
        former_versions("changed")
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
            trigger = quote_name(&made(mirror, what)),
        );
    }
    script += &format!(
        "create or replace trigger {} before insert or update on {quoted}\n    \
         for each row execute function {}();\n",
        quote_name(&made(mirror, "version")),
        function("version"),
    );
    script
}
