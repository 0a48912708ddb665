//! People and their password hashes.

use serde::Serialize;
use utoipa::ToSchema;

use super::{Conn, Result, Row, Tx, sql};
use crate::model::{approval::Role, id::PersonId, time::Timestamp};

/// Somebody who signs in. The password hash stays in the database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Person {
    #[schema(value_type = String)]
    pub id: PersonId,
    pub name: String,
    pub role: Role,
    pub groups: Vec<String>,
    pub created_at: Timestamp,
    pub disabled_at: Option<Timestamp>,
}

impl Person {
    pub(super) fn read(row: &Row) -> Result<Self> {
        Ok(Self {
            id: row.parsed("id")?,
            name: row.text("name")?,
            role: row.parsed("role")?,
            groups: row.json("groups")?,
            created_at: Timestamp(row.int("created_at")?),
            disabled_at: row.opt_int("disabled_at")?.map(Timestamp),
        })
    }

    /// Whether they may sign in.
    pub fn is_enabled(&self) -> bool {
        self.disabled_at.is_none()
    }
}

pub async fn by_id(conn: &mut Conn, id: &PersonId) -> Result<Option<Person>> {
    let row = conn.fetch_optional(sql("SELECT * FROM person WHERE id = $1").bind(id.as_str())).await?;
    row.as_ref().map(Person::read).transpose()
}

pub async fn by_name(conn: &mut Conn, name: &str) -> Result<Option<Person>> {
    let row = conn.fetch_optional(sql("SELECT * FROM person WHERE name = $1").bind(name)).await?;
    row.as_ref().map(Person::read).transpose()
}

/// The person with the hash of their password.
pub async fn with_password(conn: &mut Conn, name: &str) -> Result<Option<(Person, String)>> {
    let row = conn.fetch_optional(sql("SELECT * FROM person WHERE name = $1").bind(name)).await?;
    row.as_ref().map(|row| Ok((Person::read(row)?, row.text("password_hash")?))).transpose()
}

/// Everybody, by name.
pub async fn list(conn: &mut Conn) -> Result<Vec<Person>> {
    conn.fetch_all(sql("SELECT * FROM person ORDER BY name")).await?.iter().map(Person::read).collect()
}

pub async fn count(conn: &mut Conn) -> Result<i64> {
    conn.fetch_int(sql("SELECT COUNT(*) FROM person")).await
}

/// Admins who may sign in, other than `id`.
pub async fn other_admins(conn: &mut Conn, id: &PersonId) -> Result<i64> {
    conn.fetch_int(
        sql("SELECT COUNT(*) FROM person WHERE role = 'admin' AND disabled_at IS NULL AND id <> $1").bind(id.as_str()),
    )
    .await
}

/// Whether the person is new: false when the name is taken.
pub async fn insert(tx: &mut Tx, person: &Person, password_hash: &str) -> Result<bool> {
    let inserted = tx
        .execute(
            sql("INSERT INTO person (id, name, role, groups, password_hash, created_at) \
                 VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (name) DO NOTHING")
            .bind(person.id.as_str())
            .bind(&person.name)
            .bind(person.role.as_str())
            .bind(super::json(&person.groups)?)
            .bind(password_hash)
            .bind(person.created_at),
        )
        .await?;
    Ok(inserted == 1)
}

pub async fn update(tx: &mut Tx, person: &Person) -> Result<()> {
    tx.execute(
        sql("UPDATE person SET role = $1, groups = $2, disabled_at = $3 WHERE id = $4")
            .bind(person.role.as_str())
            .bind(super::json(&person.groups)?)
            .bind(person.disabled_at)
            .bind(person.id.as_str()),
    )
    .await?;
    Ok(())
}

pub async fn set_password(tx: &mut Tx, id: &PersonId, password_hash: &str) -> Result<()> {
    tx.execute(sql("UPDATE person SET password_hash = $1 WHERE id = $2").bind(password_hash).bind(id.as_str())).await?;
    Ok(())
}
