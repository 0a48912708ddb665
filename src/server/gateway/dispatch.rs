//! Sends what was approved, once.
//!
//! Whatever can fail without a byte leaving is done before the claim: the credential is opened, the name resolved,
//! checked and pinned, and a destination that has not answered lately is knocked at. If that fails the operation stays
//! approved, its approval unspent, and is tried again until its execution deadline; a desk that cannot send uses
//! nothing up. The claim and `sent` are one commit, made before the first byte. After it only a connection that was
//! never made proves that nothing left: it is tried again under the same claim, and reported as failed in the end. Any
//! other silence is unknown.

use std::time::Duration;

use futures::future::join_all;
use tokio::{sync::broadcast::error::RecvError, time::Instant};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    circuit::backoff_ms,
    http::{NoReply, Outgoing, Prepared, Reply, address},
};
use crate::{
    model::{
        destination::{Asked, Destination, Verdict},
        document,
        id::{CorrelationId, OperationId},
        json::{self, Limits},
        operation::{Claim, Operation, OutcomeStatus, State},
        provider::Contract,
    },
    server::{
        ids,
        service::{
            Desk,
            claim::{self, AcceptedRequest, OutcomeRequest, ResponseRequest, Worker},
            error::{Error, Result},
            operation::not_found,
            provider, reconcile,
        },
        store::operation,
    },
};

/// Longest time that an approval can stay unnoticed.
const POLL: Duration = Duration::from_secs(1);
/// Operations of one destination looked at in one round.
const BATCH: i64 = 500;
/// Seconds that a claim lasts beyond the time for the reply, to put it on record.
const TO_REPORT_S: i64 = 10;
/// Connections tried under one claim.
const CONNECTIONS: u32 = 4;
/// Tries to put an outcome on record.
const REPORTS: u32 = 8;
/// Characters of a reply that is no JSON which are kept.
const KEPT_TEXT: usize = 4_000;
/// Characters of the gateway's own words about a request.
const MAX_WORDS: usize = 500;

/// The run that proposed it.
const RUN_HEADER: &str = "counterfoil-run";
/// Rises with each attempt of one operation.
const FENCE_HEADER: &str = "counterfoil-claim-fence";
/// Of the lease that the proposing agent holds on the target.
const TOKEN_HEADER: &str = "counterfoil-fencing-token";

/// Takes what is due now and carries it out; how much was sent.
///
/// # Errors
/// The database cannot be read.
pub async fn step(desk: &Desk) -> Result<usize> {
    let errands = due(desk).await?;
    let stop = CancellationToken::new();
    let sent = join_all(errands.into_iter().map(|errand| errand.run(stop.clone()))).await;
    Ok(sent.into_iter().filter(|sent| *sent).count())
}

/// Carries out what is approved until `stop`, and then what is under way to its end.
pub async fn run(desk: Desk, stop: CancellationToken) {
    let errands = TaskTracker::new();
    let mut news = desk.signals.subscribe();
    loop {
        let freed = desk.gateway.freed.notified();
        tokio::pin!(freed);
        // Before looking: a place that becomes free meanwhile is not missed.
        freed.as_mut().enable();
        match due(&desk).await {
            Ok(due) => due.into_iter().for_each(|errand| drop(errands.spawn(errand.run(stop.clone())))),
            Err(error) => tracing::warn!(%error, "the gateway cannot read what is due; it looks again"),
        }
        let approved = async {
            loop {
                match news.recv().await {
                    Ok(event) if event.state == State::Approved.as_str() => return,
                    Ok(_) => {}
                    Err(RecvError::Lagged(_)) => return,
                    Err(RecvError::Closed) => std::future::pending().await,
                }
            }
        };
        tokio::select! {
            () = approved => {}
            () = freed => {}
            () = tokio::time::sleep(POLL) => {}
            () = stop.cancelled() => break,
        }
    }
    errands.close();
    errands.wait().await;
}

