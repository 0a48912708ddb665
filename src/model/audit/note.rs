//! Signed checkpoints: C2SP `tlog-checkpoint` text in a C2SP `signed-note`, with Ed25519
//! (<https://c2sp.org/tlog-checkpoint>, <https://c2sp.org/signed-note>).
//!
//! ```text
//! counterfoil/desk.example.com
//! 1024
//! r5Yq5IhqVxq8aSMSxyOcH8RhHUEqHbeLnhJIiBHRxGs=
//!
//! — counterfoil/desk.example.com x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuG…
//! ```
//!
//! The key's name is the origin of the log, so that a key says which log it vouches for.

use std::fmt;

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use ed25519_dalek::{Signature, Signer};

use super::Hash;

/// The C2SP signature type of Ed25519.
const ED25519: u8 = 1;

/// How many records a log has, and their Merkle root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// The log's name, equal to its key's.
    pub origin: String,
    /// Number of records.
    pub size: u64,
    pub root: Hash,
}

/// The note text: three lines, each ended by a line feed.
impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n{}\n{}", self.origin, self.size, BASE64.encode(self.root.0))
    }
}

impl Checkpoint {
    fn parse(text: &str) -> Result<Self, InvalidNote> {
        let error = InvalidNote::Checkpoint;
        let [origin, size, root, ""] = text.split('\n').collect::<Vec<_>>()[..] else { return Err(error) };
        let root = BASE64.decode(root).ok().and_then(|bytes| bytes.try_into().ok()).ok_or(error.clone())?;
        let checkpoint =
            Self { origin: origin.to_owned(), size: size.parse().map_err(|_| error.clone())?, root: Hash(root) };
        // One spelling only: no sign, no leading zeros.
        if checkpoint.to_string() == text { Ok(checkpoint) } else { Err(error) }
    }
}

/// Why a note was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidNote {
    #[error("it is not a signed note")]
    Form,
    #[error("it is not signed by the key `{0}`")]
    OtherKey(String),
    #[error("its signature does not hold")]
    Signature,
    #[error("the text signed is not a checkpoint")]
    Checkpoint,
    #[error("it is a checkpoint of the log `{0}`")]
    OtherLog(String),
}

/// The text is not a key of the form it should have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected `{0}`")]
pub struct InvalidKey(&'static str);

const VERIFIER_FORM: InvalidKey = InvalidKey("NAME+HASH+BASE64");
const SIGNER_FORM: InvalidKey = InvalidKey("PRIVATE+KEY+NAME+HASH+BASE64");

/// The public half, by which anybody checks a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifierKey {
    name: String,
    hash: [u8; 4],
    key: ed25519_dalek::VerifyingKey,
}

/// `name+hash+base64`, the form it is handed out in.
impl fmt::Display for VerifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_key(f, self, self.key.as_bytes())
    }
}

impl VerifierKey {
    /// `name` is neither empty nor contains white space, control characters or `+`.
    fn new(name: &str, key: ed25519_dalek::VerifyingKey) -> Option<Self> {
        let invalid = |c: char| c == '+' || c.is_whitespace() || c.is_control();
        if name.is_empty() || name.contains(invalid) {
            return None;
        }
        let Hash([a, b, c, d, ..]) = Hash::of(&[name.as_bytes(), b"\n", &[ED25519], key.as_bytes()]);
        Some(Self { name: name.to_owned(), hash: [a, b, c, d], key })
    }

    /// Reads `name+hash+base64`.
    pub fn parse(text: &str) -> Result<Self, InvalidKey> {
        let (name, key) = parse_key(text).ok_or(VERIFIER_FORM)?;
        let key = ed25519_dalek::VerifyingKey::from_bytes(&key).map_err(|_| VERIFIER_FORM)?;
        let key = Self::new(name, key).ok_or(VERIFIER_FORM)?;
        if key.to_string() == text { Ok(key) } else { Err(VERIFIER_FORM) }
    }

    /// The log this key vouches for.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The checkpoint in a note, if this key signed it for its own log.
    pub fn open(&self, note: &str) -> Result<Checkpoint, InvalidNote> {
        let checkpoint = Checkpoint::parse(self.open_text(note)?)?;
        if checkpoint.origin == self.name { Ok(checkpoint) } else { Err(InvalidNote::OtherLog(checkpoint.origin)) }
    }

