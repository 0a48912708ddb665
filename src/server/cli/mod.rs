//! The command line: one file per word. Data goes to standard output, everything else to standard error.

mod agent;
mod audit;
mod backup;
mod demo;
mod evidence;
mod executor;
mod healthcheck;
mod kind;
mod migrate;
mod provider;
mod serve;
mod user;

use std::{fmt, io, io::Write, path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};
use serde_json::Value;

use super::{
    clock::Clock,
    config::{Config, Database, Invalid},
    service::{Desk, catalogue, error},
    store::{self, Store},
};

#[derive(Parser)]
#[command(name = "counterfoil", version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    word: Word,
}

#[derive(Subcommand)]
enum Word {
    /// Run the desk until it is told to stop
    Serve,
    /// Bring the database up to date, and stop
    Migrate,
    /// People who sign in
    #[command(subcommand)]
    User(user::Word),
    /// Agents, which propose operations
    #[command(subcommand)]
    Agent(agent::Word),
    /// Executors, which carry operations out
    #[command(subcommand)]
    Executor(executor::Word),
    /// Kinds of operations
    #[command(subcommand)]
    Kind(kind::Word),
    /// Providers, the systems downstream
    #[command(subcommand)]
    Provider(provider::Word),
    /// Evidence of outcomes
    #[command(subcommand)]
    Evidence(evidence::Word),
    /// The audit log: export, checkpoints, verification
    #[command(subcommand)]
    Audit(audit::Word),
    /// Copy the database to a new file, beside a running desk or without one
    Backup { file: PathBuf },
    /// Put a backup in the place of a database that is not there; on PostgreSQL, without a file, take over what `pg_restore` brought back
    Restore { file: Option<PathBuf> },
    /// Run the desk on a fresh database, with simulated agents at work
    Demo,
    /// Ask the running desk whether it is ready
    Healthcheck,
}

/// Reads the arguments, does what they say, and says how it went: 0 done, 1 not done, 2 not understood.
pub fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done =
        tokio::runtime::Runtime::new().map_err(Failure::from).and_then(|runtime| runtime.block_on(run(arguments.word)));
    match done {
        Ok(code) => code,
        Err(failure) => {
            say(&failure.to_string());
            ExitCode::FAILURE
        }
    }
}

async fn run(word: Word) -> Result<ExitCode> {
    // Verifying an export needs no settings: it says for itself what it reads.
    if let Word::Audit(word) = word {
        return word.run().await;
    }
    let config = Config::from_env()?;
    match word {
        Word::Audit(_) => Ok(()),
        Word::Serve => serve::run(config).await,
        Word::Migrate => migrate::run(config).await,
        Word::User(word) => word.run(config).await,
        Word::Agent(word) => word.run(config).await,
        Word::Executor(word) => word.run(config).await,
        Word::Kind(word) => word.run(config).await,
        Word::Provider(word) => word.run(config).await,
        Word::Evidence(word) => word.run(config).await,
        Word::Backup { file } => backup::run(config, &file).await,
        Word::Restore { file } => backup::restore(config, file.as_deref()).await,
        Word::Demo => demo::run(config).await,
        Word::Healthcheck => healthcheck::run(config).await,
    }
    .map(|()| ExitCode::SUCCESS)
}

type Result<T> = std::result::Result<T, Failure>;

/// What is said when something is not done: one `error:` line, and a `hint:` where there is a way on.
#[derive(Debug)]
struct Failure {
    error: String,
    hint: Option<String>,
}

impl Failure {
    fn new(error: impl fmt::Display) -> Self {
        Self { error: error.to_string(), hint: None }
    }

    fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error: {}", self.error)?;
        match &self.hint {
            Some(hint) => write!(f, "\nhint: {hint}"),
            None => Ok(()),
        }
    }
}

/// The error and what is beneath it; our own words are for the operator of this machine.
fn whole(error: &dyn std::error::Error) -> String {
    let mut words = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        words.push_str(&format!("\n  caused by: {error}"));
        source = error.source();
    }
    words
}

impl From<error::Error> for Failure {
    fn from(error: error::Error) -> Self {
        match error {
            error::Error::Refused(problem) => {
                let places = problem.members.get("errors").and_then(|errors| errors.as_array());
                let places = places.filter(|places| places.len() > 1).into_iter().flatten();
                let line = |place: &Value| {
                    let text = |member: &str| place[member].as_str().unwrap_or_default().to_owned();
                    format!("\n  `{}`: {}", text("pointer"), text("detail"))
                };
                Self::new(places.map(line).fold(problem.detail.clone(), |words, line| words + &line))
            }
            error::Error::Unavailable => {
                Self::new("the database is busy or away; nothing was done").hint("run the command again")
            }
            error::Error::Internal(_) => Self::new(whole(&error)),
        }
    }
}

impl From<store::Error> for Failure {
    fn from(error: store::Error) -> Self {
        Self::new(whole(&error))
    }
}

impl From<Invalid> for Failure {
    fn from(error: Invalid) -> Self {
        // It brings its own hint line.
        Self::new(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::new(error)
    }
}

/// A line for people.
fn say(line: &str) {
    // A closed standard error leaves nobody to tell.
    drop(writeln!(io::stderr(), "{line}"));
}

/// A line of data.
fn print(line: &str) -> Result<()> {
    Ok(writeln!(io::stdout(), "{line}")?)
}

/// Opens the database for one command, beside a running server or without one.
async fn open(config: &Config) -> Result<Store> {
    if let Database::Sqlite(path) = &config.database
        && let Some(folder) = path.parent()
    {
        std::fs::create_dir_all(folder)
            .map_err(|error| Failure::new(format!("the folder `{}` cannot be made: {error}", folder.display())))?;
    }
    let store = Store::open(&config.database, config.database_connections, Clock::system()).await;
    store.map_err(|error| {
        Failure::from(error).hint(format!("the database is `{:?}`; see `COUNTERFOIL_DATABASE_URL`", config.database))
    })
}

async fn desk(config: Config) -> Result<Desk> {
    let desk = Desk::new(open(&config).await?, config);
    catalogue::seed(&desk).await?;
    Ok(desk)
}

/// Reads a value the way the API does, so that both refuse the same.
fn parse<T: TryFrom<String, Error = &'static str>>(text: &str) -> std::result::Result<T, &'static str> {
    T::try_from(text.to_owned())
}
