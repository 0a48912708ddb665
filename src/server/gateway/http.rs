//! One request to a registered destination: its host resolved once, checked and pinned, no redirect followed, its reply
//! bounded in time and size.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use reqwest::{
    Client, ClientBuilder, Request, Url, dns,
    header::{CONTENT_TYPE, ETAG, HeaderMap, HeaderName, HeaderValue},
    redirect,
};
use serde_json::Value;
use tokio::{
    net::TcpStream,
    sync::{OwnedSemaphorePermit, Semaphore},
};

use crate::{
    model::{
        destination::{Content, Destination, Method},
        json, network,
    },
    server::config::Secret,
};

/// Time to connect: nothing of the request has left before.
const CONNECT: Duration = Duration::from_secs(5);
/// Clients kept for further requests to the same addresses.
const KEPT_CLIENTS: usize = 64;

/// Says where a name leads.
pub trait Resolve: Send + Sync {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>>;
}

/// The machine's own resolver.
struct System;

impl Resolve for System {
    fn resolve<'a>(&'a self, host: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}

/// Clients and places in the queue of each destination.
pub struct Http {
    clients: Mutex<HashMap<(String, Vec<SocketAddr>), Client>>,
    places: Mutex<HashMap<String, Arc<Semaphore>>>,
    resolver: Mutex<Arc<dyn Resolve>>,
}

impl Default for Http {
    fn default() -> Self {
        Self { clients: Mutex::default(), places: Mutex::default(), resolver: Mutex::new(Arc::new(System)) }
    }
}

/// What is sent.
#[derive(Debug, Clone)]
pub struct Outgoing {
    pub method: reqwest::Method,
    /// Behind the base's own path; begins with `/`.
    pub path: String,
    pub query: Option<String>,
    pub headers: Vec<(String, String)>,
    /// Sent in canonical form, byte for byte what a fingerprint covers.
    pub body: Option<Value>,
}

impl From<Method> for reqwest::Method {
    fn from(method: Method) -> Self {
        match method {
            Method::Post => Self::POST,
            Method::Put => Self::PUT,
            Method::Patch => Self::PATCH,
            Method::Delete => Self::DELETE,
        }
    }
}

/// A reply, whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    pub status: u16,
    /// Of the target after the write, where the provider says so in a strong tag.
    pub version: Option<i64>,
    /// None where the body is not JSON.
    pub body: Option<Value>,
    pub bytes: Vec<u8>,
}

impl Reply {
    /// The body as it may be read: nothing, JSON, or neither.
    pub fn content(&self) -> Content<'_> {
        match &self.body {
            Some(body) => Content::Json(body),
            None if self.bytes.is_empty() => Content::Empty,
            None => Content::Unreadable,
        }
    }
}

/// Why there is no reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoReply {
    /// Nothing of the request has left.
    #[error("{0}")]
    NotSent(String),
    /// It may have arrived.
    #[error("{0}")]
    Lost(String),
}

fn not_sent(words: impl Into<String>) -> NoReply {
    NoReply::NotSent(words.into())
}

/// A client in the making, with the cryptography it takes for TLS in place.
pub fn builder() -> ClientBuilder {
    // Fails only where another provider is installed already, which is as good.
    drop(rustls::crypto::ring::default_provider().install_default());
    Client::builder()
}

/// The address of one request: `path` and `query` behind the base, and nowhere else.
///
/// # Errors
/// The base is no HTTP URL, or `path` would leave it.
pub fn address(base: &str, path: &str, query: Option<&str>) -> Result<Url, NoReply> {
    let base = Url::parse(base).map_err(|error| not_sent(format!("the destination's address is no URL: {error}")))?;
    let plain = base.username().is_empty() && base.password().is_none() && base.query().is_none();
    if !matches!(base.scheme(), "http" | "https") || base.host_str().is_none() || !plain || base.fragment().is_some() {
        return Err(not_sent("the destination's address is not `https://host[:port][/path]`"));
    }
    if !path.starts_with('/') {
        return Err(not_sent("the path does not begin with `/`"));
    }
    // A parser of addresses drops some of these without a word.
    if path.chars().chain(query.unwrap_or_default().chars()).any(char::is_control) {
        return Err(not_sent("the path or the query has control characters in it"));
    }
    let whole = format!("{}{path}", base.path().trim_end_matches('/'));
    let mut url = base;
    url.set_path(&whole);
    url.set_query(query);
    // `..` and its spellings are resolved by now; what has moved was not meant for this place.
    if url.path().len() < whole.len() || has_dots(path) {
        return Err(not_sent("the path has `.` or `..` in it"));
    }
    Ok(url)
}

/// Also as a server may read it that decodes before it splits.
fn has_dots(path: &str) -> bool {
    let path = path.to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/").replace("%5c", "\\");
    path.contains('\\') || path.split('/').any(|part| part == "." || part == "..")
}

impl Http {
    /// Looks names up with `resolver` from now on.
    pub fn resolve_with(&self, resolver: impl Resolve + 'static) {
        *self.resolver.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(resolver);
    }

