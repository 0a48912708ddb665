//! A provider that charges, with every habit a test asks for. Its ledger of effects is the only thing a test believes.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex},
};

use axum::{
    Json, Router,
    body::Body,
    extract::{Query, Request, State},
    http::{HeaderMap, StatusCode, header::LOCATION},
    response::{IntoResponse, Response},
    routing::{get, post},
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
    pub body: Value,
    pub headers: HeaderMap,
}

/// A running provider.
#[derive(Clone)]
pub struct Provider {
    pub address: SocketAddr,
    habits: Arc<Mutex<Habits>>,
    effects: Arc<Mutex<Vec<Effect>>>,
}

impl Provider {
    pub async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let provider = Self {
            address: listener.local_addr().unwrap(),
            habits: Arc::new(Mutex::new(Habits { honours_keys: true, answer: Answer::Plain, blind: false })),
            effects: Arc::default(),
        };
        let router = Router::new()
            .route("/charges", post(charge).get(find))
            .route("/latest/meta-data", get(|| async { "secrets" }));
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
                let effect = Effect { id: format!("ch_{}", effects.len() + 1), key, body, headers };
                effects.push(effect.clone());
                effect
            }
        }
    };
    match habits.answer {
        Answer::Plain | Answer::Refused(_) => {
            (StatusCode::CREATED, Json(json!({"id": effect.id, "key": effect.key}))).into_response()
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
