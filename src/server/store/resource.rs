//! Resources: the version each target is at, the documents that are held here, and who made every version of them.

use serde_json::Value;

use super::{Conn, Error, Result, Row, Tx, sql};
use crate::model::{
    conflict::Past,
    resource::{Author, FieldChange, Holder, VersionChange},
    time::Timestamp,
};

/// What is known here of a target.
#[derive(Debug, Clone, PartialEq)]
pub struct Known {
    /// The last version; it stays after a deletion, and the next one is above it.
    pub version: i64,
    pub holder: Holder,
    pub deleted_at: Option<Timestamp>,
    /// The id of who made or reported the version.
    pub updated_by: String,
    pub updated_at: Timestamp,
}

impl Known {
    /// The version that a precondition is compared with: 0 where nothing is there any more.
    pub fn current(&self) -> i64 {
        if self.deleted_at.is_some() { 0 } else { self.version }
    }

    pub fn is_managed(&self) -> bool {
        self.holder == Holder::Managed
    }
}

fn known(row: &Row) -> Result<Known> {
    Ok(Known {
        version: row.int("version")?,
        holder: if row.int("managed")? == 1 { Holder::Managed } else { Holder::External },
        deleted_at: row.opt_int("deleted_at")?.map(Timestamp),
        updated_by: row.text("updated_by")?,
        updated_at: Timestamp(row.int("updated_at")?),
    })
}

/// What is known of a target, deleted or not, without its document.
pub async fn find(conn: &mut Conn, target: &str) -> Result<Option<Known>> {
    let query = sql("SELECT version, managed, deleted_at, updated_by, updated_at FROM resource WHERE target = $1");
    conn.fetch_optional(query.bind(target)).await?.as_ref().map(known).transpose()
}

/// The current document; `None` where none is held here, or it was deleted.
pub async fn document(conn: &mut Conn, target: &str) -> Result<Option<Value>> {
    let query = sql("SELECT value FROM resource WHERE target = $1 AND managed = 1 AND deleted_at IS NULL");
    conn.fetch_optional(query.bind(target)).await?.map(|row| row.json("value")).transpose()
}

/// The document as it was at one version; `None` where there was none.
pub async fn document_at(conn: &mut Conn, target: &str, version: i64) -> Result<Option<Value>> {
    let query = sql("SELECT document FROM resource_version WHERE target = $1 AND version = $2");
    match conn.fetch_optional(query.bind(target).bind(version)).await? {
        Some(row) => row.opt_json("document"),
        None => Ok(None),
    }
}

/// The salt of the digests of this resource's fields.
pub async fn salt(conn: &mut Conn, target: &str) -> Result<Option<String>> {
    let row = conn.fetch_optional(sql("SELECT salt FROM resource WHERE target = $1").bind(target)).await?;
    row.map_or(Ok(None), |row| row.opt_text("salt"))
}

/// Records a version somebody observed of what lives elsewhere; `false` when a higher one is known already, or the
/// resource is held here.
pub async fn observe(tx: &mut Tx, target: &str, version: i64, by: &str, author: &Author) -> Result<bool> {
    let now = tx.now();
    let changed = tx
        .execute(
            sql("INSERT INTO resource (target, version, managed, updated_by, updated_at) VALUES ($1, $2, 0, $3, $4) \
                 ON CONFLICT (target) DO UPDATE SET version = excluded.version, updated_by = excluded.updated_by, \
                 updated_at = excluded.updated_at WHERE excluded.version > resource.version AND resource.managed = 0")
            .bind(target)
            .bind(version)
            .bind(by)
            .bind(now),
        )
        .await?;
    if changed == 1 {
        insert_version(tx, target, version, VersionChange::Observed, None, by, author).await?;
    }
    Ok(changed == 1)
}

/// One version of a document held here.
#[derive(Debug, Clone)]
pub struct Written<'a> {
    pub target: &'a str,
    /// The version before it; 0 where the target was never known.
    pub after: i64,
    pub version: i64,
    pub change: VersionChange,
    /// `None` deletes.
    pub document: Option<&'a Value>,
    pub salt: &'a str,
    /// The id of who made it.
    pub by: &'a str,
    pub author: &'a Author,
    pub fields: &'a [Field],
}

/// What one version did to one field. Digests are salted with the resource's salt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// RFC 6901 JSON pointer.
    pub pointer: String,
    pub change: FieldChange,
    pub old_digest: Option<String>,
    pub new_digest: Option<String>,
}

