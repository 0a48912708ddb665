//! The simulated providers, in a process of their own. Their ledger of effects is the only thing the harness believes.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader, Read},
    net::Ipv4Addr,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
};

use axum::{
    Json, Router,
    body::Body,
    extract::{Path, Query, State},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
    routing::post,
};
use counterfoil::server::clock::Clock;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    cells::{Contract, Fate},
    sim::Sim,
};

/// What waits for the requests about one order, in their order.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Plan {
    pub fates: Vec<Fate>,
    /// By how much a look-up lags behind an effect.
    pub lag_ms: i64,
    /// By how much the provider's clock gains after the first request.
    pub gains_ms: i64,
}

/// One line of the ledger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    pub id: String,
    pub key: String,
    pub body: Value,
    pub received_at: i64,
    pub at: i64,
}

#[derive(Default)]
struct Order {
    plan: Plan,
    requests: usize,
    ledger: Vec<Effect>,
    fence: i64,
}

#[derive(Default)]
struct Shop {
    orders: HashMap<(Contract, String), Order>,
    /// For requests that do not say when they are sent, because the desk itself sends them; 0 is the machine's time.
    now: i64,
}

type Orders = Arc<Mutex<Shop>>;

/// Serves until whoever started it is gone. The first line of standard output is its address.
#[tokio::main(flavor = "current_thread")]
pub async fn serve() {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    say(&listener.local_addr().unwrap().to_string());
    let router = Router::new()
        .route("/sim/clock/{now}", post(clock))
        .route("/sim/orders/{contract}/{order}", post(plan).get(ledger))
        .route("/{contract}/effects", post(act).get(find))
        .with_state(Orders::default());
    std::thread::spawn(|| {
        drop(std::io::stdin().read(&mut [0]));
        std::process::exit(0);
    });
    axum::serve(listener, router).await.unwrap();
}

#[expect(clippy::print_stdout, reason = "how the harness learns the address")]
fn say(line: &str) {
    println!("{line}");
}

fn contract_named(name: &str) -> Contract {
    Contract::named(name).unwrap()
}

async fn clock(State(orders): State<Orders>, Path(now): Path<i64>) -> StatusCode {
    orders.lock().unwrap().now = now;
    StatusCode::NO_CONTENT
}

async fn plan(
    State(orders): State<Orders>,
    Path((contract, order)): Path<(String, String)>,
    Json(plan): Json<Plan>,
) -> StatusCode {
    orders.lock().unwrap().orders.entry((contract_named(&contract), order)).or_default().plan = plan;
    StatusCode::NO_CONTENT
}

async fn ledger(State(orders): State<Orders>, Path((contract, order)): Path<(String, String)>) -> Json<Vec<Effect>> {
    let shop = orders.lock().unwrap();
    Json(shop.orders.get(&(contract_named(&contract), order)).map(|order| order.ledger.clone()).unwrap_or_default())
}

fn number(headers: &HeaderMap, name: &str) -> i64 {
    headers.get(name).and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or_default()
}

impl Shop {
    fn now_of(&self, headers: &HeaderMap) -> i64 {
        let told = [number(headers, "x-now"), self.now].into_iter().find(|now| *now > 0);
        told.unwrap_or_else(|| Clock::system().now().as_millis())
    }
}

/// A connection that breaks before the reply is whole.
fn broken() -> Response {
    let cut = futures::stream::once(async { Err::<Vec<u8>, _>(std::io::Error::other("cut off")) });
    Response::new(Body::from_stream(cut))
}

async fn act(
    State(orders): State<Orders>,
    Path(contract): Path<String>,
    headers: HeaderMap,
    Json(body): Json<Value>,
) -> Response {
    let contract = contract_named(&contract);
    let name = body["order"].as_str().unwrap_or_default().to_owned();
    let key = headers.get("idempotency-key").map_or("", |key| key.to_str().unwrap()).to_owned();
    let fence = number(&headers, "counterfoil-claim-fence");
    let mut shop = orders.lock().unwrap();
    let now = shop.now_of(&headers);
    let order = shop.orders.entry((contract, name.clone())).or_default();
    let fate = order.plan.fates.get(order.requests).copied().unwrap_or(Fate::Answered { after_ms: 0 });
    order.requests += 1;
    if fate == Fate::RequestLost {
        return broken();
    }
    if contract.fences() && fence < order.fence {
        return StatusCode::PRECONDITION_FAILED.into_response();
    }
    order.fence = order.fence.max(fence);
    let clock = now + if order.requests > 1 { order.plan.gains_ms } else { 0 };
    let remembered = order.ledger.iter().find(|effect| {
        !key.is_empty()
            && effect.key == key
            && contract.retention_ms().is_some_and(|retention| clock < effect.received_at + retention)
    });
    let id = match remembered {
        Some(effect) if effect.body != body => return StatusCode::UNPROCESSABLE_ENTITY.into_response(),
        Some(effect) => effect.id.clone(),
        None => {
            let at = match fate {
                Fate::ReplyLost { commit_after_ms } => now + commit_after_ms,
                _ => now,
            };
            let id = format!("{name}-{}", order.ledger.len() + 1);
            order.ledger.push(Effect { id: id.clone(), key: key.clone(), body, received_at: now, at });
            id
        }
    };
    match fate {
        Fate::Answered { after_ms } => {
            let version = format!("\"{}\"", order.ledger.len());
            let headers = [("x-after", after_ms.to_string()), ("etag", version)];
            (StatusCode::CREATED, headers, Json(json!({"id": id, "key": key}))).into_response()
        }
        Fate::Failed { status } => StatusCode::from_u16(status).unwrap().into_response(),
        Fate::RequestLost | Fate::ReplyLost { .. } => broken(),
    }
}

