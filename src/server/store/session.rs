//! Signed-in browsers. The cookie's value is kept as a hash only.

use serde::{Deserialize, Serialize};

use super::{Conn, Result, Row, Tx, person::Person, sql};
use crate::model::{
    id::{PersonId, SessionId},
    time::Timestamp,
};

/// Milliseconds without a request after which a session is over.
pub const IDLE_MS: i64 = 12 * 3600 * 1000;
/// Seconds from signing in after which it is over in any case.
pub const LIFE_S: i64 = 7 * 24 * 3600;
/// Milliseconds by which the last request of a session may be behind.
pub const TOUCH_MS: i64 = 60 * 1000;

/// What a session remembers. Who the person is today is read from their own row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content {
    pub person: PersonId,
    pub user_agent: String,
    pub signed_in_at: Timestamp,
    /// When the password was last entered again.
    pub stepped_up_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Session {
    pub id: SessionId,
    pub content: Content,
    pub last_seen_at: Timestamp,
    pub expires_at: Timestamp,
}

impl Session {
    fn read(row: &Row) -> Result<Self> {
        Ok(Self {
            id: row.parsed("session_id")?,
            content: row.json("data")?,
            last_seen_at: Timestamp(row.int("last_seen_at")?),
            expires_at: Timestamp(row.int("expires_at")?),
        })
    }

    pub fn is_over(&self, now: Timestamp) -> bool {
        now >= self.expires_at || now - self.last_seen_at >= IDLE_MS
    }
}

const SESSION: &str = "session.id AS session_id, session.data, session.last_seen_at, session.expires_at";

/// The session with its person; over or not, enabled or not.
pub async fn find(conn: &mut Conn, id_hash: &str) -> Result<Option<(Session, Person)>> {
    let query = format!(
        "SELECT {SESSION}, person.* FROM session JOIN person ON person.id = session.person WHERE session.id_hash = $1"
    );
    let row = conn.fetch_optional(super::Sql::assembled(query).bind(id_hash)).await?;
    row.as_ref().map(|row| Ok((Session::read(row)?, Person::read(row)?))).transpose()
}

/// The person's sessions that are not over, the last used first.
pub async fn of_person(conn: &mut Conn, person: &PersonId, now: Timestamp) -> Result<Vec<Session>> {
    let query = format!("SELECT {SESSION} FROM session WHERE person = $1 ORDER BY last_seen_at DESC, id");
    let rows = conn.fetch_all(super::Sql::assembled(query).bind(person.as_str())).await?;
    let sessions = rows.iter().map(Session::read).collect::<Result<Vec<_>>>()?;
    Ok(sessions.into_iter().filter(|session| !session.is_over(now)).collect())
}

/// Stores a new session, and forgets those that are over.
pub async fn insert(tx: &mut Tx, id_hash: &str, id: &SessionId, content: &Content) -> Result<()> {
    let now = tx.now();
    tx.execute(
        sql("DELETE FROM session WHERE expires_at <= $1 OR last_seen_at <= $2")
            .bind(now)
            .bind(Timestamp(now.as_millis() - IDLE_MS)),
    )
    .await?;
    tx.execute(
        sql("INSERT INTO session (id_hash, id, person, data, user_agent, created_at, last_seen_at, expires_at) \
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8)")
        .bind(id_hash)
        .bind(id.as_str())
        .bind(content.person.as_str())
        .bind(super::json(content)?)
        .bind(&content.user_agent)
        .bind(content.signed_in_at)
        .bind(now)
        .bind(content.signed_in_at.plus_seconds(LIFE_S)),
    )
    .await?;
    Ok(())
}

/// Puts another cookie in the place of the old one; whether there was such a session.
pub async fn cycle(tx: &mut Tx, old_hash: &str, id_hash: &str, content: &Content) -> Result<bool> {
    let changed = tx
        .execute(
            sql("UPDATE session SET id_hash = $1, data = $2 WHERE id_hash = $3")
                .bind(id_hash)
                .bind(super::json(content)?)
                .bind(old_hash),
        )
        .await?;
    Ok(changed == 1)
}

/// Notes that the session was used. A session that is gone stays gone.
pub async fn touch(tx: &mut Tx, id: &SessionId) -> Result<()> {
    let now = tx.now();
    tx.execute(
        sql("UPDATE session SET last_seen_at = $1 WHERE id = $2 AND last_seen_at < $1").bind(now).bind(id.as_str()),
    )
    .await?;
    Ok(())
}

/// Whether there was such a session of this person.
pub async fn delete(tx: &mut Tx, person: &PersonId, id: &SessionId) -> Result<bool> {
    let deleted = tx
        .execute(sql("DELETE FROM session WHERE id = $1 AND person = $2").bind(id.as_str()).bind(person.as_str()))
        .await?;
    Ok(deleted == 1)
}

/// By the hash of its cookie.
pub async fn forget(tx: &mut Tx, id_hash: &str) -> Result<()> {
    tx.execute(sql("DELETE FROM session WHERE id_hash = $1").bind(id_hash)).await?;
    Ok(())
}

pub async fn delete_all(tx: &mut Tx, person: &PersonId) -> Result<()> {
    tx.execute(sql("DELETE FROM session WHERE person = $1").bind(person.as_str())).await?;
    Ok(())
}
