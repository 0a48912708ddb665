//! Everything in which the two databases differ.

use std::{str::FromStr, time::Duration};

use sqlx::{
    PgPool, SqlitePool,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions},
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous},
};

use super::{Conn, Error, Result, sql};
use crate::{model::time::Timestamp, server::config::Database};

static SQLITE: sqlx::migrate::Migrator = sqlx::migrate!("migrations/sqlite");
static POSTGRES: sqlx::migrate::Migrator = sqlx::migrate!("migrations/postgres");

/// One lock for all writers of one database: any number of nodes form one serial history.
const COMMIT_LOCK: i64 = 0x636f_756e_7465_7266;
const CHANNEL: &str = "counterfoil";

/// A connection that hears of other processes' commits.
pub type Listener = PgListener;

/// How long a writer waits for another process's transaction on SQLite, and for a free connection.
const PATIENCE: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub enum Pools {
    /// One writer; readers never block it (WAL).
    Sqlite {
        writer: SqlitePool,
        readers: SqlitePool,
    },
    Postgres(PgPool),
}

impl Pools {
    pub async fn open(database: &Database, connections: u32) -> Result<Self> {
        match database {
            Database::Sqlite(path) => {
                let options = SqliteConnectOptions::new()
                    .filename(path)
                    .create_if_missing(true)
                    .journal_mode(SqliteJournalMode::Wal)
                    .synchronous(SqliteSynchronous::Full)
                    .foreign_keys(true)
                    .busy_timeout(PATIENCE);
                // The writer first: it creates the file and sets the journal mode readers rely on.
                let writer =
                    SqlitePoolOptions::new().max_connections(1).acquire_timeout(PATIENCE).connect_with(options).await?;
                let options = SqliteConnectOptions::new().filename(path).read_only(true).busy_timeout(PATIENCE);
                let readers = SqlitePoolOptions::new()
                    .max_connections(connections - 1)
                    .acquire_timeout(PATIENCE)
                    .connect_lazy_with(options);
                Ok(Self::Sqlite { writer, readers })
            }
            Database::Postgres(url) => {
                let options = PgConnectOptions::from_str(url)?.application_name("counterfoil");
                let pool = PgPoolOptions::new().max_connections(connections).acquire_timeout(PATIENCE);
                let pool = pool.connect_with(options).await?;
                Ok(Self::Postgres(pool))
            }
        }
    }

    pub async fn migrate(&self) -> Result<()> {
        match self {
            Self::Sqlite { writer, .. } => SQLITE.run(writer).await?,
            Self::Postgres(pool) => POSTGRES.run(pool).await?,
        }
        Ok(())
    }

    pub async fn read(&self) -> Result<Conn> {
        Ok(match self {
            Self::Sqlite { readers, .. } => Conn::Sqlite(readers.acquire().await?),
            Self::Postgres(pool) => Conn::Postgres(pool.acquire().await?),
        })
    }

    /// A connection inside a transaction that no other writer shares.
    pub async fn begin(&self) -> Result<Conn> {
        let mut conn = match self {
            Self::Sqlite { writer, .. } => Conn::Sqlite(writer.acquire().await?),
            Self::Postgres(pool) => Conn::Postgres(pool.acquire().await?),
        };
        match begin(&mut conn).await {
            Ok(()) => Ok(conn),
            Err(error) => {
                conn.discard().await;
                Err(error)
            }
        }
    }

    /// Commits, and tells the other nodes that there is news.
    pub async fn commit(&self, mut conn: Conn) -> Result<()> {
        let done = match conn {
            Conn::Sqlite(_) => conn.execute(sql("COMMIT")).await,
            Conn::Postgres(_) => {
                // Delivered with the commit; a listener that misses it polls.
                match conn.fetch_optional(sql("SELECT pg_notify($1, '')").bind(CHANNEL)).await {
                    Ok(_) => conn.execute(sql("COMMIT")).await,
                    Err(error) => Err(error),
                }
            }
        };
        match done {
            Ok(_) => Ok(()),
            Err(error) => {
                conn.discard().await;
                Err(error)
            }
        }
    }

    /// Waits for news from other processes: a hint, and `patience` at most. Polling is the truth.
    pub async fn news(&self, listener: &mut Option<Listener>, patience: Duration) {
        if let Self::Postgres(pool) = self {
            if listener.is_none()
                && let Ok(mut fresh) = PgListener::connect_with(pool).await
                && fresh.listen(CHANNEL).await.is_ok()
            {
                *listener = Some(fresh);
                return;
            }
            if let Some(open) = listener {
                match tokio::time::timeout(patience, open.recv()).await {
                    Ok(Ok(_)) | Err(_) => return,
                    Ok(Err(_)) => *listener = None,
                }
            }
        }
        tokio::time::sleep(patience).await;
    }

    pub async fn close(&self) {
        match self {
            Self::Sqlite { writer, readers } => {
                readers.close().await;
                writer.close().await;
            }
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

async fn begin(conn: &mut Conn) -> Result<()> {
    match conn {
        // A deferred transaction that reads first and writes later is refused at once when another process wrote.
        Conn::Sqlite(_) => conn.execute(sql("BEGIN IMMEDIATE")).await?,
        Conn::Postgres(_) => {
            conn.execute(sql("BEGIN")).await?;
            conn.fetch_optional(sql("SELECT pg_advisory_xact_lock($1)").bind(COMMIT_LOCK)).await?;
            0
        }
    };
    Ok(())
}

/// The database's own clock, where there is one: all nodes must agree on deadlines.
pub async fn database_now(conn: &mut Conn) -> Result<Option<Timestamp>> {
    match conn {
        Conn::Sqlite(_) => Ok(None),
        Conn::Postgres(_) => {
            let now = sql("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::BIGINT");
            Ok(Some(Timestamp(conn.fetch_int(now).await?)))
        }
    }
}

/// Errors that say nothing about the statement: busy, full, shutting down, connection lost.
pub fn is_transient(error: &dyn sqlx::error::DatabaseError) -> bool {
    let code = error.code().unwrap_or_default();
    // SQLite primary result codes 5 BUSY, 6 LOCKED, 10 IOERR, 13 FULL; Postgres classes 08, 53, 57.
    let sqlite = code.parse::<i64>().is_ok_and(|code| matches!(code & 0xff, 5 | 6 | 10 | 13)) && code.len() < 5;
    sqlite || ["08", "53", "57"].iter().any(|class| code.len() == 5 && code.starts_with(class))
}

/// Whether anything else is wrong is found out here rather than in the middle of a command.
pub async fn ping(conn: &mut Conn) -> Result<()> {
    conn.fetch_int(sql("SELECT CAST(1 AS BIGINT)")).await.map(drop).map_err(|error| match error {
        Error::Database(inner) => Error::Unavailable(Some(inner)),
        other => other,
    })
}
