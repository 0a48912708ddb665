//! `kind add | list`

use std::{
    fs,
    io::{self, Read},
    path::PathBuf,
};

use clap::Subcommand;

use super::{Failure, Result, desk, print, say};
use crate::{
    model::json::{self, Limits},
    server::{
        config::Config,
        service::{
            account::Administrator,
            catalogue::{self, Saved},
            error::Error,
        },
    },
};

#[derive(Subcommand)]
pub enum Word {
    /// Add a kind of your own, or a newer version of it, and print its name and version
    Add {
        /// Its document, in JSON; `-` reads standard input
        file: PathBuf,
    },
    /// List kinds: name, version, risk, title, where it comes from
    List,
}

impl Word {
    pub async fn run(self, config: Config) -> Result<()> {
        match self {
            Self::Add { file } => {
                let document = json::parse(&read(&file)?, Limits::BODY).map_err(Error::from)?;
                let desk = desk(config).await?;
                let saved = catalogue::add_kind(&desk, &Administrator::command_line(), &document).await?;
                let (kind, words) = match saved {
                    Saved::New(kind) => (kind, "added"),
                    Saved::Same(kind) => (kind, "there is already"),
                };
                say(&format!("{words} `{}` version {}", kind.name, kind.version));
                print(&format!("{}\t{}", kind.name, kind.version))?;
                desk.store.close().await;
            }
            Self::List => {
                let desk = desk(config).await?;
                for kind in catalogue::all_kinds(&desk).await? {
                    let member = |name: &str| kind.document[name].as_str().unwrap_or_default().to_owned();
                    let origin = if kind.built_in { "built in" } else { "own" };
                    let (risk, title) = (member("risk"), member("title"));
                    print(&format!("{}\t{}\t{risk}\t{title}\t{origin}", kind.name, kind.version))?;
                }
                desk.store.close().await;
            }
        }
        Ok(())
    }
}

/// The bytes of `file`; `-` reads standard input.
pub(super) fn read(file: &PathBuf) -> Result<Vec<u8>> {
    if file.as_os_str() == "-" {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    fs::read(file).map_err(|error| Failure::new(format!("`{}` cannot be read: {error}", file.display())))
}
