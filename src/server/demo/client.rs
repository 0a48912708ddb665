//! The public API, as a program calls it.

use std::{net::SocketAddr, time::Duration};

use reqwest::{
    Client, RequestBuilder, StatusCode,
    header::{COOKIE, IF_NONE_MATCH, ORIGIN, SET_COOKIE},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    model::{
        etag,
        fingerprint::Fingerprint,
        id::{ClaimId, OperationId},
        kind::Risk,
        operation::{Decision, ReasonCode, State},
    },
    server::ids,
};

/// Seconds of one long poll.
const POLL_S: u64 = 30;

pub type Result<T> = std::result::Result<T, Unexpected>;

/// The desk did not do what the scene wants of it.
#[derive(Debug, thiserror::Error)]
pub enum Unexpected {
    #[error("the desk could not be asked")]
    Http(#[from] reqwest::Error),
    #[error("{url} answered {status}: {body}")]
    Status { url: String, status: StatusCode, body: String },
    #[error("the desk set no cookie")]
    NoCookie,
}

/// A desk, by its address.
#[derive(Clone)]
pub struct Api {
    http: Client,
    base: String,
    /// What browsers call it.
    public_url: String,
}

impl Api {
    pub fn new(address: SocketAddr, public_url: &str) -> Self {
        Self { http: Client::new(), base: format!("http://{address}/api/v1"), public_url: public_url.to_owned() }
    }

    fn post(&self, path: &str, body: &Value) -> RequestBuilder {
        self.http.post(format!("{}/{path}", self.base)).json(body)
    }

    fn get(&self, path: &str) -> RequestBuilder {
        self.http.get(format!("{}/{path}", self.base))
    }

    /// Starts a run of the agent with this token.
    pub async fn start_run(&self, agent: &str, label: &str) -> Result<Run> {
        #[derive(Deserialize)]
        struct Started {
            token: String,
        }
        let request = self.post("runs", &json!({"label": label})).bearer_auth(agent);
        let Started { token } = read(request, &[StatusCode::CREATED]).await?;
        Ok(Run { api: self.clone(), token })
    }

    pub async fn sign_in(&self, name: &str, password: &str) -> Result<Person> {
        let request = self.post("session", &json!({"name": name, "password": password}));
        let reply = request.header(ORIGIN, &self.public_url).send().await?.error_for_status()?;
        let cookie = reply.headers().get(SET_COOKIE).and_then(|cookie| cookie.to_str().ok()).unwrap_or_default();
        let cookie = cookie.split(';').next().filter(|cookie| !cookie.is_empty()).ok_or(Unexpected::NoCookie)?;
        Ok(Person { api: self.clone(), cookie: cookie.to_owned() })
    }
}

/// The body of a reply with one of these statuses.
async fn read<T: DeserializeOwned>(request: RequestBuilder, expected: &[StatusCode]) -> Result<T> {
    let reply = request.send().await?;
    let (url, status) = (reply.url().path().to_owned(), reply.status());
    if !expected.contains(&status) {
        return Err(Unexpected::Status { url, status, body: reply.text().await? });
    }
    Ok(reply.json().await?)
}

/// What the scenes need to know of an operation.
#[derive(Debug, Clone, Deserialize)]
pub struct Operation {
    pub id: OperationId,
    pub state: State,
    pub version: i64,
    pub fingerprint: Fingerprint,
    pub target: String,
    pub risk: Risk,
}

#[derive(Deserialize)]
struct Holds {
    operation: Operation,
}

#[derive(Deserialize)]
pub struct Claim {
    id: ClaimId,
    claim_fence: i64,
}

/// A key for one intended action.
pub fn fresh_key() -> String {
    ids::Secret::new().reveal().to_owned()
}

/// One process of an agent.
pub struct Run {
    api: Api,
    token: String,
}

impl Run {
    /// Proposes what the desk has not heard of.
    pub async fn propose(&self, key: &str, body: &Value) -> Result<Operation> {
        let Holds { operation } = self.try_propose(key, body, &[StatusCode::CREATED]).await?;
        Ok(operation)
    }

