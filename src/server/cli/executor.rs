//! `executor add | revoke | list`

use clap::Subcommand;

use super::{Failure, Result, desk, parse, print, say};
use crate::server::{
    config::Config,
    service::{
        account::Administrator,
        agents::{self, ExecutorChange, KindPattern, Label, NewExecutor, Revoked},
    },
    store::executor,
};

#[derive(Subcommand)]
pub enum Word {
    /// Add an executor and print its token, once
    Add {
        #[arg(value_parser = parse::<Label>)]
        name: Label,
        /// A kind it carries out, such as `payment.*`; may be given again
        #[arg(long = "kind", required = true, value_parser = parse::<KindPattern>)]
        kinds: Vec<KindPattern>,
    },
    /// Take an executor's token away
    Revoke { name: String },
    /// List executors: id, name, kinds, state
    List,
}

impl Word {
    pub async fn run(self, config: Config) -> Result<()> {
        let admin = Administrator::command_line();
        let desk = desk(config).await?;
        match self {
            Self::Add { name, kinds } => {
                let issued = agents::create_executor(&desk, &admin, NewExecutor { name, kinds }).await?;
                say(&format!("added `{}`; its token is not shown again", issued.principal.name));
                print(issued.token.reveal())?;
            }
            Self::Revoke { name } => {
                let Some(executor) = executor::by_name(&mut desk.store.read().await?, &name).await? else {
                    return Err(Failure::new(format!("there is no executor `{name}`"))
                        .hint("`counterfoil executor list` shows which there are"));
                };
                let change = ExecutorChange { revoked: Some(Revoked), ..ExecutorChange::default() };
                agents::change_executor(&desk, &admin, executor.id, change).await?;
                say(&format!("the token of `{name}` is revoked"));
            }
            Self::List => {
                for executor in executor::list(&mut desk.store.read().await?).await? {
                    let state = if executor.revoked_at.is_none() { "active" } else { "revoked" };
                    print(&format!("{}\t{}\t{}\t{state}", executor.id, executor.name, executor.kinds.join(",")))?;
                }
            }
        }
        desk.store.close().await;
        Ok(())
    }
}
