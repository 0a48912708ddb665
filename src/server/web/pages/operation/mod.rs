//! One operation: the slip an agent wrote, the stub people put their name to, and the strip where they decide.

mod case;
mod content;
mod forms;
mod slip;
mod strip;
mod stub;

use axum::{
    Router,
    response::Redirect,
    routing::{get, post},
};
use leptos::prelude::*;

use super::{
    parts,
    render::{Page, Visitor},
    shell::Place,
};
use crate::{
    model::{
        evidence::EvidenceKind,
        id::OperationId,
        operation::{Decision, Operation, ReasonCode, State},
        problem::Problem,
        time::Timestamp,
    },
    server::{
        service::sheet::Sheet,
        web::{body::Path, state::AppState},
    },
    ui::decide::Decide,
};

pub fn routes() -> Router<AppState> {
    // After signing in again the browser is sent to where it posted.
    let back = |Path(id): Path<OperationId>| async move { Redirect::to(&address(&id)) };
    Router::new()
        .route("/operations/{id}", get(forms::show))
        .route("/operations/{id}/approve", post(forms::approve).get(back))
        .route("/operations/{id}/reject", post(forms::reject).get(back))
        .route("/operations/{id}/withdraw", post(forms::withdraw).get(back))
        .route("/operations/{id}/cancel", post(forms::cancel).get(back))
        .route("/operations/{id}/evidence", post(forms::state).get(back))
        .route("/operations/{id}/resolution", post(forms::resolve).get(back))
        .route("/operations/{id}/lookup", post(forms::look_up).get(back))
        .route("/operations/{id}/retry-authorization", post(forms::authorize_retry).get(back))
        .route("/operations/{id}/case", post(forms::assign).get(back))
        .route("/operations/{id}/override", post(forms::lift).get(back))
}

pub fn address(id: &OperationId) -> String {
    format!("/operations/{id}")
}

/// The page being written.
struct Paper<'a> {
    sheet: &'a Sheet,
    visitor: &'a Visitor,
    told: Told,
}

/// What happened just before the page is shown.
enum Told {
    Nothing,
    Did(Deed),
    /// With what was typed, so that nothing is typed twice.
    Refused(Problem, Draft),
}

/// What the reader typed.
#[derive(Debug, Clone, Default)]
struct Draft {
    reason_code: Option<ReasonCode>,
    /// The note, or the reason.
    words: String,
    reference: String,
}

/// What the reader did on this page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Approved,
    Rejected,
    Withdrew,
    Cancelled,
    Stated,
    Resolved,
    Assigned,
    Lifted,
    LookedUp,
    Authorised,
}

impl Deed {
    const ALL: [(Self, &str); 10] = [
        (Self::Approved, "approve"),
        (Self::Rejected, "reject"),
        (Self::Withdrew, "withdraw"),
        (Self::Cancelled, "cancel"),
        (Self::Stated, "evidence"),
        (Self::Resolved, "resolution"),
        (Self::Assigned, "case"),
        (Self::Lifted, "override"),
        (Self::LookedUp, "lookup"),
        (Self::Authorised, "retry"),
    ];

    /// As it stands in the address.
    fn as_str(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find_map(|(deed, name)| (name == text).then_some(deed))
    }
}

/// How long a deed is news. Milliseconds.
const NEWS_MS: i64 = 60_000;

