//! Several decisions at once: exactly the operations that were ticked, each with its own fingerprint and its own answer.

use axum::{
    Router,
    response::{IntoResponse, Redirect, Response},
    routing::get,
};
use leptos::prelude::*;

use super::{
    parts::{self, Empty, Head},
    queue::{became, deceptions},
    render::{Page, Visitor, link},
    shell::Place,
};
use crate::{
    model::{
        approval::{Review, may_vote},
        id::OperationId,
        operation::{Decision, Operation, ReasonCode, State},
        problem::Code,
        text::Breaks,
        time::Timestamp,
    },
    server::{
        service::{
            decide::{self, BulkItem, BulkResult, MAX_BULK},
            desk::looks,
            error::{Error, Result},
            review,
        },
        store::{agent, operation},
        web::{
            auth::PersonIdentity,
            body::{Form, Query},
            state::AppState,
        },
    },
    ui::{textarea::TextArea, time::Form as TimeForm},
};

pub fn routes() -> Router<AppState> {
    Router::new().route("/decide", get(confirm).post(decide_all))
}

/// Names and values of a form, in order and repeated as they were sent.
type Pairs = Vec<(String, String)>;

fn values<'a>(pairs: &'a Pairs, name: &'a str) -> impl Iterator<Item = &'a str> {
    pairs.iter().filter(move |(given, _)| given == name).map(|(_, value)| value.as_str())
}

/// Why a ticked operation is not among those to decide.
struct LeftOut {
    op: Operation,
    why: String,
}

/// What was ticked, as it is now.
#[derive(Default)]
struct Picked {
    open: Vec<(Operation, Review)>,
    left_out: Vec<LeftOut>,
}

async fn picked(visitor: &Visitor, ids: Vec<OperationId>) -> Result<Picked> {
    let mut picked = Picked::default();
    for id in ids {
        let (op, review) = match review::get(&visitor.desk, &visitor.person, &id).await {
            Ok(found) => found,
            Err(Error::Refused(_)) => continue,
            Err(error) => return Err(error),
        };
        match hindrance(visitor, &op).await? {
            None => picked.open.push((op, review)),
            Some(why) => picked.left_out.push(LeftOut { op, why }),
        }
    }
    Ok(picked)
}

/// Why the reader cannot decide this together with others.
async fn hindrance(visitor: &Visitor, op: &Operation) -> Result<Option<String>> {
    let person = &visitor.person;
    if op.state() != State::Pending {
        return Ok(Some(became(op, visitor.now, person).0));
    }
    if op.proposal.risk.needs_care() {
        return Ok(Some(format!("{} risk is decided one at a time", op.proposal.risk.as_str())));
    }
    if op.standing_votes().any(|vote| vote.by == *person.id()) {
        return Ok(Some("you have voted".to_owned()));
    }
    let agent = agent::by_id(&mut visitor.desk.store.read().await?, &op.proposal.agent).await?;
    let owner = agent.map_or(op.proposal.owner.clone(), |agent| agent.owner);
    Ok(match may_vote(op, &person.voter(), Decision::Approve, &owner) {
        Ok(()) => None,
        Err(problem) if problem.code == Code::SelfApproval => Some("your own agent's".to_owned()),
        Err(_) => Some("not open to you".to_owned()),
    })
}

async fn confirm(visitor: Visitor, Query(pairs): Query<Pairs>) -> Result<Page> {
    let mut ids: Vec<OperationId> = values(&pairs, "pick").filter_map(|id| id.parse().ok()).collect();
    ids.sort();
    ids.dedup();
    ids.truncate(MAX_BULK);
    let picked = picked(&visitor, ids).await?;
    Ok(form(&visitor, picked, None))
}

fn form(visitor: &Visitor, picked: Picked, refused: Option<&'static str>) -> Page {
    let n = picked.open.len();
    let title = match n {
        0 => "Nothing to decide here".to_owned(),
        1 => "Decide 1 operation".to_owned(),
        n => format!("Decide {n} operations"),
    };
    visitor.page(&title, Place::Desk, || {
        let open: Vec<_> = picked.open.iter().map(|(op, _)| item(op, visitor.now).into_any()).collect();
        let items: Vec<String> = picked
            .open
            .iter()
            .map(|(op, review)| format!("{} {} {}", op.id(), op.proposal.fingerprint, review.digest()))
            .collect();
        view! {
            <Head title=title.clone()>"Exactly these, each under its own number. What arrives later is not swept in."</Head>
            {if n == 0 {
                view! {
                    <Empty heading="Nothing is left to decide" way_on=Some(("To the desk", "/".to_owned()))>
                        "Nothing was ticked, or what was ticked is not open to you any more."
                    </Empty>
                }
                    .into_any()
            } else {
                view! {
                    <div class="card">
                        <ol class="picked">{open}</ol>
                    </div>
                    <div class="choice choice-bulk">{rejection(&items, refused)} {approval(&items)}</div>
                }
                    .into_any()
            }}
            {left_out(&picked.left_out)}
            <p class="more"><a href="/">"Back, and decide nothing"</a></p>
        }
    })
}

