//! `audit …`

use std::{
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Subcommand;
use futures::StreamExt;

use super::{Failure, Result, desk, print, say};
use crate::{
    model::{
        audit::{Record, Verdict, Verifier, story, verify::Obstacle},
        id::OperationId,
    },
    server::{config::Config, service::audit},
};

#[derive(Subcommand)]
pub enum Word {
    /// Write every record, and a line that signs them all
    Export {
        /// The file to write; standard output without it
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// Sign how far the log has come, as a pin for later exports
    Checkpoint {
        /// The file to write; standard output without it
        #[arg(long)]
        out: Option<PathBuf>,
    },
    /// Print the key that verifies this log
    Vkey,
    /// Verify an export: no server, no database, no settings
    Verify {
        file: PathBuf,
        /// The verifier key, from a place you trust
        #[arg(long)]
        vkey: String,
        /// A checkpoint kept from earlier
        #[arg(long)]
        pin: Vec<PathBuf>,
        /// Tell the story of one operation
        #[arg(long)]
        operation: Option<OperationId>,
    },
}

impl Word {
    pub async fn run(self) -> Result<ExitCode> {
        match self {
            Self::Export { out } => export(Config::from_env()?, out.as_deref()).await,
            Self::Checkpoint { out } => checkpoint(Config::from_env()?, out.as_deref()).await,
            Self::Vkey => print(&desk(Config::from_env()?).await?.signer().await?.verifier().to_string()),
            Self::Verify { file, vkey, pin, operation } => return verify(&file, &vkey, &pin, operation.as_ref()),
        }
        .map(|()| ExitCode::SUCCESS)
    }
}

fn target(out: Option<&Path>) -> Result<Box<dyn Write>> {
    let Some(path) = out else { return Ok(Box::new(io::stdout().lock())) };
    let file = std::fs::File::create(path);
    let file = file.map_err(|error| Failure::new(format!("`{}` cannot be written: {error}", path.display())))?;
    Ok(Box::new(io::BufWriter::new(file)))
}

async fn export(config: Config, out: Option<&Path>) -> Result<()> {
    let desk = desk(config).await?;
    let mut chunks = std::pin::pin!(audit::export(&desk).await?);
    let mut out = target(out)?;
    while let Some(chunk) = chunks.next().await {
        out.write_all(chunk?.as_bytes())?;
    }
    Ok(out.flush()?)
}

async fn checkpoint(config: Config, out: Option<&Path>) -> Result<()> {
    let signed = audit::checkpoint(&desk(config).await?).await?;
    let signed = signed.ok_or_else(|| Failure::new("the log is empty; there is nothing to sign"))?;
    let mut out = target(out)?;
    out.write_all(signed.note.as_bytes())?;
    Ok(out.flush()?)
}

/// 0 verified, 1 tampered with, 2 could not be checked.
fn verify(file: &Path, vkey: &str, pins: &[PathBuf], operation: Option<&OperationId>) -> Result<ExitCode> {
    let verdict = check(file, vkey, pins).unwrap_or_else(Verdict::CannotCheck);
    print(&verdict.to_string())?;
    for note in verdict.notes() {
        say(&note);
    }
    if let (Some(id), Verdict::Verified(_)) = (operation, &verdict) {
        let text = std::fs::read_to_string(file)?;
        let records = text.lines().filter_map(|line| Record::parse(line.as_bytes()).ok()).map(|sealed| sealed.record);
        match story(records, id) {
            Some(story) => print(&format!("\n{story}"))?,
            None => return Err(Failure::new(format!("the log does not mention `{id}`"))),
        }
    }
    Ok(ExitCode::from(verdict.exit_code()))
}

fn check(file: &Path, vkey: &str, pins: &[PathBuf]) -> std::result::Result<Verdict, Obstacle> {
    let unreadable = |path: &Path, error: io::Error| Obstacle::Unreadable(format!("`{}`: {error}", path.display()));
    let pins = pins.iter().map(|path| std::fs::read_to_string(path).map_err(|error| unreadable(path, error)));
    let pins = pins.collect::<std::result::Result<Vec<_>, _>>()?;
    let mut verifier = Verifier::new(vkey, &pins)?;
    let mut input = std::fs::File::open(file).map_err(|error| unreadable(file, error))?;
    let mut chunk = vec![0; 64 * 1024];
    loop {
        match input.read(&mut chunk).map_err(|error| unreadable(file, error))? {
            0 => return Ok(verifier.finish()),
            n => verifier.push(&chunk[..n]),
        }
    }
}
