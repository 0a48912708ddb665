//! Verifies an export: whether it is the log that was signed, and where it is not.
//!
//! What a verdict rests on, in this order: each line is a record in canonical form; numbers and links follow each
//! other; the root signed by the closing checkpoint is the root of all records; so is each pinned root; and every
//! record is a step that the life of its operation allows. A record is judged only when its successor (or, for the
//! last one, the signature) has confirmed its bytes, so that an edit is reported as an edit, at its place.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{
    Frontier, Hash,
    note::{Checkpoint, InvalidKey, InvalidNote, VerifierKey},
    record::{InvalidRecord, Record, Sealed},
    replay::{Breach, Replay},
};

/// No line of an export is longer, in bytes.
const MAX_LINE: usize = 256 * 1024;

/// The last line of an export.
#[derive(Serialize, Deserialize)]
struct Closing {
    checkpoint: String,
}

/// The line that closes an export, without its line feed; `note` is the signed checkpoint of all records above it.
pub fn closing_line(note: &str) -> String {
    let closing = Closing { checkpoint: note.to_owned() };
    serde_json_canonicalizer::to_string(&closing).expect("a string always has a canonical form")
}

/// What became of a verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The export is the log that was signed.
    Verified(Verified),
    Tampered(Tampered),
    /// Nothing is known about the export.
    CannotCheck(Obstacle),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The checkpoint that closes the export; its size is the number of records.
    pub checkpoint: Checkpoint,
    /// The size of the largest pin; without one nothing outside the export vouches for its end.
    pub anchored_to: Option<u64>,
}

/// The first place where the export is not the log that was signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tampered {
    /// The record that is bad or missing; absent if it is the closing checkpoint itself.
    pub seq: Option<u64>,
    pub reason: Reason,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Reason {
    #[error("{0}")]
    NotARecord(#[from] InvalidRecord),
    #[error("the line is longer than any record")]
    LongLine,
    #[error("the line is cut off")]
    CutLine,
    #[error("a gap: the next record is number {found}")]
    Gap { found: u64 },
    #[error("a duplicate: the number comes a second time")]
    Duplicate,
    #[error("a fork: it does not link to the record before it")]
    Fork,
    #[error("its content was changed")]
    Changed,
    #[error("the export ends without a checkpoint")]
    NoCheckpoint,
    #[error("the export goes on after its checkpoint")]
    AfterCheckpoint,
    #[error("the checkpoint is not acceptable: {0}")]
    Checkpoint(#[from] InvalidNote),
    #[error("cut off: the checkpoint signs {signed} records")]
    Truncated { signed: u64 },
    #[error("it was added: the checkpoint signs only the {signed} records before it")]
    Unsigned { signed: u64 },
    #[error("the signed root does not hold: this record was changed, or records from {since} on were rewritten")]
    Root { since: u64 },
    #[error("the pinned root does not hold: this record was changed, or records from {since} on were rewritten")]
    Pin { since: u64 },
    #[error("cut off: the pin counts {pinned} records")]
    PinBeyond { pinned: u64 },
    #[error("against the rules: {0}")]
    Meaning(#[from] Breach),
}

/// Why nothing could be checked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    #[error("the verifier key is malformed: {0}")]
    Key(#[from] InvalidKey),
    /// `number` counts from 1.
    #[error("pin {number} is not acceptable: {why}")]
    Pin { number: usize, why: InvalidNote },
    /// For the caller, who reads the files.
    #[error("{0}")]
    Unreadable(String),
}

impl Verdict {
    /// 0 verified, 1 tampered, 2 could not check.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Verified(_) => 0,
            Self::Tampered(_) => 1,
            Self::CannotCheck(_) => 2,
        }
    }

    /// What to know besides the verdict: lines that begin with `warning:` or `hint:`.
    pub fn notes(&self) -> Vec<String> {
        let Self::Verified(Verified { checkpoint, anchored_to }) = self else { return Vec::new() };
        let rest = match anchored_to {
            Some(pinned) if *pinned == checkpoint.size => return Vec::new(),
            Some(pinned) => {
                format!("warning: the tail is not anchored from record {pinned} on; records may be missing at the end")
            }
            None => "warning: the tail is not anchored; records may be missing at the end".to_owned(),
        };
        vec![
            rest,
            "hint: keep a checkpoint away from the server (`counterfoil audit checkpoint --out FILE`) and pin it"
                .to_owned(),
        ]
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Verified(Verified { checkpoint, anchored_to }) => {
                let Checkpoint { origin, size, root } = checkpoint;
                writeln!(f, "verified: {size} records of `{origin}`, root {root}")?;
                write!(f, "anchored: {} records by pins", anchored_to.unwrap_or(0))
            }
            Self::Tampered(Tampered { seq, reason }) => {
                f.write_str("tampered: ")?;
                if let Some(seq) = seq {
                    write!(f, "record {seq}: ")?;
                }
                // It may quote the export; a forger's control characters stay out of the terminal.
                write!(f, "{}", reason.to_string().escape_debug())
            }
            Self::CannotCheck(obstacle) => write!(f, "could not check: {obstacle}"),
        }
    }
}

