//! Settings: agents.

use axum::{
    Router,
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use leptos::prelude::*;
use serde::Deserialize;

use super::{
    super::{
        parts::{self, Head, List, Sheet},
        render::{Page, Visitor},
        shell::Place,
    },
    Tab, beside_form, fault, faults, is_admin, name_field, none_yet, tabs, token_page,
};
use crate::{
    model::{
        id::AgentId,
        problem::{Code, Problem},
        run::Allowance,
    },
    server::{
        service::{
            agents::{self, AgentChange, Label, NewAgent, Revoked},
            error::Result,
        },
        store::{
            agent::{self, Agent},
            person::{self, Person},
        },
        web::{
            auth::Admin,
            body::{Form, Path},
            state::AppState,
        },
    },
    ui::{textarea::TextArea, time::Form as TimeForm},
};

pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/settings/agents", get(all_agents).post(add_agent))
        .route("/settings/agents/{id}", get(one_agent).post(change_agent))
        .route("/settings/agents/{id}/revoke", post(revoke_agent))
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct GivenAgent {
    name: String,
    owner: String,
    allow: String,
}

/// One line each: a scope, then verbs. No line sets no ceiling.
fn ceiling(text: &str) -> std::result::Result<Option<Vec<Allowance>>, Problem> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty()).enumerate();
    let allowances = lines
        .map(|(i, line)| {
            line.parse().map_err(|words: String| Problem::at(Code::ValidationFailed, format!("/allow/{i}"), words))
        })
        .collect::<std::result::Result<Vec<Allowance>, Problem>>()?;
    Ok((!allowances.is_empty()).then_some(allowances))
}

fn spelled(allowance: &Allowance) -> String {
    let verbs: Vec<_> = allowance.verbs.iter().map(|verb| verb.as_str()).collect();
    format!("{} {}", allowance.resource, verbs.join(" "))
}

async fn all_agents(visitor: Visitor) -> Result<Page> {
    agents_page(&visitor, GivenAgent::default(), None).await
}

async fn add_agent(visitor: Visitor, admin: Admin, Form(given): Form<GivenAgent>) -> Result<Response> {
    let read = || -> std::result::Result<NewAgent, Problem> {
        Ok(NewAgent {
            name: Label::try_from(given.name.clone()).map_err(fault("/name"))?,
            owner: given.owner.clone(),
            allow: ceiling(&given.allow)?,
        })
    };
    let added = match read() {
        Ok(new) => agents::create_agent(&visitor.desk, &(&admin).into(), new).await,
        Err(problem) => Err(problem.into()),
    };
    match added {
        Ok(issued) => {
            let token = issued.token.reveal();
            let next = "It starts runs with this token: POST /api/v1/runs. A run has a token of its own, and proposes.";
            Ok(token_page(&visitor, &issued.principal.name, token, next, "/settings/agents").into_response())
        }
        Err(error) => {
            let problem = beside_form(error)?;
            Ok(agents_page(&visitor, given, Some(&problem)).await?.refused(problem.code).into_response())
        }
    }
}

async fn agents_page(visitor: &Visitor, given: GivenAgent, refused: Option<&Problem>) -> Result<Page> {
    let mut conn = visitor.desk.store.read().await?;
    let (agents, people) = (agent::list(&mut conn).await?, person::list(&mut conn).await?);
    drop(conn);
    let (now, is_admin) = (visitor.now, is_admin(visitor));
    Ok(visitor.page("Agents", Place::Settings, || {
        let rows: Vec<_> = agents
            .iter()
            .map(|agent| {
                let name = if is_admin {
                    let address = format!("/settings/agents/{}", agent.id);
                    view! { <a href=address>{parts::line(&agent.name)}</a> }.into_any()
                } else {
                    parts::line(&agent.name).into_any()
                };
                let allow = match &agent.allow {
                    Some(allow) => allow.iter().map(spelled).collect::<Vec<_>>().join("; "),
                    None => "no ceiling, nothing granted by rule".to_owned(),
                };
                let state = match agent.revoked_at {
                    Some(at) => view! { "revoked "{parts::when(at, now, TimeForm::Day)} }.into_any(),
                    None => view! { "since "{parts::when(agent.created_at, now, TimeForm::Day)} }.into_any(),
                };
                view! {
                    <tr>
                        <th scope="row">{name}</th>
                        <td>{agent.owner_name.clone()}</td>
                        <td>{allow}</td>
                        <td class="meta">{state}</td>
                    </tr>
                }
            })
            .collect();
        let slip = if rows.is_empty() {
            none_yet("No agents yet", "An agent is a program with an owner. It proposes; it never decides.").into_any()
        } else {
            view! {
                <section class="sec sec-first">
                    <List label="Agents" heads=vec!["Name", "Owner", "Its runs may be granted", ""]>{rows}</List>
                </section>
            }
            .into_any()
        };
        let stub = if is_admin {
            view! {
                <form class="p p-first" action="/settings/agents" method="post">
                    <div class="p-head"><h2>"Add an agent"</h2></div>
                    <div class="stack">
                        {name_field(given.name.clone())}
                        <label class="field">
                            <span>"Owner"</span>
                            <select class="in" name="owner">{owners(&people, &given.owner)}</select>
                            <small>"Answers for it, and never approves its work."</small>
                        </label>
                        {ceiling_field(given.allow.clone())}
                        <button class="btn btn-ink" type="submit">"Add, and show the token"</button>
                    </div>
                </form>
            }
            .into_any()
        } else {
            view! { <section class="p p-first"><p>"An admin adds and changes agents."</p></section> }.into_any()
        };
        view! {
            <Head title="Agents">"Programs that propose, each with a person who answers for it."</Head>
            {tabs(Tab::Agents)}
            {faults(refused)}
            <div class="gap-top"><Sheet slip=slip stub=stub stub_label="Add an agent" /></div>
        }
    }))
}