/// One operation in hand.
struct Errand {
    desk: Desk,
    destination: String,
    id: OperationId,
}

impl Drop for Errand {
    fn drop(&mut self) {
        self.desk.gateway.put_down(&self.destination, &self.id);
    }
}

async fn due(desk: &Desk) -> Result<Vec<Errand>> {
    let now = desk.now();
    let mut conn = desk.store.read().await?;
    let mut errands = Vec::new();
    for name in operation::awaited_destinations(&mut conn).await? {
        let places = match provider::find(&mut conn, &name).await?.and_then(|view| view.document.destination) {
            Some(destination) => destination.concurrency.unsigned_abs() as usize,
            // One finds out that there is none, and says so.
            None => 1,
        };
        let waiting = operation::awaiting(&mut conn, &name, BATCH).await?;
        let taken = desk.gateway.take(&name, waiting, places, now);
        errands.extend(taken.into_iter().map(|id| Errand { desk: desk.clone(), destination: name.clone(), id }));
    }
    Ok(errands)
}

/// What stands in the way before anything is claimed.
enum Obstacle {
    /// Nothing goes to this destination for the moment.
    Destination(String),
    /// This operation waits; others need not.
    Operation(String),
}

impl From<Error> for Obstacle {
    fn from(error: Error) -> Self {
        Self::Operation(error.to_string())
    }
}

/// A request that could leave now.
struct Plan {
    destination: Destination,
    prepared: Prepared,
    worker: Worker,
}

impl Errand {
    /// Whether it was sent.
    async fn run(self, stop: CancellationToken) -> bool {
        let desk = &self.desk;
        match self.carry_out(&stop).await {
            Ok(is_sent) => is_sent,
            Err(Obstacle::Destination(words)) => {
                tracing::warn!(destination = self.destination, reason = words, "the gateway cannot send there for now");
                desk.gateway.record(&self.destination, Err(words), desk.now());
                desk.gateway.postpone(&self.destination, &self.id, desk.now());
                false
            }
            Err(Obstacle::Operation(words)) => {
                tracing::info!(operation.id = %self.id, reason = words, "the gateway does not send this for now");
                desk.gateway.postpone(&self.destination, &self.id, desk.now());
                false
            }
        }
    }

    async fn carry_out(&self, stop: &CancellationToken) -> std::result::Result<bool, Obstacle> {
        let desk = &self.desk;
        let Plan { destination, mut prepared, worker } = self.plan().await?;
        if !desk.gateway.circuit(&self.destination).is_proven() {
            prepared.knock().await.map_err(|error| Obstacle::Destination(error.to_string()))?;
        }
        if stop.is_cancelled() {
            return Ok(false);
        }
        let ttl_s = desk.config.claim_ttl_s.max(destination.timeout_s + TO_REPORT_S);
        let op = claim::claim_and_send(desk, &worker, &self.id, ttl_s).await?;
        let Some(claim) = op.life.claim.clone() else { return Ok(false) };
        prepared.set(FENCE_HEADER, claim.fence);
        if let Some(lease) = &claim.lease {
            prepared.set(TOKEN_HEADER, lease.fencing_token.as_i64());
        }
        desk.faults.reach("gateway_before_byte").await;
        let reply = self.exchange(&prepared, &destination, &claim).await;
        desk.faults.reach("gateway_after_reply").await;
        self.conclude(&worker, &claim, &destination, reply).await;
        Ok(true)
    }