    /// Proposes what the desk knows already, or refuses.
    pub async fn propose_again(&self, key: &str, body: &Value, expected: &[StatusCode]) -> Result<()> {
        self.try_propose::<Value>(key, body, expected).await.map(drop)
    }

    async fn try_propose<T: DeserializeOwned>(&self, key: &str, body: &Value, expected: &[StatusCode]) -> Result<T> {
        let request = self.api.post("operations", body).bearer_auth(&self.token).header("idempotency-key", key);
        read(request, expected).await
    }

    /// Waits while the operation is in its state, by long polls.
    pub async fn change(&self, seen: &Operation) -> Result<Operation> {
        let mut version = seen.version;
        loop {
            let request = self.api.get(&format!("operations/{}", seen.id)).bearer_auth(&self.token);
            let request = request.header(IF_NONE_MATCH, etag::of(version)).header("prefer", format!("wait={POLL_S}"));
            let reply = request.timeout(Duration::from_secs(2 * POLL_S)).send().await?.error_for_status()?;
            if reply.status() == StatusCode::NOT_MODIFIED {
                continue;
            }
            let Holds { operation } = reply.json().await?;
            if operation.state != seen.state {
                return Ok(operation);
            }
            version = operation.version;
        }
    }

    pub async fn claim(&self, op: &Operation) -> Result<Claim> {
        #[derive(Deserialize)]
        struct Claimed {
            claim: Claim,
        }
        let request = self.api.post(&format!("operations/{}/claim", op.id), &json!({"fingerprint": op.fingerprint}));
        let Claimed { claim } = read(request.bearer_auth(&self.token), &[StatusCode::OK]).await?;
        Ok(claim)
    }

    /// Says that the first byte is about to leave.
    pub async fn sent(&self, op: &Operation, claim: &Claim) -> Result<Operation> {
        self.report(op, "sent", claim, json!({"fingerprint": op.fingerprint})).await
    }

    /// Says what came of it.
    pub async fn outcome(&self, op: &Operation, claim: &Claim, outcome: Value) -> Result<Operation> {
        self.report(op, "outcome", claim, outcome).await
    }

    async fn report(&self, op: &Operation, word: &str, claim: &Claim, mut body: Value) -> Result<Operation> {
        body["claim_id"] = json!(claim.id);
        body["claim_fence"] = json!(claim.claim_fence);
        let request = self.api.post(&format!("operations/{}/{word}", op.id), &body).bearer_auth(&self.token);
        let Holds { operation } = read(request, &[StatusCode::OK]).await?;
        Ok(operation)
    }
}

/// Somebody signed in.
pub struct Person {
    api: Api,
    cookie: String,
}

impl Person {
    /// Votes on what the desk shows at this moment; somebody else may have been faster.
    pub async fn vote(&self, op: &Operation, vote: &Vote) -> Result<()> {
        #[derive(Deserialize)]
        struct Shown {
            operation: Operation,
            review_digest: String,
        }
        let path = format!("operations/{}", op.id);
        let request = self.api.get(&path).header(COOKIE, &self.cookie);
        let Shown { operation, review_digest } = read(request, &[StatusCode::OK]).await?;
        let mut body = json!({"fingerprint": operation.fingerprint, "review_digest": review_digest});
        match vote {
            Vote::Approve => {
                body["decision"] = json!(Decision::Approve);
                if operation.risk.needs_care() {
                    body["confirm_target"] = json!(operation.target);
                }
            }
            Vote::Reject(code, reason) => {
                body["decision"] = json!(Decision::Reject);
                body["reason_code"] = json!(code);
                body["reason"] = json!(reason);
            }
        }
        let request = self.api.post(&format!("{path}/decisions"), &body).header(COOKIE, &self.cookie);
        let request = request.header(ORIGIN, &self.api.public_url);
        read::<Value>(request, &[StatusCode::OK, StatusCode::CONFLICT]).await.map(drop)
    }
}

pub enum Vote {
    Approve,
    Reject(ReasonCode, &'static str),
}
