//! One way to speak SQL to both databases: statements with `$1` parameters, integers and text only.

use std::borrow::Cow;

use sqlx::{AssertSqlSafe, Row as _, pool::PoolConnection, postgres::PgRow, sqlite::SqliteRow};

use super::{Error, Result};

/// A parameter. Integers are BIGINT, everything else is text.
#[derive(Debug, Clone)]
pub enum Value {
    Int(Option<i64>),
    Text(Option<String>),
}

macro_rules! into_value {
    ($($from:ty => $variant:ident($value:ident) $convert:expr;)*) => {$(
        impl From<$from> for Value {
            fn from($value: $from) -> Self {
                Self::$variant($convert)
            }
        }
    )*};
}

into_value! {
    i64 => Int(v) Some(v);
    Option<i64> => Int(v) v;
    crate::model::time::Timestamp => Int(v) Some(v.as_millis());
    Option<crate::model::time::Timestamp> => Int(v) v.map(|t| t.as_millis());
    &str => Text(v) Some(v.to_owned());
    String => Text(v) Some(v);
    &String => Text(v) Some(v.clone());
    Option<String> => Text(v) v;
    Option<&str> => Text(v) v.map(str::to_owned);
}

/// A statement with its parameters.
#[derive(Debug, Clone)]
pub struct Sql {
    text: Cow<'static, str>,
    values: Vec<Value>,
}

/// A statement whose text is fixed.
pub fn sql(text: &'static str) -> Sql {
    Sql { text: Cow::Borrowed(text), values: Vec::new() }
}

impl Sql {
    /// A statement put together from fixed pieces; values still travel as parameters only.
    pub fn assembled(text: String) -> Self {
        Self { text: Cow::Owned(text), values: Vec::new() }
    }

    pub fn bind(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }

    /// `head VALUES ($1, $2), ($3, $4) tail`.
    fn with_rows(head: &str, rows: &[Vec<Value>], tail: &str) -> Self {
        let mut parameters = 1..;
        let rows_of_parameters: Vec<_> = rows
            .iter()
            .map(|row| {
                let row: Vec<_> = parameters.by_ref().take(row.len()).map(|n: usize| format!("${n}")).collect();
                format!("({})", row.join(", "))
            })
            .collect();
        let text = format!("{head} VALUES {}{tail}", rows_of_parameters.join(", "));
        Self { text: Cow::Owned(text), values: rows.concat() }
    }
}

/// Rows of one statement: few enough for the parameters either database takes, and for neither to plan anew for each
/// number of rows.
const ROWS: usize = 64;

/// A row of either database.
pub enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

impl Row {
    pub fn int(&self, column: &str) -> Result<i64> {
        self.opt_int(column)?.ok_or_else(|| Error::corrupt(format!("`{column}` is null")))
    }

    pub fn opt_int(&self, column: &str) -> Result<Option<i64>> {
        Ok(match self {
            Row::Sqlite(row) => row.try_get(column)?,
            Row::Postgres(row) => row.try_get(column)?,
        })
    }

    pub fn text(&self, column: &str) -> Result<String> {
        self.opt_text(column)?.ok_or_else(|| Error::corrupt(format!("`{column}` is null")))
    }

    pub fn opt_text(&self, column: &str) -> Result<Option<String>> {
        Ok(match self {
            Row::Sqlite(row) => row.try_get(column)?,
            Row::Postgres(row) => row.try_get(column)?,
        })
    }

    /// A column that is an identifier or another word with a strict spelling.
    pub fn parsed<T: std::str::FromStr>(&self, column: &str) -> Result<T> {
        self.text(column)?.parse().map_err(|_| Error::corrupt(format!("`{column}` is not spelled as it was stored")))
    }

    /// A column that holds a JSON document.
    pub fn json<T: serde::de::DeserializeOwned>(&self, column: &str) -> Result<T> {
        serde_json::from_str(&self.text(column)?).map_err(|e| Error::corrupt(format!("`{column}`: {e}")))
    }

    /// A column that may hold a JSON document.
    pub fn opt_json<T: serde::de::DeserializeOwned>(&self, column: &str) -> Result<Option<T>> {
        if self.opt_text(column)?.is_none() { Ok(None) } else { self.json(column).map(Some) }
    }
}

/// A connection to either database, from a pool.
pub enum Conn {
    Sqlite(PoolConnection<sqlx::Sqlite>),
    Postgres(PoolConnection<sqlx::Postgres>),
}

macro_rules! bound {
    ($sql:expr) => {{
        let mut query = sqlx::query(AssertSqlSafe($sql.text.into_owned()));
        for value in $sql.values {
            query = match value {
                Value::Int(value) => query.bind(value),
                Value::Text(value) => query.bind(value),
            };
        }
        query
    }};
}

impl Conn {
    /// Number of rows changed: a guarded statement's answer.
    pub async fn execute(&mut self, sql: Sql) -> Result<u64> {
        Ok(match self {
            Conn::Sqlite(conn) => bound!(sql).execute(&mut **conn).await?.rows_affected(),
            Conn::Postgres(conn) => bound!(sql).execute(&mut **conn).await?.rows_affected(),
        })
    }

    /// Writes all `rows` by `head VALUES … tail`; the number of rows changed.
    pub async fn execute_rows(&mut self, head: &str, rows: &[Vec<Value>], tail: &str) -> Result<u64> {
        let mut changed = 0;
        for rows in rows.chunks(ROWS) {
            changed += self.execute(Sql::with_rows(head, rows, tail)).await?;
        }
        Ok(changed)
    }

    pub async fn fetch_all(&mut self, sql: Sql) -> Result<Vec<Row>> {
        Ok(match self {
            Conn::Sqlite(conn) => bound!(sql).fetch_all(&mut **conn).await?.into_iter().map(Row::Sqlite).collect(),
            Conn::Postgres(conn) => bound!(sql).fetch_all(&mut **conn).await?.into_iter().map(Row::Postgres).collect(),
        })
    }

    pub async fn fetch_optional(&mut self, sql: Sql) -> Result<Option<Row>> {
        Ok(match self {
            Conn::Sqlite(conn) => bound!(sql).fetch_optional(&mut **conn).await?.map(Row::Sqlite),
            Conn::Postgres(conn) => bound!(sql).fetch_optional(&mut **conn).await?.map(Row::Postgres),
        })
    }

    /// A single integer, such as a count.
    pub async fn fetch_int(&mut self, sql: Sql) -> Result<i64> {
        match self.fetch_optional(sql).await? {
            Some(Row::Sqlite(row)) => Ok(row.try_get(0)?),
            Some(Row::Postgres(row)) => Ok(row.try_get(0)?),
            None => Err(Error::corrupt("no row where one was certain".into())),
        }
    }

    /// Ends the connection instead of giving it back: its transaction may still be open.
    pub async fn discard(self) {
        match self {
            Conn::Sqlite(conn) => drop(conn.detach()),
            Conn::Postgres(conn) => drop(conn.detach()),
        }
    }
}
