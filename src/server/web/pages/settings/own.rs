//! Settings: the reader's own sessions and keyboard.

use axum::{
    Router,
    response::Redirect,
    routing::{get, post},
};
use leptos::prelude::*;

use super::{
    super::{
        parts::{self, Head, List},
        render::{Page, Visitor},
        shell::Place,
    },
    Tab, tabs,
};
use crate::{
    model::{
        id::SessionId,
        problem::{Code, Problem},
    },
    server::{
        service::{
            account,
            error::{Error, Result},
        },
        store::session,
        web::{body::Path, state::AppState},
    },
    ui::{keys::KEYS, time::Form as TimeForm},
};

pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/settings/sessions", get(sessions))
        .route("/settings/sessions/{id}/end", post(end_session))
        .route("/settings/keyboard", get(keyboard))
}

async fn sessions(visitor: Visitor) -> Result<Page> {
    let mut conn = visitor.desk.store.read().await?;
    let sessions = session::of_person(&mut conn, visitor.person.id(), visitor.now).await?;
    let now = visitor.now;
    Ok(visitor.page("Your sessions", Place::Settings, || {
        let rows: Vec<_> = sessions
            .iter()
            .map(|session| {
                let is_this = session.id == *visitor.person.session();
                let act = if is_this {
                    view! { <span class="second">"this browser"</span> }.into_any()
                } else {
                    view! {
                        <form action=format!("/settings/sessions/{}/end", session.id) method="post">
                            <button class="btn btn-small" type="submit">"End it"</button>
                        </form>
                    }
                    .into_any()
                };
                view! {
                    <tr>
                        <td>{parts::line(&session.content.user_agent)}</td>
                        <td>{parts::when(session.content.signed_in_at, now, TimeForm::Clock)}</td>
                        <td>{parts::when(session.last_seen_at, now, TimeForm::Clock)}</td>
                        <td class="meta">{act}</td>
                    </tr>
                }
            })
            .collect();
        view! {
            <Head title="Your sessions">
                "Browsers that are signed in as you. One ends after 12 h without use, and 7 d after it began."
            </Head>
            {tabs(Tab::Sessions)}
            <div class="card pane gap-top">
                <List label="Your sessions" heads=vec!["Browser", "Signed in", "Last seen", ""]>{rows}</List>
            </div>
        }
    }))
}

async fn end_session(visitor: Visitor, Path(id): Path<SessionId>) -> Result<Redirect> {
    match account::revoke_session(&visitor.desk, &visitor.person, id).await {
        // It is over either way.
        Ok(()) | Err(Error::Refused(Problem { code: Code::NotFound, .. })) => Ok(Redirect::to("/settings/sessions")),
        Err(error) => Err(error),
    }
}

async fn keyboard(visitor: Visitor) -> Page {
    visitor.page("Keyboard", Place::Settings, || {
        let keys: Vec<_> = KEYS
            .iter()
            .map(|(key, words)| view! { <dt><kbd>{*key}</kbd></dt><dd>{*words}</dd> })
            .collect();
        view! {
            <Head title="Keyboard">"A key moves and opens. No key decides."</Head>
            {tabs(Tab::Keyboard)}
            <div class="card pane gap-top stack narrow">
                <dl class="facts">{keys}</dl>
                <p class="second" data-keys-state="">"The keys need scripts; this browser runs none here."</p>
                <p><button class="btn btn-small" type="button" data-keys-toggle="" hidden>"Turn the keys off"</button></p>
            </div>
        }
    })
}
