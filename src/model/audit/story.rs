//! What happened to one operation, told by the log alone.

use std::{collections::HashMap, fmt};

use super::{Actor, ActorKind, Event, Record, State};
use crate::model::id::OperationId;

/// What an auditor asks about an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Question {
    Asked,
    Authorised,
    Sent,
    TriedAgain,
    Evidence,
}

impl Question {
    pub const ALL: [Question; 5] = [Self::Asked, Self::Authorised, Self::Sent, Self::TriedAgain, Self::Evidence];

    fn as_str(self) -> &'static str {
        match self {
            Self::Asked => "Who asked for it, with which key and fingerprint?",
            Self::Authorised => "What was authorised, and by whom?",
            Self::Sent => "Who sent what, and what came back?",
            Self::TriedAgain => "Why was another try justified?",
            Self::Evidence => "What is the evidence of its outcome?",
        }
    }

    /// The answer if the log has no record of it.
    fn without_records(self) -> &'static str {
        match self {
            Self::Asked => "nobody",
            Self::Authorised => "nothing",
            Self::Sent => "nothing was sent",
            Self::TriedAgain => "there was no other try",
            Self::Evidence => "there is none",
        }
    }

    fn answered_by(self, event: Event) -> bool {
        use Event as E;
        match self {
            Self::Asked => matches!(
                event,
                E::OperationProposed
                    | E::OperationReplayed
                    | E::OperationKeyConflict
                    | E::OperationCancelled
                    | E::OperationSuperseded
            ),
            Self::Authorised => matches!(
                event,
                E::ApprovalAutoGranted
                    | E::ApprovalVoted
                    | E::ApprovalGranted
                    | E::ApprovalRejected
                    | E::ApprovalWithdrawn
                    | E::ApprovalRefused
                    | E::ApprovalSpent
                    | E::OperationExpired
                    | E::AdminHoldOverridden
            ),
            Self::Sent => matches!(
                event,
                E::OperationClaimed
                    | E::ClaimRefused
                    | E::EffectSent
                    | E::EffectResent
                    | E::EffectAccepted
                    | E::EffectCompleted
                    | E::EffectFailed
                    | E::EffectOutcomeUnknown
                    | E::OperationConflicted
                    | E::ReportRefused
                    | E::FenceRejected
            ),
            Self::TriedAgain => {
                matches!(event, E::ClaimAbandoned | E::AttemptLicensed | E::ReviewRetryAuthorized)
            }
            Self::Evidence => matches!(
                event,
                E::EffectCompleted
                    | E::EffectFailed
                    | E::ReconcileApplied
                    | E::ReconcileNotApplied
                    | E::EvidenceAdded
                    | E::EvidenceContradiction
                    | E::EvidenceConfirmation
                    | E::AdminBodyErased
                    | E::ReportRefused
                    | E::ReviewOpened
                    | E::ReviewAssigned
                    | E::ReviewSeconded
                    | E::ReviewResolved
                    | E::ReviewOverdue
                    | E::ReviewAbandoned
                    | E::OperationCompensation
            ),
        }
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The records of one operation; `Display` answers the five questions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Story {
    pub operation: OperationId,
    /// Where it stands at the end of the log.
    pub state: State,
    /// In the order of the log.
    pub records: Vec<Record>,
    /// The agent of each run, where the log has the run's start.
    agents: HashMap<String, Actor>,
}

/// Tells the story of `operation` from the records of a verified export; nothing if the log does not know it.
pub fn story(records: impl IntoIterator<Item = Record>, operation: &OperationId) -> Option<Story> {
    let mut agents = HashMap::new();
    let mut told: Vec<Record> = Vec::new();
    for record in records {
        let entry = &record.entry;
        if let (Event::RunStarted, ActorKind::Agent, Some(run)) = (entry.event, entry.actor.kind, &entry.run) {
            agents.insert(run.to_string(), entry.actor.clone());
        }
        if entry.operation.as_ref() == Some(operation) {
            told.push(record);
        }
    }
    let state = told.iter().rev().find_map(|record| record.entry.to)?;
    Some(Story { operation: operation.clone(), state, records: told, agents })
}

impl Story {
    /// The records that answer a question.
    pub fn answers(&self, question: Question) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(move |record| question.answered_by(record.entry.event))
    }

    /// Place, time and event; who; and every member that says something.
    fn write_record(&self, f: &mut fmt::Formatter<'_>, record: &Record) -> fmt::Result {
        let entry = &record.entry;
        writeln!(f, "  #{} {} {}", record.seq, record.at, entry.event)?;
        write!(f, "     by {}", entry.actor.to_string().escape_debug())?;
        if let Some(agent) = self.agents.get(&entry.actor.id) {
            write!(f, " of {}", agent.to_string().escape_debug())?;
        }
        let members: [(&str, Option<&dyn fmt::Display>); 12] = [
            ("key reference", as_display(&entry.key_ref)),
            ("fingerprint", as_display(&entry.fingerprint)),
            ("policy", as_display(&entry.policy)),
            ("approval", as_display(&entry.approval)),
            ("claim", as_display(&entry.claim)),
            ("fence", as_display(&entry.fence)),
            ("status", as_display(&entry.status)),
            ("provider reference", as_display(&entry.provider_ref)),
            ("version made", as_display(&entry.result_version)),
            ("request digest", as_display(&entry.request_digest)),
            ("response digest", as_display(&entry.response_digest)),
            ("reason", as_display(&entry.reason)),
        ];
        for (name, value) in members {
            if let Some(value) = value {
                write!(f, "\n     {name} {}", value.to_string().escape_debug())?;
            }
        }
        writeln!(f)
    }
}

