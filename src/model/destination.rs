//! Destinations: where a provider is, how it is asked, and how its replies are read.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    evidence::Finding,
    kind::Pattern,
    network::Network,
    problem::{Code, Problem},
};

/// The name under which a pattern asks for the downstream key.
pub const KEY: &str = "key";

/// Where a provider is, and how Counterfoil speaks with it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Destination {
    /// `https://host[:port][/path]`; what is approved is appended to its path.
    pub base_url: String,
    /// Networks in private ranges that the host may resolve to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_private: Vec<Network>,
    /// The header that carries the credential, which is kept apart, sealed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_header: Option<String>,
    /// Seconds from the first byte sent to the last byte read, 1 … 300.
    #[serde(default = "default_timeout_s")]
    pub timeout_s: i64,
    /// Bytes of a reply that are read at most, up to 8 MiB.
    #[serde(default = "default_max_reply_bytes")]
    pub max_reply_bytes: i64,
    /// Requests under way at once, 1 … 64.
    #[serde(default = "default_concurrency")]
    pub concurrency: i64,
    /// JSON pointer to the provider's own name for the effect in a reply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// What a status means here, where it differs from [`Meaning::of`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub replies: BTreeMap<u16, Meaning>,
    /// How to ask what became of a key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lookup: Option<Question>,
    /// How the provider's own signed messages are read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<Callback>,
    /// A harmless request that shows whether the guarantees hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<Check>,
}

fn default_timeout_s() -> i64 {
    10
}

fn default_max_reply_bytes() -> i64 {
    1 << 20
}

fn default_concurrency() -> i64 {
    8
}

/// What a reply says about the effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Meaning {
    Applied,
    /// Queued: it may still be applied, or not.
    Accepted,
    NotApplied,
    /// Not applied, because the target has moved.
    Conflicted,
    /// It may have been applied.
    Ambiguous,
}

impl Meaning {
    /// What a status means where the destination declares nothing (RFC 9110 §15). A redirect is not followed, and may
    /// follow an effect; 408 and every 5xx may come after one.
    pub fn of(status: u16) -> Self {
        match status {
            202 => Meaning::Accepted,
            200..=299 => Meaning::Applied,
            408 => Meaning::Ambiguous,
            409 | 412 => Meaning::Conflicted,
            400..=499 => Meaning::NotApplied,
            _ => Meaning::Ambiguous,
        }
    }
}

/// The body of a reply, as far as it can be read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Content<'a> {
    Empty,
    Json(&'a Value),
    Unreadable,
}

/// What a reply to a write establishes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Under this reference, if the provider gives one.
    Applied {
        reference: Option<String>,
    },
    /// Queued, under this reference.
    Accepted {
        reference: String,
    },
    NotApplied,
    Conflicted,
    /// Nothing, for this reason.
    Unknown(&'static str),
}

/// How a provider is asked what became of one downstream key.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// Path and query behind the base, with `{key}` in it: `/charges?key={key}`. Asked with GET.
    pub path: Pattern,
    /// JSON pointer to a list in the reply: the effect is absent while it is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<String>,
    /// JSON pointer, in an item where there is a list, at which the provider repeats the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub echo: Option<String>,
}

/// Where a provider's own message says which request it is about, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Callback {
    /// JSON pointer at which the provider repeats the downstream key. Nothing else binds a message to a request.
    pub key: String,
    /// JSON pointer to the provider's own name for the effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// JSON pointer to the word that says what became of it.
    pub status: String,
    /// Words that say that it was applied.
    pub applied: Vec<String>,
    /// Words that say that it was not applied, and will not be.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_applied: Vec<String>,
}

/// What a provider's own message says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    pub key: String,
    pub reference: Option<String>,
    pub finding: Finding,
    /// The provider's own word.
    pub status: String,
}

