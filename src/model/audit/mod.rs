//! The audit log: how a record is written, how the log is signed, and how anybody verifies an export offline.
//! The server and the browser run this same code; nothing here knows a database, a file or a clock.
//!
//! **Record** ([`record`]). One event, as one line of canonical JSON (RFC 8785): strings and integers only, absent
//! members omitted, no trailing line feed.
//!
//! **What is hashed.** The exact bytes of that line, and nothing else:
//!
//! | | |
//! |---|---|
//! | link hash | `SHA-256(line)`; the next record carries it as `prev`, in lower-case hex; the first `prev` is 64 zeros |
//! | Merkle leaf | `SHA-256(0x00 ‖ line)`, node `SHA-256(0x01 ‖ left ‖ right)` (RFC 6962 §2.1) |
//!
//! The chain finds the record that was changed; the tree lets one signature of 32 bytes stand for the whole log.
//!
//! **Checkpoint** ([`note`]). Origin, number of records and Merkle root (C2SP `tlog-checkpoint`), signed with Ed25519
//! as a C2SP `signed-note`. A *pin* is a checkpoint kept where the server cannot reach it.
//!
//! **Export.** A text file in UTF-8, every line ended by one line feed:
//!
//! ```text
//! {"actor":{…},"at":…,"event":…,"prev":"000…","seq":0,"v":1}     one record a line, `seq` 0, 1, 2 …
//! {"actor":{…},"at":…,"event":…,"prev":"5e8…","seq":1,"v":1}
//! {"checkpoint":"counterfoil/…\n2\n…\n\n— counterfoil/… …\n"}     the last line: a checkpoint of all records above
//! ```
//!
//! A record always has the member `actor` and never a member `checkpoint`, so neither line can be taken for the other.
//! The last line signs every line above it: a missing, smaller or larger checkpoint is tampering. What it cannot show
//! is that the log was cut back to an older state with an older checkpoint of its own: that takes a pin.
//!
//! **Verification** ([`mod@verify`]) reads the export once, line by line: form, numbers, links, roots, signature, pins, and
//! the meaning of the events ([`replay`]). [`story()`] tells what happened to one operation.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::model::fingerprint::Account;

pub mod merkle;
pub mod note;
pub mod record;
pub mod replay;
pub mod story;
pub mod verify;

#[cfg(test)]
mod sample;

pub use super::operation::State;
pub use merkle::Frontier;
pub use note::{Checkpoint, SigningKey, VerifierKey};
pub use record::{Actor, ActorKind, Entry, Event, Record, Sealed, seal};
pub use story::{Story, story};
pub use verify::{Verdict, Verifier, verify};

/// A SHA-256 digest; 64 lower-case hex digits as text.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// The `prev` of the first record.
    pub const ZERO: Self = Self([0; 32]);

    /// SHA-256 of the parts, one after the other.
    pub fn of(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        parts.iter().for_each(|part| hasher.update(part));
        Self(hasher.finalize().into())
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not 64 lower-case hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected 64 lower-case hex digits")]
pub struct InvalidHash;

impl FromStr for Hash {
    type Err = InvalidHash;

    fn from_str(text: &str) -> Result<Self, InvalidHash> {
        let digit = |c: u8| match c {
            b'0'..=b'9' => Ok(c - b'0'),
            b'a'..=b'f' => Ok(c - b'a' + 10),
            _ => Err(InvalidHash),
        };
        let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return Err(InvalidHash) };
        let mut bytes = [0; 32];
        if pairs.len() != bytes.len() {
            return Err(InvalidHash);
        }
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Ok(Self(bytes))
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// `key_ref` of a record: the first 16 hex digits of `SHA-256(account ‖ 0x00 ‖ key)`, never the key itself.
/// `account` is the one in whose name the key was used.
pub fn key_ref(account: &Account, key: &str) -> String {
    let mut hex = Hash::of(&[account.as_str().as_bytes(), &[0], key.as_bytes()]).to_string();
    hex.truncate(16);
    hex
}

/// `request_digest` and `response_digest` of a record: `sha256:` and the hex of `SHA-256(salt ‖ body)`.
/// The salt lies beside the body and is erased with it, so that a guess at an erased body cannot be confirmed; all
/// salts of a deployment have one length.
pub fn salted_digest(salt: &[u8], body: &[u8]) -> String {
    format!("sha256:{}", Hash::of(&[salt, body]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::AgentId;

    #[test]
    fn a_hash_has_one_spelling() {
        let hash = Hash::of(&[b"a", b"bc"]);
        assert_eq!(hash.to_string(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert_eq!(hash.to_string().to_uppercase().parse::<Hash>(), Err(InvalidHash));
        assert_eq!("ab".parse::<Hash>(), Err(InvalidHash));
        assert_eq!("".parse::<Hash>(), Err(InvalidHash));
    }

    #[test]
    fn a_key_reference_belongs_to_one_account() {
        // printf 'ag_00000000000000000000000001\0key' | sha256sum | cut -c1-16
        let account = |n| Account::Agent(AgentId::from_parts(0, n));
        assert_eq!(key_ref(&account(1), "key"), "834efab1141fb50a");
        assert_ne!(key_ref(&account(1), "key"), key_ref(&account(2), "key"));
    }

    #[test]
    fn a_salted_digest_does_not_tell_the_body() {
        // printf 'saltbody' | sha256sum
        assert_eq!(
            salted_digest(b"salt", b"body"),
            "sha256:9c94f8772f5f5ad1793fe4c2a9ee85723d15eb37f9603448130c0a95fda4ba04"
        );
        assert_ne!(salted_digest(b"other", b"body"), salted_digest(b"salt", b"body"));
    }
}