#[derive(Deserialize)]
struct Sought {
    key: Option<String>,
    order: Option<String>,
}

async fn find(
    State(orders): State<Orders>,
    Path(contract): Path<String>,
    Query(sought): Query<Sought>,
    headers: HeaderMap,
) -> Response {
    let contract = contract_named(&contract);
    if contract.settle_ms().is_none() {
        return StatusCode::NOT_FOUND.into_response();
    }
    let shop = orders.lock().unwrap();
    let now = shop.now_of(&headers);
    let known = shop
        .orders
        .iter()
        .filter(|((of, name), _)| *of == contract && sought.order.as_ref().is_none_or(|order| order == name));
    let found = known.flat_map(|(_, order)| {
        let (now, key) = (now, sought.key.as_ref());
        let fits =
            move |effect: &&Effect| key.is_none_or(|key| effect.key == *key) && effect.at + order.plan.lag_ms <= now;
        order.ledger.iter().filter(fits).map(|effect| json!({"id": effect.id, "key": effect.key}))
    });
    Json(json!({"data": found.collect::<Vec<_>>()})).into_response()
}

/// The running process.
pub struct Providers {
    child: Child,
    pub url: String,
    client: reqwest::Client,
}

impl Providers {
    pub fn start() -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let mut child = command.arg("provider").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut address = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
        Self { child, url: format!("http://{}", address.trim()), client: reqwest::Client::new() }
    }

    pub async fn plan(&self, contract: Contract, order: &str, plan: &Plan) {
        let url = format!("{}/sim/orders/{}/{order}", self.url, contract.name());
        self.client.post(url).json(plan).send().await.unwrap().error_for_status().unwrap();
    }

    pub async fn tell_the_time(&self, now: i64) {
        let url = format!("{}/sim/clock/{now}", self.url);
        self.client.post(url).send().await.unwrap().error_for_status().unwrap();
    }

    pub async fn ledger(&self, contract: Contract, order: &str) -> Vec<Effect> {
        let url = format!("{}/sim/orders/{}/{order}", self.url, contract.name());
        self.client.get(url).send().await.unwrap().json().await.unwrap()
    }
}

impl Drop for Providers {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// What whoever sends a request gets to know.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    Done {
        reference: String,
        version: i64,
    },
    Refused(u16),
    /// Nothing that says whether it happened.
    Doubt,
}

/// For how long a client waits for a reply.
const TIMEOUT_MS: i64 = 10_000;

/// The way to one provider, as a client has it.
#[derive(Clone)]
pub struct Wire {
    pub sim: Sim,
    pub contract: Contract,
    providers: String,
    url: String,
    client: reqwest::Client,
}

impl Wire {
    pub fn new(providers: &Providers, sim: &Sim, contract: Contract) -> Self {
        let url = format!("{}/{}/effects", providers.url, contract.name());
        let (providers, client) = (providers.url.clone(), providers.client.clone());
        Self { sim: sim.clone(), contract, providers, url, client }
    }

    /// Before Counterfoil itself sends: its requests do not carry simulated time.
    pub async fn tell_the_time(&self) {
        let url = format!("{}/sim/clock/{}", self.providers, self.sim.now());
        self.client.post(url).send().await.unwrap().error_for_status().unwrap();
    }

    pub async fn send(&self, key: Option<&str>, fence: i64, body: &Value) -> Answer {
        let mut call = self.client.post(&self.url).header("x-now", self.sim.now());
        call = call.header("counterfoil-claim-fence", fence);
        if let Some(key) = key {
            call = call.header("idempotency-key", key);
        }
        let read = async {
            let reply = call.json(body).send().await?;
            let (status, after_ms) = (reply.status().as_u16(), number(reply.headers(), "x-after"));
            let tag = reply.headers().get("etag").map_or("", |tag| tag.to_str().unwrap()).trim_matches('"').to_owned();
            Ok::<_, reqwest::Error>((status, after_ms, tag, reply.bytes().await?))
        };
        let Ok((status, after_ms, tag, bytes)) = read.await else {
            self.sim.sleep_ms(TIMEOUT_MS).await;
            return Answer::Doubt;
        };
        if after_ms > 0 {
            self.sim.sleep_ms(after_ms.min(TIMEOUT_MS)).await;
        }
        match status {
            200..300 if after_ms <= TIMEOUT_MS => {
                let document: Value = serde_json::from_slice(&bytes).unwrap();
                Answer::Done { reference: document["id"].as_str().unwrap().to_owned(), version: tag.parse().unwrap() }
            }
            200..300 | 500.. => Answer::Doubt,
            status => Answer::Refused(status),
        }
    }

    /// What the provider's own look-up finds under this member; `None` where nobody can be asked.
    pub async fn find(&self, member: &str, value: &str) -> Option<usize> {
        self.contract.settle_ms()?;
        let url = format!("{}?{member}={value}", self.url);
        let reply = self.client.get(url).header("x-now", self.sim.now()).send().await.unwrap();
        let found: Value = reply.json().await.unwrap();
        Some(found["data"].as_array().unwrap().len())
    }
}
