//! Callbacks: what a provider says by itself, signed as Standard Webhooks lays down (standardwebhooks.com, v1).

use base64::{Engine, engine::general_purpose::STANDARD};
use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use super::{
    By, Desk,
    account::Administrator,
    error::Result,
    evidence::{self, Source, Statement},
    operation::load,
    principal, provider, reconcile,
};
use crate::{
    model::{
        audit::{Entry, Event},
        destination::Told,
        evidence::{EvidenceKind, Finding},
        id::OperationId,
        json::{self, Limits},
        operation::{
            OutcomeSource, State,
            rules::{self, Done},
        },
        problem::{Code, Problem},
        provider::ProviderName,
    },
    server::{
        config::Secret,
        store::{self, Tx, operation, provider as providers},
    },
};

/// Seconds by which a message's time may differ from ours.
const TOLERANCE_S: i64 = 5 * 60;
/// Bytes of a secret, as Standard Webhooks asks for.
const SECRET: std::ops::RangeInclusive<usize> = 24..=64;
/// Bytes of a message's id.
const MAX_ID: usize = 256;
/// Signatures looked at in one message: a secret that is being changed has two.
const MAX_SIGNATURES: usize = 8;
const BLOCK: usize = 64;

/// A message as it came in.
pub struct Message {
    /// `webhook-id`
    pub id: String,
    /// `webhook-timestamp`: seconds since 1970.
    pub timestamp: String,
    /// `webhook-signature`: `v1,<base64>`, several by blanks.
    pub signatures: String,
    pub body: Vec<u8>,
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Taken {
    /// Kept as evidence.
    Kept,
    /// It came before.
    Repeated,
    /// It names no request that was sent to this provider, and proves nothing.
    Unbound,
}

/// Takes in a provider's message. What it says is first-hand evidence about the request whose key it names.
///
/// # Errors
/// `unauthenticated` for an unknown provider and for a wrong or old signature alike, these on record ·
/// `malformed_json` · `invalid_state` where the declaration does not say how messages are read.
pub async fn take(desk: &Desk, name: &str, message: Message) -> Result<Taken> {
    let stranger = || Problem::new(Code::Unauthenticated, "No provider of this name has signed this message");
    let name: ProviderName = name.parse().map_err(|_| stranger())?;
    let sealed = providers::callback_secret(&mut desk.store.read().await?, &name).await?.ok_or_else(stranger)?;
    let secret = desk.sealer().await?.unseal(&providers::callback_owner(&name), &sealed)?;
    let key = decode(&secret.0).ok_or_else(stranger)?;
    if let Err(flaw) = verify(&message, &key, desk.now().as_millis() / 1000) {
        let problem = stranger();
        record_refusal(desk, &name, flaw, &problem).await;
        return Err(problem.into());
    }
    let body = json::parse(&message.body, Limits { max_bytes: desk.config.max_body_bytes, ..Limits::BODY })?;
    let contract = provider::get(desk, &name).await?.document;
    let reads = contract.destination.as_ref().and_then(|destination| destination.callback.as_ref());
    let reads = reads.ok_or_else(|| Problem::new(Code::InvalidState, "The provider has not declared `callback`"))?;
    let told = reads.read(&body);
    let desk_in = desk.clone();
    desk.commit(move |tx| {
        Box::pin(async move {
            if !providers::note_message(tx, &name, &message.id).await? {
                return Ok(Ok(Taken::Repeated));
            }
            let taken = match told {
                Some(told) => keep(&desk_in, tx, &name, told, body).await?,
                None => Taken::Unbound,
            };
            Ok(Ok(taken))
        })
    })
    .await
}

/// A message in the provider's name that is not believed: on record, as far as the provider's rate allows, for whoever
/// sends it costs nothing.
async fn record_refusal(desk: &Desk, name: &ProviderName, flaw: Flaw, problem: &Problem) {
    if desk.strangers.take(name, desk.now()).is_err() {
        return;
    }
    let entry = Entry {
        resource: principal("provider", name),
        status: Some(problem.code.as_str()),
        reason: Some(flaw.sentence().to_owned()),
        ..By::system("callback").entry(Event::ReportRefused)
    };
    let recorded = desk.commit(move |tx| Box::pin(async move { tx.audit(&entry).await.map(|_| Ok(())) })).await;
    if let Err(error) = recorded {
        tracing::warn!(%error, "a refused callback is not on record");
    }
}

async fn keep(desk: &Desk, tx: &mut Tx, name: &ProviderName, told: Told, body: Value) -> store::Result<Taken> {
    let Ok(id) = told.key.parse::<OperationId>() else { return Ok(Taken::Unbound) };
    let Ok(op) = load(tx, &id).await? else { return Ok(Taken::Unbound) };
    if op.proposal.provider.as_deref() != Some(name.as_str()) || !op.life.may_have_applied {
        return Ok(Taken::Unbound);
    }
    let source = Source { by: By::system("callback"), name: name.to_string(), first_hand: true };
    let statement = Statement {
        finding: told.finding,
        kind: EvidenceKind::Callback,
        reference: told.reference,
        observed_at: tx.now(),
        note: Some(format!("the provider says `{}` of this downstream key", told.status)),
        body: Some(body).filter(|body| json::canonical(body).len() <= evidence::MAX_BODY),
    };
    let (op, kept) = evidence::keep(tx, &source, op, statement).await?;
    match op.life.state {
        // Rows 15 and 16: the provider's answer to the attempt under way.
        State::Sent | State::Accepted if kept.finding != Finding::Inconclusive => {
            if let Ok(Done::Step(step)) = rules::reconcile(&op, &kept, OutcomeSource::Callback, tx.now()) {
                operation::apply(tx, &op, source.by.step(step)).await?;
            }
        }
        _ => {
            reconcile::settle(desk, tx, op).await?;
        }
    }
    Ok(Taken::Kept)
}

/// Keeps the secret with which a provider signs its messages, sealed.
///
/// # Errors
/// `not_found` · `validation_failed` for what is no secret of Standard Webhooks.
pub async fn set_secret(desk: &Desk, admin: &Administrator, name: &ProviderName, secret: Secret) -> Result<()> {
    provider::get(desk, name).await?;
    if decode(&secret.0).is_none() {
        let detail = "a secret is `whsec_` and 24 to 64 bytes in base64";
        return Err(Problem::at(Code::ValidationFailed, "/callback_secret", detail).into());
    }
    let owner = providers::callback_owner(name);
    let sealed = desk.sealer().await?.seal(&owner, &secret)?;
    let (by, name) = (admin.by().clone(), name.clone());
    desk.commit(move |tx| {
        Box::pin(async move {
            providers::set_credential(tx, &owner, &sealed).await?;
            let reason = Some("callback secret".to_owned());
            let resource = principal("provider", &name);
            tx.audit(&Entry { resource, reason, ..by.entry(Event::AdminProviderAdded) }).await?;
            Ok(Ok(()))
        })
    })
    .await
}

fn decode(secret: &str) -> Option<Vec<u8>> {
    let bytes = STANDARD.decode(secret.strip_prefix("whsec_")?).ok()?;
    SECRET.contains(&bytes.len()).then_some(bytes)
}

/// Why a message is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    Malformed,
    /// By more than [`TOLERANCE_S`].
    OutOfTime,
    WrongSignature,
}

