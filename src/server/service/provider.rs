//! Providers: what they declare, what checks show of it, and the credentials that only the gateway uses.

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{Desk, account::Administrator, catalogue::Saved, error::Result, principal};
use crate::{
    model::{
        audit::{Entry, Event},
        destination::{Check, Destination, Found, KEY, Meaning, Question},
        kind::{Executor, Kind},
        problem::{Code, Problem},
        provider::{Contract, Idempotency, Lookup, ProviderName},
    },
    server::{
        config::Secret,
        gateway::http::{NoReply, Outgoing, Reply},
        ids,
        seal::{SealError, Sealer},
        store::{
            self, Conn,
            catalogue::Versioned,
            provider::{self, Checked, Guarantee},
        },
    },
};

/// Characters of a credential.
const MAX_CREDENTIAL: usize = 4_000;
/// Between two looks for what an eventual look-up has not found yet.
const PATIENCE: Duration = Duration::from_millis(500);

/// A declaration as people see it.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ProviderView {
    #[schema(value_type = String)]
    pub name: ProviderName,
    pub version: i64,
    #[schema(value_type = Object)]
    pub document: Contract,
    /// The last check of each guarantee of this version.
    pub checks: Vec<Checked>,
    /// A credential is kept, sealed; it is never shown.
    pub has_credential: bool,
}

async fn view(conn: &mut Conn, stored: Versioned) -> store::Result<ProviderView> {
    let contract = read(&stored)?;
    Ok(ProviderView {
        checks: provider::checks(conn, &contract.name, stored.version).await?,
        has_credential: provider::credential(conn, &contract.name).await?.is_some(),
        name: contract.name.clone(),
        version: stored.version,
        document: contract,
    })
}

/// The newest version of every declaration.
pub async fn all(desk: &Desk) -> Result<Vec<ProviderView>> {
    let mut conn = desk.store.read().await?;
    let mut views = Vec::new();
    for stored in provider::all(&mut conn).await? {
        views.push(view(&mut conn, stored).await?);
    }
    Ok(views)
}

/// The newest version of one declaration.
pub async fn find(conn: &mut Conn, name: &str) -> store::Result<Option<ProviderView>> {
    match provider::find(conn, name).await? {
        Some(stored) => Ok(Some(view(conn, stored).await?)),
        None => Ok(None),
    }
}

/// What a stored version declares.
pub fn read(stored: &Versioned) -> store::Result<Contract> {
    Contract::read(&stored.document).map_err(|problem| store::Error::corrupt(problem.to_string()))
}

/// The provider that makes the effects of a command, by name, and what it declares, if it declares anything: the one
/// the kind names, the destination a gateway sends to, or the first that serves the kind.
pub async fn of_command(
    conn: &mut Conn,
    kind: &Kind,
    params: &Value,
) -> store::Result<(Option<String>, Option<Contract>)> {
    let destination = || params["destination"].as_str().filter(|_| kind.executor == Executor::Gateway);
    if let Some(name) = kind.provider.as_deref().or_else(destination) {
        let contract = provider::find(conn, name).await?.as_ref().map(read).transpose()?;
        return Ok((Some(name.to_owned()), contract));
    }
    for stored in provider::all(conn).await? {
        let contract = read(&stored)?;
        if contract.serves(kind.name.as_str()) {
            return Ok((Some(contract.name.to_string()), Some(contract)));
        }
    }
    Ok((None, None))
}

/// Whether somebody has registered the destination to which the gateway would send this.
pub async fn registered(
    conn: &mut Conn,
    kind: &Kind,
    params: &Value,
) -> store::Result<std::result::Result<(), Problem>> {
    let (name, contract) = of_command(conn, kind, params).await?;
    if contract.is_some_and(|contract| contract.destination.is_some()) {
        return Ok(Ok(()));
    }
    let name = name.unwrap_or_default();
    let detail = format!("no destination `{name}` is registered; an admin declares it as a provider");
    let pointer = if kind.provider.is_some() { "/kind" } else { "/params/destination" };
    Ok(Err(Problem::at(Code::ValidationFailed, pointer, detail)))
}

/// # Errors
/// `not_found`.
pub async fn get(desk: &Desk, name: &ProviderName) -> Result<ProviderView> {
    let found = find(&mut desk.store.read().await?, name.as_str()).await?;
    found.ok_or_else(|| Problem::new(Code::NotFound, format!("there is no provider `{name}`")).into())
}

