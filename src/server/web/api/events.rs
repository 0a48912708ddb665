//! Server-sent events: what changed, in the order of the log, resumable.

use std::{convert::Infallible, sync::Arc, time::Duration};

use axum::{
    extract::State,
    http::{HeaderMap, HeaderName, HeaderValue},
    response::{
        IntoResponse, Response,
        sse::{Event as Message, KeepAlive, Sse},
    },
};
use futures::stream::{Stream, StreamExt};
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    model::{
        id::AgentId,
        problem::{Code, Problem},
    },
    server::{
        service::error::Result,
        store::log::{self, Event},
        web::{auth::Principal, state::AppState},
    },
};

/// Comments that keep proxies from closing the stream; they carry no id.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How often a stream makes sure that its reader still may read.
const RECHECK: Duration = Duration::from_secs(10);
/// Events read at once when a stream catches up.
const BATCH: i64 = 500;

pub fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(stream))
}

#[utoipa::path(
    get,
    path = "/events",
    tag = "events",
    params(("Last-Event-ID" = Option<String>, Header, description = "Resume after this event")),
    responses((status = 200, description = "Done", body = String, content_type = "text/event-stream")),
)]
async fn stream(State(state): State<AppState>, principal: Principal, headers: HeaderMap) -> Result<Response> {
    let since = match headers.get("last-event-id") {
        None => None,
        Some(value) => Some(
            value.to_str().ok().and_then(|text| text.parse::<i64>().ok()).filter(|seq| *seq >= 0).ok_or_else(|| {
                Problem::new(
                    Code::BadRequest,
                    "`Last-Event-ID` is not an id of this stream; leave it out to start over",
                )
            })?,
        ),
    };
    let reader =
        Reader { agent: principal.agent().cloned(), is_person: matches!(principal, Principal::Person(_)), principal };
    let messages = Sse::new(messages(state, reader, since)).keep_alive(KeepAlive::new().interval(HEARTBEAT));
    // Proxies that buffer would hold events back.
    let unbuffered = [(HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no"))];
    Ok((unbuffered, messages).into_response())
}

struct Reader {
    agent: Option<AgentId>,
    is_person: bool,
    principal: Principal,
}

impl Reader {
    /// People see everything, programs their own.
    fn sees(&self, event: &Event) -> bool {
        self.is_person || (self.agent.is_some() && event.agent.as_deref() == self.agent.as_ref().map(AgentId::as_str))
    }
}

enum Next {
    Event(Arc<Event>),
    Reset,
    End,
}

fn messages(
    state: AppState,
    reader: Reader,
    since: Option<i64>,
) -> impl Stream<Item = std::result::Result<Message, Infallible>> {
    // Subscribed before the log is read: what is committed in between arrives twice at most, and is dropped by its seq.
    let live = state.desk.signals.subscribe();
    let start = Source { state, reader, live, caught_up: since.is_none(), seen: since, backlog: Default::default() };
    futures::stream::unfold(start, |mut source| async move {
        let messages = match source.next().await {
            Next::Event(event) => said(&event),
            Next::Reset => vec![Message::default().event("reset").data("{}")],
            Next::End => return None,
        };
        Some((futures::stream::iter(messages.into_iter().map(Ok)), source))
    })
    .flatten()
}

/// What a stream says about one event. Only the last message carries its id: whoever lost one of them gets all again.
fn said(event: &Event) -> Vec<Message> {
    let data = |id: &str, state: &str| {
        json!({"id": id, "state": state, "version": event.version, "seq": event.seq}).to_string()
    };
    let conflict =
        event.conflict.as_ref().map(|(id, state)| Message::default().event("conflict").data(data(id, state)));
    let own = Message::default().id(event.seq.to_string()).event(&event.topic).data(data(&event.subject, &event.state));
    conflict.into_iter().chain([own]).collect()
}

struct Source {
    state: AppState,
    reader: Reader,
    live: tokio::sync::broadcast::Receiver<Arc<Event>>,
    caught_up: bool,
    seen: Option<i64>,
    backlog: std::collections::VecDeque<Event>,
}

impl Source {
    async fn next(&mut self) -> Next {
        loop {
            if !self.caught_up {
                match self.catch_up().await {
                    Ok(Some(next)) => return next,
                    Ok(None) => self.caught_up = true,
                    Err(error) => {
                        tracing::warn!(%error, "a stream ends: its events could not be read");
                        return Next::End;
                    }
                }
            }
            let stop = self.state.stop.clone();
            tokio::select! {
                () = stop.cancelled() => return Next::End,
                () = tokio::time::sleep(RECHECK) => {
                    // Signed out, revoked, or nobody can tell.
                    if !self.reader.principal.is_still_valid(&self.state.desk).await.unwrap_or(false) {
                        return Next::End;
                    }
                }
                event = self.live.recv() => match event {
                    Ok(event) if self.seen.is_some_and(|seen| event.seq <= seen) => {}
                    Ok(event) => {
                        self.seen = Some(event.seq);
                        if self.reader.sees(&event) {
                            return Next::Event(event);
                        }
                    }
                    // Too slow: the log has what was missed, if it is not too old.
                    Err(RecvError::Lagged(_)) if self.seen.is_some() => self.caught_up = false,
                    Err(RecvError::Lagged(_)) => return Next::Reset,
                    Err(RecvError::Closed) => return Next::End,
                },
            }
        }
    }

    /// The next event from the log; `None` once there is no more.
    async fn catch_up(&mut self) -> Result<Option<Next>> {
        loop {
            while let Some(event) = self.backlog.pop_front() {
                self.seen = Some(event.seq);
                if self.reader.sees(&event) {
                    return Ok(Some(Next::Event(Arc::new(event))));
                }
            }
            let seen = self.seen.unwrap_or(-1);
            let mut conn = self.state.desk.store.read().await?;
            let newest = log::newest_event(&mut conn).await?;
            // Older than what is kept, or from another log: the reader starts over, and follows from here.
            if seen < log::forgotten(&mut conn).await? || seen > newest {
                self.seen = Some(newest);
                return Ok(Some(Next::Reset));
            }
            self.backlog = log::events(&mut conn, seen, BATCH).await?.into();
            if self.backlog.is_empty() {
                return Ok(None);
            }
        }
    }
}
