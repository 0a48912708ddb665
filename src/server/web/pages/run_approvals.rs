//! Run approvals: what a person lets one run do without asking again, within kinds, targets, a count and a time.

use std::collections::BTreeSet;

use axum::response::{IntoResponse, Redirect, Response};
use leptos::prelude::*;

use super::{
    error::sentence,
    parts::{self, Meaning, Notice},
    render::Visitor,
    runs::{self, Refused},
};
use crate::{
    model::{
        id::{ApprovalId, RunId},
        problem::{Code, Problem},
        run::{RunStatus, Scope},
        run_approval::{KindGlob, MAX_COUNT, RunApproval, Standing},
        text::Breaks,
        time::Timestamp,
    },
    server::{
        service::{
            error::{Error, Result},
            run_approval::{self, NewRunApproval},
        },
        store::run::Run,
        web::body::{Form, Path},
    },
    ui::{
        textarea::TextArea,
        time::{self, Form as TimeForm},
    },
};

/// How long an approval may hold, in seconds and words.
const LIVES: [(i64, &str); 5] =
    [(900, "15 minutes"), (3600, "1 hour"), (4 * 3600, "4 hours"), (24 * 3600, "1 day"), (7 * 24 * 3600, "7 days")];

/// What was typed.
#[derive(Debug, Clone, Default)]
pub struct Draft {
    kinds: BTreeSet<String>,
    targets: String,
    max_count: String,
    expires_in_s: String,
    reason: String,
}

impl Draft {
    fn of(pairs: Vec<(String, String)>) -> Self {
        let mut draft = Self::default();
        for (name, value) in pairs {
            match name.as_str() {
                "kind" => drop(draft.kinds.insert(value)),
                "targets" => draft.targets = value,
                "max_count" => draft.max_count = value,
                "expires_in_s" => draft.expires_in_s = value,
                "reason" => draft.reason = value,
                _ => {}
            }
        }
        draft
    }

    /// # Errors
    /// `validation_failed`, with the field.
    fn request(&self) -> std::result::Result<NewRunApproval, Problem> {
        let invalid = |field: &str, words: &str| Problem::at(Code::ValidationFailed, format!("/{field}"), words);
        let kinds: Vec<KindGlob> = self
            .kinds
            .iter()
            .map(|kind| serde_json::from_value(kind.as_str().into()))
            .collect::<std::result::Result<_, _>>()
            .map_err(|_| invalid("kinds", "one of the kinds is not a kind"))?;
        let targets: Vec<Scope> = self
            .targets
            .split_whitespace()
            .map(str::parse)
            .collect::<std::result::Result<_, _>>()
            .map_err(|_| invalid("targets", "each line is a whole target, or a beginning that ends in `*`"))?;
        if kinds.is_empty() {
            return Err(invalid("kinds", "tick at least one kind"));
        }
        if targets.is_empty() {
            return Err(invalid("targets", "name at least one target"));
        }
        let max_count = self.max_count.trim().parse().ok().filter(|count| (1..=MAX_COUNT).contains(count));
        let max_count = max_count.ok_or_else(|| invalid("max_count", &format!("a number from 1 to {MAX_COUNT}")))?;
        let expires_in_s = self.expires_in_s.parse().ok().filter(|life| LIVES.iter().any(|(s, _)| s == life));
        let expires_in_s = expires_in_s.ok_or_else(|| invalid("expires_in_s", "choose how long it holds"))?;
        let reason = Some(self.reason.trim().to_owned()).filter(|reason| !reason.is_empty());
        Ok(NewRunApproval { kinds, targets, max_count, expires_in_s, reason })
    }
}

pub async fn grant(
    visitor: Visitor,
    Path(id): Path<RunId>,
    Form(pairs): Form<Vec<(String, String)>>,
) -> Result<Response> {
    let draft = Draft::of(pairs);
    let result = match draft.request() {
        Ok(request) => run_approval::grant(&visitor.desk, &visitor.person, &id, request).await,
        Err(problem) => Err(problem.into()),
    };
    match result {
        Ok(_) => Ok(Redirect::to(&format!("/runs/{id}#approvals")).into_response()),
        Err(Error::Refused(problem)) if problem.code != Code::NotFound => {
            let code = problem.code;
            let page = runs::page(&visitor, &id, None, Refused::Approval(problem, draft)).await?;
            Ok(page.refused(code).into_response())
        }
        Err(error) => Err(error),
    }
}

