//! The two databases hold the same tables.

use std::collections::BTreeMap;

use counterfoil::server::store::{Conn, Row, sql};

use crate::support::App;

/// Tables, their columns and their indexes, in words that both databases share.
type Schema = BTreeMap<String, String>;

/// Names of the migrations of one database.
fn migrations(database: &str) -> Vec<String> {
    let folder = format!("{}/migrations/{database}", env!("CARGO_MANIFEST_DIR"));
    let mut names: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

async fn schema(conn: &mut Conn) -> Schema {
    let (columns, indexes) = match conn {
        Conn::Sqlite(_) => (
            "SELECT t.name || '.' || c.name AS name, \
             lower(c.type) || CASE WHEN c.\"notnull\" = 1 THEN ' not null' ELSE '' END AS what \
             FROM sqlite_master t, pragma_table_info(t.name) c WHERE t.type = 'table'",
            "SELECT t.name || ' (' || (SELECT group_concat(name, ', ') FROM \
             (SELECT name FROM pragma_index_info(i.name) ORDER BY seqno)) || ')' AS name, \
             CASE WHEN i.\"unique\" = 1 THEN 'unique' ELSE 'index' END \
             || CASE WHEN i.partial = 1 THEN ' of some' ELSE '' END AS what \
             FROM sqlite_master t, pragma_index_list(t.name) i WHERE t.type = 'table'",
        ),
        Conn::Postgres(_) => (
            "SELECT table_name || '.' || column_name AS name, \
             data_type || CASE WHEN is_nullable = 'NO' THEN ' not null' ELSE '' END AS what \
             FROM information_schema.columns WHERE table_schema = 'public'",
            "SELECT t.relname || ' (' || (SELECT string_agg(a.attname, ', ' ORDER BY k.n) \
             FROM unnest(i.indkey) WITH ORDINALITY AS k (attnum, n) \
             JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = k.attnum) || ')' AS name, \
             CASE WHEN i.indisunique THEN 'unique' ELSE 'index' END \
             || CASE WHEN i.indpred IS NULL THEN '' ELSE ' of some' END AS what \
             FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid \
             JOIN pg_namespace n ON n.oid = t.relnamespace WHERE n.nspname = 'public'",
        ),
    };
    let mut schema = Schema::new();
    for query in [columns, indexes] {
        for row in conn.fetch_all(sql(query)).await.unwrap() {
            let text = |row: &Row, column| row.text(column).unwrap();
            let (name, what) = (text(&row, "name"), text(&row, "what"));
            if !name.starts_with("_sqlx_migrations") && !name.starts_with("sqlite_") {
                schema.insert(name, what);
            }
        }
    }
    schema
}

#[tokio::test]
async fn both_databases_have_the_same_migrations_tables_columns_and_indexes() {
    assert_eq!(migrations("sqlite"), migrations("postgres"));
    let (sqlite, postgres) = (App::sqlite().await, App::postgres().await);
    let sqlite = schema(&mut sqlite.desk.store.read().await.unwrap()).await;
    let postgres = schema(&mut postgres.desk.store.read().await.unwrap()).await;
    assert!(sqlite.len() > 100, "{sqlite:#?}");
    let differ = |ours: &Schema, theirs: &Schema| -> Schema {
        let mine = ours.iter().filter(|(name, what)| theirs.get(*name) != Some(what));
        mine.map(|(name, what)| (name.clone(), what.clone())).collect()
    };
    assert_eq!(differ(&sqlite, &postgres), differ(&postgres, &sqlite));
}
