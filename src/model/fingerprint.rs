//! What an approval is bound to: the validated command, its canonical form and the digest of that.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{
    id::{AgentId, InvalidId, OperationId, PersonId},
    json::{self, Limits},
    problem::Problem,
    target::Target,
};

/// Stored with every operation, so that old rows keep their rule if a second version ever appears.
pub const FINGERPRINT_VERSION: i64 = 1;

const SCHEMA: &str = "counterfoil/fingerprint/v1";
const METHOD: &str = "POST";
const ROUTE: &str = "/api/v1/operations";

/// `sha256:` and 64 lower-case hexadecimal digits: the SHA-256 of a canonical form.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Fingerprint(String);

/// The text is not a fingerprint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected `sha256:` followed by 64 lower-case hexadecimal digits")]
pub struct InvalidFingerprint;

impl Fingerprint {
    const PREFIX: &str = "sha256:";

    /// Of text that is in canonical form already; as stored, it is hashed byte for byte.
    pub fn of_canonical(canonical: &str) -> Self {
        let mut text = Self::PREFIX.to_owned();
        for byte in Sha256::digest(canonical.as_bytes()) {
            text += &format!("{byte:02x}");
        }
        Self(text)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The digits without `sha256:`.
    pub fn hex(&self) -> &str {
        &self.0[Self::PREFIX.len()..]
    }

    /// The first eight digits, `e5c7-91aa`: for saying aloud and for telling apart, not for proving.
    pub fn short_code(&self) -> String {
        let hex = self.hex();
        format!("{}-{}", &hex[..4], &hex[4..8])
    }
}

impl FromStr for Fingerprint {
    type Err = InvalidFingerprint;

