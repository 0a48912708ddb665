//! `agent add | revoke | list`

use clap::Subcommand;

use super::{Failure, Result, desk, parse, print, say};
use crate::{
    model::run::Allowance,
    server::{
        config::Config,
        service::{
            account::Administrator,
            agents::{self, AgentChange, Label, NewAgent, Revoked},
        },
        store::agent,
    },
};

#[derive(Subcommand)]
pub enum Word {
    /// Add an agent and print its token, once
    Add {
        #[arg(value_parser = parse::<Label>)]
        name: Label,
        /// The person who answers for it
        #[arg(long)]
        owner: String,
        /// What its runs may be granted at most, such as `release/* deploy rollback`; may be given again
        #[arg(long)]
        allow: Vec<Allowance>,
    },
    /// Take an agent's token away, and those of its runs
    Revoke { name: String },
    /// List agents: id, name, owner, state
    List,
}

impl Word {
    pub async fn run(self, config: Config) -> Result<()> {
        let admin = Administrator::command_line();
        let desk = desk(config).await?;
        match self {
            Self::Add { name, owner, allow } => {
                let allow = Some(allow).filter(|allow| !allow.is_empty());
                let issued = agents::create_agent(&desk, &admin, NewAgent { name, owner, allow }).await?;
                say(&format!("added `{}`; its token is not shown again", issued.principal.name));
                print(issued.token.reveal())?;
            }
            Self::Revoke { name } => {
                let Some(agent) = agent::by_name(&mut desk.store.read().await?, &name).await? else {
                    return Err(Failure::new(format!("there is no agent `{name}`"))
                        .hint("`counterfoil agent list` shows which there are"));
                };
                let change = AgentChange { revoked: Some(Revoked), ..AgentChange::default() };
                agents::change_agent(&desk, &admin, agent.id, change).await?;
                say(&format!("the token of `{name}` is revoked"));
            }
            Self::List => {
                for agent in agent::list(&mut desk.store.read().await?).await? {
                    let state = if agent.revoked_at.is_none() { "active" } else { "revoked" };
                    print(&format!("{}\t{}\t{}\t{state}", agent.id, agent.name, agent.owner_name))?;
                }
            }
        }
        desk.store.close().await;
        Ok(())
    }
}
