//! The public API, as a program calls it.

use std::{net::SocketAddr, time::Duration};

use reqwest::{
    Client, RequestBuilder, StatusCode,
    header::{CONTENT_TYPE, COOKIE, IF_MATCH, IF_NONE_MATCH, ORIGIN, SET_COOKIE},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    model::{
        conflict::Action,
        etag,
        fingerprint::Fingerprint,
        id::{ClaimId, ConflictId, LeaseId, OperationId, RunId},
        kind::Risk,
        operation::{Decision, ReasonCode, State},
    },
    server::{gateway, ids},
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
    #[error("the desk's reply is not {0}")]
    Shape(&'static str),
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
        let http = gateway::http::builder().build().unwrap_or_default();
        Self { http, base: format!("http://{address}/api/v1"), public_url: public_url.to_owned() }
    }

    fn post(&self, path: &str, body: &Value) -> RequestBuilder {
        self.http.post(format!("{}/{path}", self.base)).json(body)
    }

    fn get(&self, path: &str) -> RequestBuilder {
        self.http.get(format!("{}/{path}", self.base))
    }

    /// Starts a run of the agent with this token, which may propose anything.
    pub async fn start_run(&self, agent: &str, label: &str) -> Result<Run> {
        self.start(agent, &json!({"label": label})).await
    }

    /// Starts a run that writes inside `write_set` alone.
    pub async fn start_run_within(&self, agent: &str, label: &str, write_set: Value) -> Result<Run> {
        self.start(agent, &json!({"label": label, "write_set": write_set, "expires_in_s": 3600})).await
    }

    async fn start(&self, agent: &str, body: &Value) -> Result<Run> {
        #[derive(Deserialize)]
        struct Started {
            run: Named,
            token: String,
        }
        #[derive(Deserialize)]
        struct Named {
            id: RunId,
        }
        let request = self.post("runs", body).bearer_auth(agent);
        let Started { run, token } = read(request, &[StatusCode::CREATED]).await?;
        Ok(Run { api: self.clone(), id: run.id, token })
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
    Ok(answer(request, expected).await?.1)
}

async fn answer<T: DeserializeOwned>(request: RequestBuilder, expected: &[StatusCode]) -> Result<(StatusCode, T)> {
    let reply = request.send().await?;
    let (url, status) = (reply.url().path().to_owned(), reply.status());
    if !expected.contains(&status) {
        return Err(Unexpected::Status { url, status, body: reply.text().await? });
    }
    Ok((status, reply.json().await?))
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

/// A write that was refused because its target has moved.
#[derive(Deserialize)]
pub struct Stale {
    #[serde(rename = "conflict_id")]
    pub conflict: ConflictId,
    operation: Ended,
}

#[derive(Deserialize)]
struct Ended {
    id: OperationId,
}

impl Stale {
    pub fn operation(&self) -> &OperationId {
        &self.operation.id
    }
}

/// A lease in the hand of the run that took it.
#[derive(Deserialize)]
pub struct Lease {
    id: LeaseId,
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
    pub id: RunId,
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
            let reply = self.poll(&seen.id, version).send().await?.error_for_status()?;
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

    /// Proposes on a version that has passed.
    pub async fn propose_stale(&self, key: &str, body: &Value) -> Result<Stale> {
        self.try_propose(key, body, &[StatusCode::PRECONDITION_FAILED]).await
    }

    /// Waits until a person has said how to go on after a conflict.
    pub async fn resolution(&self, stale: &Stale) -> Result<Action> {
        #[derive(Deserialize)]
        struct Shown {
            operation: Conflicted,
        }
        #[derive(Deserialize)]
        struct Conflicted {
            version: i64,
            conflict: Resolving,
        }
        #[derive(Deserialize)]
        struct Resolving {
            resolution: Option<Resolved>,
        }
        #[derive(Deserialize)]
        struct Resolved {
            action: Action,
        }
        let mut version = 0;
        loop {
            let request = self.poll(stale.operation(), version);
            let reply = request.send().await?.error_for_status()?;
            if reply.status() == StatusCode::NOT_MODIFIED {
                continue;
            }
            let Shown { operation } = reply.json().await?;
            if let Some(resolved) = operation.conflict.resolution {
                return Ok(resolved.action);
            }
            version = operation.version;
        }
    }

    fn poll(&self, id: &OperationId, version: i64) -> RequestBuilder {
        let request = self.api.get(&format!("operations/{id}")).bearer_auth(&self.token);
        let request = request.header(IF_NONE_MATCH, etag::of(version)).header("prefer", format!("wait={POLL_S}"));
        request.timeout(Duration::from_secs(2 * POLL_S))
    }

    /// The document and its version, if there is one.
    pub async fn resource(&self, resource: &str) -> Result<Option<(i64, Value)>> {
        #[derive(Deserialize)]
        struct Found {
            version: i64,
            value: Value,
        }
        let request = self.api.get(&format!("resources/{resource}")).bearer_auth(&self.token);
        match answer::<Value>(request, &[StatusCode::OK, StatusCode::NOT_FOUND]).await? {
            (StatusCode::OK, found) => {
                let found = Found::deserialize(found).map_err(|_| Unexpected::Shape("a resource"))?;
                Ok(Some((found.version, found.value)))
            }
            _ => Ok(None),
        }
    }

    /// Changes fields of a document, as read at `version`; 202 where a person has to decide.
    pub async fn patch(&self, resource: &str, version: i64, patch: &Value) -> Result<StatusCode> {
        let url = format!("{}/resources/{resource}", self.api.base);
        let request = self.api.http.patch(url).bearer_auth(&self.token).json(patch);
        let request = request.header(CONTENT_TYPE, "application/merge-patch+json").header(IF_MATCH, etag::of(version));
        let request = request.header("idempotency-key", fresh_key());
        let expected = [StatusCode::OK, StatusCode::ACCEPTED, StatusCode::PRECONDITION_FAILED];
        Ok(answer::<Value>(request, &expected).await?.0)
    }

    /// Takes the lease of a resource, unless another run holds it.
    pub async fn lease(&self, resource: &str, ttl_s: i64) -> Result<Option<Lease>> {
        #[derive(Deserialize)]
        struct Leased {
            lease: Option<Lease>,
        }
        let request = self.api.post("leases", &json!({"resource": resource, "ttl_s": ttl_s})).bearer_auth(&self.token);
        let Leased { lease } = read(request, &[StatusCode::CREATED, StatusCode::OK, StatusCode::CONFLICT]).await?;
        Ok(lease)
    }

    /// Whether the lease lives on.
    pub async fn renew(&self, lease: &Lease, ttl_s: i64, progress: &str) -> Result<bool> {
        let body = json!({"ttl_s": ttl_s, "progress": progress});
        let request = self.api.post(&format!("leases/{}/renew", lease.id), &body).bearer_auth(&self.token);
        Ok(answer::<Value>(request, &[StatusCode::OK, StatusCode::CONFLICT]).await?.0 == StatusCode::OK)
    }

    pub async fn release(&self, lease: &Lease) -> Result<()> {
        let url = format!("{}/leases/{}", self.api.base, lease.id);
        read::<Value>(self.api.http.delete(url).bearer_auth(&self.token), &[StatusCode::OK]).await.map(drop)
    }

    pub async fn stop(&self, reason: &str) -> Result<()> {
        let request = self.api.post(&format!("runs/{}/stop", self.id), &json!({"reason": reason}));
        read::<Value>(request.bearer_auth(&self.token), &[StatusCode::OK]).await.map(drop)
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
        self.write(&format!("{path}/decisions"), &body, &[StatusCode::OK, StatusCode::CONFLICT]).await
    }

    /// Says how to go on after a conflict; somebody else may have been faster.
    pub async fn resolve(&self, conflict: &ConflictId, action: Action, instruction: &str) -> Result<()> {
        let body = json!({"action": action, "instruction": instruction});
        self.write(&format!("conflicts/{conflict}/resolution"), &body, &[StatusCode::OK, StatusCode::CONFLICT]).await
    }

    /// Approves a scope of writes of one run, ahead of them.
    pub async fn approve_run(&self, run: &Run, scope: &Value) -> Result<()> {
        self.write(&format!("runs/{}/approvals", run.id), scope, &[StatusCode::CREATED]).await
    }

    async fn write(&self, path: &str, body: &Value, expected: &[StatusCode]) -> Result<()> {
        let request = self.api.post(path, body).header(COOKIE, &self.cookie).header(ORIGIN, &self.api.public_url);
        read::<Value>(request, expected).await.map(drop)
    }
}

pub enum Vote {
    Approve,
    Reject(ReasonCode, &'static str),
}