/// Verifies a whole export. `vkey` is the text of the verifier key, `pins` are signed notes.
pub fn verify(export: &[u8], vkey: &str, pins: &[impl AsRef<str>]) -> Verdict {
    match Verifier::new(vkey, pins) {
        Ok(mut verifier) => {
            verifier.push(export);
            verifier.finish()
        }
        Err(obstacle) => Verdict::CannotCheck(obstacle),
    }
}

/// Verifies an export piece by piece, in memory that does not grow with its records, only with its operations.
pub struct Verifier {
    key: VerifierKey,
    pins: Vec<Checkpoint>,
    /// The line that is still arriving.
    line: Vec<u8>,
    /// Over all records up to `last`.
    tree: Frontier,
    /// The newest record, rightly linked but not yet confirmed by a successor.
    last: Option<Sealed>,
    /// A record that does not link to `last`. Which of the two was changed, the next line tells.
    suspect: Option<Sealed>,
    closing: Option<Checkpoint>,
    /// The size of the last tree whose root a pin confirmed.
    confirmed: u64,
    replay: Replay,
    found: Option<Tampered>,
}

impl Verifier {
    /// `vkey` is the text of the verifier key; `pins` are signed notes.
    pub fn new(vkey: &str, pins: &[impl AsRef<str>]) -> Result<Self, Obstacle> {
        let key = VerifierKey::parse(vkey.trim_ascii())?;
        let open =
            |(at, pin): (usize, &_)| key.open(AsRef::as_ref(pin)).map_err(|why| Obstacle::Pin { number: at + 1, why });
        let pins = pins.iter().enumerate().map(open).collect::<Result<_, _>>()?;
        Ok(Self {
            key,
            pins,
            line: Vec::new(),
            tree: Frontier::default(),
            last: None,
            suspect: None,
            closing: None,
            confirmed: 0,
            replay: Replay::default(),
            found: None,
        })
    }