impl Paper<'_> {
    fn now(&self) -> Timestamp {
        self.visitor.now
    }

    fn op(&self) -> &Operation {
        &self.sheet.op
    }

    fn is_doubtful(&self) -> bool {
        matches!(self.op().state(), State::Unknown | State::NeedsReview) || self.op().life.disputed
    }

    fn refusal(&self) -> Option<&Problem> {
        match &self.told {
            Told::Refused(problem, _) => Some(problem),
            _ => None,
        }
    }

    fn draft(&self) -> Draft {
        match &self.told {
            Told::Refused(_, draft) => draft.clone(),
            _ => Draft::default(),
        }
    }

    /// A standing vote of the reader.
    fn own_vote(&self) -> Option<&crate::model::operation::Vote> {
        self.op().standing_votes().find(|vote| vote.by == *self.visitor.person.id())
    }

    fn write(&self) -> Page {
        let op = self.op();
        let title = format!("{} {} {}", op.proposal.fingerprint.short_code(), op.proposal.title, op.proposal.target);
        let place = if self.is_doubtful() { Place::Unknown } else { Place::Desk };
        let page = self.visitor.page(&title, place, || self.view());
        match self.refusal() {
            Some(problem) => page.refused(problem.code),
            None => page,
        }
    }

    fn view(&self) -> impl IntoView + use<> {
        let op = self.op();
        let strip = strip::strip(self);
        let signed = if strip.is_some() { "signed" } else { "" };
        view! {
            <div class="split head">
                {self.crumbs()}
                <div>{parts::live()}</div>
            </div>
            <article
                class=format!("sheet split {signed} {}", self.edge())
                data-operation=""
                data-id=op.id().to_string()
                data-version=op.life.version.to_string()
            >
                <div class="slip">{slip::slip(self)}</div>
                <aside class="stub" aria-label="Approval">{stub::stub(self)}</aside>
                {strip}
            </article>
            {self.toast()}
            <Decide />
        }
    }

    /// An unknown outcome is settled on the sheet as a whole: it is spent, and not torn apart yet.
    fn edge(&self) -> &'static str {
        if self.is_doubtful() { "perf punched" } else { parts::edge(self.op().state()) }
    }

    /// Where this one stands in what waits for the reader.
    fn crumbs(&self) -> impl IntoView + use<> {
        let place = &self.sheet.place;
        let (lane, words) = match self.op().state() {
            State::Pending => ("/", "Review"),
            State::Approved | State::Claimed | State::Sent | State::Accepted => {
                ("/?lane=approved", "Approved, not run")
            }
            State::Conflicted => ("/?lane=conflicts", "Conflicts"),
            State::Unknown | State::NeedsReview => ("/unknown", "Unknown"),
            _ => ("/?lane=done", "Done"),
        };
        let position = place.position.map(|position| format!("{position} of {}", place.total));
        let link = |to: &Option<OperationId>, words: &'static str| {
            to.as_ref().map(|id| view! { <a href=address(id)>{words}</a> })
        };
        let next = if place.position.is_some() { "Next" } else { "Next waiting for you" };
        view! {
            <nav class="crumbs" aria-label="Place in the queue">
                <a href=lane>{words}</a>
                {position.map(|position| view! { <span>{position}</span> })}
                {link(&place.previous, "Previous")}
                {link(&place.next, next)}
            </nav>
        }
    }

    /// What the reader just did, said once.
    fn toast(&self) -> Option<AnyView> {
        let Told::Did(deed) = self.told else { return None };
        let (op, sheet, me) = (self.op(), self.sheet, self.visitor.person.id());
        let is_news = |at: Timestamp| self.now() - at < NEWS_MS;
        let life = &op.life;
        let vote = life.votes.iter().rfind(|vote| vote.by == *me);
        let voted = |decision| vote.filter(|vote| vote.stands() && vote.decision == decision && is_news(vote.at));
        let agent = sheet.agent.name.clone();
        let missing = life.approval.required - op.granted();
        let ended = life.ending.as_ref().filter(|ending| is_news(ending.at) && ending.by.id == me.as_str());
        let words = match deed {
            Deed::Approved => voted(Decision::Approve).map(|_| match op.state() {
                State::Pending => format!("Approved. Still to come: {}.", more_votes(missing)),
                State::Approved => {
                    format!("Approved. {agent} may run it once, within {}.", span(life.approval.execution_ttl_s))
                }
                _ => "Approved.".to_owned(),
            }),
            Deed::Rejected => voted(Decision::Reject).map(|vote| {
                let code = vote.reason_code.map_or("other", ReasonCode::label).to_lowercase();
                format!("Rejected: {code}. {agent} was told.")
            }),
            Deed::Withdrew => {
                let news = life.approval.withdrawn_at.filter(|at| is_news(*at));
                news.map(|_| "The vote is withdrawn.".to_owned())
            }
            Deed::Cancelled => ended.map(|_| format!("Cancelled. {agent} was told.")),
            Deed::Stated => {
                let news = sheet.evidence.iter().rfind(|item| item.by.id == me.as_str());
                news.map(|item| format!("Recorded as {}. It changes no state by itself.", item.id))
            }
            Deed::Resolved => life.review_case.as_ref().and_then(|case| match (&case.resolution, &case.seconded) {
                (Some(done), _) if is_news(done.at) => Some("The case is closed.".to_owned()),
                (None, Some(first)) if is_news(first.at) && first.by == *me => {
                    Some("Your finding is recorded. A second person has to agree.".to_owned())
                }
                _ => None,
            }),
            Deed::Assigned => life.review_case.as_ref().filter(|case| case.resolution.is_none()).map(|case| {
                let owner = parts::plain(case.owner.as_deref().unwrap_or("nobody"));
                format!("The case is with {owner}, due in {}.", crate::ui::time::span(case.due_at - self.now()))
            }),
            Deed::LookedUp => {
                let asked = sheet.evidence.iter().rfind(|item| item.kind == EvidenceKind::Lookup && item.first_hand);
                asked.filter(|item| is_news(item.observed_at)).map(|item| {
                    let note = parts::plain(item.note.as_deref().unwrap_or("it answered"));
                    format!("The provider was asked: {note}. Kept as {}.", item.id)
                })
            }
            Deed::Authorised => match &life.retry_authorization {
                Some(given) if given.seconded.by == *me && is_news(given.seconded.at) => {
                    Some("One more try is authorised. It may be claimed again, once.".to_owned())
                }
                _ => {
                    let asked = life.review_case.as_ref().and_then(|case| case.retry_asked.as_ref());
                    let asked = asked.filter(|asked| asked.by == *me && is_news(asked.at));
                    asked.map(|_| "Your word is recorded. A second person has to agree.".to_owned())
                }
            },
            Deed::Lifted => {
                let news = life.hold_override.as_ref().filter(|lifted| is_news(lifted.at) && lifted.by == *me);
                news.map(|_| "It may pass what holds its target.".to_owned())
            }
        }?;
        let next = sheet.place.next.as_ref().map(|id| view! { <a href=address(id)>"Next item"</a> });
        let toast = view! {
            <div class="toast toast-here" role="status" data-toast="">
                <span><span class="no">{op.proposal.fingerprint.short_code()}</span>" "{words}</span>
                {next}
            </div>
        };
        Some(toast.into_any())
    }
}

/// The number, as the browser's own recomputation finds it.
fn number(op: &Operation) -> impl IntoView + use<> {
    let class = if parts::is_void(op.state()) { "no no-void" } else { "no" };
    view! { <span class=class data-number="">{op.proposal.fingerprint.short_code()}</span> }
}

/// `1 more vote`, `2 more votes`.
fn more_votes(missing: i64) -> String {
    if missing == 1 { "1 more vote".to_owned() } else { format!("{missing} more votes") }
}

/// `10 min`
fn span(seconds: i64) -> String {
    crate::ui::time::span(seconds * 1000)
}

/// `1 field`, `3 fields`.
pub fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{} {noun}s", grouped(count as u64)) }
}

/// `18,434`
pub fn grouped(number: u64) -> String {
    crate::ui::audit::grouped(number)
}

/// `group sre`, `groups sre or leads`.
fn groups(groups: &[String]) -> String {
    let word = if groups.len() == 1 { "group" } else { "groups" };
    format!("{word} {}", groups.join(" or "))
}