/// Writes one version; `false`, and nothing written, when the resource is not at `after` any more.
pub async fn write(tx: &mut Tx, written: &Written<'_>) -> Result<bool> {
    let now = tx.now();
    let value = written.document.map(Value::to_string);
    let statement = match written.after {
        0 => sql("INSERT INTO resource (value, version, deleted_at, salt, updated_by, updated_at, target, managed) \
                  VALUES ($1, $2, $3, $4, $5, $6, $7, 1) ON CONFLICT (target) DO NOTHING"),
        _ => sql("UPDATE resource SET value = $1, version = $2, deleted_at = $3, salt = $4, updated_by = $5, \
                  updated_at = $6 WHERE target = $7 AND version = $8 AND managed = 1"),
    };
    let statement = statement
        .bind(value)
        .bind(written.version)
        .bind(written.document.is_none().then_some(now))
        .bind(written.salt)
        .bind(written.by)
        .bind(now)
        .bind(written.target);
    let statement = if written.after == 0 { statement } else { statement.bind(written.after) };
    if tx.execute(statement).await? == 0 {
        return Ok(false);
    }
    let Written { target, version, change, document, by, author, .. } = *written;
    insert_version(tx, target, version, change, document, by, author).await?;
    for field in written.fields {
        tx.execute(
            sql("INSERT INTO resource_field (target, version, pointer, change, old_digest, new_digest) \
                 VALUES ($1, $2, $3, $4, $5, $6)")
            .bind(target)
            .bind(version)
            .bind(&field.pointer)
            .bind(field.change.as_str())
            .bind(field.old_digest.clone())
            .bind(field.new_digest.clone()),
        )
        .await?;
    }
    Ok(true)
}

async fn insert_version(
    tx: &mut Tx,
    target: &str,
    version: i64,
    change: VersionChange,
    document: Option<&Value>,
    by: &str,
    author: &Author,
) -> Result<()> {
    let now = tx.now();
    tx.execute(
        sql("INSERT INTO resource_version (target, version, change, document, by_actor, run, operation, agent, \
             approval, person, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)")
        .bind(target)
        .bind(version)
        .bind(change.as_str())
        .bind(document.map(Value::to_string))
        .bind(by)
        .bind(author.run.as_ref().map(|id| id.as_str()))
        .bind(author.operation.as_ref().map(|id| id.as_str()))
        .bind(author.agent.as_ref().map(|id| id.as_str()))
        .bind(author.approval.as_ref().map(|id| id.as_str()))
        .bind(author.person.as_ref().map(|id| id.as_str()))
        .bind(now),
    )
    .await?;
    Ok(())
}

fn author(row: &Row) -> Result<Author> {
    fn id<T: std::str::FromStr>(row: &Row, column: &str) -> Result<Option<T>> {
        if row.opt_text(column)?.is_none() { Ok(None) } else { row.parsed(column).map(Some) }
    }
    Ok(Author {
        run: id(row, "run")?,
        operation: id(row, "operation")?,
        agent: id(row, "agent")?,
        approval: id(row, "approval")?,
        person: id(row, "person")?,
    })
}

fn change(row: &Row) -> Result<FieldChange> {
    let change = FieldChange::parse(&row.text("change")?);
    change.ok_or_else(|| Error::corrupt("unknown change of a field".into()))
}

fn field(row: &Row) -> Result<Field> {
    Ok(Field {
        pointer: row.text("pointer")?,
        change: change(row)?,
        old_digest: row.opt_text("old_digest")?,
        new_digest: row.opt_text("new_digest")?,
    })
}