pub async fn revoke(visitor: Visitor, Path((id, approval)): Path<(RunId, ApprovalId)>) -> Result<Response> {
    match run_approval::revoke(&visitor.desk, &visitor.person, &id, &approval).await {
        Ok(_) => Ok(Redirect::to(&format!("/runs/{id}#approvals")).into_response()),
        Err(Error::Refused(problem)) if problem.code != Code::NotFound => {
            let code = problem.code;
            let page = runs::page(&visitor, &id, None, Refused::Approval(problem, Draft::default())).await?;
            Ok(page.refused(code).into_response())
        }
        Err(error) => Err(error),
    }
}

/// What the section needs to know.
pub struct Given<'a> {
    pub run: &'a Run,
    pub approvals: &'a [RunApproval],
    /// Kinds that may be approved ahead.
    pub kinds: &'a [String],
    /// Why the reader may not approve; who may revoke is for the service to say.
    pub off: Option<String>,
    pub refused: Option<(Problem, Draft)>,
    pub now: Timestamp,
}

pub fn section(given: Given<'_>) -> impl IntoView + use<> {
    let Given { run, approvals, now, .. } = given;
    let listed = match approvals.is_empty() {
        true => view! { <p class="second">"None. Every write of this run that a rule does not grant is decided one by one."</p> }
            .into_any(),
        false => {
            view! { <ul class="grants">{approvals.iter().map(|one| entry(run, one, now)).collect::<Vec<_>>()}</ul> }
                .into_any()
        }
    };
    view! {
        <section class="card gap-top" id="approvals" aria-labelledby="h-approvals">
            <div class="pane">
                <h2 id="h-approvals">"Approved ahead"</h2>
                <p class="second">
                    "Writes of low and medium risk inside these bounds are granted without asking again, counted, and only \
                     against a version that is still current. Everything else stays individual."
                </p>
            </div>
            <div class="pane">{listed}</div>
            {form(given)}
        </section>
    }
}

fn entry(run: &Run, one: &RunApproval, now: Timestamp) -> impl IntoView + use<> {
    let standing = one.standing(now);
    let (meaning, words) = match standing {
        Standing::Open => ("state-sign", "Open"),
        Standing::UsedUp => ("state-off", "Used up"),
        Standing::Expired => ("state-off", "Expired"),
        Standing::Revoked => ("state-stop", "Revoked"),
    };
    let kinds: Vec<_> = one.kinds.iter().map(ToString::to_string).collect();
    let targets: Vec<_> = one.targets.iter().map(|scope| view! { <li>{parts::target(scope.as_str())}</li> }).collect();
    let until = match (standing, &one.revoked) {
        (Standing::Open, _) => view! { {parts::left(one.expires_at, now)}" left" }.into_any(),
        (_, Some(revoked)) => view! { "revoked "{parts::when(revoked.at, now, TimeForm::Clock)} }.into_any(),
        _ => view! { "until "{parts::when(one.expires_at, now, TimeForm::Clock)} }.into_any(),
    };
    let reason = one.reason.as_ref().map(|why| view! { <p class="second">"“"{parts::said(why, Breaks::Keep)}"”"</p> });
    let revoke = (standing == Standing::Open).then(|| {
        let action = format!("/runs/{}/approvals/{}/revoke", run.id, one.id);
        view! {
            <form action=action method="post">
                <button class="btn btn-small" type="submit" aria-label=format!("Revoke {}", one.id)>"Revoke"</button>
            </form>
        }
    });
    let used = format!("{} of {} used", one.used, one.max_count);
    view! {
        <li id=one.id.to_string()>
            <span class=format!("state {meaning}")>{words}</span>
            <div>
                <p><b>{parts::line(&kinds.join(", "))}</b></p>
                <ul class="touched">{targets}</ul>
                {reason}
                <p class="meta">
                    "By "{parts::line(&one.by_name)}", "{parts::when(one.created_at, now, TimeForm::Clock)}" · "
                    <span class="id">{one.id.to_string()}</span>
                </p>
            </div>
            <div class="grant-end">
                <span>{used}</span>
                <span class="second">{until}</span>
                {revoke}
            </div>
        </li>
    }
}