impl Flaw {
    fn sentence(self) -> &'static str {
        match self {
            Self::Malformed => "a callback without an id or a time",
            Self::OutOfTime => "a callback from another time",
            Self::WrongSignature => "a callback under a wrong signature",
        }
    }
}

/// One of the signatures is that of `key`, over a message of about `now_s`.
fn verify(message: &Message, key: &[u8], now_s: i64) -> std::result::Result<(), Flaw> {
    let at = message.timestamp.parse::<i64>().map_err(|_| Flaw::Malformed)?;
    if message.id.is_empty() || message.id.len() > MAX_ID {
        return Err(Flaw::Malformed);
    }
    if at.abs_diff(now_s) > TOLERANCE_S.unsigned_abs() {
        return Err(Flaw::OutOfTime);
    }
    let mac = hmac(key, &[message.id.as_bytes(), b".", message.timestamp.as_bytes(), b".", &message.body]);
    let signatures = message.signatures.split(' ').take(MAX_SIGNATURES).filter_map(|text| text.strip_prefix("v1,"));
    let is_right = signatures.filter_map(|text| STANDARD.decode(text).ok()).any(|signature| is_equal(&signature, &mac));
    if is_right { Ok(()) } else { Err(Flaw::WrongSignature) }
}

/// Compares in a time that does not tell where the two differ.
fn is_equal(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// HMAC-SHA256 (RFC 2104) under a key of at most one block.
fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let padded = |with: u8| -> [u8; BLOCK] { std::array::from_fn(|i| key.get(i).copied().unwrap_or(0) ^ with) };
    let mut inner = Sha256::new_with_prefix(padded(0x36));
    parts.iter().for_each(|part| inner.update(part));
    Sha256::new_with_prefix(padded(0x5c)).chain_update(inner.finalize()).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signature_is_that_of_the_standards_own_example() {
        // Standard Webhooks, reference libraries: the vector all of them share.
        let message = Message {
            id: "msg_p5jXN8AQM9LWM0D4loKWxJek".to_owned(),
            timestamp: "1614265330".to_owned(),
            signatures:
                "v1,bm9ldHUjKzFob2VudXRob2VodWUzMjRvdWVvdW9ldQo= v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
                    .to_owned(),
            body: br#"{"test": 2432232314}"#.to_vec(),
        };
        let key = decode("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        assert_eq!(verify(&message, &key, 1_614_265_330 + TOLERANCE_S), Ok(()));
        assert_eq!(verify(&message, &key, 1_614_265_331 + TOLERANCE_S), Err(Flaw::OutOfTime));
        assert_eq!(verify(&message, &[7; 24], 1_614_265_330), Err(Flaw::WrongSignature));
        let message = Message { body: b"{}".to_vec(), ..message };
        assert_eq!(verify(&message, &key, 1_614_265_330), Err(Flaw::WrongSignature));
    }
}