/// Adds a provider, or a newer version of its declaration. Nothing of the new version is proven yet.
///
/// # Errors
/// `validation_failed`, with the place.
pub async fn add(desk: &Desk, admin: &Administrator, document: &Value) -> Result<Saved<ProviderView>> {
    let contract = Contract::read(document)?;
    if let Some(destination) = &contract.destination {
        let bases = [
            ("/destination/base_url", Some(&destination.base_url)),
            ("/destination/check/base_url", destination.check.as_ref().and_then(|check| check.base_url.as_ref())),
        ];
        for (pointer, base) in bases {
            if let Some(Err(error)) = base.map(|base| crate::server::gateway::http::address(base, "/", None)) {
                return Err(Problem::at(Code::ValidationFailed, pointer, error.to_string()).into());
            }
        }
    }
    let (by, added) = (admin.by().clone(), contract.name.clone());
    let saved = desk
        .commit(move |tx| {
            Box::pin(async move {
                let name = contract.name.clone();
                let document =
                    serde_json::to_value(&contract).map_err(|error| store::Error::corrupt(error.to_string()))?;
                let known = provider::find(tx, name.as_str()).await?;
                if let Some(known) = known.as_ref().filter(|known| known.document == document) {
                    return Ok(Ok(Saved::Same(view(tx, known.clone()).await?)));
                }
                let stored = Versioned { version: known.map_or(1, |known| known.version + 1), document };
                provider::add(tx, &name, &stored).await?;
                let reason = Some(format!("version {}", stored.version));
                let resource = principal("provider", &name);
                tx.audit(&Entry { resource, reason, ..by.entry(Event::AdminProviderAdded) }).await?;
                Ok(Ok(Saved::New(view(tx, stored).await?)))
            })
        })
        .await?;
    desk.gateway.forget(added.as_str());
    Ok(saved)
}

impl From<SealError> for super::error::Error {
    fn from(error: SealError) -> Self {
        Self::internal(error)
    }
}

impl Desk {
    /// The keys that seal credentials; made when they are first needed.
    ///
    /// # Errors
    /// The file cannot be used.
    pub async fn sealer(&self) -> Result<&Sealer> {
        let open = || async {
            let file = self.config.seal_key_file.clone();
            Ok(Sealer::open(&file.unwrap_or_else(|| self.config.data_dir.join("seal.key")))?)
        };
        self.sealer.get_or_try_init(open).await
    }

    /// The credential of a provider, in the clear, for a request that leaves now.
    ///
    /// # Errors
    /// It cannot be opened.
    pub async fn credential(&self, name: &ProviderName) -> Result<Option<Secret>> {
        let sealed = provider::credential(&mut self.store.read().await?, name).await?;
        match sealed {
            Some(sealed) => Ok(Some(self.sealer().await?.unseal(name.as_str(), &sealed)?)),
            None => Ok(None),
        }
    }
}

/// Keeps a provider's credential, sealed.
///
/// # Errors
/// `not_found` · `validation_failed` for what cannot be a header's value.
pub async fn set_credential(desk: &Desk, admin: &Administrator, name: &ProviderName, secret: Secret) -> Result<()> {
    get(desk, name).await?;
    let right = !secret.0.is_empty()
        && secret.0.chars().count() <= MAX_CREDENTIAL
        && secret.0.bytes().all(|byte| (0x20..0x7f).contains(&byte));
    if !right {
        let detail = format!("a credential is 1 to {MAX_CREDENTIAL} printable ASCII characters on one line");
        return Err(Problem::at(Code::ValidationFailed, "/credential", detail).into());
    }
    let sealed = desk.sealer().await?.seal(name.as_str(), &secret)?;
    let (by, kept) = (admin.by().clone(), name.clone());
    desk.commit(move |tx| {
        Box::pin(async move {
            provider::set_credential(tx, kept.as_str(), &sealed).await?;
            let reason = Some("credential".to_owned());
            let resource = principal("provider", &kept);
            tx.audit(&Entry { resource, reason, ..by.entry(Event::AdminProviderAdded) }).await?;
            Ok(Ok(()))
        })
    })
    .await?;
    desk.gateway.forget(name.as_str());
    Ok(())
}