    fn from_str(text: &str) -> Result<Self, InvalidFingerprint> {
        let hex = text.strip_prefix(Self::PREFIX).ok_or(InvalidFingerprint)?;
        let is_digest = hex.len() == 64 && hex.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if is_digest { Ok(Self(text.to_owned())) } else { Err(InvalidFingerprint) }
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Fingerprint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Whose command it is: an agent, or a person writing a resource directly.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Account {
    Agent(AgentId),
    Person(PersonId),
}

impl Account {
    pub fn as_str(&self) -> &str {
        match self {
            Account::Agent(id) => id.as_str(),
            Account::Person(id) => id.as_str(),
        }
    }
}

impl FromStr for Account {
    type Err = InvalidId;

    fn from_str(text: &str) -> Result<Self, InvalidId> {
        if text.starts_with(PersonId::PREFIX) { text.parse().map(Self::Person) } else { text.parse().map(Self::Agent) }
    }
}

impl fmt::Display for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Account {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Account {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Earlier operations this one refers to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Links {
    /// The open operation it takes the place of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub supersedes: Option<OperationId>,
    /// The conflicted operation it plans anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replans: Option<OperationId>,
    /// The applied operation whose effect it makes good.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compensates: Option<OperationId>,
    /// The release it takes back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rolls_back: Option<OperationId>,
}

impl Links {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A validated command with its defaults filled in: exactly what the fingerprint covers.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    pub account: Account,
    pub kind: String,
    pub target: Target,
    /// As sent after defaults: nulls and the order of arrays are kept, and nothing is normalised.
    pub params: Value,
    /// 0 means "does not exist yet". At most [`json::MAX_INTEGER`].
    pub expected_version: Option<i64>,
    pub source_event_id: Option<String>,
    pub links: Links,
}

impl Command {
    /// The document whose canonical form is hashed.
    pub fn preimage(&self) -> Value {
        let mut members = Map::from_iter([
            ("schema".to_owned(), json!(SCHEMA)),
            ("method".to_owned(), json!(METHOD)),
            ("route".to_owned(), json!(ROUTE)),
            ("account".to_owned(), json!(self.account)),
            ("kind".to_owned(), json!(self.kind)),
            ("target".to_owned(), json!(self.target)),
            ("params".to_owned(), self.params.clone()),
        ]);
        if let Some(version) = self.expected_version {
            members.insert("expected_version".to_owned(), json!(version));
        }
        if let Some(event) = &self.source_event_id {
            members.insert("source_event_id".to_owned(), json!(event));
        }
        if !self.links.is_empty() {
            members.insert("links".to_owned(), json!(self.links));
        }
        Value::Object(members)
    }

    /// The text that is stored, shown and hashed.
    pub fn canonical(&self) -> String {
        json::canonical(&self.preimage())
    }

    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of_canonical(&self.canonical())
    }

    /// Reads back what [`Command::canonical`] wrote, and nothing else.
    ///
    /// # Errors
    /// The text is not JSON, is not a command, or is not in canonical form.
    pub fn parse_canonical(canonical: &str) -> Result<Self, NotCanonical> {
        let value = json::parse(canonical.as_bytes(), Limits::STORED)?;
        let preimage: Preimage = serde_json::from_value(value)?;
        let command = Self {
            account: preimage.account,
            kind: preimage.kind,
            target: preimage.target,
            params: preimage.params,
            expected_version: preimage.expected_version,
            source_event_id: preimage.source_event_id,
            links: preimage.links,
        };
        if command.canonical() == canonical { Ok(command) } else { Err(NotCanonical::Form) }
    }
}

#[derive(Deserialize)]
struct Preimage {
    account: Account,
    kind: String,
    target: Target,
    params: Value,
    expected_version: Option<i64>,
    source_event_id: Option<String>,
    #[serde(default)]
    links: Links,
}

/// The text is not the canonical form of a command.
#[derive(Debug, thiserror::Error)]
pub enum NotCanonical {
    #[error("the stored command is not JSON")]
    Json(#[from] Problem),
    #[error("the stored text is not a command")]
    Command(#[from] serde_json::Error),
    #[error("the stored command is not in canonical form")]
    Form,
}

#[cfg(test)]
mod tests {
    use proptest::{option, prelude::*};

    use super::*;
    use crate::model::json::{MAX_INTEGER, tests::values};

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Vector {
        name: String,
        preimage: Value,
        canonical: String,
        fingerprint: Fingerprint,
    }

    fn vectors() -> Vec<Vector> {
        serde_json::from_str(include_str!("vectors/fingerprint-v1.json")).unwrap()
    }

    fn sample() -> Command {
        Command::parse_canonical(&vectors()[0].canonical).unwrap()
    }

    #[test]
    fn every_golden_vector_holds() {
        for vector in vectors() {
            assert_eq!(json::canonical(&vector.preimage), vector.canonical, "{}", vector.name);
            assert_eq!(Fingerprint::of_canonical(&vector.canonical), vector.fingerprint, "{}", vector.name);
            let command =
                Command::parse_canonical(&vector.canonical).unwrap_or_else(|e| panic!("{}: {e}", vector.name));
            assert_eq!(command.preimage(), vector.preimage, "{}", vector.name);
            assert_eq!(command.fingerprint(), vector.fingerprint, "{}", vector.name);
        }
    }

    #[test]
    fn no_two_vectors_share_a_fingerprint() {
        let mut seen: Vec<_> = vectors().into_iter().map(|vector| vector.fingerprint).collect();
        let all = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), all);
    }

    #[test]
    fn a_fingerprint_has_one_spelling() {
        let fingerprint = Fingerprint::of_canonical("");
        assert_eq!(fingerprint.as_str(), "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(fingerprint.short_code(), "e3b0-c442");
        let text = fingerprint.as_str();
        assert_eq!(text.parse(), Ok(fingerprint.clone()));
        for wrong in [
            "",
            "sha256:",
            fingerprint.hex(),
            &text.to_uppercase(),
            &text.replace('e', "E"),
            &text[..text.len() - 1],
            &format!("{text}0"),
            &format!(" {text}"),
            &format!("{}é", &text[..text.len() - 2]),
        ] {
            assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
            assert!(serde_json::from_value::<Fingerprint>(json!(wrong)).is_err());
        }
    }

    #[test]
    fn every_part_of_the_command_changes_the_fingerprint() {
        let link = || Some(OperationId::from_parts(7, 7));
        let changes: [fn(&mut Command); 7] = [
            |c| c.account = Account::Agent(AgentId::from_parts(1, 1)),
            |c| c.account = Account::Person(PersonId::from_parts(1, 1)),
            |c| c.kind.push('x'),
            |c| c.target = "project/Ops".parse().unwrap(),
            |c| c.params["title"] = json!("Rotate staging certificate "),
            |c| c.expected_version = Some(0),
            |c| c.source_event_id = Some(String::new()),
        ];
        let mut commands: Vec<_> = changes
            .into_iter()
            .map(|change| {
                let mut command = sample();
                change(&mut command);
                command
            })
            .collect();
        commands.push(sample());
        commands.push(Command { links: Links { supersedes: link(), ..Links::default() }, ..sample() });
        commands.push(Command { links: Links { replans: link(), ..Links::default() }, ..sample() });
        commands.push(Command { links: Links { compensates: link(), ..Links::default() }, ..sample() });
        commands.push(Command { links: Links { rolls_back: link(), ..Links::default() }, ..sample() });
        for (i, a) in commands.iter().enumerate() {
            assert_eq!(Command::parse_canonical(&a.canonical()).unwrap(), *a);
            for b in &commands[..i] {
                assert_ne!(a.fingerprint(), b.fingerprint());
            }
        }
    }

    #[test]
    fn text_that_is_not_the_canonical_form_of_a_command_is_not_read() {
        let canonical = sample().canonical();
        let wrong = |from: &str, to: &str| {
            assert!(canonical.contains(from));
            Command::parse_canonical(&canonical.replacen(from, to, 1)).unwrap_err().to_string()
        };
        assert_eq!(wrong("{", ""), "the stored command is not JSON");
        assert_eq!(wrong("\"priority\":\"normal\"", "\"project\":\"ops\""), "the stored command is not JSON");
        assert_eq!(wrong("ag_", "run_"), "the stored text is not a command");
        assert_eq!(wrong("\"kind\"", "\"kinds\""), "the stored text is not a command");
        for (from, to) in [
            ("{", "{ "),
            ("Rotate", "\\u0052otate"),
            ("/v1\"", "/v2\""),
            ("POST", "PUT"),
            ("\"kind\"", "\"extra\":1,\"kind\""),
            ("\"kind\"", "\"expected_version\":null,\"kind\""),
            ("\"method\"", "\"links\":{},\"method\""),
        ] {
            assert_eq!(wrong(from, to), "the stored command is not in canonical form", "{to}");
        }
    }

    #[test]
    fn what_a_client_may_nest_stays_readable_inside_the_envelope() {
        let deepest = "[".repeat(31) + &"]".repeat(31);
        let body = json::parse(format!("{{\"value\":{deepest}}}").as_bytes(), Limits::BODY).unwrap();
        let command = Command { params: body, ..sample() };
        assert_eq!(Command::parse_canonical(&command.canonical()).unwrap(), command);
    }

    proptest! {
        #[test]
        fn a_command_survives_being_stored(
            params in values(), kind in "[a-z.]{1,20}", event in option::of("[^\0]{0,20}"),
            version in option::of(0..=MAX_INTEGER), link in option::of(any::<u64>()), person: bool,
        ) {
            let command = Command {
                account: if person { Account::Person(PersonId::from_parts(3, 9)) } else { Account::Agent(AgentId::from_parts(3, 9)) },
                kind,
                params,
                expected_version: version,
                source_event_id: event,
                links: Links { replans: link.map(|n| OperationId::from_parts(n, 1)), ..Links::default() },
                ..sample()
            };
            let canonical = command.canonical();
            let read = Command::parse_canonical(&canonical).unwrap();
            prop_assert_eq!(&read, &command);
            prop_assert_eq!(read.fingerprint(), Fingerprint::of_canonical(&canonical));
        }
    }
}