    async fn plan(&self) -> std::result::Result<Plan, Obstacle> {
        let desk = &self.desk;
        let (op, contract, licence) = self.find().await?;
        licence.map_err(Obstacle::Operation)?;
        let contract = contract.ok_or_else(|| Obstacle::Destination("no such provider is declared".to_owned()))?;
        let not_here = || Obstacle::Destination("the provider declares no `destination`".to_owned());
        let destination = contract.destination.clone().ok_or_else(not_here)?;
        let asked = serde_json::from_value::<Asked>(document::params(&op));
        let asked = asked.map_err(|error| Obstacle::Operation(format!("the parameters are no request: {error}")))?;
        let correlation = ids::new::<CorrelationId>(desk.now());
        let outgoing = outgoing(&op, &contract, asked, &correlation);
        address(&destination.base_url, &outgoing.path, outgoing.query.as_deref())
            .map_err(|error| Obstacle::Operation(error.to_string()))?;
        let credential = desk.credential(&contract.name).await;
        let credential = credential.map_err(|error| Obstacle::Destination(error.to_string()))?;
        let (name, base) = (&self.destination, &destination.base_url);
        let prepared = desk.http.prepare(name, base, &destination, credential.as_ref(), outgoing).await;
        let prepared = prepared.map_err(|error| Obstacle::Destination(error.to_string()))?;
        Ok(Plan { destination, prepared, worker: Worker::Gateway(correlation) })
    }

    /// The operation, what its destination declares, and what there is against another attempt.
    async fn find(&self) -> Result<(Operation, Option<Contract>, std::result::Result<(), String>)> {
        let (desk, now) = (&self.desk, self.desk.now());
        let mut conn = desk.store.read().await?;
        let op = operation::find(&mut conn, &self.id).await?.ok_or_else(not_found)?;
        let contract = provider::find(&mut conn, &self.destination).await?.map(|view| view.document);
        let licence = match reconcile::known(desk, &mut conn, &op, now).await? {
            Some(known) => known.licence(now).map(drop),
            None => Ok(()),
        };
        Ok((op, contract, licence))
    }

    /// Sends the request, once as far as anybody there can tell.
    async fn exchange(
        &self,
        prepared: &Prepared,
        destination: &Destination,
        claim: &Claim,
    ) -> std::result::Result<Reply, NoReply> {
        let left_ms = claim.deadline_at - self.desk.now();
        let end = Instant::now() + Duration::from_millis(left_ms.max(0).unsigned_abs());
        let mut tries = 0;
        loop {
            tries += 1;
            let left = end.saturating_duration_since(Instant::now());
            // No byte leaves after the claim.
            if left.is_zero() {
                return Err(NoReply::NotSent("the time to send was over before a connection was made".to_owned()));
            }
            match prepared.send(destination.timeout().min(left)).await {
                Err(NoReply::NotSent(_)) if tries < CONNECTIONS => pause(tries).await,
                reply => return reply,
            }
        }
    }

    /// Puts on record what came back.
    async fn conclude(
        &self,
        worker: &Worker,
        claim: &Claim,
        destination: &Destination,
        reply: std::result::Result<Reply, NoReply>,
    ) {
        let desk = &self.desk;
        let (verdict, health) = match &reply {
            Ok(reply) => match destination.verdict(reply.status, reply.content()) {
                Verdict::Unknown(why) => (Verdict::Unknown(why), Err(format!("{} was answered: {why}", reply.status))),
                verdict => (verdict, Ok(())),
            },
            Err(error) => match error {
                NoReply::NotSent(_) => (Verdict::NotApplied, Err(error.to_string())),
                NoReply::Lost(_) => (Verdict::Unknown("there was no reply"), Err(error.to_string())),
            },
        };
        let words = health.clone().err().map(|words| words.chars().take(MAX_WORDS).collect());
        desk.gateway.record(&self.destination, health, desk.now());
        let report = report(claim, verdict, reply.ok(), words);
        let mut tries = 0;
        loop {
            tries += 1;
            let told = match report.clone() {
                Told::Accepted(request) => claim::accepted(desk, worker, &self.id, request).await,
                Told::Outcome(request) => claim::outcome(desk, worker, &self.id, request).await,
            };
            match told {
                Ok(_) => return,
                // What came back is worth more than the time it takes: with it lost, the outcome is unknown.
                Err(Error::Unavailable) if tries < REPORTS => pause(tries).await,
                Err(error) => {
                    tracing::error!(operation.id = %self.id, %error, "an outcome could not be put on record");
                    return;
                }
            }
        }
    }
}