    /// The text of a note that this key signed. Signatures by other keys are skipped, as the format demands.
    fn open_text<'n>(&self, note: &'n str) -> Result<&'n str, InvalidNote> {
        if note.contains(|c: char| c.is_ascii_control() && c != '\n') {
            return Err(InvalidNote::Form);
        }
        let blank = note.rfind("\n\n").ok_or(InvalidNote::Form)?;
        let (text, signatures) = (&note[..=blank], &note[blank + 2..]);
        let signatures = signatures.strip_suffix('\n').ok_or(InvalidNote::Form)?;
        let mut signed = false;
        for line in signatures.split('\n') {
            let (name, hash, signature) = parse_signature(line).ok_or(InvalidNote::Form)?;
            if name == self.name && hash == self.hash {
                let signature = Signature::from_slice(&signature).map_err(|_| InvalidNote::Signature)?;
                self.key.verify_strict(text.as_bytes(), &signature).map_err(|_| InvalidNote::Signature)?;
                signed = true;
            }
        }
        if signed { Ok(text) } else { Err(InvalidNote::OtherKey(self.to_string())) }
    }
}

/// `— name base64(key hash ‖ signature)`.
fn parse_signature(line: &str) -> Option<(&str, [u8; 4], Vec<u8>)> {
    let (name, encoded) = line.strip_prefix("— ")?.split_once(' ')?;
    let bytes = BASE64.decode(encoded).ok()?;
    let (hash, signature) = bytes.split_first_chunk::<4>()?;
    (!name.is_empty()).then(|| (name, *hash, signature.to_vec()))
}

/// `name+hash+base64(type ‖ key)`; the caller checks that the hash is right by writing the key again.
fn parse_key(text: &str) -> Option<(&str, [u8; 32])> {
    let (name, rest) = text.split_once('+')?;
    let (_hash, encoded) = rest.split_once('+')?;
    match BASE64.decode(encoded).ok()?.split_first()? {
        (&ED25519, key) => Some((name, key.try_into().ok()?)),
        _ => None,
    }
}

fn write_key(f: &mut impl fmt::Write, verifier: &VerifierKey, key: &[u8; 32]) -> fmt::Result {
    let encoded = BASE64.encode([&[ED25519], key.as_slice()].concat());
    write!(f, "{}+{:08x}+{encoded}", verifier.name, u32::from_be_bytes(verifier.hash))
}

/// The private half. It has no `Debug` and no `Display`, so that it does not end up in a log.
pub struct SigningKey {
    key: ed25519_dalek::SigningKey,
    verifier: VerifierKey,
}

impl SigningKey {
    /// `name` is the log's origin, `counterfoil/<log id>`; `seed` comes from a random source fit for keys.
    pub fn from_seed(name: &str, seed: &[u8; 32]) -> Result<Self, InvalidKey> {
        let key = ed25519_dalek::SigningKey::from_bytes(seed);
        let verifier = VerifierKey::new(name, key.verifying_key()).ok_or(SIGNER_FORM)?;
        Ok(Self { key, verifier })
    }

    /// Reads the C2SP private key text; surrounding white space, as in a key file, is ignored.
    pub fn parse(text: &str) -> Result<Self, InvalidKey> {
        let text = text.trim_ascii();
        let (name, seed) = text.strip_prefix("PRIVATE+KEY+").and_then(parse_key).ok_or(SIGNER_FORM)?;
        let key = Self::from_seed(name, &seed)?;
        if key.to_private_text() == text { Ok(key) } else { Err(SIGNER_FORM) }
    }

    /// The C2SP private key text, for the key file alone.
    pub fn to_private_text(&self) -> String {
        let mut text = "PRIVATE+KEY+".to_owned();
        write_key(&mut text, &self.verifier, self.key.as_bytes()).expect("writing to a string does not fail");
        text
    }

    pub fn verifier(&self) -> &VerifierKey {
        &self.verifier
    }

    /// The signed checkpoint of this key's log with `size` records under `root`.
    pub fn sign(&self, size: u64, root: Hash) -> String {
        self.sign_text(&Checkpoint { origin: self.verifier.name.clone(), size, root }.to_string())
    }

