//! Runs: the processes of agents, and the way to stop one.

use axum::{
    Router,
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use leptos::prelude::*;
use serde::Deserialize;

use super::{
    change_set as sets, conflict as conflicts, error, leases,
    parts::{self, Empty, Head, Sheet},
    queue::{self, Last, Pick},
    render::{Page, Visitor, link},
    run_approvals,
    shell::Place,
    work,
};
use crate::{
    model::{
        approval::Role,
        change_set::ChangeSet,
        id::{ApprovalId, OperationId, RunId},
        problem::{Code, Problem},
        run::{RunStatus, Scope, WriteGrant},
        text::Breaks,
        time::Timestamp,
    },
    server::{
        service::{
            change_set,
            conflict::{self, Line, LinesQuery},
            desk,
            error::{Error, Result},
            lease::{self, LeaseView},
            run, run_approval,
        },
        store::{agent, person, run::Run},
        web::{
            auth::Principal,
            body::{Form, Path, Query},
            state::AppState,
        },
    },
    ui::time::Form as TimeForm,
};

const PAGE: i64 = 50;

pub fn routes() -> Router<AppState> {
    let back = |Path(id): Path<RunId>| async move { Redirect::to(&format!("/runs/{id}")) };
    let back_to_run = |Path((id, _)): Path<(RunId, ApprovalId)>| async move { Redirect::to(&format!("/runs/{id}")) };
    Router::new()
        .route("/runs", get(list))
        .route("/runs/{id}", get(show))
        .route("/runs/{id}/stop", post(stop).get(back))
        .route("/runs/{id}/approvals", post(run_approvals::grant).get(back))
        .route("/runs/{id}/approvals/{approval}/revoke", post(run_approvals::revoke).get(back_to_run))
}

#[derive(Deserialize)]
struct Before {
    before: Option<String>,
}

async fn list(visitor: Visitor, Query(Before { before }): Query<Before>) -> Result<Page> {
    let before = before.as_deref().and_then(|id| id.parse::<RunId>().ok());
    let mut runs = run::list(&visitor.desk, &principal(&visitor), before.as_ref(), PAGE + 1).await?;
    let has_more = runs.len() as i64 > PAGE;
    runs.truncate(PAGE as usize);
    let next = runs.last().filter(|_| has_more).map(|run| link("/runs", &[("before", run.id.as_str())]));
    let now = visitor.now;
    Ok(visitor.page("Runs", Place::Runs, || {
        let rows: Vec<_> = runs.iter().map(|run| row(run, now)).collect();
        view! {
            <Head title="Runs">"Each is one process of an agent, with a credential of its own. Newest first."</Head>
            {work::lanes(work::Lane::Runs)}
            <div class="gap-top"></div>
            {if rows.is_empty() {
                view! {
                    <Empty heading="No agent has started a run" way_on=Some(("See the agents", "/settings/agents".to_owned()))>
                        "An agent starts one with its token; every write it proposes belongs to a run."
                    </Empty>
                }
                    .into_any()
            } else {
                view! {
                    <div class="rows perf runs">
                        <div class="row-head" aria-hidden="true">
                            <div class="row-slip">
                                <span>"State"</span>
                                <span>"Run"</span>
                                <span>"Agent"</span>
                                <span>"Started"</span>
                            </div>
                            <div class="row-stub">
                                <span>"Ends"</span>
                            </div>
                        </div>
                        <ol>{rows}</ol>
                    </div>
                }
                    .into_any()
            }}
            {next.map(work::next_page)}
        }
    }))
}

fn principal(visitor: &Visitor) -> Principal {
    Principal::Person(visitor.person.clone())
}

fn row(run: &Run, now: Timestamp) -> impl IntoView + use<> {
    let ends = match (run.status(now), &run.stopped) {
        (RunStatus::Live, _) => view! { <span>"in "{parts::left(run.expires_at, now)}</span> }.into_any(),
        (_, Some(stopped)) => {
            view! { <span>"stopped "{parts::when(stopped.at, now, TimeForm::Clock)}</span> }.into_any()
        }
        (_, None) => view! { <span>"expired "{parts::when(run.expires_at, now, TimeForm::Clock)}</span> }.into_any(),
    };
    view! {
        <li class="row">
            <div class="row-slip">
                {status(run.status(now))}
                <div class="row-what">
                    <div class="row-name">
                        <a class="row-link" href=format!("/runs/{}", run.id)>
                            <b>{parts::line(&run.label)}</b>
                        </a>
                    </div>
                    <p class="id">{run.id.to_string()}</p>
                </div>
                <span>{parts::line(&run.agent_name)}</span>
                <span>{parts::when(run.created_at, now, TimeForm::Clock)}</span>
            </div>
            <div class="row-stub">{ends}</div>
        </li>
    }
}

fn status(status: RunStatus) -> impl IntoView {
    let meaning = match status {
        RunStatus::Live => "state-sign",
        RunStatus::Stopped => "state-stop",
        RunStatus::Expired => "state-off",
    };
    view! { <span class=format!("state {meaning}")>{parts::capital(status.as_str())}</span> }
}

#[derive(Deserialize)]
struct BeforeOperation {
    before: Option<String>,
}

async fn show(
    visitor: Visitor,
    Path(id): Path<RunId>,
    Query(BeforeOperation { before }): Query<BeforeOperation>,
) -> Result<Page> {
    let before = before.as_deref().and_then(|id| id.parse().ok());
    page(&visitor, &id, before, Refused::Nothing).await
}

/// What the reader sent that was not done.
pub enum Refused {
    Nothing,
    /// Why the run was not stopped.
    Stop(String),
    Approval(Problem, run_approvals::Draft),
}

#[derive(Deserialize)]
struct Stop {
    #[serde(default)]
    reason: String,
}

async fn stop(visitor: Visitor, Path(id): Path<RunId>, Form(given): Form<Stop>) -> Result<Response> {
    let reason = given.reason.trim().to_owned();
    let refused = match reason.chars().count() {
        0 => Some("Say why: it stands in the log and on what is cancelled."),
        1..=1000 => None,
        _ => Some("At most 1000 characters."),
    };
    if let Some(words) = refused {
        let page = page(&visitor, &id, None, Refused::Stop(words.to_owned())).await?;
        return Ok(page.refused(Code::ValidationFailed).into_response());
    }
    match run::stop(&visitor.desk, &principal(&visitor), &id, reason).await {
        Ok(_) => Ok(Redirect::to(&format!("/runs/{id}")).into_response()),
        Err(Error::Refused(Problem { code: Code::Forbidden, detail, .. })) => {
            let page = page(&visitor, &id, None, Refused::Stop(error::sentence(&detail))).await?;
            Ok(page.refused(Code::Forbidden).into_response())
        }
        Err(error) => Err(error),
    }
}

pub async fn page(visitor: &Visitor, id: &RunId, before: Option<OperationId>, refused: Refused) -> Result<Page> {
    let (not_stopped, not_approved) = match refused {
        Refused::Nothing => (None, None),
        Refused::Stop(words) => (Some(words), None),
        Refused::Approval(problem, draft) => (None, Some((problem, draft))),
    };
    let run = run::get(&visitor.desk, &principal(visitor), id).await?;
    let (rows, next) = desk::operations_of_run(&visitor.desk, &visitor.person.voter(), id, before, visitor.now).await?;
    let mut conn = visitor.desk.store.read().await?;
    let agent = agent::by_id(&mut conn, &run.agent).await?;
    let owner = agent.as_ref().map(|agent| agent.owner_name.clone()).unwrap_or_default();
    let leases = lease::of_run(&visitor.desk, id).await?;
    let approvals = run_approval::list(&visitor.desk, &principal(visitor), id).await?;
    let kinds = run_approval::coverable_kinds(&visitor.desk).await?;
    let of_run = LinesQuery { run: Some(id.clone()), ..LinesQuery::default() };
    let conflicts = conflict::lines(&visitor.desk, of_run).await?.lines;
    let sets = change_set::of_run(&visitor.desk, id).await?;
    let stopped_by = match &run.stopped {
        Some(stopped) => match stopped.by.parse() {
            Ok(id) => person::by_id(&mut conn, &id).await?.map(|person| person.name),
            Err(_) => Some("the run itself".to_owned()),
        },
        None => None,
    };
    let person = &visitor.person;
    let is_owner = agent.as_ref().is_some_and(|agent| agent.owner == *person.id());
    let off = match (is_owner, &run.write_set, person.role()) {
        (true, ..) => Some("You own this agent."),
        (_, None, _) => Some("The run did not say what it writes, so people decide each of its operations."),
        (.., Role::Viewer | Role::Auditor) => Some("Your role does not vote."),
        _ => None,
    };
    let may_stop = matches!(person.role(), Role::Operator | Role::Admin) || is_owner;
    let now = visitor.now;
    let next = next.map(|id| link(&format!("/runs/{}", run.id), &[("before", id.as_str())]));
    let title = run.label.clone();
    Ok(visitor.page(&title, Place::Runs, || {
        let rows: Vec<_> = rows.iter().map(|one| queue::row(one, Last::State, Pick::None, now)).collect();
        let slip = facts(&run, &owner, stopped_by.as_deref(), now).into_any();
        let stub = view! { {stopping(&run, may_stop, not_stopped, now)}{held(&leases, now).into_any()}{refused_writes(&conflicts, now).into_any()}{change_sets(&sets).into_any()} }
            .into_any();
        let ahead = run_approvals::Given {
            run: &run,
            approvals: &approvals,
            kinds: &kinds,
            off: off.map(str::to_owned),
            refused: not_approved,
            now,
        };
        let (agent, started) = (parts::line(&run.agent_name), parts::when(run.created_at, now, TimeForm::Clock));
        view! {
            <nav class="crumbs" aria-label="Place">
                <a href="/runs">"Runs"</a>
            </nav>
            <Head title=title.clone()>"A run of "{agent}", started "{started}"."</Head>
            <Sheet slip=slip stub=stub stub_label="Stop, leases, conflicts and change sets" />
            {run_approvals::section(ahead).into_any()}
            <section class="gap-top" aria-labelledby="h-operations">
                <h2 id="h-operations">"What it proposed"</h2>
                {if rows.is_empty() {
                    view! { <p class="second gap-small">"Nothing yet."</p> }.into_any()
                } else {
                    view! {
                        <div class="rows perf gap-small">
                            <ol>{rows}</ol>
                        </div>
                    }
                        .into_any()
                }}
                {next.map(work::next_page)}
            </section>
        }
    }))
}

fn facts(run: &Run, owner: &str, stopped_by: Option<&str>, now: Timestamp) -> impl IntoView + use<> {
    let stopped = run.stopped.as_ref().map(|stopped| {
        view! {
            <dt>"Stopped"</dt>
            <dd>
                {parts::when(stopped.at, now, TimeForm::Clock)}
                " by "
                {stopped_by.unwrap_or(&stopped.by).to_owned()}
                ": "
                {parts::said(&stopped.reason, Breaks::Keep)}
            </dd>
        }
    });
    let write_set = match &run.write_set {
        None => view! { "Anything may be proposed, nothing is granted without a person." }.into_any(),
        Some(set) if set.is_empty() => view! { "Nothing." }.into_any(),
        Some(set) => view! { <ul class="stack-2">{set.iter().map(|grant| entry(grant, now)).collect::<Vec<_>>()}</ul> }
            .into_any(),
    };
    view! {
        <div class="slip-top">{status(run.status(now))}</div>
        <section class="sec sec-first">
            <dl class="facts">
                <dt>"Agent"</dt>
                <dd>{parts::line(&run.agent_name)}", owned by "{owner.to_owned()}</dd>
                <dt>"Id"</dt>
                <dd class="id">{run.id.to_string()}</dd>
                <dt>"Expires"</dt>
                <dd>{parts::when(run.expires_at, now, TimeForm::Clock)}</dd>
                {stopped}
                <dt>"Write set"</dt>
                <dd>{write_set}</dd>
                {scopes("Reads", run.reads.as_deref())}
                {scopes("Shared defaults", run.defaults.as_deref())}
                <dt></dt>
                <dd><a href="/conflict-map">"Where it could collide"</a></dd>
            </dl>
        </section>
    }
}

/// What the run declared to read or rely on.
fn scopes(word: &'static str, scopes: Option<&[Scope]>) -> Option<AnyView> {
    let scopes = scopes.filter(|scopes| !scopes.is_empty())?;
    let items: Vec<_> = scopes.iter().map(|scope| view! { <li>{parts::target(scope.as_str())}</li> }).collect();
    Some(view! { <dt>{word}</dt><dd><ul class="touched">{items}</ul></dd> }.into_any())
}

fn held(leases: &[LeaseView], now: Timestamp) -> impl IntoView + use<> {
    let items: Vec<_> = leases
        .iter()
        .map(|lease| {
            view! {
                <li>
                    <a href=leases::address(&lease.id)>{parts::target(lease.resource.as_str())}</a>
                    ", token "
                    {lease.fencing_token.to_string()}
                    ", "
                    {parts::left(lease.expires_at, now)}
                </li>
            }
        })
        .collect();
    panel("Leases", "It holds none.", items)
}

fn refused_writes(conflicts: &[Line], now: Timestamp) -> impl IntoView + use<> {
    let items: Vec<_> = conflicts
        .iter()
        .map(|one| {
            let state = if one.conflict.resolution.is_some() { "resolved" } else { "open" };
            view! {
                <li>
                    <a class="no no-void" href=conflicts::address(&one.conflict.id)>
                        {one.op.proposal.fingerprint.short_code()}
                    </a>
                    " "
                    {parts::target(&one.conflict.resource)}
                    ", "
                    {state}
                    ", "
                    {parts::when(one.conflict.at, now, TimeForm::Clock)}
                </li>
            }
        })
        .collect();
    panel("Conflicts", "None of its writes met another.", items)
}

fn change_sets(of_run: &[ChangeSet]) -> impl IntoView + use<> {
    let items: Vec<_> = of_run
        .iter()
        .map(|set| view! { <li><a href=sets::address(&set.id)>{parts::line(&set.title)}</a>" "{sets::state(set.state)}</li> })
        .collect();
    panel("Change sets", "It is part of none.", items)
}

fn panel(heading: &'static str, none: &'static str, items: Vec<impl IntoView + 'static>) -> impl IntoView {
    let body = match items.is_empty() {
        true => view! { <p>{none}</p> }.into_any(),
        false => view! { <ul class="stack-2 small">{items}</ul> }.into_any(),
    };
    view! {
        <section class="p">
            <div class="p-head"><h2>{heading}</h2></div>
            {body}
        </section>
    }
}

fn entry(grant: &WriteGrant, now: Timestamp) -> impl IntoView + use<> {
    let verbs: Vec<_> = grant.verbs.iter().map(|verb| verb.as_str()).collect();
    let until = grant.expires_at.map(|at| view! { ", until "{parts::when(at, now, TimeForm::Clock)} });
    view! {
        <li>
            {parts::target(grant.resource.as_str())}
            " "
            {verbs.join(", ")}
            {grant.exclusive.then_some(", alone")}
            {until}
        </li>
    }
}

fn stopping(run: &Run, may_stop: bool, refused: Option<String>, now: Timestamp) -> impl IntoView + use<> {
    let is_over = run.status(now) != RunStatus::Live;
    let is_refused = refused.is_some();
    if is_over || !may_stop {
        let words = if is_over {
            "It is over. What it had sent can still be reported; nothing else is taken from it."
        } else {
            "It is stopped by itself, by its agent's owner or by an operator."
        };
        return view! {
            <section class="p p-first">
                <div class="p-head">
                    <h2>"Stop this run"</h2>
                </div>
                <p>{words}</p>
            </section>
        }
        .into_any();
    }
    view! {
        <form class="p p-first" action=format!("/runs/{}/stop", run.id) method="post">
            <div class="p-head">
                <h2>"Stop this run"</h2>
            </div>
            <div class="stack">
                <p>"For good. Its token stops working, and what it has not sent is cancelled."</p>
                <label class="field">
                    <span>"Why"</span>
                    <input
                        class="in"
                        name="reason"
                        maxlength="1000"
                        required
                        aria-invalid=is_refused.then_some("true")
                        aria-describedby=is_refused.then_some("refused")
                    />
                </label>
                {refused.map(|words| view! { <p class="err" id="refused" role="alert">{words}</p> })}
                <button class="btn btn-stop" type="submit">"Stop the run"</button>
            </div>
        </form>
    }
    .into_any()
}
