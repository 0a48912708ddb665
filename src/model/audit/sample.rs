//! Honest logs for the tests: operations that live every kind of life, interleaved.

use super::{
    Actor, Entry, Event, Frontier, Hash, SigningKey, State,
    record::{Sealed, seal},
    verify::closing_line,
};
use crate::model::{
    fingerprint::{Account, Fingerprint},
    id::{AgentId, ApprovalId, ClaimId, OperationId, PersonId, RunId},
    time::Timestamp,
};

pub fn key() -> SigningKey {
    SigningKey::from_seed("counterfoil/sample", &[9; 32]).unwrap()
}

pub fn vkey() -> String {
    key().verifier().to_string()
}

/// A log as it grows.
#[derive(Debug, Default)]
pub struct Log {
    pub records: Vec<Sealed>,
    tree: Frontier,
    /// The root at every size.
    roots: Vec<Hash>,
}

impl Log {
    pub fn of(entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut log = Self { roots: vec![Hash::of(&[])], ..Self::default() };
        entries.into_iter().for_each(|entry| log.append(&entry));
        log
    }

    fn append(&mut self, entry: &Entry) {
        let prev = self.records.last().map_or(Hash::ZERO, |last| last.hash);
        let seq = self.tree.size();
        // Many records of one time, as under load.
        let sealed = seal(entry, seq, &prev, Timestamp(1_796_083_260_000 + seq as i64 / 3));
        self.tree.push(sealed.leaf);
        self.records.push(sealed);
        self.roots.push(self.tree.root());
    }

    /// Number of records.
    pub fn size(&self) -> u64 {
        self.tree.size()
    }

    /// The checkpoint signed when the log had that many records.
    pub fn pin(&self, size: u64) -> String {
        key().sign(size, self.roots[size as usize])
    }

    /// The lines of the export, closing line included, without line feeds.
    pub fn lines(&self) -> Vec<String> {
        let closing = closing_line(&self.pin(self.size()));
        self.records.iter().map(|sealed| sealed.json.clone()).chain([closing]).collect()
    }
}

pub fn export(lines: &[String]) -> Vec<u8> {
    lines.iter().flat_map(|line| [line.as_bytes(), b"\n"].concat()).collect()
}

/// The life of one operation. Every record carries the members of its word, so that none is missing.
pub struct Life {
    n: u128,
    state: State,
    claims: i64,
    pub entries: Vec<Entry>,
}

impl Life {
    pub fn new(n: u128) -> Self {
        let life = Self { n, state: State::Pending, claims: 0, entries: Vec::new() };
        let mut proposed = life.entry(Event::OperationProposed, life.run());
        proposed.to = Some(State::Pending);
        life.push(proposed)
    }

    pub fn operation(&self) -> OperationId {
        OperationId::from_parts(1, self.n)
    }

    pub fn run(&self) -> Actor {
        Actor::run(&RunId::from_parts(1, self.n))
    }

    pub fn person(n: u128) -> Actor {
        Actor::human(&PersonId::from_parts(1, n))
    }

    fn entry(&self, event: Event, actor: Actor) -> Entry {
        Entry {
            operation: Some(self.operation()),
            resource: format!("order/{}", self.n).parse().ok(),
            fingerprint: Some(Fingerprint::of_canonical(&self.n.to_string())),
            ..Entry::new(event, actor)
        }
    }

    /// Adds the members that belong to the word of the event.
    pub fn push(mut self, mut entry: Entry) -> Self {
        let word = entry.event.as_str().split_once('.').unwrap().0;
        match word {
            "operation" if entry.event != Event::OperationClaimed => {
                entry.key_ref = Some(super::key_ref(&Account::Agent(AgentId::from_parts(1, self.n)), "key"));
            }
            "approval" => entry.approval = Some(ApprovalId::from_parts(1, self.n)),
            "review" | "attempt" => entry.reason = Some("because".into()),
            _ => {}
        }
        if matches!(word, "claim" | "effect") || matches!(entry.event, Event::ApprovalSpent | Event::OperationClaimed) {
            entry.claim = Some(ClaimId::from_parts(self.claims as u64, self.n));
            entry.fence = Some(self.claims);
        }
        self.entries.push(entry);
        self
    }