fn as_display<T: fmt::Display>(value: &Option<T>) -> Option<&dyn fmt::Display> {
    value.as_ref().map(|value| value as &dyn fmt::Display)
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.operation)?;
        if let Some(target) = self.records.first().and_then(|record| record.entry.resource.as_ref()) {
            write!(f, " on {}", target)?;
        }
        writeln!(f, ": {}", self.state)?;
        writeln!(f, "downstream key {}, the same on every attempt", self.operation)?;
        for question in Question::ALL {
            writeln!(f, "\n{question}")?;
            let mut silent = true;
            for record in self.answers(question) {
                // The log quotes strangers; their control characters stay out of the terminal.
                self.write_record(f, record)?;
                silent = false;
            }
            if silent {
                writeln!(f, "  {}", question.without_records())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::audit::{
        Entry,
        sample::{self, Life, Log},
    };

    #[test]
    fn a_story_answers_the_auditors_questions() {
        let started = sample::life(sample::LIVES - 1, 1).swap_remove(0);
        let life = Life::new(1).granted(2).spent().claimed().sent().unknown();
        let life = life.reclaimed(Event::AttemptLicensed).resent().completed();
        let operation = life.operation();
        let entries = [vec![started], life.entries, sample::life(0, 2)].concat();
        let story = story(Log::of(entries).records.into_iter().map(|sealed| sealed.record), &operation).unwrap();
        assert_eq!(story.to_string(), include_str!("story.txt"));
    }

    #[test]
    fn what_never_happened_is_said() {
        let life = Life::new(1);
        let operation = life.operation();
        let text = story(Log::of(life.entries).records.into_iter().map(|sealed| sealed.record), &operation)
            .unwrap()
            .to_string();
        assert!(text.ends_with("Why was another try justified?\n  there was no other try\n\nWhat is the evidence of its outcome?\n  there is none\n"));
    }

    #[test]
    fn an_operation_the_log_does_not_know_has_no_story() {
        let log = Log::of(sample::life(0, 1));
        assert_eq!(story(log.records.into_iter().map(|sealed| sealed.record), &OperationId::from_parts(9, 9)), None);
    }

    #[test]
    fn quoted_text_cannot_write_to_the_terminal() {
        let life = Life::new(1);
        let (operation, run) = (life.operation(), life.run());
        let evil = Entry {
            operation: Some(operation.clone()),
            reason: Some("\u{1b}[2J\nall is well \u{202e}".into()),
            ..Entry::new(Event::EvidenceAdded, run)
        };
        let log = Log::of([life.entries, vec![evil]].concat());
        let text = story(log.records.into_iter().map(|sealed| sealed.record), &operation).unwrap().to_string();
        assert!(text.contains(r"reason \u{1b}[2J\nall is well \u{202e}"), "{text}");
    }
}