/// The last change of every field that changed in versions above `after`, up to and with `upto`: the first `limit` by
/// pointer.
pub async fn changes_between(conn: &mut Conn, target: &str, after: i64, upto: i64, limit: i64) -> Result<Vec<Past>> {
    // The joins run in this order, and the range of one version takes SQLite to the index that has the author without
    // the document.
    let query = sql(
        "SELECT f.pointer, f.change, f.version, v.run, v.operation, v.agent, v.approval, v.person, v.created_at \
         FROM (SELECT pointer, MAX(version) AS version FROM resource_field \
               WHERE target = $1 AND version > $2 AND version <= $3 GROUP BY pointer ORDER BY pointer LIMIT $4) AS latest \
         CROSS JOIN resource_field AS f CROSS JOIN resource_version AS v \
         WHERE f.target = $1 AND f.version = latest.version AND f.pointer = latest.pointer \
         AND v.target = $1 AND v.version BETWEEN latest.version AND latest.version ORDER BY f.pointer",
    );
    let rows = conn.fetch_all(query.bind(target).bind(after).bind(upto).bind(limit)).await?;
    rows.iter()
        .map(|row| {
            Ok(Past {
                pointer: row.text("pointer")?,
                change: change(row)?,
                version: row.int("version")?,
                by: author(row)?,
                at: Timestamp(row.int("created_at")?),
            })
        })
        .collect()
}

/// One version in the history of a resource.
#[derive(Debug, Clone, PartialEq)]
pub struct VersionRow {
    pub version: i64,
    pub change: VersionChange,
    /// The id of who made or reported it.
    pub by: String,
    pub author: Author,
    pub at: Timestamp,
    /// By pointer; none of what lives elsewhere.
    pub fields: Vec<Field>,
}

/// Versions below `before`, the newest first.
pub async fn history(conn: &mut Conn, target: &str, before: Option<i64>, limit: i64) -> Result<Vec<VersionRow>> {
    let query = sql("SELECT version, change, by_actor, run, operation, agent, approval, person, created_at \
         FROM resource_version WHERE target = $1 AND version < $2 ORDER BY version DESC LIMIT $3");
    let rows = conn.fetch_all(query.bind(target).bind(before.unwrap_or(i64::MAX)).bind(limit)).await?;
    let mut history = rows
        .iter()
        .map(|row| {
            let change = VersionChange::parse(&row.text("change")?);
            Ok(VersionRow {
                version: row.int("version")?,
                change: change.ok_or_else(|| Error::corrupt("unknown change of a resource".into()))?,
                by: row.text("by_actor")?,
                author: author(row)?,
                at: Timestamp(row.int("created_at")?),
                fields: Vec::new(),
            })
        })
        .collect::<Result<Vec<_>>>()?;
    if let (Some(newest), Some(oldest)) = (history.first(), history.last()) {
        let query = sql("SELECT version, pointer, change, old_digest, new_digest FROM resource_field \
             WHERE target = $1 AND version >= $2 AND version <= $3 ORDER BY version, pointer");
        let fields = conn.fetch_all(query.bind(target).bind(oldest.version).bind(newest.version)).await?;
        for row in &fields {
            let version = row.int("version")?;
            if let Some(entry) = history.iter_mut().find(|entry| entry.version == version) {
                entry.fields.push(field(row)?);
            }
        }
    }
    Ok(history)
}

/// Documents that exist now, in a scope: one target, or a prefix ending in `*`.
pub async fn count_live(conn: &mut Conn, scope: &str) -> Result<i64> {
    let (prefix, length) = match scope.strip_suffix('*') {
        Some(prefix) => (prefix, prefix.len() as i64),
        None => (scope, i64::from(i32::MAX)),
    };
    let query = sql("SELECT COUNT(*) FROM resource WHERE managed = 1 AND deleted_at IS NULL \
                     AND substr(target, 1, CAST($1 AS INTEGER)) = $2");
    conn.fetch_int(query.bind(length).bind(prefix)).await
}

/// A resource in a list.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    pub target: String,
    pub known: Known,
}

/// What exists, by target: those that begin with `prefix` and come after `after`.
pub async fn list(conn: &mut Conn, prefix: &str, after: &str, limit: i64) -> Result<Vec<Listed>> {
    let query = sql("SELECT target, version, managed, deleted_at, updated_by, updated_at FROM resource \
         WHERE deleted_at IS NULL AND substr(target, 1, CAST($1 AS INTEGER)) = $2 AND target > $3 \
         ORDER BY target LIMIT $4");
    let query = query.bind(prefix.len() as i64).bind(prefix).bind(after).bind(limit);
    let rows = conn.fetch_all(query).await?;
    rows.iter().map(|row| Ok(Listed { target: row.text("target")?, known: known(row)? })).collect()
}

/// Who made one version.
pub async fn author_of(conn: &mut Conn, target: &str, version: i64) -> Result<Option<VersionRow>> {
    Ok(history(conn, target, Some(version + 1), 1).await?.pop().filter(|row| row.version == version))
}