impl Callback {
    /// Reads a message; `None` where it names no key or says nothing.
    pub fn read(&self, body: &Value) -> Option<Told> {
        let word = |pointer: &str| match body.pointer(pointer)? {
            Value::String(text) if !text.is_empty() => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let status = word(&self.status)?;
        let finding = match () {
            () if self.applied.contains(&status) => Finding::Applied,
            () if self.not_applied.contains(&status) => Finding::NotApplied,
            () => Finding::Inconclusive,
        };
        Some(Told { key: word(&self.key)?, reference: self.reference.as_deref().and_then(word), finding, status })
    }
}

/// What an answer to a [`Question`] says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Once, under this reference if the provider gives one.
    Applied {
        reference: Option<String>,
    },
    Absent,
    /// Several effects under one key.
    Twice,
    /// Anything else proves nothing.
    Unclear,
}

/// A harmless write, sent with keys of its own to the real destination or its sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Check {
    /// The sandbox, where the real destination is not to be written to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    pub method: Method,
    pub path: String,
    pub body: Value,
    /// Sent under the same key: it must be refused.
    pub other_body: Value,
}

/// Methods of requests that are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    Post,
    Put,
    Patch,
    Delete,
}

/// The members of a command's parameters that are the request, where the gateway sends it. Others are for people.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Asked {
    pub method: Method,
    pub path: String,
    #[serde(default)]
    pub query: BTreeMap<String, String>,
    #[serde(default)]
    pub body: Option<Value>,
}

/// Characters of a provider's reference.
const MAX_REFERENCE: usize = 500;
/// Headers that say what a request is, and come from the server's own record.
const OWN_HEADERS: [&str; 13] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "if-match",
    "if-none-match",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-correlation-id",
];

/// Whether a declaration may put something into this header of a request.
pub fn is_free_header(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 64
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && !OWN_HEADERS.iter().any(|own| name.eq_ignore_ascii_case(own))
        && !name.to_ascii_lowercase().starts_with("counterfoil-")
}

impl Destination {
    /// Checks what the shape alone does not say.
    ///
    /// # Errors
    /// `validation_failed` with the JSON pointer below `/destination`.
    pub fn check(&self) -> Result<(), Problem> {
        let refuse = |place: &str, detail: &str| {
            Err(Problem::at(Code::ValidationFailed, format!("/destination{place}"), detail))
        };
        let pointer = |text: &Option<String>| text.as_ref().is_none_or(|text| text.is_empty() || text.starts_with('/'));
        if !(1..=300).contains(&self.timeout_s) {
            return refuse("/timeout_s", "expected 1 to 300 seconds");
        }
        if !(1..=8 << 20).contains(&self.max_reply_bytes) {
            return refuse("/max_reply_bytes", "expected 1 to 8388608 bytes");
        }
        if !(1..=64).contains(&self.concurrency) {
            return refuse("/concurrency", "expected 1 to 64 requests");
        }
        if self.credential_header.as_ref().is_some_and(|name| !is_free_header(name)) {
            return refuse("/credential_header", "expected the name of a header that Counterfoil does not set itself");
        }
        if !pointer(&self.reference) {
            return refuse("/reference", "expected a JSON pointer");
        }
        if let Some(question) = &self.lookup {
            if !question.path.names().eq([KEY]) {
                return refuse("/lookup/path", "expected a path with `{key}` in it once, and no other name");
            }
            if !pointer(&question.items) || !pointer(&question.echo) {
                return refuse("/lookup", "expected JSON pointers");
            }
        }
        if let Some(callback) = &self.callback {
            let pointers = [Some(&callback.key), callback.reference.as_ref(), Some(&callback.status)];
            if !pointers.into_iter().flatten().all(|text| text.starts_with('/')) {
                return refuse("/callback", "expected JSON pointers");
            }
            if callback.applied.iter().any(|word| callback.not_applied.contains(word)) {
                return refuse("/callback/applied", "expected words that do not also say that it was not applied");
            }
        }
        match self.replies.keys().find(|status| !(200..=599).contains(*status)) {
            Some(_) => refuse("/replies", "expected statuses from 200 to 599"),
            None => Ok(()),
        }
    }

    pub fn meaning(&self, status: u16) -> Meaning {
        self.replies.get(&status).copied().unwrap_or_else(|| Meaning::of(status))
    }

