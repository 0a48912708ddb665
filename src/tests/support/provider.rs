//! A provider that charges, with every habit a test asks for. Its ledger of effects is the only thing a test believes.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{
    Json, Router,
    body::Body,
    extract::{Query, Request, State},
    http::{HeaderMap, StatusCode, header::LOCATION},
    response::{IntoResponse, Response},
    routing::{any, post},
};
use serde_json::{Value, json};

/// How it behaves.
#[derive(Debug, Clone, PartialEq)]
pub struct Habits {
    /// The same key makes one effect.
    pub honours_keys: bool,
    /// What it answers to a charge, after or without the effect.
    pub answer: Answer,
    /// A look-up finds nothing, whatever there is.
    pub blind: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Answer {
    Plain,
    /// The effect is queued.
    Queued,
    /// The effect is made, and all that was sent comes back.
    Echo,
    /// The effect is made, and the reply lost.
    Lost,
    /// This status, without an effect.
    Refused(u16),
    /// This status, after the effect.
    Failed(u16),
    /// A redirect to where nobody should go.
    Elsewhere,
    Garbage,
    /// A reply that never ends.
    Endless,
}

/// One effect.
#[derive(Debug, Clone, PartialEq)]
pub struct Effect {
    pub id: String,
    pub key: String,
    /// Method, path and query.
    pub line: String,
    pub body: Value,
    pub headers: HeaderMap,
}

/// A running provider.
#[derive(Clone)]
pub struct Provider {
    pub address: SocketAddr,
    habits: Arc<Mutex<Habits>>,
    effects: Arc<Mutex<Vec<Effect>>>,
    strays: Arc<AtomicUsize>,
}

impl Provider {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let provider = Self {
            address: listener.local_addr().unwrap(),
            habits: Arc::new(Mutex::new(Habits { honours_keys: true, answer: Answer::Plain, blind: false })),
            effects: Arc::default(),
            strays: Arc::default(),
        };
        let strays = provider.strays.clone();
        let secrets = move || async move {
            strays.fetch_add(1, Ordering::Relaxed);
            "secrets"
        };
        let router = Router::new()
            .route("/charges", post(charge).put(charge).get(find))
            .route("/latest/meta-data", any(secrets));
        tokio::spawn(axum::serve(listener, router.with_state(provider.clone())).into_future());
        provider
    }

    pub fn behave(&self, change: impl FnOnce(&mut Habits)) {
        change(&mut self.habits.lock().unwrap());
    }

    pub fn answers(&self, answer: Answer) {
        self.behave(|habits| habits.answer = answer);
    }

    pub fn effects(&self) -> Vec<Effect> {
        self.effects.lock().unwrap().clone()
    }