/// Seals under the newest key what is still under an older one; how many there were.
///
/// # Errors
/// A credential cannot be opened; those before it are done.
pub async fn reseal(desk: &Desk) -> Result<usize> {
    let sealer = desk.sealer().await?;
    let kept = provider::credentials(&mut desk.store.read().await?).await?;
    let old: Vec<_> = kept.into_iter().filter(|(_, sealed)| !sealer.is_current(sealed)).collect();
    let count = old.len();
    for (name, sealed) in old {
        let sealed = sealer.seal(&name, &sealer.unseal(&name, &sealed)?)?;
        desk.commit(move |tx| Box::pin(async move { provider::set_credential(tx, &name, &sealed).await.map(Ok) }))
            .await?;
    }
    Ok(count)
}

/// Shows, against the real destination or its sandbox, whether the declared guarantees hold, and keeps what was seen.
///
/// # Errors
/// `not_found` · `invalid_state` where the declaration says nothing that could be checked, or not how.
pub async fn check(desk: &Desk, admin: &Administrator, name: &ProviderName) -> Result<Vec<Checked>> {
    let ProviderView { version, document: contract, .. } = get(desk, name).await?;
    let refuse = |detail: &str| Problem::new(Code::InvalidState, detail);
    let destination = contract.destination.as_ref().ok_or_else(|| refuse("the provider declares no `destination`"))?;
    let request = destination.check.as_ref().ok_or_else(|| refuse("the destination declares no `check`"))?;
    let credential = desk.credential(name).await?;
    let trial = Trial { desk, contract: &contract, destination, request, credential };
    let mut seen = Vec::new();
    if let Idempotency::Honoured(_) = contract.idempotency {
        seen.push((Guarantee::Idempotency, trial.idempotency().await));
    }
    if contract.lookup != Lookup::None {
        seen.push((Guarantee::Lookup, trial.lookup().await));
    }
    if seen.is_empty() {
        return Err(refuse("the provider declares no guarantee that a check could show").into());
    }
    let (by, name) = (admin.by().clone(), name.clone());
    desk.commit(move |tx| {
        Box::pin(async move {
            let mut checks = Vec::new();
            for (guarantee, result) in seen {
                let passed = result.is_ok();
                let detail = result.unwrap_or_else(|seen| seen);
                let check = Checked { guarantee, passed, detail, checked_at: tx.now() };
                provider::record_check(tx, &name, version, &check).await?;
                let status = Some(if passed { "passed" } else { "failed" }.to_owned());
                let reason = Some(format!("{} of version {version}", guarantee.as_str()));
                let resource = principal("provider", &name);
                tx.audit(&Entry { resource, reason, status, ..by.entry(Event::AdminProviderChecked) }).await?;
                checks.push(check);
            }
            Ok(Ok(checks))
        })
    })
    .await
}

/// Asks a provider what became of one downstream key; what stood in the way, in words.
///
/// # Errors
/// `invalid_state` where the declaration does not say how to ask.
pub async fn ask(desk: &Desk, contract: &Contract, key: &str) -> Result<std::result::Result<Found, String>> {
    let asked = contract.destination.as_ref().and_then(|to| Some((to, to.lookup.as_ref()?)));
    let Some((destination, question)) = asked else {
        let detail = format!("`{}` has not declared how it is asked what became of a key", contract.name);
        return Err(Problem::new(Code::InvalidState, detail).into());
    };
    let credential = desk.credential(&contract.name).await?;
    let (name, base) = (contract.name.as_str(), &destination.base_url);
    let reply = desk.http.send(name, base, destination, credential.as_ref(), query(question, key)).await;
    Ok(reply
        .map(|reply| destination.found(question, key, reply.status, reply.body.as_ref()))
        .map_err(|error| error.to_string()))
}

/// One check under way. What it says is what was seen, good or bad.
struct Trial<'a> {
    desk: &'a Desk,
    contract: &'a Contract,
    destination: &'a Destination,
    request: &'a Check,
    credential: Option<Secret>,
}

type Seen<T> = std::result::Result<T, String>;