    /// From the first byte sent to the last byte read.
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout_s.unsigned_abs())
    }

    /// What a reply to a write establishes. A status alone shows an effect only where the reply is as this provider
    /// gives it: a page of some machine in between carries a 200 as well.
    pub fn verdict(&self, status: u16, content: Content<'_>) -> Verdict {
        let reference = match content {
            Content::Json(body) => self.reference_in(body),
            Content::Empty | Content::Unreadable => None,
        };
        let may_name_nothing = self.reference.is_none() || status == 204;
        match (self.meaning(status), reference) {
            (Meaning::NotApplied, _) => Verdict::NotApplied,
            (Meaning::Conflicted, _) => Verdict::Conflicted,
            (Meaning::Ambiguous, _) => Verdict::Unknown("the status leaves open whether it was applied"),
            _ if content == Content::Unreadable => Verdict::Unknown("the reply is not JSON"),
            (Meaning::Accepted, Some(reference)) => Verdict::Accepted { reference },
            (Meaning::Applied, reference) if reference.is_some() || may_name_nothing => Verdict::Applied { reference },
            (Meaning::Accepted | Meaning::Applied, _) => Verdict::Unknown("the reply does not name what was made"),
        }
    }

    /// The provider's own name for the effect, from a reply.
    pub fn reference_in(&self, body: &Value) -> Option<String> {
        let is_name = |text: &str| {
            !text.trim().is_empty() && text.chars().count() <= MAX_REFERENCE && !text.chars().any(char::is_control)
        };
        match body.pointer(self.reference.as_ref()?)? {
            Value::String(text) if is_name(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        }
    }

    /// Reads the answer to [`Destination::lookup`] about `key`. Only what names the key, or was asked for by it, counts.
    pub fn found(&self, question: &Question, key: &str, status: u16, body: Option<&Value>) -> Found {
        let names_key = |item: &Value| match &question.echo {
            Some(pointer) => item.pointer(pointer).and_then(Value::as_str) == Some(key),
            None => true,
        };
        match (status, &question.items, body) {
            (404, None, _) => Found::Absent,
            (200, None, Some(body)) if names_key(body) => Found::Applied { reference: self.reference_in(body) },
            (200, Some(pointer), Some(body)) => match body.pointer(pointer).and_then(Value::as_array) {
                Some(items) if items.is_empty() => Found::Absent,
                Some(items) if !items.iter().all(names_key) => Found::Unclear,
                Some(items) if items.len() == 1 => Found::Applied { reference: self.reference_in(&items[0]) },
                Some(_) => Found::Twice,
                None => Found::Unclear,
            },
            _ => Found::Unclear,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn destination(more: Value) -> Destination {
        let mut document = json!({"base_url": "https://payments.example.test/v1", "reference": "/id"});
        document.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(document).unwrap()
    }

    #[test]
    fn what_may_follow_an_effect_is_ambiguous() {
        for (status, meaning) in [
            (200, Meaning::Applied),
            (202, Meaning::Accepted),
            (301, Meaning::Ambiguous),
            (303, Meaning::Ambiguous),
            (400, Meaning::NotApplied),
            (408, Meaning::Ambiguous),
            (409, Meaning::Conflicted),
            (412, Meaning::Conflicted),
            (429, Meaning::NotApplied),
            (500, Meaning::Ambiguous),
            (503, Meaning::Ambiguous),
        ] {
            assert_eq!(Meaning::of(status), meaning, "{status}");
        }
        assert_eq!(destination(json!({"replies": {"503": "not_applied"}})).meaning(503), Meaning::NotApplied);
    }

    #[test]
    fn a_status_shows_an_effect_only_in_a_reply_as_the_provider_gives_it() {
        let (named, plain) = (destination(json!({})), destination(json!({"reference": null})));
        let (body, other) = (json!({"id": "ch_1"}), json!({"error": null}));
        let applied = |reference: Option<&str>| Verdict::Applied { reference: reference.map(str::to_owned) };
        assert_eq!(named.verdict(201, Content::Json(&body)), applied(Some("ch_1")));
        assert_eq!(named.verdict(202, Content::Json(&body)), Verdict::Accepted { reference: "ch_1".to_owned() });
        assert_eq!(named.verdict(204, Content::Empty), applied(None));
        assert_eq!(plain.verdict(200, Content::Json(&other)), applied(None));
        assert_eq!(plain.verdict(200, Content::Empty), applied(None));
        let unknown = |verdict: Verdict| assert!(matches!(verdict, Verdict::Unknown(_)), "{verdict:?}");
        for content in [Content::Json(&other), Content::Empty, Content::Unreadable] {
            unknown(named.verdict(200, content));
            unknown(named.verdict(202, content));
            unknown(named.verdict(302, content));
            unknown(named.verdict(502, content));
            assert_eq!(named.verdict(403, content), Verdict::NotApplied);
            assert_eq!(named.verdict(412, content), Verdict::Conflicted);
        }
        unknown(plain.verdict(200, Content::Unreadable));
        unknown(plain.verdict(202, Content::Json(&body)));
        for name in ["", " ", "a\nb", &"x".repeat(501)] {
            assert_eq!(named.reference_in(&json!({"id": name})), None);
        }
    }

    #[test]
    fn an_answer_counts_only_if_it_is_about_the_key() {
        let one = destination(json!({"lookup": {"path": "/charges/{key}", "echo": "/key"}}));
        let ask =
            |d: &Destination, status, body: Value| d.found(d.lookup.as_ref().unwrap(), "op_1", status, Some(&body));
        let applied = Found::Applied { reference: Some("ch_1".to_owned()) };
        assert_eq!(ask(&one, 200, json!({"id": "ch_1", "key": "op_1"})), applied);
        assert_eq!(ask(&one, 200, json!({"id": "ch_1", "key": "op_2"})), Found::Unclear);
        assert_eq!(ask(&one, 404, json!({})), Found::Absent);
        for status in [204, 301, 401, 403, 429, 500] {
            assert_eq!(ask(&one, status, json!({})), Found::Unclear, "{status}");
        }
        let many = destination(json!({"lookup": {"path": "/charges?key={key}", "items": "/data", "echo": "/key"}}));
        let item = json!({"id": "ch_1", "key": "op_1"});
        assert_eq!(ask(&many, 200, json!({"data": [item]})), applied);
        assert_eq!(ask(&many, 200, json!({"data": []})), Found::Absent);
        assert_eq!(ask(&many, 200, json!({"data": [item, item]})), Found::Twice);
        assert_eq!(ask(&many, 200, json!({"data": [item, {"id": "ch_2", "key": "op_2"}]})), Found::Unclear);
        assert_eq!(ask(&many, 200, json!({})), Found::Unclear);
        assert_eq!(ask(&many, 404, json!({})), Found::Unclear);
    }

    #[test]
    fn a_destination_that_cannot_be_asked_is_refused_with_its_place() {
        for (more, place) in [
            (json!({"timeout_s": 0}), "/timeout_s"),
            (json!({"max_reply_bytes": 1 << 30}), "/max_reply_bytes"),
            (json!({"concurrency": 65}), "/concurrency"),
            (json!({"credential_header": "a: b"}), "/credential_header"),
            (json!({"credential_header": "Host"}), "/credential_header"),
            (json!({"credential_header": "Counterfoil-Run"}), "/credential_header"),
            (json!({"reference": "id"}), "/reference"),
            (json!({"lookup": {"path": "/charges"}}), "/lookup/path"),
            (json!({"lookup": {"path": "/charges/{id}"}}), "/lookup/path"),
            (json!({"replies": {"100": "applied"}}), "/replies"),
            (json!({"callback": {"key": "key", "status": "/status", "applied": []}}), "/callback"),
            (
                json!({"callback": {"key": "/key", "status": "/s", "applied": ["a"], "not_applied": ["a"]}}),
                "/callback/applied",
            ),
        ] {
            let problem = destination(more).check().unwrap_err();
            assert_eq!(problem.members["errors"][0]["pointer"], format!("/destination{place}"));
        }
        destination(json!({"lookup": {"path": "/charges?key={key}"}})).check().unwrap();
    }
}
