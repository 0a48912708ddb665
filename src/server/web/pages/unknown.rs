//! What was sent and never answered, the most pressing first.

use axum::{Router, routing::get};
use leptos::prelude::*;

use super::{
    change_set as sets,
    parts::{self, Empty, Head},
    render::{Page, Visitor},
    shell::Place,
};
use crate::{
    model::{change_set::ChangeSet, operation::Operation, time::Timestamp},
    server::{
        service::{
            change_set,
            error::Result,
            sheet::{self, Doubtful},
        },
        web::state::AppState,
    },
    ui::time::{self, Form},
};

pub fn routes() -> Router<AppState> {
    Router::new().route("/unknown", get(show))
}

async fn show(visitor: Visitor) -> Result<Page> {
    let doubtful = sheet::doubtful(&visitor.desk, visitor.now).await?;
    let stuck = change_set::stuck(&visitor.desk).await?;
    let now = visitor.now;
    Ok(visitor.page("Unknown", Place::Unknown, || {
        let list = match doubtful.is_empty() {
            true => view! {
                <Empty heading="Nothing is unknown" symbol="done" way_on=Some(("To the desk", "/".to_owned()))>
                    "Every write that was sent has a definite outcome."
                </Empty>
            }
            .into_any(),
            false => rows(&doubtful, now).into_any(),
        };
        view! {
            <Head title="Unknown" aside=Some(parts::live().into_any())>
                "Sent, and never answered. Nobody retries any of it: time passing proves nothing."
            </Head>
            {list}
            {stuck_sets(&stuck, now)}
        }
    }))
}

/// What was done in part, and cannot be undone as planned.
fn stuck_sets(stuck: &[ChangeSet], now: Timestamp) -> Option<AnyView> {
    let items = stuck.iter().map(|set| {
        view! {
            <li>
                <a href=sets::address(&set.id)>{parts::line(&set.title)}</a>
                ", for "
                {parts::since(set.updated_at, now)}
            </li>
        }
    });
    let list = (!stuck.is_empty()).then(|| {
        view! {
            <section class="gap-top" aria-labelledby="h-stuck">
                <h2 id="h-stuck">"Stuck change sets"</h2>
                <p class="second gap-small">"Done in part, and not to be undone as planned: a person decides."</p>
                <ul class="stack-2 gap-small">{items.collect::<Vec<_>>()}</ul>
            </section>
        }
    });
    list.map(IntoAny::into_any)
}

fn rows(all: &[Doubtful], now: Timestamp) -> impl IntoView + use<> {
    let rows = all.iter().map(|one| row(one, now)).collect::<Vec<_>>();
    view! {
        <div class="rows perf">
            <div class="row-head" aria-hidden="true">
                <div class="row-slip">
                    <span></span>
                    <span>"Risk"</span>
                    <span>"What was sent"</span>
                    <span>"Agent, owner"</span>
                    <span></span>
                </div>
                <div class="row-stub"><span>"Number"</span><span>"For"</span><span>"Due"</span></div>
            </div>
            <ol>{rows}</ol>
        </div>
    }
}

fn row(one: &Doubtful, now: Timestamp) -> impl IntoView + use<> {
    let op = &one.op;
    let p = &op.proposal;
    let case = op.life.review_case.as_ref().filter(|case| case.resolution.is_none());
    let owner = match case {
        Some(case) => match &case.owner {
            Some(owner) => format!("owner {owner}"),
            None => "no owner".to_owned(),
        },
        None => "no case yet".to_owned(),
    };
    let held = (one.held > 0).then(|| {
        let writes = if one.held == 1 {
            "1 write waits behind it".to_owned()
        } else {
            format!("{} writes wait behind it", one.held)
        };
        parts::flag("heed", writes)
    });
    let provider = p.provider.as_ref().map(|name| view! { " · "{parts::line(name)} });
    let due = case.map(|case| match case.overdue_since.or(case.is_overdue(now).then_some(case.due_at)) {
        Some(since) => view! { <span class="flag flag-doubt">"overdue "{time::span(now - since)}</span> }.into_any(),
        None => parts::left(case.due_at, now).into_any(),
    });
    let due = due.unwrap_or_else(|| view! { <span class="quiet">"–"</span> }.into_any());
    view! {
        <li class="row">
            <div class="row-slip">
                <span class="lone"></span>
                {parts::risk(p.risk)}
                <div class="row-what">
                    <div class="row-name">
                        <a class="row-link" href=format!("/operations/{}", p.id)>
                            <b>{p.title.clone()}</b>
                            {parts::target(p.target.as_str())}
                        </a>
                        {(op.life.disputed).then(|| parts::flag("stop", "disputed".to_owned()))}
                        {held}
                    </div>
                    <p class="row-effect">{parts::line(&p.consequence)}{provider}</p>
                </div>
                <div class="row-who"><span>{parts::line(&one.agent)}</span><span>{parts::line(&owner)}</span></div>
                {number(op)}
            </div>
            <div class="row-stub">
                {number(op)}
                <time class="second" datetime=one.since.to_string() data-since="" title=parts::utc(one.since, Form::Clock, now)>
                    {time::span(now - one.since)}
                </time>
                {due}
            </div>
        </li>
    }
}

fn number(op: &Operation) -> impl IntoView + use<> {
    view! { <span class="no">{op.proposal.fingerprint.short_code()}</span> }
}
