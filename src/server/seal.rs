//! Secrets at rest: sealed with a key that is not in the database (XChaCha20-Poly1305, draft-irtf-cfrg-xchacha).

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use chacha20poly1305::{
    Key, XChaCha20Poly1305, XNonce,
    aead::{Aead, KeyInit, Payload},
};

use super::{config::Secret, ids};
use crate::model::audit::Hash;

const KEY: usize = 32;
const NONCE: usize = 24;

/// The keys of one file: the first seals, all of them open.
pub struct Sealer {
    keys: Vec<(String, XChaCha20Poly1305)>,
    file: PathBuf,
}

/// What is sealed cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    #[error("the key file `{0}` cannot be used: {1}")]
    File(PathBuf, String),
    #[error("a credential is sealed under key `{id}`, which is not in `{file}`")]
    UnknownKey { id: String, file: PathBuf },
    #[error("a sealed credential was changed, or belongs to somebody else")]
    Broken,
}

impl Sealer {
    /// Reads the keys, one in base64 per line; a file that is not there is made, readable by its owner alone.
    ///
    /// # Errors
    /// The file is not to be had, or holds no key.
    pub fn open(file: &Path) -> Result<Self, SealError> {
        let bad = |words: String| SealError::File(file.to_owned(), words);
        let text = match fs::read_to_string(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make(file).map_err(|error| bad(error.to_string()))?
            }
            Err(error) => return Err(bad(error.to_string())),
        };
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
        let read = |line: &str| {
            let bytes = STANDARD_NO_PAD.decode(line.trim_end_matches('=')).ok()?;
            let id = Hash::of(&[b"seal", &bytes]).to_string()[..8].to_owned();
            (bytes.len() == KEY).then(|| (id, XChaCha20Poly1305::new(Key::from_slice(&bytes))))
        };
        let keys = lines.map(read).collect::<Option<Vec<_>>>().filter(|keys| !keys.is_empty());
        let keys = keys.ok_or_else(|| bad("expected one key of 32 bytes in base64 per line".to_owned()))?;
        Ok(Self { keys, file: file.to_owned() })
    }

    /// Seals `secret` for `owner`: it opens for nobody else.
    ///
    /// # Errors
    /// None that the cipher gives for a secret of ordinary size.
    pub fn seal(&self, owner: &str, secret: &Secret) -> Result<String, SealError> {
        let (id, cipher) = &self.keys[0];
        let nonce = ids::random::<NONCE>();
        let payload = Payload { msg: secret.0.as_bytes(), aad: owner.as_bytes() };
        let sealed = cipher.encrypt(XNonce::from_slice(&nonce), payload).map_err(|_| SealError::Broken)?;
        Ok(format!("v1.{id}.{}", STANDARD_NO_PAD.encode([&nonce[..], &sealed].concat())))
    }

    /// # Errors
    /// It was sealed under a key that is not here, for somebody else, or was changed.
    pub fn unseal(&self, owner: &str, sealed: &str) -> Result<Secret, SealError> {
        let mut parts = sealed.split('.');
        let (Some("v1"), Some(id), Some(body), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
            return Err(SealError::Broken);
        };
        let key = self.keys.iter().find(|(known, _)| known == id);
        let (_, cipher) = key.ok_or_else(|| SealError::UnknownKey { id: id.to_owned(), file: self.file.clone() })?;
        let bytes = STANDARD_NO_PAD.decode(body).map_err(|_| SealError::Broken)?;
        let (nonce, body) = bytes.split_at_checked(NONCE).ok_or(SealError::Broken)?;
        let payload = Payload { msg: body, aad: owner.as_bytes() };
        let secret = cipher.decrypt(XNonce::from_slice(nonce), payload).map_err(|_| SealError::Broken)?;
        String::from_utf8(secret).map(Secret).map_err(|_| SealError::Broken)
    }

    /// Whether `sealed` is under the key that seals now.
    pub fn is_current(&self, sealed: &str) -> bool {
        sealed.split('.').nth(1) == Some(&self.keys[0].0)
    }
}

fn make(file: &Path) -> io::Result<String> {
    let text = format!("{}\n", STANDARD_NO_PAD.encode(ids::random::<KEY>()));
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut opened = match options.open(file) {
        // Another process was faster; its key is as good.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return fs::read_to_string(file),
        opened => opened?,
    };
    opened.write_all(text.as_bytes())?;
    opened.sync_all()?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Secret {
        Secret("hunter2".to_owned())
    }

    #[test]
    fn a_secret_opens_for_its_owner_alone() {
        let folder = tempfile::tempdir().unwrap();
        let sealer = Sealer::open(&folder.path().join("seal.key")).unwrap();
        let sealed = sealer.seal("payments", &secret()).unwrap();
        assert!(!sealed.contains("hunter2"));
        assert_ne!(sealed, sealer.seal("payments", &secret()).unwrap());
        assert!(sealer.unseal("payments", &sealed).unwrap() == secret());
        assert!(matches!(sealer.unseal("mail", &sealed), Err(SealError::Broken)));
        let mut changed = sealed.clone();
        let last = if changed.pop() == Some('A') { 'B' } else { 'A' };
        changed.push(last);
        assert!(sealer.unseal("payments", &changed).is_err());
        for text in ["", "v1", "v1.00000000.AA", "v2.a.b", "v1.a.b.c"] {
            assert!(sealer.unseal("payments", text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_new_first_line_seals_and_the_old_one_still_opens() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("seal.key");
        let sealed = Sealer::open(&file).unwrap().seal("payments", &secret()).unwrap();
        let old = fs::read_to_string(&file).unwrap();
        let fresh = STANDARD_NO_PAD.encode([7u8; KEY]);
        fs::write(&file, format!("{fresh}\n{old}")).unwrap();
        let rotated = Sealer::open(&file).unwrap();
        assert!(!rotated.is_current(&sealed));
        assert!(rotated.unseal("payments", &sealed).unwrap() == secret());
        let resealed = rotated.seal("payments", &secret()).unwrap();
        assert!(rotated.is_current(&resealed));
        fs::write(&file, old).unwrap();
        assert!(matches!(
            Sealer::open(&file).unwrap().unseal("payments", &resealed),
            Err(SealError::UnknownKey { .. })
        ));
        fs::write(&file, "not a key").unwrap();
        assert!(matches!(Sealer::open(&file), Err(SealError::File(..))));
    }
}
