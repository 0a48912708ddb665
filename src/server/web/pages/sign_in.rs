//! The door.

use axum::{
    Router,
    http::HeaderMap,
    response::{IntoResponse, Redirect, Response},
    routing::{get, post},
};
use leptos::prelude::*;
use serde::Deserialize;
use tower_sessions::Session;

use super::{
    error, parts,
    render::{self, Page, Passer},
};
use crate::{
    model::problem::{Code, Problem},
    server::{
        service::{
            Desk, account,
            error::{Error, Result},
        },
        web::{
            api::user_agent,
            auth::{Anonymous, ClientAddress, PersonIdentity},
            body::{Form, Query},
            security::Nonce,
            session_store,
            state::AppState,
        },
    },
};

pub fn routes() -> Router<AppState> {
    Router::new().route("/sign-in", get(show).post(sign_in)).route("/sign-out", post(sign_out))
}

#[derive(Deserialize)]
struct Way {
    /// Where to go once signed in.
    #[serde(default)]
    next: String,
}

async fn show(passer: Passer, Query(way): Query<Way>) -> Response {
    match passer.visitor {
        Some(_) => Redirect::to(own(&way.next)).into_response(),
        None => door(&passer.desk, &passer.nonce, &way.next, "", None).into_response(),
    }
}

/// An address of ours: nobody's link leads elsewhere through our door.
fn own(next: &str) -> &str {
    let is_path = next.starts_with('/') && !next[1..].starts_with(['/', '\\']);
    if is_path && !next.contains(['\r', '\n', '\t']) { next } else { "/" }
}

#[derive(Deserialize)]
struct Given {
    name: String,
    password: String,
    #[serde(default)]
    next: String,
}

async fn sign_in(
    desk: Desk,
    nonce: Nonce,
    origin: Anonymous,
    ClientAddress(address): ClientAddress,
    session: Session,
    headers: HeaderMap,
    Form(given): Form<Given>,
) -> Result<Response> {
    let by = origin.by("sign-in");
    match account::check_password(&desk, &given.name, given.password, address, by.clone()).await {
        Ok(person) => {
            session_store::sign_in(&session, &person, user_agent(&headers), desk.now(), by).await?;
            Ok(Redirect::to(own(&given.next)).into_response())
        }
        Err(Error::Refused(problem)) if matches!(problem.code, Code::Unauthenticated | Code::RateLimited) => {
            let page = door(&desk, &nonce, &given.next, &given.name, Some(&problem)).refused(problem.code);
            Ok(page.into_response())
        }
        Err(error) => Err(error),
    }
}

async fn sign_out(desk: Desk, session: Session, person: Option<PersonIdentity>) -> Result<Redirect> {
    if let Some(person) = person {
        session_store::sign_out(&desk, &session, &person).await?;
    }
    Ok(Redirect::to("/sign-in"))
}

fn door(desk: &Desk, nonce: &Nonce, next: &str, name: &str, refused: Option<&Problem>) -> Page {
    let host = render::host(desk).to_owned();
    let (next, name) = (own(next).to_owned(), name.chars().take(64).collect::<String>());
    let refused = refused.map(|problem| error::sentence(&problem.detail));
    let is_refused = refused.is_some();
    render::bare(desk, nonce, "Sign in", || {
        let slip = view! {
            <p class="brand brand-big">{parts::brand()}"Counterfoil"</p>
            <form action="/sign-in" method="post">
                <h1>"Sign in to "{host}</h1>
                <input type="hidden" name="next" value=next />
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
                        autocomplete="current-password"
                        maxlength="1024"
                        required
                        aria-invalid=is_refused.then_some("true")
                        aria-describedby=is_refused.then_some("refused")
                    />
                </label>
                {refused.map(|words| view! { <p class="err" id="refused" role="alert">{words}</p> })}
                <div>
                    <button class="btn btn-ink" type="submit">"Sign in"</button>
                </div>
            </form>
        };
        door_sheet(slip, "No account? An admin adds people. There is no default password.", "your name")
    })
}

/// Who comes in here, and how the other half works.
pub fn door_sheet(slip: impl IntoView, note: &'static str, signature: &'static str) -> impl IntoView {
    view! {
        <div class="door">
            <div class="sheet split perf">
                <div class="slip">{slip}</div>
                <aside class="stub" aria-labelledby="h-half">
                    <h2 id="h-half">"This half is signed by people"</h2>
                    <ul class="stack-2 vow">
                        <li>"Agents propose. They cannot sign in here."</li>
                        <li>"A link never decides anything."</li>
                        <li>"Every decision is kept under your name."</li>
                    </ul>
                    <div class="sig sig-open sig-foot">
                        <span class="tick" aria-hidden="true">"○"</span>
                        <b>{signature}</b>
                        <span class="at"></span>
                    </div>
                </aside>
            </div>
            <p class="foot-note">{note}</p>
        </div>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_door_leads_nowhere_but_inside() {
        for inside in ["/", "/operations/op_1?x=1", "/?lane=done"] {
            assert_eq!(own(inside), inside);
        }
        for outside in
            ["", "https://evil.example.test", "//evil.example.test", "/\\evil.example.test", "javascript:x", "/\n/x"]
        {
            assert_eq!(own(outside), "/");
        }
    }
}