    /// Takes the next bytes of the export, cut anywhere.
    pub fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            if self.found.is_some() {
                return;
            }
            self.line.extend_from_slice(piece);
            if self.line.len() > MAX_LINE {
                self.found = Some(self.next(Reason::LongLine));
            } else if self.line.pop_if(|byte| *byte == b'\n').is_some() {
                let line = std::mem::take(&mut self.line);
                self.found = self.take(&line).err();
            }
        }
    }

    /// Number of records read so far.
    pub fn records(&self) -> u64 {
        self.tree.size()
    }

    /// The verdict, once all of the export was pushed.
    pub fn finish(mut self) -> Verdict {
        if let Some(found) = self.found.take() {
            return Verdict::Tampered(found);
        }
        match self.close() {
            Ok(checkpoint) => {
                let anchored_to = self.pins.iter().map(|pin| pin.size).max();
                Verdict::Verified(Verified { checkpoint, anchored_to })
            }
            Err(tampered) => Verdict::Tampered(tampered),
        }
    }

    fn take(&mut self, line: &[u8]) -> Result<(), Tampered> {
        match self.read(line) {
            Ok(Line::Record(next)) => match self.blame(Some(next.record.prev)) {
                None => self.link(*next),
                Some(tampered) => Err(tampered),
            },
            Ok(Line::Closing(checkpoint)) => {
                self.closing = Some(checkpoint);
                Ok(())
            }
            Err(tampered) => Err(self.blame(None).unwrap_or(tampered)),
        }
    }

    fn read(&self, line: &[u8]) -> Result<Line, Tampered> {
        if self.closing.is_some() {
            return Err(self.next(Reason::AfterCheckpoint));
        }
        match closing_note(line) {
            Some(note) => match self.key.open(&note) {
                Ok(checkpoint) => Ok(Line::Closing(checkpoint)),
                Err(why) => Err(Tampered { seq: None, reason: why.into() }),
            },
            None => match Record::parse(line) {
                Ok(sealed) => Ok(Line::Record(Box::new(sealed))),
                Err(why) => Err(self.next(why.into())),
            },
        }
    }

    /// Puts the record at the end of the chain.
    fn link(&mut self, next: Sealed) -> Result<(), Tampered> {
        let expected = self.tree.size();
        let Record { seq, prev, .. } = next.record;
        let linked = prev == self.head();
        if linked && seq == expected {
            self.confirm()?;
            self.tree.push(next.leaf);
            self.last = Some(next);
            return Ok(());
        }
        // Two records after the same one: writers that did not see each other.
        let twin = self.last.as_ref().is_some_and(|last| last.record.prev == prev && last.hash != next.hash);
        Err(if linked {
            self.next(Reason::Changed)
        } else if seq > expected {
            self.next(Reason::Gap { found: seq })
        } else if twin {
            Tampered { seq: Some(seq), reason: Reason::Fork }
        } else if seq < expected {
            Tampered { seq: Some(seq), reason: Reason::Duplicate }
        } else if expected == 0 {
            self.next(Reason::Fork)
        } else {
            self.suspect = Some(next);
            return Ok(());
        })
    }

    /// Decides who is to blame for a broken link: the record before it or the suspect after it. `successor` is the
    /// `prev` of the record that follows; at the end of the log a signed root speaks in its place.
    ///
    /// A changed record breaks the link that leads to it, so a suspect whose successor knows it was not changed. A
    /// changed `prev` is told from other changes by putting the right one back.
    fn blame(&mut self, successor: Option<Hash>) -> Option<Tampered> {
        let suspect = self.suspect.take()?;
        let seq = suspect.record.seq;
        let repaired = Record { prev: self.head(), ..suspect.record }.seal();
        let mut tree = self.tree.clone();
        tree.push(repaired.leaf);
        let was_signed = |signed: &Checkpoint| signed.size == tree.size() && signed.root == tree.root();
        let (seq, reason) = match successor {
            Some(prev) if prev == suspect.hash => (seq - 1, Reason::Changed),
            Some(prev) if prev == repaired.hash => (seq, Reason::Fork),
            Some(_) => (seq, Reason::Changed),
            None if self.pins.iter().chain(&self.closing).any(was_signed) => (seq, Reason::Fork),
            None => (seq - 1, Reason::Changed),
        };
        Some(Tampered { seq: Some(seq), reason })
    }

    /// The newest record is what was written: compares pins of this size, and asks what the record means.
    fn confirm(&mut self) -> Result<(), Tampered> {
        let size = self.tree.size();
        if let Some(pin) = self.pins.iter().find(|pin| pin.size == size) {
            // Two pins of one size that differ cannot both hold.
            let holds = |pin: &Checkpoint| pin.size != size || pin.root == self.tree.root();
            if !self.pins.iter().all(holds) {
                return Err(self.newest(Reason::Pin { since: self.confirmed }));
            }
            self.confirmed = pin.size;
        }
        match &self.last {
            Some(last) => self.replay.apply(&last.record).map_err(|breach| self.newest(breach.into())),
            None => Ok(()),
        }
    }

    fn close(&mut self) -> Result<Checkpoint, Tampered> {
        if let Some(tampered) = self.blame(None) {
            return Err(tampered);
        }
        if !self.line.is_empty() {
            return Err(self.next(Reason::CutLine));
        }
        let size = self.tree.size();
        if let Some(pinned) = self.pins.iter().map(|pin| pin.size).max().filter(|pinned| *pinned > size) {
            return Err(self.next(Reason::PinBeyond { pinned }));
        }
        let Some(checkpoint) = self.closing.take() else { return Err(self.next(Reason::NoCheckpoint)) };
        let signed = checkpoint.size;
        if signed > size {
            return Err(self.next(Reason::Truncated { signed }));
        }
        if signed < size {
            return Err(Tampered { seq: Some(signed), reason: Reason::Unsigned { signed } });
        }
        if checkpoint.root != self.tree.root() {
            return Err(self.newest(Reason::Root { since: self.confirmed }));
        }
        self.confirm()?;
        Ok(checkpoint)
    }

    /// Link hash of the newest record.
    fn head(&self) -> Hash {
        self.last.as_ref().map_or(Hash::ZERO, |last| last.hash)
    }

    /// The newest record is bad.
    fn newest(&self, reason: Reason) -> Tampered {
        Tampered { seq: Some(self.tree.size().saturating_sub(1)), reason }
    }

    /// What should be the next record is bad or missing.
    fn next(&self, reason: Reason) -> Tampered {
        Tampered { seq: Some(self.tree.size()), reason }
    }
}

