//! `user add | passwd | list`

use std::io::{self, BufRead};

use clap::{Args, Subcommand};

use super::{Failure, Result, desk, parse, print, say};
use crate::{
    model::approval::Role,
    server::{
        config::Config,
        service::account::{self, Administrator, Name, NewPerson, Password, PersonChange},
        store::person,
    },
};

#[derive(Subcommand)]
pub enum Word {
    /// Add a person
    Add {
        /// How they sign in
        #[arg(value_parser = parse::<Name>)]
        name: Name,
        /// viewer, approver, operator, admin or auditor
        #[arg(long)]
        role: Role,
        /// A group they are in; may be given again
        #[arg(long = "group", value_parser = parse::<Name>)]
        groups: Vec<Name>,
        #[command(flatten)]
        password: PasswordSource,
    },
    /// Set a person's password; their sessions end
    Passwd {
        #[arg(value_parser = parse::<Name>)]
        name: Name,
        #[command(flatten)]
        password: PasswordSource,
    },
    /// List people: name, role, groups, state
    List,
}

/// A password is never an argument: other users of the machine see those.
#[derive(Args)]
pub struct PasswordSource {
    /// Read the password from the first line of standard input
    #[arg(long, required = true)]
    password_stdin: bool,
}

impl PasswordSource {
    fn read(&self) -> Result<Password> {
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line)?;
        Password::try_from(line.trim_end_matches(['\r', '\n']).to_owned()).map_err(Failure::new)
    }
}

impl Word {
    pub async fn run(self, config: Config) -> Result<()> {
        let admin = Administrator::command_line();
        match self {
            Self::Add { name, role, groups, password } => {
                let new = NewPerson { name, role, groups, password: password.read()? };
                let desk = desk(config).await?;
                let person = account::create_person(&desk, &admin, new).await?;
                say(&format!("added `{}`", person.name));
                print(person.id.as_str())?;
                desk.store.close().await;
            }
            Self::Passwd { name, password } => {
                let password = Some(password.read()?);
                let desk = desk(config).await?;
                let person = person::by_name(&mut desk.store.read().await?, name.as_str()).await?;
                let Some(person) = person else {
                    return Err(Failure::new(format!("there is no person `{}`", name.as_str()))
                        .hint("`counterfoil user list` shows who there is"));
                };
                let change = PersonChange { password, ..PersonChange::default() };
                account::change_person(&desk, &admin, person.id, change).await?;
                say(&format!("the password of `{}` is set, and their sessions have ended", person.name));
                desk.store.close().await;
            }
            Self::List => {
                let desk = desk(config).await?;
                for person in person::list(&mut desk.store.read().await?).await? {
                    let state = if person.is_enabled() { "enabled" } else { "disabled" };
                    print(&format!("{}\t{}\t{}\t{state}", person.name, person.role.as_str(), person.groups.join(",")))?;
                }
                desk.store.close().await;
            }
        }
        Ok(())
    }
}