fn owners(people: &[Person], chosen: &str) -> Vec<AnyView> {
    let enabled = people.iter().filter(|person| person.is_enabled());
    enabled
        .map(|person| view! { <option selected=person.name == chosen>{person.name.clone()}</option> }.into_any())
        .collect()
}

fn ceiling_field(text: String) -> impl IntoView {
    view! {
        <div class="field">
            <label class="lab" for="allow">"Ceiling"</label>
            <TextArea id="allow" name="allow" class="in-mono" value=text rows=3 described_by=Some("allow-help") />
            <small id="allow-help">
                "What its runs may be granted at most, a line each: "<code>"release/staging deploy"</code>
                ". Empty: anything may be proposed, nothing is granted by rule."
            </small>
        </div>
    }
}

async fn find_agent(visitor: &Visitor, id: &AgentId) -> Result<Agent> {
    let found = agent::by_id(&mut visitor.desk.store.read().await?, id).await?;
    Ok(found.ok_or_else(|| Problem::new(Code::NotFound, "there is no such agent"))?)
}

async fn one_agent(visitor: Visitor, _: Admin, Path(id): Path<AgentId>) -> Result<Page> {
    agent_page(&visitor, &id, None).await
}

#[derive(Deserialize)]
struct AgentForm {
    owner: String,
    #[serde(default)]
    allow: String,
}

async fn change_agent(
    visitor: Visitor,
    admin: Admin,
    Path(id): Path<AgentId>,
    Form(given): Form<AgentForm>,
) -> Result<Response> {
    let change = ceiling(&given.allow).map(|allow| AgentChange {
        owner: Some(given.owner),
        allow: Some(allow),
        ..AgentChange::default()
    });
    let changed = match change {
        Ok(change) => agents::change_agent(&visitor.desk, &(&admin).into(), id.clone(), change).await,
        Err(problem) => Err(problem.into()),
    };
    match changed {
        Ok(_) => Ok(Redirect::to("/settings/agents").into_response()),
        Err(error) => {
            let problem = beside_form(error)?;
            Ok(agent_page(&visitor, &id, Some(&problem)).await?.refused(problem.code).into_response())
        }
    }
}

async fn revoke_agent(visitor: Visitor, admin: Admin, Path(id): Path<AgentId>) -> Result<Redirect> {
    let change = AgentChange { revoked: Some(Revoked), ..AgentChange::default() };
    agents::change_agent(&visitor.desk, &(&admin).into(), id, change).await?;
    Ok(Redirect::to("/settings/agents"))
}

async fn agent_page(visitor: &Visitor, id: &AgentId, refused: Option<&Problem>) -> Result<Page> {
    let agent = find_agent(visitor, id).await?;
    let people = person::list(&mut visitor.desk.store.read().await?).await?;
    let now = visitor.now;
    let address = format!("/settings/agents/{}", agent.id);
    let revoke = format!("{address}/revoke");
    Ok(visitor.page(&agent.name.clone(), Place::Settings, || {
        let allow = agent.allow.iter().flatten().map(spelled).collect::<Vec<_>>().join("\n");
        let slip = view! {
            <form class="sec sec-first stack" action=address method="post">
                <label class="field">
                    <span>"Owner"</span>
                    <select class="in" name="owner">{owners(&people, &agent.owner_name)}</select>
                    <small>"Whoever owned it when it proposed cannot approve that work either."</small>
                </label>
                {ceiling_field(allow)}
                <div class="acts">
                    <button class="btn btn-ink" type="submit">"Save"</button>
                    <a href="/settings/agents">"Back, and change nothing"</a>
                </div>
            </form>
        };
        let stub = match agent.revoked_at {
            Some(at) => view! {
                <section class="p p-first"><p>"Revoked "{parts::when(at, now, TimeForm::Clock)}". It stays revoked."</p></section>
            }
            .into_any(),
            None => view! {
                <form class="p p-first" action=revoke method="post">
                    <div class="p-head"><h2>"Revoke its token"</h2></div>
                    <div class="stack">
                        <p>"For good. Neither it nor its runs can do anything any more."</p>
                        <button class="btn btn-stop" type="submit">"Revoke"</button>
                    </div>
                </form>
            }
            .into_any(),
        };
        view! {
            <nav class="crumbs" aria-label="Place"><a href="/settings/agents">"Agents"</a></nav>
            <Head title=agent.name.clone()><span class="id">{agent.id.to_string()}</span></Head>
            {faults(refused)}
            <div class="gap-top"><Sheet slip=slip.into_any() stub=stub stub_label="Revoke" /></div>
        }
    }))
}