    /// A record that moves nothing.
    pub fn note(self, event: Event, actor: Actor) -> Self {
        let entry = self.entry(event, actor);
        self.push(entry)
    }

    /// A record that moves the operation.
    pub fn step(mut self, event: Event, actor: Actor, to: State) -> Self {
        let entry = Entry { from: Some(self.state), to: Some(to), ..self.entry(event, actor) };
        self.state = to;
        self.push(entry)
    }

    pub fn vote(self, person: u128, vote: &str) -> Self {
        let digest = Some(format!("sha256:{}", Hash::of(&[b"review"])));
        let vote = Some(vote.to_owned());
        let entry = self.entry(Event::ApprovalVoted, Self::person(person));
        self.push(Entry { status: vote, request_digest: digest, ..entry })
    }

    pub fn granted(self, person: u128) -> Self {
        self.vote(person, "approve").step(Event::ApprovalGranted, Self::person(person), State::Approved)
    }

    pub fn auto_granted(self) -> Self {
        self.step(Event::ApprovalAutoGranted, Actor::policy("small-tickets@1"), State::Approved)
    }

    pub fn rejected(mut self) -> Self {
        let entry =
            Entry { reason: Some("wrong_target".into()), ..self.entry(Event::ApprovalRejected, Self::person(1)) };
        let entry = Entry { from: Some(self.state), to: Some(State::Rejected), ..entry };
        self.state = State::Rejected;
        self.push(entry)
    }

    pub fn spent(mut self) -> Self {
        self.claims += 1;
        let run = self.run();
        self.note(Event::ApprovalSpent, run)
    }

    pub fn claimed(self) -> Self {
        let run = self.run();
        self.step(Event::OperationClaimed, run, State::Claimed)
    }

    pub fn reclaimed(mut self, right: Event) -> Self {
        self = self.note(right, Actor::system("clock"));
        self.claims += 1;
        self.claimed()
    }

    pub fn sent(self) -> Self {
        let run = self.run();
        self.step(Event::EffectSent, run, State::Sent)
    }

    pub fn resent(self) -> Self {
        let run = self.run();
        self.step(Event::EffectResent, run, State::Sent)
    }

    pub fn completed(self) -> Self {
        let from = Some(self.state);
        let entry = self.entry(Event::EffectCompleted, self.run());
        let status = Some("201".into());
        let mut life = self.push(Entry {
            from,
            to: Some(State::Succeeded),
            status,
            provider_ref: Some("TCK-1".into()),
            response_digest: Some(super::salted_digest(b"salt", b"body")),
            ..entry
        });
        life.state = State::Succeeded;
        life
    }

    /// Counterfoil's own write, with the record of the resource.
    pub fn wrote(self, resource: &str, version: i64) -> Self {
        let mut life = self.completed();
        if let Some(completed) = life.entries.last_mut() {
            completed.result_version = Some(version);
        }
        let resource = resource.parse().ok();
        let wrote = Entry {
            resource,
            result_version: Some(version),
            ..life.entry(Event::ResourceChanged, Actor::built_in("managed"))
        };
        life.push(wrote)
    }

    pub fn unknown(self) -> Self {
        self.step(Event::EffectOutcomeUnknown, Actor::system("clock"), State::Unknown)
    }
}

/// The lives that [`life`] knows.
pub const LIVES: usize = 17;

