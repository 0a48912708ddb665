//! `provider add | credential | callback-secret | reseal | check | list`

use std::{io, path::PathBuf};

use clap::Subcommand;

use super::{Failure, Result, desk, kind::read, print, say};
use crate::{
    model::{
        json::{self, Limits},
        provider::ProviderName,
    },
    server::{
        config::{Config, Secret},
        service::{account::Administrator, callback, catalogue::Saved, error::Error, provider},
    },
};

#[derive(Subcommand)]
pub enum Word {
    /// Add a provider, or a newer version of its declaration, and print its name and version
    Add {
        /// Its document, in JSON; `-` reads standard input
        file: PathBuf,
    },
    /// Keep the credential that goes out to a provider, sealed; it is read from standard input
    Credential { name: ProviderName },
    /// Keep the secret that signs a provider's callbacks, sealed; it is read from standard input
    CallbackSecret { name: ProviderName },
    /// Seal what is still sealed under an older key under the newest
    Reseal,
    /// Show against the real destination, or its sandbox, whether the declared guarantees hold
    Check { name: ProviderName },
    /// List providers: name, version, what they promise, what is proven
    List,
}

impl Word {
    pub async fn run(self, config: Config) -> Result<()> {
        let desk = desk(config).await?;
        let admin = Administrator::command_line();
        match self {
            Self::Add { file } => {
                let document = json::parse(&read(&file)?, Limits::BODY).map_err(Error::from)?;
                let (view, words) = match provider::add(&desk, &admin, &document).await? {
                    Saved::New(view) => (view, "added"),
                    Saved::Same(view) => (view, "there is already"),
                };
                say(&format!("{words} `{}` version {}", view.name, view.version));
                print(&format!("{}\t{}", view.name, view.version))?;
            }
            Self::Credential { name } => {
                provider::set_credential(&desk, &admin, &name, secret_line()?).await?;
                say(&format!("the credential of `{name}` is kept, sealed"));
            }
            Self::CallbackSecret { name } => {
                callback::set_secret(&desk, &admin, &name, secret_line()?).await?;
                say(&format!("the callback secret of `{name}` is kept, sealed"));
            }
            Self::Reseal => say(&format!("{} credentials sealed anew", provider::reseal(&desk).await?)),
            Self::Check { name } => {
                let checks = provider::check(&desk, &admin, &name).await?;
                for check in &checks {
                    let word = if check.passed { "passed" } else { "failed" };
                    print(&format!("{}\t{word}\t{}", check.guarantee.as_str(), check.detail))?;
                }
                if checks.iter().any(|check| !check.passed) {
                    return Err(Failure::new(format!("`{name}` does not keep what it declares"))
                        .hint("until it does, a lost answer goes to a person"));
                }
            }
            Self::List => {
                for view in provider::all(&desk).await? {
                    let proven = view.checks.iter().filter(|check| check.passed);
                    let proven: Vec<_> = proven.map(|check| check.guarantee.as_str()).collect();
                    let proven = if proven.is_empty() { "nothing proven".to_owned() } else { proven.join(", ") };
                    print(&format!("{}\t{}\t{}\t{proven}", view.name, view.version, view.document.sentence()))?;
                }
            }
        }
        desk.store.close().await;
        Ok(())
    }
}

/// One line of standard input.
fn secret_line() -> Result<Secret> {
    let mut line = String::new();
    io::stdin().read_line(&mut line)?;
    Ok(Secret(line.trim_end_matches(['\r', '\n']).to_owned()))
}