async fn pause(tries: u32) {
    tokio::time::sleep(Duration::from_millis(backoff_ms(tries).unsigned_abs() / 4)).await;
}

/// The approved request, as it is fingerprinted, and what the server's own record says of it.
fn outgoing(op: &Operation, contract: &Contract, asked: Asked, correlation: &CorrelationId) -> Outgoing {
    let mut headers = vec![
        (contract.key_header().to_owned(), op.id().to_string()),
        ("x-correlation-id".to_owned(), correlation.to_string()),
        (RUN_HEADER.to_owned(), op.proposal.run.to_string()),
    ];
    match op.proposal.expected_version {
        Some(0) => headers.push(("if-none-match".to_owned(), "*".to_owned())),
        Some(version) => headers.push(("if-match".to_owned(), format!("\"{version}\""))),
        None => {}
    }
    let query = (!asked.query.is_empty()).then(|| {
        asked.query.iter().fold(String::new(), |query, (name, value)| {
            let between = if query.is_empty() { "" } else { "&" };
            format!("{query}{between}{}={}", encoded(name), encoded(value))
        })
    });
    Outgoing { method: asked.method.into(), path: asked.path, query, headers, body: asked.body }
}

/// Percent-encoded but for the unreserved characters (RFC 3986 §2.3).
fn encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().fold(String::new(), |encoded, byte| match byte {
        byte if is_plain(byte) => encoded + &char::from(byte).to_string(),
        byte => format!("{encoded}%{byte:02X}"),
    })
}

/// What the claimant says of it.
#[derive(Clone)]
enum Told {
    Accepted(AcceptedRequest),
    Outcome(OutcomeRequest),
}

fn report(claim: &Claim, verdict: Verdict, reply: Option<Reply>, words: Option<String>) -> Told {
    let body = reply.as_ref().and_then(kept);
    let (status, provider_reference) = match verdict {
        Verdict::Accepted { reference } => {
            return Told::Accepted(AcceptedRequest {
                claim_id: claim.id.clone(),
                claim_fence: claim.fence,
                provider_reference: reference,
            });
        }
        Verdict::Applied { reference } => (OutcomeStatus::Succeeded, reference),
        Verdict::NotApplied => (OutcomeStatus::Failed, None),
        Verdict::Conflicted => (OutcomeStatus::Conflicted, None),
        Verdict::Unknown(_) => (OutcomeStatus::Unknown, None),
    };
    let is_success = status == OutcomeStatus::Succeeded;
    Told::Outcome(OutcomeRequest {
        claim_id: claim.id.clone(),
        claim_fence: claim.fence,
        status,
        provider_reference,
        provider_status: words,
        resulting_version: reply.as_ref().and_then(|reply| reply.version).filter(|version| is_success && *version > 0),
        conflict: body.clone().filter(|_| status == OutcomeStatus::Conflicted),
        response: reply.map(|reply| ResponseRequest { status: reply.status.into(), body }),
    })
}

/// The body as it is kept: as strict JSON, or as the text it is.
fn kept(reply: &Reply) -> Option<serde_json::Value> {
    if reply.bytes.is_empty() {
        return None;
    }
    let text = || String::from_utf8_lossy(&reply.bytes).chars().take(KEPT_TEXT).collect::<String>().into();
    Some(json::parse(&reply.bytes, Limits::BODY).unwrap_or_else(|_| text()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_carries_its_values_and_nothing_more() {
        assert_eq!(encoded("a b&c=d#\r\n/\u{e9}~"), "a%20b%26c%3Dd%23%0D%0A%2F%C3%A9~");
    }
}
