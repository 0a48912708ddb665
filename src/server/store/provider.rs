//! Providers: versioned declarations that are only ever added, what checks have shown of them, and sealed credentials.

use serde::Serialize;
use utoipa::ToSchema;

use super::{Conn, Result, Tx, catalogue::Versioned, sql};
use crate::model::{
    provider::{Proofs, ProviderName},
    time::Timestamp,
};

/// The newest version of one declaration.
pub async fn find(conn: &mut Conn, name: &str) -> Result<Option<Versioned>> {
    let query = sql("SELECT version, document FROM provider WHERE name = $1 ORDER BY version DESC LIMIT 1");
    let row = conn.fetch_optional(query.bind(name)).await?;
    row.map(|row| Ok(Versioned { version: row.int("version")?, document: row.json("document")? })).transpose()
}

/// The newest version of every declaration, by name.
pub async fn all(conn: &mut Conn) -> Result<Vec<Versioned>> {
    let rows = conn
        .fetch_all(sql("SELECT version, document FROM provider p WHERE version = \
             (SELECT MAX(version) FROM provider WHERE name = p.name) ORDER BY name"))
        .await?;
    rows.iter().map(|row| Ok(Versioned { version: row.int("version")?, document: row.json("document")? })).collect()
}

pub async fn add(tx: &mut Tx, name: &ProviderName, provider: &Versioned) -> Result<()> {
    let now = tx.now();
    let insert = sql("INSERT INTO provider (name, version, document, created_at) VALUES ($1, $2, $3, $4)");
    tx.execute(insert.bind(name.as_str()).bind(provider.version).bind(provider.document.to_string()).bind(now)).await?;
    Ok(())
}

/// A guarantee that a check can show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Guarantee {
    Idempotency,
    Lookup,
}

impl Guarantee {
    const ALL: [Self; 2] = [Self::Idempotency, Self::Lookup];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idempotency => "idempotency",
            Self::Lookup => "lookup",
        }
    }
}

/// The last check of one guarantee.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Checked {
    pub guarantee: Guarantee,
    pub passed: bool,
    /// What was seen, in a sentence.
    pub detail: String,
    pub checked_at: Timestamp,
}

/// The last checks of one version.
pub async fn checks(conn: &mut Conn, name: &ProviderName, version: i64) -> Result<Vec<Checked>> {
    let query = sql("SELECT guarantee, passed, detail, checked_at FROM provider_check \
                     WHERE provider = $1 AND version = $2 ORDER BY guarantee");
    let rows = conn.fetch_all(query.bind(name.as_str()).bind(version)).await?;
    let mut checks = Vec::new();
    for row in &rows {
        let word = row.text("guarantee")?;
        let Some(guarantee) = Guarantee::ALL.into_iter().find(|one| one.as_str() == word) else { continue };
        checks.push(Checked {
            guarantee,
            passed: row.int("passed")? == 1,
            detail: row.text("detail")?,
            checked_at: Timestamp(row.int("checked_at")?),
        });
    }
    Ok(checks)
}

/// When each guarantee of one version was last shown; a check that failed takes an earlier one back.
pub async fn proofs(conn: &mut Conn, name: &ProviderName, version: i64) -> Result<Proofs> {
    let checks = checks(conn, name, version).await?;
    let shown = |guarantee| {
        let check = checks.iter().find(|check| check.guarantee == guarantee && check.passed);
        check.map(|check| check.checked_at)
    };
    Ok(Proofs { idempotency: shown(Guarantee::Idempotency), lookup: shown(Guarantee::Lookup) })
}

pub async fn record_check(tx: &mut Tx, name: &ProviderName, version: i64, check: &Checked) -> Result<()> {
    tx.execute(
        sql("INSERT INTO provider_check (provider, version, guarantee, passed, detail, checked_at) \
             VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (provider, version, guarantee) DO UPDATE \
             SET passed = excluded.passed, detail = excluded.detail, checked_at = excluded.checked_at")
        .bind(name.as_str())
        .bind(version)
        .bind(check.guarantee.as_str())
        .bind(i64::from(check.passed))
        .bind(&check.detail)
        .bind(check.checked_at),
    )
    .await?;
    Ok(())
}

/// The sealed credential of a provider.
pub async fn credential(conn: &mut Conn, name: &ProviderName) -> Result<Option<String>> {
    let row = conn.fetch_optional(sql("SELECT sealed FROM credential WHERE provider = $1").bind(name.as_str())).await?;
    row.map(|row| row.text("sealed")).transpose()
}

/// Every sealed credential with its provider's name.
pub async fn credentials(conn: &mut Conn) -> Result<Vec<(String, String)>> {
    let rows = conn.fetch_all(sql("SELECT provider, sealed FROM credential ORDER BY provider")).await?;
    rows.iter().map(|row| Ok((row.text("provider")?, row.text("sealed")?))).collect()
}

pub async fn set_credential(tx: &mut Tx, name: &str, sealed: &str) -> Result<()> {
    let now = tx.now();
    let upsert = sql("INSERT INTO credential (provider, sealed, updated_at) VALUES ($1, $2, $3) \
                      ON CONFLICT (provider) DO UPDATE SET sealed = excluded.sealed, updated_at = excluded.updated_at");
    tx.execute(upsert.bind(name).bind(sealed).bind(now)).await?;
    Ok(())
}

/// The sealed secret of a provider's signatures.
pub async fn callback_secret(conn: &mut Conn, name: &ProviderName) -> Result<Option<String>> {
    let query = sql("SELECT sealed FROM credential WHERE provider = $1").bind(callback_owner(name));
    conn.fetch_optional(query).await?.map(|row| row.text("sealed")).transpose()
}

/// Under which name the secret of a provider's signatures is kept beside the credentials; no provider is called so.
pub fn callback_owner(name: &ProviderName) -> String {
    format!("{name}:callback")
}

/// Notes that a provider's message came; `false` where it came before.
pub async fn note_message(tx: &mut Tx, name: &ProviderName, id: &str) -> Result<bool> {
    let now = tx.now();
    let insert = sql("INSERT INTO provider_message (provider, id, received_at) VALUES ($1, $2, $3) \
                      ON CONFLICT (provider, id) DO NOTHING");
    Ok(tx.execute(insert.bind(name.as_str()).bind(id).bind(now)).await? == 1)
}

/// Forgets messages that came before `before`; how many there were.
pub async fn forget_messages(tx: &mut Tx, before: Timestamp) -> Result<u64> {
    tx.execute(sql("DELETE FROM provider_message WHERE received_at < $1").bind(before)).await
}