fn item(op: &Operation, now: Timestamp) -> impl IntoView + use<> {
    let p = &op.proposal;
    let mut flags = deceptions(looks(op));
    if p.duplicate_of.is_some() {
        flags.push(parts::flag("same", "Same command as an earlier one".to_owned()).into_any());
    }
    view! {
        <li>
            <span class="no no-ours">{p.fingerprint.short_code()}</span>
            <div>
                <a href=format!("/operations/{}", p.id)>
                    <b>{p.title.clone()}</b>
                    " "
                    {parts::target(p.target.as_str())}
                </a>
                " "
                {flags}
                <p class="second">{parts::said(&p.consequence, Breaks::Escape)}</p>
                <p class="id">{p.fingerprint.to_string()}</p>
            </div>
            {parts::risk(p.risk)}
            {parts::left(op.life.approval.expires_at, now)}
        </li>
    }
}

fn hidden(items: &[String]) -> Vec<AnyView> {
    let field = |item: &String| view! { <input type="hidden" name="item" value=item.clone() /> }.into_any();
    items.iter().map(field).collect()
}

fn rejection(items: &[String], refused: Option<&'static str>) -> impl IntoView + use<> {
    let codes: Vec<_> = ReasonCode::ALL
        .iter()
        .map(|(_, name, label)| {
            view! {
                <label>
                    <input type="radio" name="reason_code" value=*name required />
                    {*label}
                </label>
            }
        })
        .collect();
    view! {
        <form class="opt opt-first" action="/decide" method="post">
            <h2>"Reject"</h2>
            <input type="hidden" name="decision" value="reject" />
            {hidden(items)}
            <fieldset>
                <legend class="lab">"Why"</legend>
                <div class="codes">{codes}</div>
            </fieldset>
            {refused.map(|words| view! { <p class="err" role="alert">{words}</p> })}
            <div>
                <label class="lab" for="reason">"In your words, to each agent"</label>
                <TextArea id="reason" name="reason" rows=2 />
            </div>
            <div class="foot">
                <button class="btn btn-ink" type="submit">"Reject "{items.len()}</button>
            </div>
        </form>
    }
}

fn approval(items: &[String]) -> impl IntoView + use<> {
    view! {
        <form class="opt" action="/decide" method="post">
            <h2>"Approve"</h2>
            <p>"Each may then run once, by the fingerprint listed above. Only low and medium risk is among them."</p>
            <input type="hidden" name="decision" value="approve" />
            {hidden(items)}
            <div class="foot">
                <button class="btn btn-sign" type="submit">"Approve "{items.len()}</button>
            </div>
        </form>
    }
}

fn left_out(left_out: &[LeftOut]) -> impl IntoView + use<> {
    let rows: Vec<_> = left_out
        .iter()
        .map(|LeftOut { op, why }| {
            let p = &op.proposal;
            view! {
                <li>
                    <span class="no">{p.fingerprint.short_code()}</span>
                    <a href=format!("/operations/{}", p.id)>{p.title.clone()}" "{parts::line(p.target.as_str())}</a>
                    <span class="second">{parts::line(why)}</span>
                </li>
            }
        })
        .collect();
    (!rows.is_empty()).then(|| {
        view! {
            <section class="gap-top" aria-labelledby="h-left-out">
                <h2 id="h-left-out">"Left out"</h2>
                <div class="card gap-small">
                    <ol class="results">{rows}</ol>
                </div>
            </section>
        }
    })
}

