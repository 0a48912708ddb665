//! Single documents by name.

use serde::{Serialize, de::DeserializeOwned};

use super::{Conn, Result, Tx, sql};

pub async fn get<T: DeserializeOwned>(conn: &mut Conn, name: &str) -> Result<Option<T>> {
    let row = conn.fetch_optional(sql("SELECT value FROM setting WHERE name = $1").bind(name)).await?;
    row.map(|row| row.json("value")).transpose()
}

pub async fn put<T: Serialize>(tx: &mut Tx, name: &str, value: &T) -> Result<()> {
    tx.execute(
        sql(
            "INSERT INTO setting (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        )
        .bind(name)
        .bind(super::json(value)?),
    )
    .await?;
    Ok(())
}

pub async fn remove(tx: &mut Tx, name: &str) -> Result<()> {
    tx.execute(sql("DELETE FROM setting WHERE name = $1").bind(name)).await?;
    Ok(())
}
