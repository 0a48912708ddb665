//! Settings: the pause.

use axum::{
    Router,
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use leptos::prelude::*;
use serde::Deserialize;

use super::{
    super::{
        parts::Head,
        render::{Page, Visitor},
        shell::Place,
    },
    Tab, beside_form, faults, is_admin, tabs,
};
use crate::{
    model::problem::Problem,
    server::{
        service::{error::Result, settings},
        web::{auth::Admin, body::Form, state::AppState},
    },
};

pub fn routes() -> Router<AppState> {
    Router::new().route("/settings/pause", get(pause).post(begin_pause)).route("/settings/pause/end", post(end_pause))
}

async fn pause(visitor: Visitor) -> Page {
    pause_page(&visitor, None)
}

#[derive(Deserialize)]
struct Reason {
    reason: String,
}

async fn begin_pause(visitor: Visitor, admin: Admin, Form(given): Form<Reason>) -> Result<Response> {
    match settings::pause(&visitor.desk, &admin, given.reason).await {
        Ok(_) => Ok(Redirect::to("/settings/pause").into_response()),
        Err(error) => {
            let problem = beside_form(error)?;
            Ok(pause_page(&visitor, Some(&problem)).refused(problem.code).into_response())
        }
    }
}

async fn end_pause(visitor: Visitor, admin: Admin) -> Result<Redirect> {
    settings::resume(&visitor.desk, &admin).await?;
    Ok(Redirect::to("/settings/pause"))
}

fn pause_page(visitor: &Visitor, refused: Option<&Problem>) -> Page {
    let is_paused = visitor.pause.is_some();
    let is_admin = is_admin(visitor);
    visitor.page("Pause", Place::Settings, || {
        let form = match (is_admin, is_paused) {
            (false, _) => view! { <p class="second">"An admin pauses the desk and ends the pause."</p> }.into_any(),
            (true, true) => view! {
                <form action="/settings/pause/end" method="post">
                    <button class="btn btn-ink" type="submit">"End the pause"</button>
                </form>
            }
            .into_any(),
            (true, false) => view! {
                <form class="stack" action="/settings/pause" method="post">
                    <label class="field">
                        <span>"Why"</span>
                        <input class="in" name="reason" maxlength="1000" required />
                        <small>"Everybody reads it on every page."</small>
                    </label>
                    <button class="btn btn-stop" type="submit">"Pause the desk"</button>
                </form>
            }
            .into_any(),
        };
        view! {
            <Head title="Pause">"For when something is wrong and nobody knows yet what."</Head>
            {tabs(Tab::Pause)}
            {faults(refused)}
            <div class="card pane gap-top stack narrow">
                <ul class="needs">
                    <li>"Nothing is claimed, and nothing that was claimed is sent"</li>
                    <li>"What was sent can still be reported"</li>
                    <li>"People may decide; deadlines keep running"</li>
                </ul>
                {form}
            </div>
        }
    })
}
