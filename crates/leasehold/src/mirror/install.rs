//! Adding to a table what a mirror needs.

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
    /// make jobs, for text keys an index in the order of their bytes, and the mirror's own entry. For
    /// migrations: it locks the table. Rows that are there already are found by the check.
    ///
    /// The triggers run with the rights of whoever installs them, so that who changes a row needs none
    /// of ours; the owner of the table needs those of `leasehold_producer`.
    pub async fn install(mirror: &Mirror, client: &mut Client) -> Result<(), MirrorError> {
        mirror.check()?;
        let transaction = client.transaction().await.map_err(CallError::Database)?;
        let kind = mirror.kind(&transaction).await?;
        let script = install_sql(mirror, kind);
        transaction.batch_execute(&script).await.map_err(|error| refused(mirror, error))?;
        let sql = "select leasehold.declare_mirror($1, $2, $3, $4, $5, $6, $7, $8, \
                   make_interval(secs => $9), make_interval(secs => $10), make_interval(secs => $11), \
                   $12, $13)";
        let values = mirror.declaration(kind);
        transaction.query_typed(sql, &values.params()).await.map_err(CallError::Database)?;
        transaction.commit().await.map_err(CallError::Database)?;
        Ok(())
    }

    /// What [`Mirror::install`] says about the table, for people who keep their own migrations.
    /// `key_type` is the type of the key's column.
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

    /// What the key's column is made of.
    async fn kind(&self, client: &impl GenericClient) -> Result<KeyKind, MirrorError> {
        let sql = "select format_type(a.atttypid, null) from pg_attribute a \
                    where a.attrelid = to_regclass($1) and a.attname = $2 and a.attnum > 0 \
                      and not a.attisdropped";
        let quoted = table(&self.table);
        let params = [(&quoted as _, Type::TEXT), (&self.key as _, Type::TEXT)];
        let rows = client.query_typed(sql, &params).await.map_err(CallError::Database)?;
        let found: Option<String> = rows.first().map(|row| row.get(0));
        found.as_deref().and_then(KeyKind::of_type).ok_or_else(|| {
            MirrorError::Table(format!(
                "mirror {:?}: {quoted} has no column {:?} of type text, uuid or bigint; name the \
                 one that tells rows apart with .key(column)",
                self.name, self.key
            ))
        })
    }
}

/// The names of what is made for one mirror.
pub(super) fn made(mirror: &Mirror, what: &str) -> String {
    named(&mirror.name, what)
}

fn named(mirror: &str, what: &str) -> String {
    short(&format!("mirror_{mirror}_{what}"))
}

/// The triggers that [`Mirror::install`] makes on the table of the mirror of this name. Without one of
/// them changes are found by the check only, and without the last a change may not be found at all.
pub fn trigger_names(mirror: &str) -> [String; 4] {
    ["insert", "update", "delete", "version"].map(|what| named(mirror, what))
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
    let mut script = format!(
        "set local lock_timeout = '10s';\n\
         alter table {quoted} add column if not exists {version} bigint not null default 1;\n"
    );
    if kind == KeyKind::Text {
        // The index of a column whose own order is that of bytes will do.
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
    // Before a row is stored: its version grows, under its lock, whoever changes it and however. It is
    // at least the time: a database that was set back to yesterday must not give out once more, for
    // other contents, the versions that the store has had since.
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
    let changed = format!("perform leasehold.mirror_changed({name}, keys);");
    // After it: a row that comes back under a key that was deleted starts above the deletion. Only now
    // has the insert waited for a transaction that deletes the same key.
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
    let removed = format!(
        "perform leasehold.mirror_removed({name},\n        \
         array(select {} from changed c order by c.{key}),\n        \
         array(select greatest(c.{version} + 1, {NOW}) from changed c order by c.{key}));",
        text("c")
    );
    for (what, event, row, body) in [
        ("insert", "insert", "new", format!("{revive}{changed}")),
        ("update", "update", "new", changed),
        ("delete", "delete", "old", removed),
    ] {
        // The rights are the owner's, so that who changes a row needs none of ours.
        script += &format!(
            "create or replace function {made}() returns trigger\n\
             language plpgsql security definer set search_path = pg_catalog, pg_temp as $mirror$\n\
             declare\n    keys text[] := array(select {} from changed c);\n\
             begin\n    {body}\n    return null;\nend $mirror$;\n\
             revoke all on function {made}() from public;\n\
             create or replace trigger {trigger} after {event} on {quoted}\n    \
             referencing {row} table as changed for each statement execute function {made}();\n",
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