async fn decide_all(visitor: Visitor, Form(pairs): Form<Pairs>) -> Result<Response> {
    let decision = match values(&pairs, "decision").next() {
        Some("approve") => Decision::Approve,
        Some("reject") => Decision::Reject,
        _ => return Ok(Redirect::to("/").into_response()),
    };
    let reason_code = values(&pairs, "reason_code").next().and_then(ReasonCode::parse);
    let reason = values(&pairs, "reason").next().map(str::to_owned).filter(|words| !words.trim().is_empty());
    let items: Vec<BulkItem> = values(&pairs, "item")
        .filter_map(|item| {
            let mut words = item.split(' ');
            let (id, fingerprint) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            let review_digest = words.next()?.to_owned();
            let (reason, confirm_target) = (reason.clone(), None);
            Some(BulkItem { id, decision, fingerprint, review_digest, reason_code, reason, confirm_target })
        })
        .collect();
    if items.is_empty() {
        return Ok(Redirect::to("/").into_response());
    }
    if decision == Decision::Reject && reason_code.is_none() {
        let ids = items.into_iter().map(|item| item.id).collect();
        let page =
            form(&visitor, picked(&visitor, ids).await?, Some("A rejection names its reason. Nothing was decided."));
        return Ok(page.refused(Code::ValidationFailed).into_response());
    }
    let results = decide::bulk(&visitor.desk, &visitor.person, items).await?;
    Ok(answer(&visitor, decision, results).await?.into_response())
}

/// One line of the answer.
struct Answered {
    op: Operation,
    words: String,
    counted: Counted,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    Yes,
    /// It was left as it was, and can still be decided.
    Open,
    Over,
}

async fn answer(visitor: &Visitor, decision: Decision, results: Vec<BulkResult>) -> Result<Page> {
    let mut lines = Vec::new();
    for result in results {
        let Ok(id) = result.id.parse::<OperationId>() else { continue };
        let found = operation::find(&mut visitor.desk.store.read().await?, &id).await?;
        if let Some(op) = found {
            lines.push(answered(op, &result, visitor.now, &visitor.person));
        }
    }
    let (all, counted) = (lines.len(), lines.iter().filter(|line| line.counted == Counted::Yes).count());
    let done = if decision == Decision::Approve { "approved" } else { "rejected" };
    let title = format!("{counted} of {all} {done}");
    let rest: Vec<_> =
        lines.iter().filter(|line| line.counted == Counted::Open).map(|line| line.op.id().to_string()).collect();
    let rest: Vec<_> = rest.iter().map(|id| ("pick", id.as_str())).collect();
    let rest = (!rest.is_empty()).then(|| link("/decide", &rest));
    let kept = match all - counted {
        0 => String::new(),
        1 => "1 kept as it was".to_owned(),
        n => format!("{n} kept as they were"),
    };
    let now = visitor.now;
    Ok(visitor.page(&title, Place::Desk, || {
        let rows: Vec<_> = lines
            .iter()
            .map(|Answered { op, words, .. }| {
                let p = &op.proposal;
                let mark = parts::state_mark(op.state(), op.granted(), words.clone());
                view! {
                    <li>
                        <span class="no no-ours">{p.fingerprint.short_code()}</span>
                        <a href=format!("/operations/{}", p.id)>{p.title.clone()}" "{parts::line(p.target.as_str())}</a>
                        {mark}
                    </li>
                }
            })
            .collect();
        view! {
            <Head title=title.clone()>"Item by item, " {parts::when(now, now, TimeForm::Clock)}"."</Head>
            <div class="card">
                <ol class="results">{rows}</ol>
                <div class="bulk bulk-foot">
                    <b>{title.clone()}</b>
                    <span class="second">{kept}</span>
                    <span class="push"></span>
                    {rest.map(|rest| view! { <a href=rest>"Look at the rest"</a> })}
                    <a class="btn btn-small" href="/">"To the desk"</a>
                </div>
            </div>
        }
    }))
}

fn answered(op: Operation, result: &BulkResult, now: Timestamp, reader: &PersonIdentity) -> Answered {
    let code = result.code.as_deref().and_then(Code::parse);
    let (words, counted) = match code {
        None => {
            let words = match op.state() {
                State::Pending => format!("{} of {} votes", op.granted(), op.life.approval.required),
                state => parts::capital(state.as_str()),
            };
            (words, Counted::Yes)
        }
        Some(Code::StaleView) => ("Changed since you looked".to_owned(), Counted::Open),
        Some(Code::Unavailable) => ("Not recorded; the desk was busy".to_owned(), Counted::Open),
        Some(Code::NotBulk) => ("Decided one at a time".to_owned(), Counted::Over),
        Some(Code::SelfApproval) => ("Your own agent's".to_owned(), Counted::Over),
        Some(Code::NotEligible) => ("Not open to you".to_owned(), Counted::Over),
        Some(_) => (parts::capital(&became(&op, now, reader).0), Counted::Over),
    };
    Answered { op, words, counted }
}
