//! A change set: its steps in order, what it waits for, and the way back.

use axum::{
    Router,
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use leptos::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use super::{
    error,
    operation::address as operation_address,
    parts::{self, Head, Meaning, Notice, Sheet},
    render::{Page, Visitor},
    shell,
};
use crate::{
    model::{
        change_set::{ChangeSet, Next, Part, Place, Progress, SetState},
        id::ChangeSetId,
        json,
        operation::Operation,
        problem::{Code, Problem},
        text::Breaks,
        time::Timestamp,
    },
    server::{
        service::{
            change_set::{self, Known},
            error::{Error, Result},
        },
        web::{
            auth::Principal,
            body::{Form, Path},
            state::AppState,
        },
    },
    ui::time::Form as TimeForm,
};

pub fn routes() -> Router<AppState> {
    let back = |Path(id): Path<ChangeSetId>| async move { Redirect::to(&address(&id)) };
    Router::new()
        .route("/change-sets/{id}", get(show))
        .route("/change-sets/{id}/compensate", post(compensate).get(back))
}

pub fn address(id: &ChangeSetId) -> String {
    format!("/change-sets/{id}")
}

/// What was typed, and why nothing was done.
struct Draft {
    reason: String,
    refused: Refused,
}

enum Refused {
    Reason(&'static str),
    /// By the service.
    Whole(Problem),
}

async fn show(visitor: Visitor, Path(id): Path<ChangeSetId>) -> Result<Page> {
    page(&visitor, &id, None).await
}

#[derive(Deserialize)]
struct Undo {
    #[serde(default)]
    reason: String,
}

async fn compensate(visitor: Visitor, Path(id): Path<ChangeSetId>, Form(given): Form<Undo>) -> Result<Response> {
    let reason = given.reason.trim().to_owned();
    let refused = match reason.chars().count() {
        0 => Refused::Reason("Say why: it stands in the log."),
        1..=1000 => match change_set::compensate(&visitor.desk, &principal(&visitor), &id, reason).await {
            Ok(_) => return Ok(Redirect::to(&address(&id)).into_response()),
            Err(Error::Refused(problem)) if problem.code != Code::NotFound => Refused::Whole(problem),
            Err(error) => return Err(error),
        },
        _ => Refused::Reason("At most 1000 characters."),
    };
    let code = match &refused {
        Refused::Reason(_) => Code::ValidationFailed,
        Refused::Whole(problem) => problem.code,
    };
    let draft = Draft { reason: given.reason, refused };
    Ok(page(&visitor, &id, Some(draft)).await?.refused(code).into_response())
}

fn principal(visitor: &Visitor) -> Principal {
    Principal::Person(visitor.person.clone())
}

/// Everything that the page shows.
struct Paper {
    known: Known,
    /// Operations in whose place another one stands.
    earlier: Vec<(Place, Operation)>,
    now: Timestamp,
}

async fn page(visitor: &Visitor, id: &ChangeSetId, draft: Option<Draft>) -> Result<Page> {
    let known = change_set::get(&visitor.desk, &principal(visitor), id).await?;
    let earlier = change_set::earlier(&visitor.desk, &known.set).await?;
    let mut conn = visitor.desk.store.read().await?;
    let may_undo = change_set::person_may_compensate(&mut conn, &visitor.person, &known.set.agent).await?;
    drop(conn);
    let paper = Paper { known, earlier, now: visitor.now };
    let title = parts::plain(&paper.set().title);
    Ok(visitor.page(&title, shell::Place::Runs, || {
        let set = paper.set();
        let steps: Vec<_> = (0..set.steps.len()).map(|step| paper.step(step).into_any()).collect();
        let slip = view! {
            <div class="slip-top">{state(set.state)}</div>
            {steps}
        };
        let stub = view! {
            {paper.waits()}
            {paper.undoing(may_undo, draft)}
            {paper.facts().into_any()}
        };
        let lead = match set.steps.len() {
            1 => "One step: an operation with its own approval.".to_owned(),
            count => format!("{count} steps in this order, each an operation with its own approval."),
        };
        view! {
            <nav class="crumbs" aria-label="Place">
                <a href="/runs">"Runs"</a>
                <a href=format!("/runs/{}", set.run)>"Its run"</a>
            </nav>
            <Head title=set.title.clone()>{lead}</Head>
            <Sheet slip=slip.into_any() stub=stub.into_any() stub_label="What it waits for, and the way back" />
        }
    }))
}

/// The state of a set, in the colour of its meaning.
pub fn state(state: SetState) -> impl IntoView {
    let meaning = match state {
        SetState::Open | SetState::Compensating => "state-flow",
        SetState::Done => "state-sign",
        SetState::Compensated => "state-off",
        SetState::Stuck => "state-doubt",
    };
    view! { <span class=format!("state {meaning}")>{parts::capital(state.as_str())}</span> }
}

fn number(op: &Operation) -> impl IntoView + use<> {
    view! { <a href=operation_address(op.id())>{parts::number(op)}</a> }
}

fn planned(kind: &str, params: &Value) -> impl IntoView + use<> {
    view! { {parts::line(kind)}" "{parts::target(&json::canonical(params))} }
}

/// What stands at a place, at the begin of a sentence.
fn called(place: Place) -> String {
    let step = place.step + 1;
    match place.part {
        Part::Write => format!("Step {step}"),
        Part::Compensation => format!("What undoes step {step}"),
    }
}

fn panel(heading: &'static str, body: impl IntoView) -> impl IntoView {
    view! {
        <section class="p">
            <div class="p-head"><h2>{heading}</h2></div>
            {body}
        </section>
    }
}

impl Paper {
    fn set(&self) -> &ChangeSet {
        &self.known.set
    }

    fn operation(&self, place: Place) -> Option<&Operation> {
        self.set().place(place).operation.as_ref().and_then(|id| self.known.ops.get(id))
    }

    fn step(&self, step: usize) -> impl IntoView + use<> {
        let plan = &self.set().steps[step].plan;
        let (write, undo) = (Place { step, part: Part::Write }, Place { step, part: Part::Compensation });
        let heading = format!("h-step-{}", step + 1);
        let what = match self.operation(write) {
            Some(op) => view! { <dt>"What it does"</dt><dd>{parts::line(&op.proposal.consequence)}</dd> }.into_any(),
            None => view! { <dt>"Planned"</dt><dd>{planned(&plan.kind, &plan.params)}</dd> }.into_any(),
        };
        let undone = match &plan.compensation {
            Some(plan) => view! {
                <dt>"Undone by"</dt>
                <dd>{planned(&plan.kind, &plan.params)}</dd>
            }
            .into_any(),
            None => view! { <dt>"Undone by"</dt><dd class="quiet">"Nothing named: a person decides."</dd> }.into_any(),
        };
        let undoing = self.operation(undo).map(|_| self.standing("Undoing", undo).into_any());
        view! {
            <section class=if step == 0 { "sec sec-first" } else { "sec" } aria-labelledby=heading.clone()>
                <div class="sec-head">
                    <h2 id=heading.clone()>{format!("Step {}", step + 1)}</h2>
                    <span class="note">{parts::line(&plan.kind)}</span>
                </div>
                <dl class="facts">
                    {what}
                    {self.standing("Operation", write)}
                    {undone}
                    {undoing}
                </dl>
            </section>
        }
    }

    /// The operation of a place, and those before it.
    fn standing(&self, word: &'static str, place: Place) -> impl IntoView + use<> {
        let op = match self.operation(place) {
            Some(op) => view! { {number(op)}" "{parts::state(op, self.now)} }.into_any(),
            None => view! { <span class="quiet">"Not proposed yet"</span> }.into_any(),
        };
        let earlier = self.earlier.iter().filter(|(at, _)| *at == place);
        let earlier: Vec<_> =
            earlier.map(|(_, op)| view! { <li>{number(op)}" "{parts::state(op, self.now)}</li> }).collect();
        let earlier = (!earlier.is_empty()).then(|| view! { <dt>"Before it"</dt><dd><ul>{earlier}</ul></dd> });
        view! { <dt>{word}</dt><dd>{op}</dd>{earlier} }
    }

    fn waits(&self) -> AnyView {
        let (set, ops) = (self.set(), &self.known.ops);
        let (place, words) = match set.next(ops) {
            Next::Propose(place) => (Some(place), "is proposed next."),
            Next::Wait(place, progress) => {
                let words = match progress {
                    Progress::Applied => "is done.",
                    Progress::Decision => "waits for a decision.",
                    Progress::Execution => "is approved, and not sent yet.",
                    Progress::Outcome => "was sent: its outcome is awaited.",
                    Progress::Unknown => {
                        "is in doubt: nobody knows whether it took effect. That is settled on its page."
                    }
                    Progress::Missing => {
                        "ended without an effect. A run of its agent does it again; what was done stays."
                    }
                };
                (Some(place), words)
            }
            _ => (None, ""),
        };
        let body = match place {
            Some(place) => {
                let op = self.operation(place).map(|op| view! { " "{number(op)} });
                view! { <p>{called(place)}" "{words}{op}</p> }.into_any()
            }
            None => view! {
                <p>
                    {match set.state {
                        SetState::Stuck => "A person decides: what was done cannot be undone as planned.",
                        SetState::Compensated => "Nothing: what was done is undone.",
                        _ => "Nothing: every step is done.",
                    }}
                </p>
            }
            .into_any(),
        };
        let refused = set.refused.as_ref().map(|refused| {
            let way_on = match refused.code {
                Code::RunStopped => "Another run of its agent takes it up.",
                code if Problem::new(code, "").retryable() => "The desk tries again by itself.",
                _ => "A run of its agent changes it and does it again.",
            };
            view! { <p class="note-gap">"It was refused: "{error::sentence(&refused.detail)}" "{way_on}</p> }
        });
        let stuck = set.stuck_because(ops).map(|why| view! { <p class="note-gap">{error::sentence(&why)}</p> });
        panel("What it waits for", view! { {body}{refused}{stuck} }).into_any()
    }

    fn undoing(&self, may_undo: bool, draft: Option<Draft>) -> AnyView {
        let set = self.set();
        let words = match (set.state, may_undo) {
            (SetState::Compensated, _) => Some("What was done is undone."),
            (SetState::Compensating, _) => {
                Some("Under way, the last step first. Each compensation has votes of its own.")
            }
            (_, false) => Some("Off: a run of its agent, the agent’s owner, an operator or an admin may."),
            _ => None,
        };
        let (reason, refused) = match draft {
            Some(draft) => (draft.reason, Some(draft.refused)),
            None => (String::new(), None),
        };
        let (bad_reason, whole) = match refused {
            Some(Refused::Reason(words)) => (Some(words), None),
            Some(Refused::Whole(problem)) => (None, Some(problem)),
            None => (None, None),
        };
        let whole = whole.map(|problem| {
            let words = error::sentence(&problem.detail);
            view! { <Notice meaning=Meaning::Heed heading=problem.code.title()>{words}</Notice> }
        });
        if let Some(words) = words {
            return panel("Undo", view! { {whole}<p>{words}</p> }).into_any();
        }
        let says = match set.state {
            SetState::Stuck => "A compensation that ended without an effect is proposed again.",
            SetState::Open => {
                "What is not sent is cancelled. What was done is undone, the last step first, each with votes of its own."
            }
            _ => "The last step is undone first, each with votes of its own.",
        };
        let without = self.irrevocable().map(|steps| view! { <p class="note-gap">{steps}</p> });
        view! {
            <form class="p" action=format!("{}/compensate", address(&set.id)) method="post" aria-label="Undo">
                <div class="p-head"><h2>"Undo"</h2></div>
                <div class="stack">
                    {whole}
                    <p>{says}</p>
                    {without}
                    <label class="field">
                        <span>"Why"</span>
                        <input
                            class="in"
                            name="reason"
                            maxlength="1000"
                            required
                            value=reason
                            aria-invalid=bad_reason.map(|_| "true")
                            aria-describedby=bad_reason.map(|_| "refused-reason")
                        />
                    </label>
                    {bad_reason.map(|words| view! { <p class="err" id="refused-reason" role="alert">{words}</p> })}
                    <button class="btn btn-stop" type="submit">"Undo what was done"</button>
                </div>
            </form>
        }
        .into_any()
    }

    /// What was done and names nothing that undoes it, in words.
    fn irrevocable(&self) -> Option<String> {
        let steps = self.set().steps.iter().enumerate();
        let steps: Vec<_> = steps
            .filter(|(step, planned)| {
                let op = self.operation(Place { step: *step, part: Part::Write });
                planned.plan.compensation.is_none() && op.is_some_and(Operation::is_applied)
            })
            .map(|(step, _)| (step + 1).to_string())
            .collect();
        match steps.as_slice() {
            [] => None,
            [step] => Some(format!("Step {step} names nothing that undoes it: there a person decides.")),
            steps => Some(format!("Steps {} name nothing that undoes them: there a person decides.", steps.join(", "))),
        }
    }

    fn facts(&self) -> impl IntoView + use<> {
        let (set, now) = (self.set(), self.now);
        let reason = set.reason.as_ref().map(|words| {
            view! { <dt>"Undone because"</dt><dd>"“"{parts::said(words, Breaks::Keep)}"”"</dd> }
        });
        view! {
            <section class="p">
                <dl class="facts">
                    {reason}
                    <dt>"Opened"</dt>
                    <dd>{parts::when(set.created_at, now, TimeForm::Clock)}</dd>
                    <dt>"Changed"</dt>
                    <dd>{parts::when(set.updated_at, now, TimeForm::Clock)}</dd>
                    <dt>"Run"</dt>
                    <dd class="id"><a href=format!("/runs/{}", set.run)>{set.run.to_string()}</a></dd>
                    <dt>"Set"</dt>
                    <dd class="id">{set.id.to_string()}</dd>
                </dl>
            </section>
        }
    }
}
