//! Settings: people, agents and executors.

use axum::{
    Router,
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use leptos::prelude::*;
use serde::Deserialize;

use super::{
    parts::{self, Head, List, Sheet},
    render::{Page, Visitor},
    settings::{Tab, beside_form, faults, is_admin, none_yet, tabs},
    shell::Place,
};
use crate::{
    model::{
        approval::Role,
        id::{AgentId, ExecutorId, PersonId},
        problem::{Code, Problem},
        run::Allowance,
    },
    server::{
        service::{
            account::{self, Name, NewPerson, Password, PersonChange},
            agents::{self, AgentChange, ExecutorChange, KindPattern, Label, NewAgent, NewExecutor, Revoked},
            error::Result,
        },
        store::{
            agent::{self, Agent},
            executor::{self, Executor},
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
        .route("/settings/people", get(people).post(add_person))
        .route("/settings/people/{id}", get(one_person).post(change_person))
        .route("/settings/people/{id}/password", post(set_password))
        .route("/settings/agents", get(all_agents).post(add_agent))
        .route("/settings/agents/{id}", get(one_agent).post(change_agent))
        .route("/settings/agents/{id}/revoke", post(revoke_agent))
        .route("/settings/executors", get(all_executors).post(add_executor))
        .route("/settings/executors/{id}/revoke", post(revoke_executor))
}

/// A field that was not filled in right.
fn fault(pointer: &'static str) -> impl Fn(&'static str) -> Problem {
    move |words| Problem::at(Code::ValidationFailed, pointer, words)
}

/// Words of one line, apart by spaces or commas.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split([' ', ',', '\n', '\r', '\t']).filter(|word| !word.is_empty())
}

fn groups(text: &str) -> std::result::Result<Vec<Name>, Problem> {
    words(text).map(|word| Name::try_from(word.to_owned()).map_err(fault("/groups"))).collect()
}

fn roles(chosen: Role) -> Vec<AnyView> {
    let option = |role: Role| view! { <option selected=role == chosen>{role.as_str()}</option> }.into_any();
    Role::ALL.into_iter().map(option).collect()
}

fn role_words(role: Role) -> &'static str {
    match role {
        Role::Viewer => "reads",
        Role::Approver => "votes, in their groups",
        Role::Operator => "on-call: votes, stops runs, resolves unknown outcomes",
        Role::Admin => "votes, and changes everything here",
        Role::Auditor => "reads the log, never votes",
    }
}

// People

/// What was typed into the form for a new person; never the password.
#[derive(Deserialize, Default)]
#[serde(default)]
struct GivenPerson {
    name: String,
    role: String,
    groups: String,
    password: String,
}

async fn people(visitor: Visitor) -> Result<Page> {
    people_page(&visitor, GivenPerson::default(), None).await
}

async fn add_person(visitor: Visitor, admin: Admin, Form(given): Form<GivenPerson>) -> Result<Response> {
    let read = || -> std::result::Result<NewPerson, Problem> {
        Ok(NewPerson {
            name: Name::try_from(given.name.clone()).map_err(fault("/name"))?,
            role: given.role.parse()?,
            groups: groups(&given.groups)?,
            password: Password::try_from(given.password.clone()).map_err(fault("/password"))?,
        })
    };
    let added = match read() {
        Ok(new) => account::create_person(&visitor.desk, &(&admin).into(), new).await,
        Err(problem) => Err(problem.into()),
    };
    match added {
        Ok(_) => Ok(Redirect::to("/settings/people").into_response()),
        Err(error) => {
            let problem = beside_form(error)?;
            Ok(people_page(&visitor, given, Some(&problem)).await?.refused(problem.code).into_response())
        }
    }
}

async fn people_page(visitor: &Visitor, given: GivenPerson, refused: Option<&Problem>) -> Result<Page> {
    let people = person::list(&mut visitor.desk.store.read().await?).await?;
    let (now, is_admin) = (visitor.now, is_admin(visitor));
    Ok(visitor.page("People", Place::Settings, || {
        let rows: Vec<_> = people
            .iter()
            .map(|person| {
                let name = if is_admin {
                    view! { <a href=format!("/settings/people/{}", person.id)>{person.name.clone()}</a> }.into_any()
                } else {
                    person.name.clone().into_any()
                };
                let state = match person.disabled_at {
                    Some(at) => view! { "disabled "{parts::when(at, now, TimeForm::Day)} }.into_any(),
                    None => view! { "since "{parts::when(person.created_at, now, TimeForm::Day)} }.into_any(),
                };
                view! {
                    <tr>
                        <th scope="row">{name}</th>
                        <td><b>{person.role.as_str()}</b>", "{role_words(person.role)}</td>
                        <td class="mono">{person.groups.join(" ")}</td>
                        <td class="meta">{state}</td>
                    </tr>
                }
            })
            .collect();
        let slip = view! {
            <section class="sec sec-first">
                <List label="People" heads=vec!["Name", "Role", "Groups", ""]>{rows}</List>
            </section>
        };
        let stub = if is_admin {
            view! {
                <form class="p p-first" action="/settings/people" method="post">
                    <div class="p-head"><h2>"Add a person"</h2></div>
                    <div class="stack">
                        <label class="field">
                            <span>"Name"</span>
                            <input
                                class="in"
                                name="name"
                                maxlength="64"
                                required
                                autocomplete="off"
                                autocapitalize="off"
                                spellcheck="false"
                                value=given.name.clone()
                            />
                        </label>
                        <label class="field">
                            <span>"Role"</span>
                            <select class="in" name="role">{roles(given.role.parse().unwrap_or(Role::Approver))}</select>
                        </label>
                        <label class="field">
                            <span>"Groups"</span>
                            <input
                                class="in"
                                name="groups"
                                maxlength="500"
                                autocapitalize="off"
                                spellcheck="false"
                                placeholder="approvers sre"
                                value=given.groups.clone()
                            />
                        </label>
                        <label class="field">
                            <span>"First password"</span>
                            <input
                                class="in"
                                type="password"
                                name="password"
                                minlength="12"
                                maxlength="1024"
                                required
                                autocomplete="new-password"
                            />
                            <small>"12 characters at least."</small>
                        </label>
                        <button class="btn btn-ink" type="submit">"Add"</button>
                    </div>
                </form>
            }
            .into_any()
        } else {
            view! { <section class="p p-first"><p>"An admin adds and changes people."</p></section> }.into_any()
        };
        view! {
            <Head title="People">"Who may sign in, and what they may sign."</Head>
            {tabs(Tab::People)}
            {faults(refused)}
            <div class="gap-top"><Sheet slip=slip.into_any() stub=stub stub_label="Add a person" /></div>
        }
    }))
}

async fn find_person(visitor: &Visitor, id: &PersonId) -> Result<Person> {
    let found = person::by_id(&mut visitor.desk.store.read().await?, id).await?;
    Ok(found.ok_or_else(|| Problem::new(Code::NotFound, "there is no such person"))?)
}

async fn one_person(visitor: Visitor, _: Admin, Path(id): Path<PersonId>) -> Result<Page> {
    let person = find_person(&visitor, &id).await?;
    Ok(person_page(&visitor, &person, None))
}

#[derive(Deserialize)]
struct PersonForm {
    role: String,
    #[serde(default)]
    groups: String,
    /// `yes` when they may sign in.
    #[serde(default)]
    enabled: String,
}

async fn change_person(
    visitor: Visitor,
    admin: Admin,
    Path(id): Path<PersonId>,
    Form(given): Form<PersonForm>,
) -> Result<Response> {
    let read = || -> std::result::Result<PersonChange, Problem> {
        Ok(PersonChange {
            role: Some(given.role.parse()?),
            groups: Some(groups(&given.groups)?),
            disabled: Some(given.enabled != "yes"),
            password: None,
        })
    };
    let change = read();
    answer_person(&visitor, &admin, id, change).await
}

#[derive(Deserialize)]
struct NewPassword {
    password: String,
}

async fn set_password(
    visitor: Visitor,
    admin: Admin,
    Path(id): Path<PersonId>,
    Form(given): Form<NewPassword>,
) -> Result<Response> {
    let password = Password::try_from(given.password).map_err(fault("/password"));
    let change = password.map(|password| PersonChange { password: Some(password), ..PersonChange::default() });
    answer_person(&visitor, &admin, id, change).await
}

async fn answer_person(
    visitor: &Visitor,
    admin: &Admin,
    id: PersonId,
    change: std::result::Result<PersonChange, Problem>,
) -> Result<Response> {
    let person = find_person(visitor, &id).await?;
    let changed = match change {
        Ok(change) => account::change_person(&visitor.desk, &admin.into(), id, change).await,
        Err(problem) => Err(problem.into()),
    };
    match changed {
        Ok(_) => Ok(Redirect::to("/settings/people").into_response()),
        Err(error) => {
            let problem = beside_form(error)?;
            Ok(person_page(visitor, &person, Some(&problem)).refused(problem.code).into_response())
        }
    }
}

fn person_page(visitor: &Visitor, person: &Person, refused: Option<&Problem>) -> Page {
    let address = format!("/settings/people/{}", person.id);
    let password = format!("{address}/password");
    let does = role_words(person.role);
    visitor.page(&person.name, Place::Settings, || {
        let slip = view! {
            <form class="sec sec-first stack" action=address method="post">
                <label class="field">
                    <span>"Role"</span>
                    <select class="in" name="role">{roles(person.role)}</select>
                </label>
                <label class="field">
                    <span>"Groups"</span>
                    <input
                        class="in"
                        name="groups"
                        maxlength="500"
                        autocapitalize="off"
                        spellcheck="false"
                        value=person.groups.join(" ")
                    />
                </label>
                <label class="pick">
                    <input type="checkbox" name="enabled" value="yes" checked=person.is_enabled() />
                    " may sign in"
                </label>
                <div class="acts">
                    <button class="btn btn-ink" type="submit">"Save"</button>
                    <a href="/settings/people">"Back, and change nothing"</a>
                </div>
            </form>
        };
        let stub = view! {
            <form class="p p-first" action=password method="post">
                <div class="p-head"><h2>"Set a new password"</h2></div>
                <div class="stack">
                    <label class="field">
                        <span>"Password"</span>
                        <input
                            class="in"
                            type="password"
                            name="password"
                            minlength="12"
                            maxlength="1024"
                            required
                            autocomplete="new-password"
                        />
                        <small>"Ends all their sessions."</small>
                    </label>
                    <button class="btn" type="submit">"Set it"</button>
                </div>
            </form>
            <section class="p">
                <p>"Who is disabled loses their sessions at once, and their votes stop counting at the claim."</p>
                <p class="id">{person.id.to_string()}</p>
            </section>
        };
        view! {
            <nav class="crumbs" aria-label="Place"><a href="/settings/people">"People"</a></nav>
            <Head title=person.name.clone()>{does}</Head>
            {faults(refused)}
            <div class="gap-top"><Sheet slip=slip.into_any() stub=stub.into_any() stub_label="Password" /></div>
        }
    })
}

// Agents

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

/// The one time a token is shown.
fn token_page(visitor: &Visitor, name: &str, token: &str, next: &'static str, back: &'static str) -> Page {
    visitor.page(name, Place::Settings, || {
        view! {
            <Head title=name.to_owned()>"Its token, shown this once. Only a hash of it is kept."</Head>
            <div class="card pane stack narrow">
                <code class="token">{token.to_owned()}</code>
                <p class="second">{next}</p>
                <p><a class="btn btn-small" href=back>"I have it"</a></p>
            </div>
        }
    })
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
                        <label class="field">
                            <span>"Name"</span>
                            <input
                                class="in"
                                name="name"
                                maxlength="100"
                                required
                                autocomplete="off"
                                spellcheck="false"
                                value=given.name.clone()
                            />
                        </label>
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

// Executors

#[derive(Deserialize, Default)]
#[serde(default)]
struct GivenExecutor {
    name: String,
    kinds: String,
}

async fn all_executors(visitor: Visitor) -> Result<Page> {
    executors_page(&visitor, GivenExecutor::default(), None).await
}

async fn add_executor(visitor: Visitor, admin: Admin, Form(given): Form<GivenExecutor>) -> Result<Response> {
    let read = || -> std::result::Result<NewExecutor, Problem> {
        let kinds = words(&given.kinds).map(|word| KindPattern::try_from(word.to_owned()).map_err(fault("/kinds")));
        Ok(NewExecutor {
            name: Label::try_from(given.name.clone()).map_err(fault("/name"))?,
            kinds: kinds.collect::<std::result::Result<_, _>>()?,
        })
    };
    let added = match read() {
        Ok(new) => agents::create_executor(&visitor.desk, &(&admin).into(), new).await,
        Err(problem) => Err(problem.into()),
    };
    match added {
        Ok(issued) => {
            let token = issued.token.reveal();
            let next =
                "With this token it claims approved operations of its kinds, once each, and reports what came of them.";
            Ok(token_page(&visitor, &issued.principal.name, token, next, "/settings/executors").into_response())
        }
        Err(error) => {
            let problem = beside_form(error)?;
            Ok(executors_page(&visitor, given, Some(&problem)).await?.refused(problem.code).into_response())
        }
    }
}

async fn revoke_executor(visitor: Visitor, admin: Admin, Path(id): Path<ExecutorId>) -> Result<Redirect> {
    let change = ExecutorChange { revoked: Some(Revoked), ..ExecutorChange::default() };
    agents::change_executor(&visitor.desk, &(&admin).into(), id, change).await?;
    Ok(Redirect::to("/settings/executors"))
}

async fn executors_page(visitor: &Visitor, given: GivenExecutor, refused: Option<&Problem>) -> Result<Page> {
    let executors = executor::list(&mut visitor.desk.store.read().await?).await?;
    let (now, is_admin) = (visitor.now, is_admin(visitor));
    Ok(visitor.page("Executors", Place::Settings, || {
        let row = |executor: &Executor| {
            let state = match (executor.revoked_at, is_admin) {
                (Some(at), _) => view! { "revoked "{parts::when(at, now, TimeForm::Day)} }.into_any(),
                (None, true) => view! {
                    <form action=format!("/settings/executors/{}/revoke", executor.id) method="post">
                        <button class="btn btn-small" type="submit">"Revoke"</button>
                    </form>
                }
                .into_any(),
                (None, false) => view! { "since "{parts::when(executor.created_at, now, TimeForm::Day)} }.into_any(),
            };
            view! {
                <tr>
                    <th scope="row">{parts::line(&executor.name)}</th>
                    <td class="mono">{executor.kinds.join(" ")}</td>
                    <td class="meta">{state}</td>
                </tr>
            }
        };
        let rows: Vec<_> = executors.iter().map(row).collect();
        let slip = if rows.is_empty() {
            let words = "An executor claims approved operations of its kinds and carries them out. A run can also claim its \
                         own agent's.";
            none_yet("No executors yet", words).into_any()
        } else {
            view! {
                <section class="sec sec-first">
                    <List label="Executors" heads=vec!["Name", "Kinds", ""]>{rows}</List>
                </section>
            }
            .into_any()
        };
        let stub = if is_admin {
            view! {
                <form class="p p-first" action="/settings/executors" method="post">
                    <div class="p-head"><h2>"Add an executor"</h2></div>
                    <div class="stack">
                        <label class="field">
                            <span>"Name"</span>
                            <input
                                class="in"
                                name="name"
                                maxlength="100"
                                required
                                autocomplete="off"
                                spellcheck="false"
                                value=given.name.clone()
                            />
                        </label>
                        <label class="field">
                            <span>"Kinds"</span>
                            <input
                                class="in in-mono"
                                name="kinds"
                                maxlength="500"
                                required
                                autocapitalize="off"
                                spellcheck="false"
                                placeholder="deployment.* ticket.create"
                                value=given.kinds.clone()
                            />
                        </label>
                        <button class="btn btn-ink" type="submit">"Add, and show the token"</button>
                    </div>
                </form>
            }
            .into_any()
        } else {
            view! { <section class="p p-first"><p>"An admin adds and revokes executors."</p></section> }.into_any()
        };
        view! {
            <Head title="Executors">"Programs that carry out what was approved."</Head>
            {tabs(Tab::Executors)}
            {faults(refused)}
            <div class="gap-top"><Sheet slip=slip stub=stub stub_label="Add an executor" /></div>
        }
    }))
}
