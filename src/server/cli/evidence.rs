//! `evidence erase`

use clap::Subcommand;

use super::{Result, desk, say};
use crate::{
    model::id::EvidenceId,
    server::{
        config::Config,
        service::{account::Administrator, evidence},
    },
};

#[derive(Subcommand)]
pub enum Word {
    /// Erase what is attached to a piece of evidence; the statement, its digest and the log stay
    Erase {
        id: EvidenceId,
        /// Why, for the log
        #[arg(long)]
        reason: String,
    },
}

impl Word {
    pub async fn run(self, config: Config) -> Result<()> {
        let desk = desk(config).await?;
        let Self::Erase { id, reason } = self;
        evidence::erase_body(&desk, &Administrator::command_line(), &id, &reason).await?;
        say(&format!("what was attached to `{id}` is erased"));
        desk.store.close().await;
        Ok(())
    }
}
