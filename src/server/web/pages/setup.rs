//! The first admin, by the link that the first start prints.

use axum::{
    Router,
    http::HeaderMap,
    response::{IntoResponse, Redirect, Response},
    routing::get,
};
use leptos::prelude::*;
use serde::Deserialize;
use tower_sessions::Session;

use super::{
    error, parts,
    render::{self, Page},
    sign_in::door_sheet,
};
use crate::{
    model::problem::Code,
    server::{
        service::{
            Desk,
            account::{self, Name, Password},
            error::Result,
        },
        web::{
            api::user_agent,
            auth::Anonymous,
            body::{Form, Query},
            security::Nonce,
            session_store,
            state::AppState,
        },
    },
};

pub fn routes() -> Router<AppState> {
    Router::new().route("/setup", get(show).post(complete))
}

#[derive(Deserialize)]
struct Link {
    #[serde(default)]
    token: String,
}

async fn show(desk: Desk, nonce: Nonce, Query(link): Query<Link>) -> Result<Page> {
    account::check_setup(&desk, &link.token).await?;
    Ok(form(&desk, &nonce, &link.token, "", None))
}

#[derive(Deserialize)]
struct Given {
    token: String,
    name: String,
    password: String,
}

async fn complete(
    desk: Desk,
    nonce: Nonce,
    origin: Anonymous,
    session: Session,
    headers: HeaderMap,
    Form(given): Form<Given>,
) -> Result<Response> {
    let read = (Name::try_from(given.name.clone()), Password::try_from(given.password));
    let (name, password) = match read {
        (Ok(name), Ok(password)) => (name, password),
        (Err(words), _) | (_, Err(words)) => {
            account::check_setup(&desk, &given.token).await?;
            let page = form(&desk, &nonce, &given.token, &given.name, Some(words)).refused(Code::ValidationFailed);
            return Ok(page.into_response());
        }
    };
    let person = account::complete_setup(&desk, &given.token, name, password).await?;
    session_store::sign_in(&session, &person, user_agent(&headers), desk.now(), origin.by("setup")).await?;
    Ok(Redirect::to("/").into_response())
}

fn form(desk: &Desk, nonce: &Nonce, token: &str, name: &str, refused: Option<&str>) -> Page {
    let host = render::host(desk).to_owned();
    let (token, name) = (token.to_owned(), name.chars().take(64).collect::<String>());
    let refused = refused.map(error::sentence);
    let is_refused = refused.is_some();
    render::bare(desk, nonce, "Set up", || {
        let slip = view! {
            <p class="brand brand-big">{parts::brand()}"Counterfoil"</p>
            <form action="/setup" method="post">
                <h1>"Set up "{host}</h1>
                <p class="second">"You are the first here. This makes your account, an admin, and uses the link up."</p>
                <input type="hidden" name="token" value=token />
                <label class="field">
                    <span>"Name"</span>
                    <input
                        class="in"
                        name="name"
                        autocomplete="username"
                        autocapitalize="off"
                        spellcheck="false"
                        maxlength="64"
                        required
                        value=name
                    />
                </label>
                <label class="field">
                    <span>"Password"</span>
                    <input
                        class="in"
                        type="password"
                        name="password"
                        autocomplete="new-password"
                        minlength="12"
                        maxlength="1024"
                        required
                        aria-describedby=if is_refused { "refused" } else { "long" }
                        aria-invalid=is_refused.then_some("true")
                    />
                    <small id="long">"12 characters at least."</small>
                </label>
                {refused.map(|words| view! { <p class="err" id="refused" role="alert">{words}</p> })}
                <div>
                    <button class="btn btn-ink" type="submit">"Make the account"</button>
                </div>
            </form>
        };
        door_sheet(slip, "The link works once, within an hour of the start. A restart prints a new one.", "your name")
    })
}
