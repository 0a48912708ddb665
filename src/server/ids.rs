//! Fresh identifiers and secrets.

use std::sync::{Mutex, PoisonError};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};

use crate::model::{audit::Hash, id::Id, time::Timestamp};

/// A fresh identifier, ordered by `now`; those that a process makes within one millisecond follow each other as well.
pub fn new<T: Id>(now: Timestamp) -> T {
    static LAST: Mutex<(u64, u128)> = Mutex::new((0, 0));
    let ms = now.as_millis().max(0) as u64;
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    // The step is random too: one identifier does not give away the next.
    let tail = match *last {
        (at, tail) if at == ms => tail + 1 + u128::from(u64::from_le_bytes(random())),
        _ => u128::from_le_bytes(random()) >> (128 - ROOM),
    };
    *last = (ms, tail);
    T::from_parts(ms, tail)
}

/// Bits of the tail that an identifier starts with, of 80: the rest is room for more within the millisecond.
const ROOM: u32 = 79;

pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

/// What a bearer token speaks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    Agent,
    Run,
    Executor,
}

impl TokenKind {
    const ALL: [Self; 3] = [Self::Agent, Self::Run, Self::Executor];

    fn prefix(self) -> &'static str {
        match self {
            Self::Agent => "cfa_",
            Self::Run => "cfr_",
            Self::Executor => "cfe_",
        }
    }

    /// What the token says it is; only its hash tells whether that is so.
    pub fn of(token: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| token.starts_with(kind.prefix()))
    }
}

/// A secret in the one moment it is known: shown once, kept as [`hash`] only. It cannot be printed by mistake.
pub struct Secret(String);

impl Secret {
    /// 256 random bits in base64url, 43 characters.
    pub fn new() -> Self {
        Self(URL_SAFE_NO_PAD.encode(random::<32>()))
    }

    pub fn token(kind: TokenKind) -> Self {
        Self(format!("{}{}", kind.prefix(), Self::new().0))
    }

    pub fn hash(&self) -> String {
        hash(&self.0)
    }

    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl Default for Secret {
    fn default() -> Self {
        Self::new()
    }
}

/// How a secret of full strength is kept: SHA-256, lower-case hex.
pub fn hash(secret: &str) -> String {
    Hash::of(&[secret.as_bytes()]).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_names_its_kind_and_is_never_the_same() {
        for kind in TokenKind::ALL {
            let (one, two) = (Secret::token(kind), Secret::token(kind));
            assert_eq!(TokenKind::of(one.reveal()), Some(kind));
            assert_eq!(one.reveal().len(), 4 + 43);
            assert_ne!(one.hash(), two.hash());
        }
        assert_eq!(TokenKind::of("cfx_"), None);
    }
}