impl Trial<'_> {
    fn key() -> String {
        format!("check-{}", ids::Secret::new().reveal())
    }

    fn base_url(&self) -> &str {
        self.request.base_url.as_ref().unwrap_or(&self.destination.base_url)
    }

    async fn send(&self, key: &str, body: &Value) -> Seen<Reply> {
        let outgoing = Outgoing {
            method: self.request.method.into(),
            path: self.request.path.clone(),
            query: None,
            headers: vec![(self.contract.key_header().to_owned(), key.to_owned())],
            body: Some(body.clone()),
        };
        self.exchange(outgoing).await
    }

    async fn exchange(&self, outgoing: Outgoing) -> Seen<Reply> {
        let name = self.contract.name.as_str();
        let sent = self.desk.http.send(name, self.base_url(), self.destination, self.credential.as_ref(), outgoing);
        sent.await.map_err(|error| error.to_string())
    }

    /// Sends the body under `key`; the effect's reference, as far as the provider names one.
    async fn apply(&self, key: &str) -> Seen<Option<String>> {
        let reply = self.send(key, &self.request.body).await?;
        match self.destination.meaning(reply.status) {
            Meaning::Applied | Meaning::Accepted => {
                Ok(reply.body.as_ref().and_then(|body| self.destination.reference_in(body)))
            }
            _ => Err(format!("the check's own request was answered with {}", reply.status)),
        }
    }

    async fn ask(&self, question: &Question, key: &str) -> Seen<Found> {
        let reply = self.exchange(query(question, key)).await?;
        Ok(self.destination.found(question, key, reply.status, reply.body.as_ref()))
    }

    /// The same key twice makes one effect, and another body under it is refused.
    async fn idempotency(&self) -> Seen<String> {
        let key = Self::key();
        let first = self.apply(&key).await?;
        let second = self.apply(&key).await?;
        let reference = first.clone().ok_or("a reply names no reference, so one effect cannot be told from two")?;
        if first != second {
            return Err(format!("the same key made `{reference}` and then another effect"));
        }
        let other = self.send(&key, &self.request.other_body).await?;
        match self.destination.meaning(other.status) {
            Meaning::NotApplied | Meaning::Conflicted => {}
            _ => return Err(format!("another body under the same key was answered with {}", other.status)),
        }
        if let Some(question) = &self.destination.lookup
            && self.await_found(question, &key).await? != (Found::Applied { reference: Some(reference.clone()) })
        {
            return Err(format!("the look-up does not find `{reference}` as the one effect of the key"));
        }
        Ok(format!("one key sent twice made one effect, `{reference}`; another body was refused with {}", other.status))
    }

    /// What was not applied is not found, and what was is found, in the declared time.
    async fn lookup(&self) -> Seen<String> {
        let question = self.destination.lookup.as_ref().ok_or("the destination does not say how to ask it")?;
        let key = Self::key();
        match self.ask(question, &key).await? {
            Found::Absent => {}
            found => return Err(format!("an unused key was answered with {found:?}")),
        }
        let reference = self.apply(&key).await?;
        match self.await_found(question, &key).await? {
            Found::Applied { reference: found } if reference.is_none() || found == reference => {
                Ok("an unused key is absent, and an effect is found by its key".to_owned())
            }
            found => Err(format!("an effect that was made was answered with {found:?}")),
        }
    }

    /// The answer once the declared lag is over; the first that is not empty ends the wait.
    async fn await_found(&self, question: &Question, key: &str) -> Seen<Found> {
        let lag = Duration::from_secs(self.contract.lookup.lag_s().unwrap_or(0).unsigned_abs());
        let begun = tokio::time::Instant::now();
        loop {
            let is_last = begun.elapsed() >= lag;
            match self.ask(question, key).await? {
                Found::Absent if !is_last => tokio::time::sleep(PATIENCE.min(lag)).await,
                found => return Ok(found),
            }
        }
    }
}

/// The request that asks what became of `key`.
pub fn query(question: &Question, key: &str) -> Outgoing {
    let whole = question.path.text(|name| (name == KEY).then(|| key.to_owned())).unwrap_or_default();
    let (path, query) = match whole.split_once('?') {
        Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
        None => (whole, None),
    };
    Outgoing { method: reqwest::Method::GET, path, query, headers: Vec::new(), body: None }
}

/// Asks a provider what became of a downstream key.
///
/// # Errors
/// [`NoReply`]; an answer that says nothing is `Found::Unclear`.
pub async fn look_up(desk: &Desk, contract: &Contract, key: &str) -> std::result::Result<Found, NoReply> {
    let not_asked = |words: &str| NoReply::NotSent(words.to_owned());
    let destination = contract.destination.as_ref().ok_or_else(|| not_asked("the provider has no destination"))?;
    let question = destination.lookup.as_ref().ok_or_else(|| not_asked("the provider cannot be asked"))?;
    let credential = desk.credential(&contract.name).await.map_err(|error| not_asked(&error.to_string()))?;
    let (name, base) = (contract.name.as_str(), &destination.base_url);
    let reply = desk.http.send(name, base, destination, credential.as_ref(), query(question, key)).await?;
    Ok(destination.found(question, key, reply.status, reply.body.as_ref()))
}
