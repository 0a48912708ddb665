//! Simulated agents, for whoever wants to see a desk at work. They come in by the front door: every step is a call of
//! the public API, with a token or a session. Only the people and agents are made as the command line makes them.

mod client;
mod meetings;
mod scenes;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use serde_json::json;

pub use client::Api;
pub use scenes::play;

use super::{
    ids,
    service::{
        Desk,
        account::{self, Administrator, Name, NewPerson, Password},
        agents::{self, Label, NewAgent},
        catalogue,
        error::{Error, Result},
    },
};
use crate::model::{approval::Role, run::Allowance};

/// Who decides what visitors leave alone.
const COLLEAGUE: &str = "colleague";
/// A target whose operations expire while somebody is looking.
const SHORT_LIVED: &str = "project/night-batch";
const SHORT_LIVED_S: i64 = 30;

/// Somebody a visitor can sign in as.
pub struct Visitor {
    pub name: &'static str,
    pub password: String,
    /// What they do, in a line.
    pub part: &'static str,
}

/// Everybody who takes part.
pub struct Cast {
    pub visitors: Vec<Visitor>,
    colleague_password: String,
    tokens: Tokens,
}

/// The agents' tokens.
struct Tokens {
    triage: String,
    billing: String,
    deployer: String,
    janitor: String,
    batch: String,
    onboarding: String,
    tuner: String,
    responder: String,
    hotfix: String,
    reindexer: String,
    cache: String,
}

impl Cast {
    /// Makes the people, the agents and the policy of the demo.
    ///
    /// # Errors
    /// The database is not to be had.
    pub async fn hire(desk: &Desk) -> Result<Self> {
        let visitors = [
            ("approver", Role::Approver, "approvers", "decides what waits in the queue"),
            ("oncall", Role::Operator, "approvers", "decides, and looks after unknown outcomes"),
            ("admin", Role::Admin, "admins", "looks after people, agents and policies; owns the agents"),
            ("auditor", Role::Auditor, "audit", "reads and exports the audit log"),
        ];
        let mut hired = Vec::new();
        for (name, role, group, part) in visitors {
            hired.push(Visitor { name, password: person(desk, name, role, group).await?, part });
        }
        let colleague_password = person(desk, COLLEAGUE, Role::Approver, "approvers").await?;
        let rule = json!({
            "name": "night batch",
            "match": {"target": SHORT_LIVED},
            "require": {"approval_ttl_s": SHORT_LIVED_S},
        });
        let responder = json!({
            "name": "incident response",
            "match": {"kind": "resource.update", "target": "notification-policy/*", "agent": "incident-responder"},
            "require": {"auto": true},
        });
        let rules = json!({"rules": [rule, responder]});
        catalogue::change_policy(desk, &Administrator::command_line(), &rules, None).await?;
        let tokens = Tokens {
            triage: agent(desk, "alert-triage", None).await?,
            billing: agent(desk, "billing", None).await?,
            deployer: agent(desk, "deployer", None).await?,
            janitor: agent(desk, "credential-janitor", None).await?,
            batch: agent(desk, "night-batch", None).await?,
            onboarding: agent(desk, "onboarding", None).await?,
            tuner: agent(desk, "alert-tuner", Some("notification-policy/* create replace")).await?,
            responder: agent(desk, "incident-responder", Some("notification-policy/* update")).await?,
            hotfix: agent(desk, "hotfix", None).await?,
            reindexer: agent(desk, "reindexer", Some("search-index/* lease")).await?,
            cache: agent(desk, "cache-tuner", Some("cache-policy/* create update")).await?,
        };
        Ok(Self { visitors: hired, colleague_password, tokens })
    }
}

/// Makes a person; their password.
async fn person(desk: &Desk, name: &str, role: Role, group: &str) -> Result<String> {
    let password = URL_SAFE_NO_PAD.encode(ids::random::<12>());
    let named = |text: &str| Name::try_from(text.to_owned()).map_err(Error::internal);
    let new = NewPerson {
        name: named(name)?,
        role,
        groups: vec![named(group)?],
        password: Password::try_from(password.clone()).map_err(Error::internal)?,
    };
    account::create_person(desk, &Administrator::command_line(), new).await?;
    Ok(password)
}

/// Makes an agent of the admin's, with this ceiling; its token.
async fn agent(desk: &Desk, name: &str, allow: Option<&str>) -> Result<String> {
    let name = Label::try_from(name.to_owned()).map_err(Error::internal)?;
    let allow =
        allow.map(|line| line.parse::<Allowance>().map(|line| vec![line])).transpose().map_err(Error::internal)?;
    let new = NewAgent { name, owner: "admin".to_owned(), allow };
    let issued = agents::create_agent(desk, &Administrator::command_line(), new).await?;
    Ok(issued.token.reveal().to_owned())
}