    /// Sends one request to `destination`, with its credential if it has one.
    ///
    /// # Errors
    /// [`NoReply`], which says whether anything may have arrived.
    pub async fn send(
        &self,
        name: &str,
        base_url: &str,
        destination: &Destination,
        credential: Option<&Secret>,
        outgoing: Outgoing,
    ) -> Result<Reply, NoReply> {
        let timeout = destination.timeout();
        self.prepare(name, base_url, destination, credential, outgoing).await?.send(timeout).await
    }

    /// Does everything that may fail before anything leaves: the host is resolved, checked and pinned, and the
    /// destination has a place for one more request.
    ///
    /// # Errors
    /// [`NoReply::NotSent`].
    pub async fn prepare(
        &self,
        name: &str,
        base_url: &str,
        destination: &Destination,
        credential: Option<&Secret>,
        outgoing: Outgoing,
    ) -> Result<Prepared, NoReply> {
        let url = address(base_url, &outgoing.path, outgoing.query.as_deref())?;
        let headers = headers(destination, credential, &outgoing.headers)?;
        let place = self.place(name, destination.concurrency);
        let place = place.acquire_owned().await.map_err(|_| not_sent("the gateway stops"))?;
        let addresses = self.addresses(&url, destination).await?;
        let client = self.client(&url, &addresses)?;
        let mut request = client.request(outgoing.method, url).headers(headers);
        if let Some(body) = &outgoing.body {
            request = request.header(CONTENT_TYPE, "application/json").body(json::canonical(body));
        }
        let most = destination.max_reply_bytes.unsigned_abs() as usize;
        let request = request.build().map_err(|error| not_sent(format!("the request cannot be made: {error}")))?;
        Ok(Prepared { client, request, addresses, most, secrets: secrets(credential), _place: place })
    }

    fn place(&self, name: &str, places: i64) -> Arc<Semaphore> {
        let mut all = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let key = format!("{name} {places}");
        all.entry(key).or_insert_with(|| Arc::new(Semaphore::new(places.max(1) as usize))).clone()
    }

    /// Where the host leads now; every address of it may be reached.
    async fn addresses(&self, url: &Url, destination: &Destination) -> Result<Vec<SocketAddr>, NoReply> {
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        let port = url.port_or_known_default().unwrap_or(443);
        let resolver = self.resolver.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut addresses = match host.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, port)],
            Err(_) => tokio::time::timeout(CONNECT, resolver.resolve(host, port))
                .await
                .map_err(|_| not_sent(format!("`{host}` did not resolve in time")))?
                .map_err(|error| not_sent(format!("`{host}` does not resolve: {error}")))?,
        };
        addresses.sort();
        addresses.dedup();
        if addresses.is_empty() {
            return Err(not_sent(format!("`{host}` has no address")));
        }
        match addresses.iter().find(|address| !network::may_reach(address.ip(), &destination.allow_private)) {
            Some(private) => Err(not_sent(format!(
                "`{host}` leads to {}, which is not a public address and not in `allow_private`",
                private.ip()
            ))),
            None => Ok(addresses),
        }
    }

    /// A client that goes to these addresses, whatever the name resolves to later.
    fn client(&self, url: &Url, addresses: &[SocketAddr]) -> Result<Client, NoReply> {
        let host = url.host_str().unwrap_or_default().to_owned();
        let key = (host, addresses.to_vec());
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&key) {
            return Ok(client.clone());
        }
        let client = builder()
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .no_proxy()
            .connect_timeout(CONNECT)
            // One connection for one request: what comes on it answers that request and no other, and none is reused
            // that the other side has just given up.
            .pool_max_idle_per_host(0)
            .dns_resolver(Pinned(key.1.clone()))
            .build()
            .map_err(|error| not_sent(format!("the request cannot be made: {error}")))?;
        if clients.len() >= KEPT_CLIENTS {
            clients.clear();
        }
        clients.insert(key, client.clone());
        Ok(client)
    }
}

/// Every name leads here.
struct Pinned(Vec<SocketAddr>);

impl dns::Resolve for Pinned {
    fn resolve(&self, _: dns::Name) -> dns::Resolving {
        let addresses: dns::Addrs = Box::new(self.0.clone().into_iter());
        Box::pin(std::future::ready(Ok(addresses)))
    }
}

/// A request that only has to leave; it holds its place with the destination.
pub struct Prepared {
    client: Client,
    request: Request,
    addresses: Vec<SocketAddr>,
    /// Bytes of the reply.
    most: usize,
    /// What a reply may not bring back in.
    secrets: Vec<String>,
    _place: OwnedSemaphorePermit,
}

impl Prepared {
    /// Adds what is known only now.
    pub fn set(&mut self, name: &'static str, value: i64) {
        self.request.headers_mut().insert(HeaderName::from_static(name), value.into());
    }

