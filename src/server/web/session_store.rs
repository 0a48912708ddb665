//! The session cookie. `tower-sessions` reads and writes it; who is signed in is decided by our own table and clock.
//!
//! A session begins or changes its cookie in one command, together with the audit record; [`account`] ends it in
//! another. Nothing else writes one, so a slow request cannot bring back a session that was ended meanwhile.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use time::{Duration, OffsetDateTime};
use tower_sessions::{
    Expiry, Session, SessionManagerLayer, SessionStore,
    cookie::SameSite,
    session::{Error as SessionError, Id, Record},
    session_store,
};

use super::auth::PersonIdentity;
use crate::{
    model::{
        audit::{Actor, Entry, Event},
        id::{CorrelationId, SessionId},
        problem::{Code, Problem},
        time::Timestamp,
    },
    server::{
        ids,
        service::{
            By, Desk, account,
            error::{Error, Result},
        },
        store::{self, Tx, person, person::Person, session},
    },
};

pub const COOKIE: &str = "counterfoil_session";
/// Where a record of `tower-sessions` holds the [`Beginning`].
const BEGINNING: &str = "beginning";
const UNAVAILABLE: &str = "unavailable";
const OVER: &str = "over";

/// How a cookie is kept.
pub fn hash(id: &Id) -> String {
    ids::hash(&id.to_string())
}

pub fn layer(desk: Desk) -> SessionManagerLayer<Sessions> {
    let secure = desk.config.public_url.starts_with("https:");
    SessionManagerLayer::new(Sessions(desk))
        .with_name(COOKIE)
        .with_secure(secure)
        .with_same_site(SameSite::Lax)
        .with_expiry(Expiry::OnInactivity(Duration::seconds(session::LIFE_S)))
}

/// A session about to begin.
#[derive(Serialize, Deserialize)]
struct Beginning {
    content: session::Content,
    /// Hash of the cookie that is given up for it.
    replaces: Option<String>,
    correlation: Option<CorrelationId>,
    route: Option<String>,
}

/// Starts a session under a new id; the one this browser had ends.
///
/// # Errors
/// `unauthenticated` when the person was disabled in this moment.
pub async fn sign_in(session: &Session, person: &Person, user_agent: &str, now: Timestamp, by: By) -> Result<()> {
    let content = session::Content {
        person: person.id.clone(),
        user_agent: user_agent.chars().take(200).collect(),
        signed_in_at: now,
        stepped_up_at: None,
    };
    begin(session, content, by).await
}

/// Continues the session under a new id, with the password entered again.
///
/// # Errors
/// `unauthenticated` when the session was ended meanwhile.
pub async fn step_up(session: &Session, person: &PersonIdentity, now: Timestamp) -> Result<()> {
    begin(session, session::Content { stepped_up_at: Some(now), ..person.content().clone() }, person.by()).await
}

/// Ends the session and takes the cookie away.
pub async fn sign_out(desk: &Desk, session: &Session, person: &PersonIdentity) -> Result<()> {
    account::sign_out(desk, person).await?;
    session.flush().await.map_err(error)
}

/// Notes that a session is in use. Missing a note is harmless.
pub async fn touch(desk: &Desk, id: SessionId) {
    let noted = desk.store.commit(move |tx| Box::pin(async move { session::touch(tx, &id).await })).await;
    if let Err(error) = noted {
        tracing::debug!(%error, "the use of a session was not noted");
    }
}

async fn begin(session: &Session, content: session::Content, by: By) -> Result<()> {
    let replaces = session.id().as_ref().map(hash);
    let beginning = Beginning { content, replaces, correlation: by.correlation, route: by.route };
    session.cycle_id().await.map_err(error)?;
    session.insert(BEGINNING, beginning).await.map_err(error)?;
    session.save().await.map_err(error)
}

fn error(error: SessionError) -> Error {
    match error {
        SessionError::Store(session_store::Error::Backend(words)) if words == UNAVAILABLE => Error::Unavailable,
        SessionError::Store(session_store::Error::Backend(words)) if words == OVER => {
            Problem::new(Code::Unauthenticated, "the session was ended meanwhile").into()
        }
        other => Error::internal(other),
    }
}

/// The crate's errors are words; these two come back as what they were.
fn backend(error: impl Into<Error>) -> session_store::Error {
    session_store::Error::Backend(match error.into() {
        Error::Unavailable => UNAVAILABLE.to_owned(),
        Error::Refused(_) => OVER.to_owned(),
        Error::Internal(error) => error.to_string(),
    })
}

#[derive(Clone)]
pub struct Sessions(Desk);

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sessions")
    }
}

#[async_trait]
impl SessionStore for Sessions {
    async fn create(&self, record: &mut Record) -> session_store::Result<()> {
        let beginning = record.data.get(BEGINNING).cloned().unwrap_or_default();
        let beginning: Beginning =
            serde_json::from_value(beginning).map_err(|error| session_store::Error::Encode(error.to_string()))?;
        let id_hash = hash(&record.id);
        self.0.commit(move |tx| Box::pin(start(tx, id_hash, beginning))).await.map_err(backend)
    }

    /// All there is to save was stored when the session began.
    async fn save(&self, _: &Record) -> session_store::Result<()> {
        Ok(())
    }

    async fn load(&self, id: &Id) -> session_store::Result<Option<Record>> {
        let mut conn = self.0.store.read().await.map_err(backend)?;
        let found = session::find(&mut conn, &hash(id)).await.map_err(backend)?;
        let Some((session, _)) = found.filter(|(session, _)| !session.is_over(self.0.now())) else { return Ok(None) };
        let expiry_date = OffsetDateTime::from_unix_timestamp(session.expires_at.as_millis() / 1000)
            .map_err(|error| session_store::Error::Decode(error.to_string()))?;
        Ok(Some(Record { id: *id, data: Default::default(), expiry_date }))
    }

    /// Ending a session is a command of its own: the start of the next one, or [`account::sign_out`].
    async fn delete(&self, _: &Id) -> session_store::Result<()> {
        Ok(())
    }
}

async fn start(tx: &mut Tx, id_hash: String, beginning: Beginning) -> store::Result<std::result::Result<(), Problem>> {
    let Beginning { content, replaces, correlation, route } = beginning;
    let over = || Ok(Err(Problem::new(Code::Unauthenticated, "the session or the account was ended")));
    if !person::by_id(tx, &content.person).await?.is_some_and(|person| person.is_enabled()) {
        return over();
    }
    let event = match (content.stepped_up_at, replaces) {
        (Some(_), Some(old)) if session::cycle(tx, &old, &id_hash, &content).await? => Event::AccountSteppedUp,
        (Some(_), _) => return over(),
        (None, old) => {
            if let Some(old) = old {
                session::forget(tx, &old).await?;
            }
            session::insert(tx, &id_hash, &ids::new(tx.now()), &content).await?;
            Event::AccountSignedIn
        }
    };
    tx.audit(&Entry { correlation, route, ..Entry::new(event, Actor::human(&content.person)) }).await?;
    Ok(Ok(()))
}