/// Operation `n` lives the life number `which`.
pub fn life(which: usize, n: u128) -> Vec<Entry> {
    use Event as E;

    let clock = || Actor::system("clock");
    let new = || Life::new(n);
    let sent = || new().granted(1).spent().claimed().sent();
    let lease = |event, token| Entry {
        resource: format!("release/{n}").parse().ok(),
        fence: Some(token),
        ..Entry::new(event, new().run())
    };
    let life = match which {
        0 => new().rejected(),
        1 => new().vote(1, "reject").rejected(),
        2 => new().step(E::OperationExpired, clock(), State::Expired).note(E::OperationReplayed, new().run()),
        3 => new()
            .vote(1, "approve")
            .granted(2)
            .spent()
            .claimed()
            .sent()
            .completed()
            .note(E::OperationReplayed, new().run()),
        4 => {
            new().auto_granted().spent().claimed().sent().step(E::EffectAccepted, clock(), State::Accepted).completed()
        }
        5 => new().step(E::OperationConflicted, clock(), State::Conflicted),
        6 => {
            let withdrawn = new().granted(1).step(E::ApprovalWithdrawn, Life::person(1), State::Pending);
            withdrawn
                .vote(2, "approve")
                .note(E::ApprovalWithdrawn, Life::person(2))
                .granted(1)
                .spent()
                .claimed()
                .sent()
                .completed()
        }
        7 => sent().step(E::EffectFailed, new().run(), State::Failed),
        8 => new().granted(1).spent().claimed().reclaimed(E::ClaimAbandoned).sent().completed(),
        9 => new().granted(1).spent().claimed().step(E::OperationExpired, clock(), State::Expired),
        10 => sent().unknown().reclaimed(E::AttemptLicensed).resent().completed(),
        11 => sent().unknown().step(E::ReconcileNotApplied, Actor::system("reconciler"), State::Failed),
        12 => sent()
            .unknown()
            .step(E::ReviewOpened, clock(), State::NeedsReview)
            .note(E::ReviewOverdue, clock())
            .step(E::ReviewRetryAuthorized, Life::person(1), State::Unknown)
            .reclaimed(E::AttemptLicensed)
            .resent()
            .unknown()
            .step(E::ReviewOpened, clock(), State::NeedsReview)
            .note(E::EvidenceAdded, Life::person(2))
            .note(E::ReviewAssigned, Life::person(2))
            .note(E::ReviewSeconded, Life::person(3))
            .step(E::ReviewResolved, Life::person(2), State::Succeeded),
        13 => sent()
            .completed()
            .note(E::EvidenceConfirmation, Actor::system("reconciler"))
            .note(E::EvidenceContradiction, Life::person(1))
            .note(E::ReviewOpened, clock())
            .note(E::ReviewResolved, Life::person(2))
            .note(E::EvidenceContradiction, Life::person(1))
            .note(E::ReviewAbandoned, Life::person(3)),
        14 => {
            let life = new();
            let refused = Entry {
                fingerprint: Some(Fingerprint::of_canonical("other")),
                ..life.entry(E::OperationKeyConflict, life.run())
            };
            life.push(refused).granted(1).step(E::OperationSuperseded, new().run(), State::Superseded)
        }
        15 => {
            let life = sent().unknown().reclaimed(E::AttemptLicensed).unknown();
            let life = life.step(E::ReviewOpened, clock(), State::NeedsReview);
            life.step(E::ReviewAbandoned, Life::person(1), State::Abandoned)
        }
        _ => {
            let mut entries = vec![
                Entry {
                    run: Some(RunId::from_parts(1, n)),
                    ..Entry::new(E::RunStarted, Actor::agent(&AgentId::from_parts(1, n)))
                },
                lease(E::LeaseAcquired, 1),
                lease(E::LeaseRenewed, 1),
                lease(E::LeaseTakenOver, 2),
                lease(E::LeaseReleased, 2),
                lease(E::LeaseForceReleased, 3),
                lease(E::LeaseAcquired, 4),
                Entry { reason: Some("naïve — \"quoted\"\n".into()), ..Entry::new(E::AdminPaused, Life::person(1)) },
            ];
            entries.extend(new().step(E::OperationCancelled, new().run(), State::Cancelled).entries);
            return entries;
        }
    };
    life.entries
}

/// Merges the lives, each keeping its order; `turns` says whose record comes next.
pub fn interleave(lives: Vec<Vec<Entry>>, turns: &[usize]) -> Vec<Entry> {
    let mut lives: Vec<_> = lives.into_iter().map(Vec::into_iter).collect();
    let mut turns = turns.iter().cycle();
    let mut merged = Vec::new();
    while !lives.is_empty() {
        let turn = turns.next().copied().unwrap_or(0) % lives.len();
        match lives[turn].next() {
            Some(entry) => merged.push(entry),
            None => drop(lives.remove(turn)),
        }
    }
    merged
}