    /// Whether anybody listens there. Nothing of the request leaves.
    ///
    /// # Errors
    /// [`NoReply::NotSent`].
    pub async fn knock(&self) -> Result<(), NoReply> {
        match tokio::time::timeout(CONNECT, TcpStream::connect(&self.addresses[..])).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(not_sent(format!("no connection was made: {error}"))),
            Err(_) => Err(not_sent("no connection was made in time")),
        }
    }

    /// Sends the request and reads its reply, both within `timeout`.
    ///
    /// # Errors
    /// [`NoReply`]. After [`NoReply::NotSent`] it may be sent again: nothing of it has left.
    pub async fn send(&self, timeout: Duration) -> Result<Reply, NoReply> {
        let request = self.request.try_clone().ok_or_else(|| not_sent("the request cannot be made"))?;
        let whole = async {
            let mut reply = self.client.execute(request).await.map_err(no_reply)?;
            let mut bytes = Vec::new();
            while let Some(chunk) = reply.chunk().await.map_err(no_reply)? {
                if bytes.len() + chunk.len() > self.most {
                    return Err(NoReply::Lost(format!("the reply is longer than {} bytes", self.most)));
                }
                bytes.extend_from_slice(&chunk);
            }
            let tag = reply.headers().get(ETAG).and_then(|tag| tag.to_str().ok());
            let version = tag.and_then(|tag| tag.strip_prefix('"')?.strip_suffix('"')?.parse().ok());
            let bytes = self.secrets.iter().fold(bytes, |bytes, secret| without(bytes, secret.as_bytes()));
            let body = serde_json::from_slice(&bytes).ok();
            Ok(Reply { status: reply.status().as_u16(), version, body, bytes })
        };
        let late = || NoReply::Lost("no reply came in time".to_owned());
        tokio::time::timeout(timeout, whole).await.unwrap_or_else(|_| Err(late()))
    }
}

/// The credential, and what of it follows a scheme: `Bearer `. One that is short stands in replies by chance.
fn secrets(credential: Option<&Secret>) -> Vec<String> {
    let whole = credential.map(|Secret(secret)| secret.as_str());
    let bare = whole.and_then(|secret| secret.split_once(' ')).map(|(_, bare)| bare);
    whole.into_iter().chain(bare).filter(|secret| secret.len() >= 8).map(str::to_owned).collect()
}

fn without(bytes: Vec<u8>, secret: &[u8]) -> Vec<u8> {
    let mut kept = Vec::with_capacity(bytes.len());
    let mut rest = &bytes[..];
    while let Some(at) = rest.windows(secret.len()).position(|part| part == secret) {
        kept.extend_from_slice(&rest[..at]);
        kept.extend_from_slice(b"[credential]");
        rest = &rest[at + secret.len()..];
    }
    kept.extend_from_slice(rest);
    kept
}

fn headers(
    destination: &Destination,
    credential: Option<&Secret>,
    extra: &[(String, String)],
) -> Result<HeaderMap, NoReply> {
    let mut headers = HeaderMap::new();
    for (name, value) in extra {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| not_sent("a header's name is not valid"))?;
        let value = HeaderValue::from_str(value).map_err(|_| not_sent("a header's value is not valid"))?;
        headers.insert(name, value);
    }
    match (&destination.credential_header, credential) {
        (Some(name), Some(Secret(secret))) => {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| not_sent("a header's name is not valid"))?;
            let mut value = HeaderValue::from_str(secret).map_err(|_| not_sent("the credential is no header value"))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        (Some(_), None) => return Err(not_sent("the destination's credential is not set")),
        (None, _) => {}
    }
    Ok(headers)
}

/// Only a connection that was never made has provably carried nothing.
fn no_reply(error: reqwest::Error) -> NoReply {
    // The address may hold what was approved; it stays out of what is logged.
    let error = error.without_url();
    match error {
        error if error.is_connect() || error.is_builder() => not_sent(format!("no connection was made: {error}")),
        error if error.is_timeout() => NoReply::Lost("no reply came in time".to_owned()),
        error => NoReply::Lost(format!("the connection broke: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stays_below_the_base() {
        let base = "https://payments.example.test/v1/";
        let whole = |path: &str, query: Option<&str>| address(base, path, query).map(|url| url.to_string());
        assert_eq!(whole("/charges", None).unwrap(), "https://payments.example.test/v1/charges");
        assert_eq!(whole("/a b", Some("q=1 2")).unwrap(), "https://payments.example.test/v1/a%20b?q=1%202");
        assert_eq!(
            whole("//evil.example.test/x", None).unwrap(),
            "https://payments.example.test/v1//evil.example.test/x"
        );
        assert!(address(base, "/a", Some("q=1\r\nx: y")).is_err());
        for path in ["/v1%2f..%2fadmin", "/a%5C..%5Cb", "/a\r\nx: y", "/a\tb"] {
            assert!(address(base, path, None).is_err(), "{path}");
        }
        for path in ["charges", "", "/../admin", "/a/%2e%2e/../../b", "/%2E%2e/x", "/.", "/a/./b", "/..\\x", "@evil/x"]
        {
            assert!(matches!(address(base, path, None), Err(NoReply::NotSent(_))), "{path}");
        }
        for base in ["ftp://a/", "https://user:pw@a/", "https://a/?x=1", "a/b", "https://a/#f", "file:///etc/passwd"] {
            assert!(address(base, "/x", None).is_err(), "{base}");
        }
    }
}