    /// Waits until it has made as many effects.
    pub async fn has_made(&self, count: usize) {
        while self.effects().len() < count {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    /// How often it was asked for what it only redirects to.
    pub fn strays(&self) -> usize {
        self.strays.load(Ordering::Relaxed)
    }

    /// A declaration that fits; `more` replaces members.
    pub fn contract(&self, more: Value) -> Value {
        let mut contract = json!({
            "name": "payments", "title": "Payments",
            "idempotency": {"header": "Idempotency-Key", "retention_s": 86_400},
            "lookup": "authoritative", "max_in_flight_s": 60, "fences": false,
            "destination": {
                "base_url": format!("http://{}", self.address), "allow_private": ["127.0.0.1/32"], "timeout_s": 2,
                "max_reply_bytes": 4096, "credential_header": "Authorization", "reference": "/id",
                "lookup": {"path": "/charges?key={key}", "items": "/data", "echo": "/key"},
                "check": {"method": "POST", "path": "/charges", "body": {"amount": 1}, "other_body": {"amount": 2}},
            },
        });
        for (name, value) in more.as_object().cloned().unwrap_or_default() {
            contract[name] = value;
        }
        contract
    }
}

async fn charge(State(provider): State<Provider>, request: Request) -> Response {
    let headers = request.headers().clone();
    let line = format!("{} {}", request.method(), request.uri());
    let bytes = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    let key = headers.get("idempotency-key").map_or("", |key| key.to_str().unwrap()).to_owned();
    let habits = provider.habits.lock().unwrap().clone();
    if let Answer::Refused(status) = habits.answer {
        return (StatusCode::from_u16(status).unwrap(), Json(json!({"error": "no"}))).into_response();
    }
    let effect = {
        let mut effects = provider.effects.lock().unwrap();
        let known = effects.iter().find(|effect| habits.honours_keys && effect.key == key).cloned();
        match known {
            Some(known) if known.body != body => {
                return (StatusCode::UNPROCESSABLE_ENTITY, Json(json!({"error": "another body"}))).into_response();
            }
            Some(known) => known,
            None => {
                let effect = Effect { id: format!("ch_{}", effects.len() + 1), key, line, body, headers };
                effects.push(effect.clone());
                effect
            }
        }
    };
    match habits.answer {
        Answer::Plain | Answer::Refused(_) => {
            (StatusCode::CREATED, Json(json!({"id": effect.id, "key": effect.key}))).into_response()
        }
        Answer::Queued => (StatusCode::ACCEPTED, Json(json!({"id": effect.id}))).into_response(),
        Answer::Echo => {
            let sent: Vec<_> = effect.headers.iter().map(|(name, value)| format!("{name}: {value:?}")).collect();
            Json(json!({"id": effect.id, "sent": sent})).into_response()
        }
        Answer::Lost => std::future::pending().await,
        Answer::Failed(status) => StatusCode::from_u16(status).unwrap().into_response(),
        Answer::Elsewhere => {
            (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, format!("http://{}/latest/meta-data", provider.address))])
                .into_response()
        }
        Answer::Garbage => (StatusCode::OK, "\u{0}\u{ff}{{{").into_response(),
        Answer::Endless => {
            let zeros = futures::stream::repeat_with(|| Ok::<_, std::io::Error>(vec![b'0'; 1024]));
            Response::new(Body::from_stream(zeros))
        }
    }
}

#[derive(serde::Deserialize)]
struct ByKey {
    key: String,
}

async fn find(State(provider): State<Provider>, Query(ByKey { key }): Query<ByKey>) -> Json<Value> {
    let blind = provider.habits.lock().unwrap().blind;
    let found = provider.effects().into_iter().filter(|effect| !blind && effect.key == key);
    Json(json!({"data": found.map(|effect| json!({"id": effect.id, "key": effect.key})).collect::<Vec<_>>()}))
}

/// A machine that answers whatever it is asked with these bytes, and counts what it was asked.
#[derive(Clone)]
pub struct Machine {
    pub address: SocketAddr,
    heard: Arc<Mutex<Vec<String>>>,
}

/// What it does once it has heard a whole request.
#[derive(Debug, Clone)]
pub enum Script {
    /// Says this, and hangs up.
    Say(Vec<u8>),
    /// Says this, and goes on with a byte now and then.
    Drip(Vec<u8>),
    /// Says this, and goes on for ever as fast as it can.
    Pour(Vec<u8>),
    /// Hangs up without a word.
    HangUp,
}

impl Machine {
    pub async fn start(script: Script) -> Self {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let machine = Self { address: listener.local_addr().unwrap(), heard: Arc::default() };
        let heard = machine.heard.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(play(stream, script.clone(), heard.clone()));
            }
        });
        machine
    }

    /// The requests it was sent.
    pub fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

async fn play(mut stream: tokio::net::TcpStream, script: Script, heard: Arc<Mutex<Vec<String>>>) -> Option<()> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let mut request = Vec::new();
    while !request.ends_with(b"}") {
        // Whoever only knocks has nothing to say.
        let read = stream.read_buf(&mut request).await.ok().filter(|read| *read > 0)?;
        debug_assert!(read > 0);
    }
    heard.lock().unwrap().push(String::from_utf8_lossy(&request).into_owned());
    match script {
        Script::HangUp => {}
        Script::Say(bytes) => stream.write_all(&bytes).await.ok()?,
        Script::Drip(bytes) => {
            stream.write_all(&bytes).await.ok()?;
            loop {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                stream.write_all(b"1").await.ok()?;
            }
        }
        Script::Pour(bytes) => {
            stream.write_all(&bytes).await.ok()?;
            loop {
                stream.write_all(&[b'1'; 65_536]).await.ok()?;
            }
        }
    }
    stream.shutdown().await.ok()
}
