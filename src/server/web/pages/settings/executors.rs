//! Settings: executors.

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
    Tab, beside_form, fault, faults, is_admin, name_field, none_yet, tabs, token_page, words,
};
use crate::{
    model::{id::ExecutorId, problem::Problem},
    server::{
        service::{
            agents::{self, ExecutorChange, KindPattern, Label, NewExecutor, Revoked},
            error::Result,
        },
        store::executor::{self, Executor},
        web::{
            auth::Admin,
            body::{Form, Path},
            state::AppState,
        },
    },
    ui::time::Form as TimeForm,
};

pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/settings/executors", get(all_executors).post(add_executor))
        .route("/settings/executors/{id}/revoke", post(revoke_executor))
}

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
                        {name_field(given.name.clone())}
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
