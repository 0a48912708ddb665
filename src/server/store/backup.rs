//! Copies of a whole SQLite database.

use std::path::Path;

use sqlx::{ConnectOptions, Connection, sqlite::SqliteConnectOptions};

use super::{Conn, Error, Result, sql};

/// Writes the database as it is at this moment to `to`, an empty file or none, whoever else is at work on it. The copy
/// is whole, and not yet synchronised to the disk.
///
/// # Errors
/// The database cannot be read, or the copy not be written.
pub async fn copy(database: &Path, to: &Path) -> Result<()> {
    let to = to.to_str().ok_or_else(|| Error::corrupt(format!("`{}` is not UTF-8", to.display())))?;
    let mut conn = SqliteConnectOptions::new().filename(database).read_only(true).connect().await?;
    sqlx::query("VACUUM INTO $1").bind(to).execute(&mut conn).await?;
    Ok(conn.close().await?)
}

/// What SQLite finds wrong with its file; nothing, most of the time. PostgreSQL looks after its own.
///
/// # Errors
/// The database cannot be read.
pub async fn damage(conn: &mut Conn) -> Result<Option<String>> {
    if let Conn::Postgres(_) = conn {
        return Ok(None);
    }
    let row = conn.fetch_optional(sql("PRAGMA integrity_check(1)")).await?;
    let found = row.map(|row| row.text("integrity_check")).transpose()?;
    Ok(found.filter(|word| word != "ok"))
}
