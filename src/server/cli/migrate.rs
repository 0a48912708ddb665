//! `migrate`

use super::{Result, open, say};
use crate::server::config::Config;

pub async fn run(config: Config) -> Result<()> {
    open(&config).await?.close().await;
    say("the database is up to date");
    Ok(())
}