    fn sign_text(&self, text: &str) -> String {
        let signature = self.key.sign(text.as_bytes()).to_bytes();
        let encoded = BASE64.encode([self.verifier.hash.as_slice(), &signature].concat());
        format!("{text}\n— {} {encoded}\n", self.verifier.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The example of golang.org/x/mod/sumdb/note, where the format comes from.
    const PRIVATE: &str = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz";
    const VERIFIER: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
    const TEXT: &str =
        "If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n";
    const SIGNATURE: &str =
        "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";
    const OTHER_SIGNATURE: &str =
        "— EnochRoot rwz+eBzmZa0SO3NbfRGzPCpDckykFXSdeX+MNtCOXm2/5n2tiOHp+vAF1aGrQ5ovTG01oOTGwnWLox33WWd1RvMc+QQ=\n";

    fn signer() -> SigningKey {
        SigningKey::from_seed("counterfoil/test", &[7; 32]).unwrap()
    }

    #[test]
    fn the_published_example_is_signed_and_verified_byte_for_byte() {
        let signer = SigningKey::parse(PRIVATE).unwrap();
        assert_eq!(signer.to_private_text(), PRIVATE);
        assert_eq!(signer.verifier().to_string(), VERIFIER);
        assert_eq!(signer.sign_text(TEXT), format!("{TEXT}\n{SIGNATURE}"));

        let verifier = VerifierKey::parse(VERIFIER).unwrap();
        for signatures in
            [SIGNATURE.to_owned(), format!("{OTHER_SIGNATURE}{SIGNATURE}"), format!("{SIGNATURE}{OTHER_SIGNATURE}")]
        {
            assert_eq!(verifier.open_text(&format!("{TEXT}\n{signatures}")), Ok(TEXT));
        }
        assert_eq!(
            verifier.open_text(&format!("{TEXT}\n{OTHER_SIGNATURE}")),
            Err(InvalidNote::OtherKey(VERIFIER.to_owned()))
        );
        assert_eq!(verifier.open(&format!("{TEXT}\n{SIGNATURE}")), Err(InvalidNote::Checkpoint));
    }

    #[test]
    fn a_checkpoint_survives_the_round_trip() {
        let signer = signer();
        let note = signer.sign(42, Hash::of(&[]));
        assert!(
            note.starts_with(
                "counterfoil/test\n42\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n— counterfoil/test "
            )
        );
        let verifier = VerifierKey::parse(&signer.verifier().to_string()).unwrap();
        let checkpoint = Checkpoint { origin: "counterfoil/test".into(), size: 42, root: Hash::of(&[]) };
        assert_eq!(verifier.open(&note), Ok(checkpoint));
    }

    #[test]
    fn no_byte_of_a_note_can_be_changed() {
        let note = signer().sign(42, Hash::of(&[]));
        for at in 0..note.len() {
            for flip in [1, 0x20] {
                let mut bytes = note.clone().into_bytes();
                bytes[at] ^= flip;
                if let Ok(changed) = String::from_utf8(bytes) {
                    assert!(signer().verifier().open(&changed).is_err(), "{changed}");
                }
            }
        }
    }

    #[test]
    fn the_form_of_a_note_is_strict() {
        let note = signer().sign(42, Hash::of(&[]));
        let (text, signature) = note.split_once("\n\n").unwrap();
        for broken in [
            String::new(),
            text.to_owned(),
            note.replace('\n', "\r\n"),
            note.trim_end().to_owned(),
            format!("{note}\n"),
            format!("{note}x\n"),
            format!("{note}\u{7f}"),
            format!("\n{note}"),
            format!("{text}\n\n\n{signature}"),
            format!("{text}\n{signature}"),
            note.replace("— ", "- "),
            note.replace("— ", "—  "),
        ] {
            assert!(signer().verifier().open(&broken).is_err(), "{broken:?}");
        }
    }

    #[test]
    fn a_checkpoint_has_one_spelling_even_when_signed() {
        let root = BASE64.encode([0; 32]);
        for text in [
            format!("counterfoil/test\n042\n{root}\n"),
            format!("counterfoil/test\n+42\n{root}\n"),
            format!("counterfoil/test\n42\n{root}\nextension\n"),
            format!("counterfoil/test\n42\n{}\n", BASE64.encode([0; 31])),
            format!("counterfoil/test\n42\n{}\n", root.trim_end_matches('=')),
            "counterfoil/test\n42\n".to_owned(),
        ] {
            assert_eq!(signer().verifier().open(&signer().sign_text(&text)), Err(InvalidNote::Checkpoint), "{text}");
        }
        let other = format!("counterfoil/other\n42\n{root}\n");
        assert_eq!(
            signer().verifier().open(&signer().sign_text(&other)),
            Err(InvalidNote::OtherLog("counterfoil/other".into()))
        );
    }

    #[test]
    fn a_key_whose_parts_do_not_fit_is_refused() {
        for broken in [
            "",
            "PeterNeumann",
            "PeterNeumann+c74f20a3",
            "PeterNeumann+c74f20a4+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
            "PeterNeumann+C74F20A3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
            "PeterNewmann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
            "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10T",
            "PeterNeumann+c74f20a3+AhpC2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW",
            PRIVATE,
        ] {
            assert!(VerifierKey::parse(broken).is_err(), "{broken}");
        }
        assert!(SigningKey::parse(VERIFIER).is_err());
        assert!(SigningKey::parse(&format!("{PRIVATE}\n")).is_ok());
        for name in ["", "a b", "a+b", "a\nb", "a\u{2003}b"] {
            assert!(SigningKey::from_seed(name, &[7; 32]).is_err(), "{name:?}");
        }
    }
}
