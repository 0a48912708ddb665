//! One request to a registered destination: its host resolved once, checked and pinned, no redirect followed, its reply
//! bounded in time and size.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use reqwest::{
    Client, Url,
    header::{HeaderMap, HeaderName, HeaderValue},
    redirect,
};
use serde_json::Value;
use tokio::sync::Semaphore;

use crate::{
    model::{destination::Destination, network},
    server::config::Secret,
};

/// Time to connect: nothing of the request has left before.
const CONNECT: Duration = Duration::from_secs(5);
/// Clients kept for further requests to the same addresses.
const KEPT_CLIENTS: usize = 64;

/// Clients and places in the queue of each destination.
#[derive(Default)]
pub struct Http {
    clients: Mutex<HashMap<(String, Vec<SocketAddr>), Client>>,
    places: Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// What is sent.
#[derive(Debug, Clone)]
pub struct Outgoing {
    pub method: reqwest::Method,
    /// Behind the base's own path; begins with `/`.
    pub path: String,
    pub query: Option<String>,
    pub headers: Vec<(String, String)>,
    pub body: Option<Value>,
}

/// A reply, whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    pub status: u16,
    /// None where the body is not JSON.
    pub body: Option<Value>,
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
    let whole = format!("{}{path}", base.path().trim_end_matches('/'));
    let mut url = base;
    url.set_path(&whole);
    url.set_query(query);
    // `..` and its spellings are resolved by now; what has moved was not meant for this place.
    let kept = url.path().len() >= whole.len() && path.split('/').all(|part| !is_dots(part)) && !path.contains('\\');
    if !kept {
        return Err(not_sent("the path has `.` or `..` in it"));
    }
    Ok(url)
}

fn is_dots(part: &str) -> bool {
    let part = part.to_ascii_lowercase().replace("%2e", ".");
    part == "." || part == ".."
}

impl Http {
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
        let url = address(base_url, &outgoing.path, outgoing.query.as_deref())?;
        let headers = headers(destination, credential, &outgoing.headers)?;
        let place = self.place(name, destination.concurrency);
        let _place = place.acquire().await.map_err(|_| not_sent("the gateway stops"))?;
        let client = self.client(&url, destination).await?;
        let mut request = client
            .request(outgoing.method, url)
            .headers(headers)
            .timeout(Duration::from_secs(destination.timeout_s.unsigned_abs()));
        if let Some(body) = &outgoing.body {
            request = request.json(body);
        }
        let mut reply = request.send().await.map_err(no_reply)?;
        let status = reply.status().as_u16();
        let most = destination.max_reply_bytes.unsigned_abs() as usize;
        let mut bytes = Vec::new();
        while let Some(chunk) = reply.chunk().await.map_err(no_reply)? {
            if bytes.len() + chunk.len() > most {
                return Err(NoReply::Lost(format!("the reply is longer than {most} bytes")));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(Reply { status, body: serde_json::from_slice(&bytes).ok() })
    }

    fn place(&self, name: &str, places: i64) -> Arc<Semaphore> {
        let mut all = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let key = format!("{name} {places}");
        all.entry(key).or_insert_with(|| Arc::new(Semaphore::new(places.max(1) as usize))).clone()
    }

    /// A client that goes to the addresses checked here, whatever the name resolves to later.
    async fn client(&self, url: &Url, destination: &Destination) -> Result<Client, NoReply> {
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned();
        let port = url.port_or_known_default().unwrap_or(443);
        let mut addresses: Vec<SocketAddr> = match host.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, port)],
            Err(_) => tokio::time::timeout(CONNECT, tokio::net::lookup_host((host.as_str(), port)))
                .await
                .map_err(|_| not_sent(format!("`{host}` did not resolve in time")))?
                .map_err(|error| not_sent(format!("`{host}` does not resolve: {error}")))?
                .collect(),
        };
        addresses.sort();
        addresses.dedup();
        if addresses.is_empty() {
            return Err(not_sent(format!("`{host}` has no address")));
        }
        if let Some(private) = addresses.iter().find(|a| !network::may_reach(a.ip(), &destination.allow_private)) {
            return Err(not_sent(format!(
                "`{host}` leads to {}, which is not a public address and not in `allow_private`",
                private.ip()
            )));
        }
        let key = (host.clone(), addresses.clone());
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&key) {
            return Ok(client.clone());
        }
        // Fails only where another provider is installed already, which is as good.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = Client::builder()
            .redirect(redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT)
            .resolve_to_addrs(&host, &addresses)
            .build()
            .map_err(|error| not_sent(format!("the request cannot be made: {error}")))?;
        if clients.len() >= KEPT_CLIENTS {
            clients.clear();
        }
        clients.insert(key, client.clone());
        Ok(client)
    }
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
        for path in ["charges", "", "/../admin", "/a/%2e%2e/../../b", "/%2E%2e/x", "/.", "/a/./b", "/..\\x", "@evil/x"]
        {
            assert!(matches!(address(base, path, None), Err(NoReply::NotSent(_))), "{path}");
        }
        for base in ["ftp://a/", "https://user:pw@a/", "https://a/?x=1", "a/b", "https://a/#f", "file:///etc/passwd"] {
            assert!(address(base, "/x", None).is_err(), "{base}");
        }
    }
}
