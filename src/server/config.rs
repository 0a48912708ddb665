//! Settings from the environment, checked at start. Secrets never appear in what is printed.

use std::{fmt, net::SocketAddr, path::PathBuf, time::Duration};

/// A setting that cannot be used; the server does not start.
#[derive(Debug, thiserror::Error)]
#[error("`{name}` {problem}\nhint: {hint}")]
pub struct Invalid {
    name: &'static str,
    problem: String,
    hint: String,
}

/// Which database, and where.
#[derive(Clone, PartialEq, Eq)]
pub enum Database {
    Sqlite(PathBuf),
    /// A connection URL; it may hold a password.
    Postgres(String),
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(_) => f.write_str("postgres://[redacted]"),
        }
    }
}

impl Database {
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            return if path.is_empty() { Err("names no file".into()) } else { Ok(Self::Sqlite(path.into())) };
        }
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Postgres(text.to_owned()));
        }
        Err("is neither `sqlite:PATH` nor `postgres://…`".into())
    }
}

/// Everything that can be set from outside.
#[derive(Debug, Clone)]
pub struct Config {
    pub listen: SocketAddr,
    /// Scheme, host and port under which browsers reach the desk; no trailing slash.
    pub public_url: String,
    pub data_dir: PathBuf,
    pub database: Database,
    /// Connections of this process to the database. On SQLite one of them writes and the others read.
    pub database_connections: u32,
    /// Seconds to decide, by the default rule.
    pub approval_ttl_s: i64,
    /// Seconds from the approval to run, by the default rule.
    pub execution_ttl_s: i64,
    /// Seconds from the approval in which another attempt may be licensed, by the default rule.
    pub retry_ttl_s: i64,
    pub claim_ttl_s: i64,
    /// Seconds past the end of an operation after which its key is forgotten.
    pub key_retention_s: i64,
    /// Seconds between sweeps; 0 switches the sweeper off. Deadlines do not depend on it.
    pub sweep_s: i64,
    pub max_body_bytes: usize,
    pub open_operations_per_agent: i64,
    /// Proposals per agent and minute.
    pub proposals_per_minute: i64,
    pub shutdown: Duration,
    pub audit_key_file: Option<PathBuf>,
    /// Keys that seal credentials; `seal.key` in the data folder where it is not set.
    pub seal_key_file: Option<PathBuf>,
    pub metrics_token: Option<Secret>,
}

/// Text that is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[redacted]")
    }
}

const WEEK_S: i64 = 7 * 24 * 3600;

impl Config {
    /// Reads the process's environment.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn from_env() -> Result<Self, Invalid> {
        Self::from(|name| std::env::var(name).ok())
    }

    /// Reads settings through `get`, so that tests need no environment.
    pub fn from(get: impl Fn(&str) -> Option<String>) -> Result<Self, Invalid> {
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        let number = |name: &'static str, default: i64, min: i64, max: i64| -> Result<i64, Invalid> {
            let Some(text) = get(name) else { return Ok(default) };
            text.parse().ok().filter(|n| (min..=max).contains(n)).ok_or_else(|| Invalid {
                name,
                problem: format!("is `{text}`, not a whole number from {min} to {max}"),
                hint: format!("leave it unset for {default}"),
            })
        };
        let invalid = |name: &'static str, hint: &str| {
            let hint = hint.to_owned();
            move |problem: String| Invalid { name, problem, hint }
        };

        let listen: SocketAddr =
            get("COUNTERFOIL_LISTEN").unwrap_or_else(|| "127.0.0.1:8080".into()).parse().map_err(|_| {
                invalid("COUNTERFOIL_LISTEN", "such as `127.0.0.1:8080`")("is not an address and a port".into())
            })?;
        let public_url = get("COUNTERFOIL_PUBLIC_URL").unwrap_or_else(|| format!("http://{listen}"));
        let public_url = public_url.trim_end_matches('/').to_owned();
        if !(public_url.starts_with("http://") || public_url.starts_with("https://"))
            || public_url.matches('/').count() != 2
        {
            return Err(invalid("COUNTERFOIL_PUBLIC_URL", "such as `https://desk.example.test`")(
                "is not a scheme and a host".into(),
            ));
        }
        let data_dir = PathBuf::from(get("COUNTERFOIL_DATA_DIR").unwrap_or_else(|| "data".into()));
        let database = match get("COUNTERFOIL_DATABASE_URL") {
            None => Database::Sqlite(data_dir.join("counterfoil.db")),
            Some(url) => Database::parse(&url)
                .map_err(invalid("COUNTERFOIL_DATABASE_URL", "use `sqlite:PATH` or `postgres://user@host/database`"))?,
        };
        Ok(Self {
            listen,
            public_url,
            data_dir,
            database,
            database_connections: number("COUNTERFOIL_DATABASE_CONNECTIONS", 16, 2, 1000)? as u32,
            approval_ttl_s: number("COUNTERFOIL_APPROVAL_TTL_S", 900, 1, WEEK_S)?,
            execution_ttl_s: number("COUNTERFOIL_EXECUTION_TTL_S", 600, 1, WEEK_S)?,
            retry_ttl_s: number("COUNTERFOIL_RETRY_TTL_S", 3600, 1, WEEK_S)?,
            claim_ttl_s: number("COUNTERFOIL_CLAIM_TTL_S", 60, 1, 900)?,
            key_retention_s: number("COUNTERFOIL_KEY_RETENTION_S", 30 * 24 * 3600, 1, 10 * 365 * 24 * 3600)?,
            sweep_s: number("COUNTERFOIL_SWEEP_S", 1, 0, 3600)?,
            max_body_bytes: number("COUNTERFOIL_MAX_BODY_BYTES", 64 * 1024, 1024, 16 * 1024 * 1024)? as usize,
            open_operations_per_agent: number("COUNTERFOIL_OPEN_OPERATIONS_PER_AGENT", 500, 1, 1_000_000)?,
            proposals_per_minute: number("COUNTERFOIL_PROPOSALS_PER_MINUTE", 600, 1, 1_000_000)?,
            shutdown: Duration::from_secs(number("COUNTERFOIL_SHUTDOWN_S", 10, 1, 600)? as u64),
            audit_key_file: get("COUNTERFOIL_AUDIT_KEY_FILE").map(PathBuf::from),
            seal_key_file: get("COUNTERFOIL_SEAL_KEY_FILE").map(PathBuf::from),
            metrics_token: get("COUNTERFOIL_METRICS_TOKEN").map(Secret),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &'static str, value: &'static str) -> Result<Config, Invalid> {
        Config::from(move |asked| (asked == name).then(|| value.to_owned()))
    }

    #[test]
    fn a_deadline_that_never_comes_cannot_be_set() {
        for name in ["COUNTERFOIL_APPROVAL_TTL_S", "COUNTERFOIL_EXECUTION_TTL_S", "COUNTERFOIL_RETRY_TTL_S"] {
            for value in ["0", "-1", "soon", "1.5", "604801", "99999999999999999999"] {
                assert!(with(name, value).unwrap_err().to_string().contains(name), "{name}={value}");
            }
            assert!(with(name, "604800").is_ok());
        }
    }

    #[test]
    fn a_secret_is_not_printed() {
        let config = with("COUNTERFOIL_DATABASE_URL", "postgres://u:hunter2@localhost/x").unwrap();
        assert!(!format!("{config:?}").contains("hunter2"));
        let config = with("COUNTERFOIL_METRICS_TOKEN", "hunter2").unwrap();
        assert!(!format!("{config:?}").contains("hunter2"));
    }
}