fn form(given: Given<'_>) -> impl IntoView + use<> {
    let Given { run, kinds, off, refused, now, .. } = given;
    let off = match run.status(now) {
        RunStatus::Live => off,
        _ => Some("The run is over.".to_owned()),
    };
    if let Some(why) = off {
        let notice = refused.map(|(problem, _)| refusal(&problem));
        return view! { <div class="pane">{notice}<p class="why-off">"Nothing can be approved ahead: "{why}</p></div> }
            .into_any();
    }
    let is_open = refused.is_some();
    let problem = refused.as_ref().map(|(problem, _)| problem.clone());
    let wrong = |field: &str| {
        let errors = problem.as_ref().map(Problem::errors).unwrap_or_default();
        errors
            .into_iter()
            .find(|error| error.pointer.starts_with(&format!("/{field}")))
            .map(|error| sentence(&error.detail))
    };
    let draft = refused.map(|(_, draft)| draft).unwrap_or_else(|| {
        let scopes: Vec<_> = run.write_set.iter().flatten().map(|grant| grant.resource.to_string()).collect();
        Draft {
            targets: scopes.join("\n"),
            max_count: "5".to_owned(),
            expires_in_s: "3600".to_owned(),
            ..Draft::default()
        }
    });
    let whole = problem.as_ref().filter(|problem| problem.errors().is_empty()).map(refusal);
    let error = |words: Option<String>, id: &'static str| {
        words.map(|words| view! { <p class="err" id=id role="alert">{words}</p> })
    };
    let boxes: Vec<_> = kinds
        .iter()
        .map(|kind| {
            let is_ticked = draft.kinds.contains(kind);
            view! {
                <label>
                    <input type="checkbox" name="kind" value=kind.clone() checked=is_ticked />
                    <span>{parts::line(kind)}</span>
                </label>
            }
        })
        .collect();
    let lives = LIVES.map(|(seconds, words)| {
        let value = seconds.to_string();
        view! { <option value=value.clone() selected=draft.expires_in_s == value>{words}</option> }
    });
    let (bad_kinds, bad_targets, bad_count) = (wrong("kinds"), wrong("targets"), wrong("max_count"));
    let bad_life = wrong("expires_in_s");
    view! {
        <details class="pane raw grant" open=is_open>
            <summary>"Approve ahead what this run may do"</summary>
            <form action=format!("/runs/{}/approvals", run.id) method="post" class="stack" aria-label="Approve ahead">
                {whole}
                <fieldset class="stack-2" aria-describedby=bad_kinds.is_some().then_some("bad-kinds")>
                    <legend class="lab">"Kinds"</legend>
                    <div class="codes">{boxes}</div>
                    {error(bad_kinds.clone(), "bad-kinds")}
                </fieldset>
                <label class="field" for="targets">
                    <span>"Targets, one a line"</span>
                </label>
                <TextArea
                    id="targets"
                    name="targets"
                    rows=3
                    maxlength=20000
                    class="mono"
                    value=draft.targets.clone()
                    invalid=bad_targets.is_some().then_some("true")
                    described_by=bad_targets.is_some().then_some("bad-targets")
                />
                <p class="hint">"A whole target, "<code>"order/4711"</code>", or one beginning, "<code>"order/47*"</code>"."</p>
                {error(bad_targets, "bad-targets")}
                <div class="pair">
                    <label class="field">
                        <span>"Operations at most"</span>
                        <input
                            class="in"
                            type="number"
                            name="max_count"
                            min="1"
                            max=MAX_COUNT.to_string()
                            required
                            value=draft.max_count.clone()
                            aria-invalid=bad_count.is_some().then_some("true")
                            aria-describedby=bad_count.is_some().then_some("bad-count")
                        />
                    </label>
                    <label class="field">
                        <span>"Holds for"</span>
                        <select class="in" name="expires_in_s">{lives.into_iter().collect::<Vec<_>>()}</select>
                    </label>
                </div>
                {error(bad_count, "bad-count")}
                {error(bad_life, "bad-life")}
                <label class="field">
                    <span>"Why, for the record"</span>
                    <input class="in" name="reason" maxlength="1000" value=draft.reason.clone() />
                </label>
                <div class="foot">
                    <button class="btn btn-sign" type="submit">"Approve ahead"</button>
                    <span class="second">
                        {format!("It ends with the run, in {}, at the latest.", time::span(run.expires_at - now))}
                    </span>
                </div>
            </form>
        </details>
    }
    .into_any()
}

fn refusal(problem: &Problem) -> impl IntoView + use<> {
    let words = match problem.errors().first() {
        Some(error) => sentence(&error.detail),
        None => sentence(&problem.detail),
    };
    view! { <Notice meaning=Meaning::Heed heading=problem.code.title()>{words}</Notice> }
}
