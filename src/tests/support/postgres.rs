//! Databases of the PostgreSQL cluster that the test command started (`.ci/with-postgres`).
//!
//! One cluster serves the whole command, and each test may run in a process of its own, so nothing is remembered between
//! calls. Databases are left behind: the cluster goes with them.

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};

const CLUSTER: &str = "COUNTERFOIL_TEST_POSTGRES";

/// Creates an empty database for the caller alone and returns its URL.
pub async fn fresh_database() -> String {
    let cluster = std::env::var(CLUSTER).unwrap_or_else(|_| {
        panic!("{CLUSTER} is not set; use `make test` or `.ci/with-postgres cargo test --features ssr`")
    });
    let name = format!("test_{:016x}", getrandom::u64().expect("random numbers"));
    let mut connection = PgConnection::connect(&cluster).await.expect("the test cluster answers");
    connection.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.expect("a new database");
    connection.close().await.expect("a clean goodbye");
    database_url(&cluster, &name)
}

/// The cluster's URL with another database in it.
fn database_url(cluster: &str, database: &str) -> String {
    let (server, parameters) = cluster.split_once('?').unwrap_or((cluster, ""));
    let (server, _) = server.rsplit_once('/').expect("the URL names a database");
    format!("{server}/{database}?{parameters}")
}

#[tokio::test]
async fn fresh_databases_are_empty_durable_and_separate() {
    let (one, two) = (fresh_database().await, fresh_database().await);
    assert_ne!(one, two);
    let mut here = PgConnection::connect(&one).await.expect("the first database");
    let mut there = PgConnection::connect(&two).await.expect("the second database");
    here.execute("CREATE TABLE mark (id BIGINT)").await.expect("a table in the first");
    there.execute("CREATE TABLE mark (id BIGINT)").await.expect("the same table in the second");
    let fsync: String = sqlx::query_scalar("SHOW fsync").fetch_one(&mut here).await.expect("a setting");
    assert_eq!(fsync, "on");
}