enum Line {
    Record(Box<Sealed>),
    Closing(Checkpoint),
}

/// The note in a closing line in canonical form.
fn closing_note(line: &[u8]) -> Option<String> {
    if !line.starts_with(b"{\"checkpoint\":") {
        return None;
    }
    let Closing { checkpoint } = serde_json::from_slice(line).ok()?;
    (closing_line(&checkpoint).as_bytes() == line).then_some(checkpoint)
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, sample::Index};

    use super::*;
    use crate::model::{
        audit::{
            Actor, Entry, Event, SigningKey, State,
            record::seal,
            sample::{self, LIVES, Life, Log, export, life, vkey},
        },
        time::Timestamp,
    };

    const NO_PINS: &[&str] = &[];

    fn every_life() -> Log {
        Log::of((0..LIVES).flat_map(|which| life(which, which as u128)))
    }

    fn check(lines: &[String], pins: &[impl AsRef<str>]) -> Verdict {
        verify(&export(lines), &vkey(), pins)
    }

    #[track_caller]
    fn tampered(lines: &[String], pins: &[impl AsRef<str>]) -> Tampered {
        match check(lines, pins) {
            Verdict::Tampered(tampered) => tampered,
            other => panic!("{other}"),
        }
    }

    fn at(seq: u64, reason: Reason) -> Tampered {
        Tampered { seq: Some(seq), reason }
    }

    #[test]
    fn an_honest_log_of_every_life_verifies() {
        let log = every_life();
        let verdict = check(&log.lines(), &[log.pin(log.size())]);
        let Verdict::Verified(verified) = &verdict else { panic!("{verdict}") };
        assert_eq!(verified.checkpoint.size, log.size());
        assert_eq!(verified.anchored_to, Some(log.size()));
        assert_eq!((verdict.exit_code(), verdict.notes().len()), (0, 0));
    }

    #[test]
    fn an_empty_log_verifies_and_an_emptied_one_does_not() {
        let log = Log::of([]);
        assert_eq!(check(&log.lines(), NO_PINS).exit_code(), 0);
        assert_eq!(tampered(&[], NO_PINS), at(0, Reason::NoCheckpoint));
        let full = every_life();
        assert_eq!(tampered(&[], &[full.pin(3)]), at(0, Reason::PinBeyond { pinned: 3 }));
        assert_eq!(tampered(&log.lines(), &[full.pin(3)]), at(0, Reason::PinBeyond { pinned: 3 }));
    }

    #[test]
    fn without_a_pin_it_says_that_the_tail_is_not_anchored() {
        let log = every_life();
        let verdict = check(&log.lines(), NO_PINS);
        assert_eq!(verdict.exit_code(), 0);
        assert!(verdict.notes()[0].starts_with("warning: the tail is not anchored;"), "{:?}", verdict.notes());
        let verdict = check(&log.lines(), &[log.pin(5)]);
        assert!(verdict.notes()[0].starts_with("warning: the tail is not anchored from record 5 on;"));
    }

    #[test]
    fn a_fork_a_gap_a_duplicate_and_changed_content_are_told_apart() {
        let log = every_life();
        let lines = log.lines();
        let pin = &[log.pin(log.size())];

        let mut gap = lines.clone();
        gap.remove(7);
        assert_eq!(tampered(&gap, pin), at(7, Reason::Gap { found: 8 }));

        let mut twice = lines.clone();
        twice.insert(8, lines[7].clone());
        assert_eq!(tampered(&twice, pin), at(7, Reason::Duplicate));

        let mut moved = lines.clone();
        moved.swap(7, 8);
        assert_eq!(tampered(&moved, pin), at(7, Reason::Gap { found: 8 }));

        let mut changed = lines.clone();
        changed[7] = lines[7].replace("\"at\":1796083260002", "\"at\":1796083260003");
        assert_ne!(changed, lines);
        assert_eq!(tampered(&changed, pin), at(7, Reason::Changed));

        // Two writers linked to the same last record, and both went on from there.
        for number in [7, 8] {
            let Sealed { record, .. } = &log.records[7];
            let fork = Record { seq: number, at: Timestamp(record.at.0 + 1), ..record.clone() }.seal();
            let after = seal(&log.records[9].record.entry, number + 1, &fork.hash, fork.record.at);
            let mut forked = lines.clone();
            forked.splice(8..10, [fork.json, after.json]);
            assert_eq!(tampered(&forked, pin), at(number, Reason::Fork));
        }

        // A record replaced as a whole, with its own link, and the one after it as it was.
        let mut replaced = lines.clone();
        let Sealed { record, .. } = &log.records[8];
        let other = Entry { reason: Some("other".into()), ..record.entry.clone() };
        replaced[8] = seal(&other, 8, &log.records[3].hash, record.at).json;
        assert_eq!(tampered(&replaced, pin), at(8, Reason::Changed));
    }

    #[test]
    fn a_changed_link_is_found_in_the_record_that_has_it_even_in_the_last() {
        let log = every_life();
        for seq in 0..log.records.len() {
            let mut lines = log.lines();
            let prev = log.records[seq].record.prev.to_string();
            let digit = if prev.starts_with('0') { "1" } else { "0" };
            lines[seq] = lines[seq].replace(&prev, &format!("{digit}{}", &prev[1..]));
            assert_eq!(tampered(&lines, NO_PINS), at(seq as u64, Reason::Fork));
        }
    }

    #[test]
    fn a_chain_rewritten_with_all_its_links_breaks_at_the_signed_roots() {
        let log = every_life();
        let n = log.size();
        let entry = |(i, sealed): (usize, &Sealed)| {
            let reason = if i == 7 { Some("rewritten".to_owned()) } else { sealed.record.entry.reason.clone() };
            Entry { reason, ..sealed.record.entry.clone() }
        };
        let rewritten = Log::of(log.records.iter().enumerate().map(entry));
        let mut lines = rewritten.lines();
        lines.pop();
        lines.push(closing_line(&log.pin(n)));
        assert_eq!(tampered(&lines, NO_PINS), at(n - 1, Reason::Root { since: 0 }));
        assert_eq!(tampered(&lines, &[log.pin(5)]), at(n - 1, Reason::Root { since: 5 }));
        assert_eq!(tampered(&lines, &[log.pin(12), log.pin(5)]), at(11, Reason::Pin { since: 5 }));
        // The server itself signs another history: the pin remembers.
        assert_eq!(tampered(&rewritten.lines(), &[log.pin(12)]), at(11, Reason::Pin { since: 0 }));
        assert_eq!(tampered(&rewritten.lines(), &[rewritten.pin(12), log.pin(12)]), at(11, Reason::Pin { since: 0 }));
    }

    #[test]
    fn a_log_cut_back_to_an_older_checkpoint_needs_a_pin_to_be_found() {
        let log = every_life();
        let mut lines = log.lines()[..20].to_vec();
        lines.push(closing_line(&log.pin(20)));
        assert_eq!(check(&lines, NO_PINS).exit_code(), 0);
        assert_eq!(tampered(&lines, &[log.pin(21)]), at(20, Reason::PinBeyond { pinned: 21 }));
    }

    #[test]
    fn the_closing_checkpoint_covers_every_record_and_nothing_more() {
        let log = every_life();
        let n = log.size();
        let lines = log.lines();
        let close = |note: &str| [&lines[..n as usize], &[closing_line(note)]].concat();

        assert_eq!(tampered(&lines[..n as usize], NO_PINS), at(n, Reason::NoCheckpoint));
        assert_eq!(tampered(&close(&log.pin(9)), NO_PINS), at(9, Reason::Unsigned { signed: 9 }));
        let beyond = sample::key().sign(n + 1, Hash::ZERO);
        assert_eq!(tampered(&close(&beyond), NO_PINS), at(n, Reason::Truncated { signed: n + 1 }));
        let wrong = sample::key().sign(n, Hash::ZERO);
        assert_eq!(tampered(&close(&wrong), NO_PINS), at(n - 1, Reason::Root { since: 0 }));
        let twice = [lines.clone(), vec![lines[n as usize].clone()]].concat();
        assert_eq!(tampered(&twice, NO_PINS), at(n, Reason::AfterCheckpoint));

        let stranger = SigningKey::from_seed("counterfoil/sample", &[8; 32]).unwrap();
        let forged = close(&stranger.sign(n, Hash::ZERO));
        assert_eq!(
            tampered(&forged, NO_PINS),
            Tampered { seq: None, reason: Reason::Checkpoint(InvalidNote::OtherKey(vkey())) }
        );

        let mut cut = export(&lines);
        cut.pop();
        assert_eq!(verify(&cut, &vkey(), NO_PINS), Verdict::Tampered(at(n, Reason::CutLine)));
    }

    #[test]
    fn what_the_verifier_was_given_wrongly_is_not_called_tampering() {
        let log = every_life();
        let export = export(&log.lines());
        let verdict = verify(&export, "nonsense", NO_PINS);
        assert_eq!(verdict.exit_code(), 2);
        assert_eq!(verdict.to_string(), "could not check: the verifier key is malformed: expected `NAME+HASH+BASE64`");
        let verdict = verify(&export, &vkey(), &[log.pin(3), "nonsense".into()]);
        assert_eq!(verdict.to_string(), "could not check: pin 2 is not acceptable: it is not a signed note");
        assert_eq!(verdict.exit_code(), 2);
    }

    #[test]
    fn a_well_signed_log_of_forbidden_acts_is_refused_at_the_act() {
        let life = Life::new(1).step(Event::EffectSent, Actor::system("clock"), State::Sent);
        let log = Log::of(life.entries);
        let verdict = check(&log.lines(), &[log.pin(log.size())]);
        assert_eq!(verdict.exit_code(), 1);
        assert_eq!(
            verdict.to_string(),
            "tampered: record 1: against the rules: `effect.sent` cannot happen to an operation that is pending"
        );
    }

    #[test]
    fn a_forger_cannot_write_to_the_auditors_terminal() {
        let mut lines = every_life().lines();
        lines[0] = lines[0].replace("operation.proposed", "\\u001b[2Jverified");
        let text = check(&lines, NO_PINS).to_string();
        assert!(text.starts_with("tampered: record 0") && !text.contains('\u{1b}'), "{text}");
    }

    #[test]
    fn a_line_without_end_is_given_up() {
        let mut verifier = Verifier::new(&vkey(), NO_PINS).unwrap();
        for _ in 0..100 {
            verifier.push(&[b' '; 8192]);
        }
        assert!(verifier.line.len() <= MAX_LINE + 8192);
        assert_eq!(verifier.finish(), Verdict::Tampered(at(0, Reason::LongLine)));
    }

    fn logs() -> impl Strategy<Value = Log> {
        let lives = prop::collection::vec(0..LIVES, 1..6);
        (lives, prop::collection::vec(0..6usize, 1..20)).prop_map(|(lives, turns)| {
            let lives = lives.into_iter().enumerate().map(|(n, which)| life(which, n as u128)).collect();
            Log::of(sample::interleave(lives, &turns))
        })
    }

    proptest! {
        #[test]
        fn honest_logs_verify_in_pieces_of_any_size_with_any_pin(log in logs(), pin in any::<Index>(), piece in 1..300usize) {
            let mut verifier = Verifier::new(&vkey(), std::slice::from_ref(pin.get(&[log.pin(log.size())]))).unwrap();
            export(&log.lines()).chunks(piece).for_each(|piece| verifier.push(piece));
            let verdict = verifier.finish();
            prop_assert_eq!(verdict.exit_code(), 0, "{}", verdict);
        }

        #[test]
        fn a_changed_byte_is_found_in_its_record(log in logs(), place in any::<Index>(), byte in any::<u8>()) {
            let mut export = export(&log.lines());
            let place = place.index(export.len());
            prop_assume!(export[place] != byte);
            let line = export[..place].iter().filter(|&&byte| byte == b'\n').count();
            export[place] = byte;
            match verify(&export, &vkey(), NO_PINS) {
                Verdict::Tampered(Tampered { seq: None, .. }) => prop_assert_eq!(line, log.records.len()),
                Verdict::Tampered(Tampered { seq, .. }) => prop_assert_eq!(seq, Some(line as u64)),
                other => prop_assert!(false, "{}", other),
            }
        }

        #[test]
        fn a_line_dropped_doubled_or_moved_is_found(log in logs(), from in any::<Index>(), to in any::<Index>()) {
            let lines = log.lines();
            let (from, to) = (from.index(lines.len()), to.index(lines.len()));
            let pin = &[log.pin(log.size())];

            let mut dropped = lines.clone();
            let line = dropped.remove(from);
            prop_assert_eq!(tampered(&dropped, pin).seq, Some(from as u64));

            let mut doubled = lines.clone();
            doubled.insert(to, line.clone());
            prop_assert_eq!(check(&doubled, pin).exit_code(), 1);

            prop_assume!(from != to);
            dropped.insert(to, line);
            prop_assert_eq!(check(&dropped, pin).exit_code(), 1);
        }

        #[test]
        fn a_cut_anywhere_is_found(log in logs(), length in any::<Index>()) {
            let export = export(&log.lines());
            let cut = &export[..length.index(export.len())];
            prop_assert_eq!(verify(cut, &vkey(), NO_PINS).exit_code(), 1);
            prop_assert_eq!(verify(cut, &vkey(), &[log.pin(log.size())]).exit_code(), 1);
        }
    }
}
