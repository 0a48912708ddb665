//! How the desk is doing: what the on-call page and `/metrics` say, from the log and what is open now.

use std::{collections::HashMap, fmt::Write};

use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;
use utoipa::ToSchema;

use super::{Desk, desk, error::Result, sheet};
use crate::{
    model::{
        audit::{Entry, Event},
        conflict::Action,
        id::OperationId,
        money::{self, Currency},
        operation::{Operation, rules::open_case},
        problem::{Code, Problem},
        time::Timestamp,
    },
    server::{
        store::{
            self, Conn, conflict,
            measures::{self, Count, Range, Recovery, Word},
            setting,
        },
        web::auth::Admin,
    },
};

const HOUR_MS: i64 = 3600 * 1000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// The time a page is about: whole hours or days of UTC, the present one included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
pub enum Window {
    #[serde(rename = "24h")]
    Day,
    #[default]
    #[serde(rename = "7d")]
    Week,
    #[serde(rename = "30d")]
    Month,
}

impl Window {
    pub const ALL: [Self; 3] = [Self::Day, Self::Week, Self::Month];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Day => "24h",
            Self::Week => "7d",
            Self::Month => "30d",
        }
    }

    pub fn slots(self) -> usize {
        match self {
            Self::Day => 24,
            Self::Week => 7,
            Self::Month => 30,
        }
    }

    fn slot_ms(self) -> i64 {
        if self == Self::Day { HOUR_MS } else { DAY_MS }
    }

    fn since(self, now: Timestamp) -> Timestamp {
        let slot_ms = self.slot_ms();
        let present = now.as_millis().div_euclid(slot_ms) * slot_ms;
        Timestamp(present - (self.slots() as i64 - 1) * slot_ms)
    }
}

/// Everything the page shows. Spans are in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Measures {
    pub window: Window,
    pub since: Timestamp,
    pub until: Timestamp,
    /// Set where the log holds more than is looked at: what was recorded before this is left out.
    pub cut_at: Option<Timestamp>,
    pub duplicates: Duplicates,
    pub conflicts: Vec<OfKind>,
    pub pairs: Vec<Pair>,
    /// Open now, the soonest due first.
    pub unknown: Vec<Case>,
    pub overdue: usize,
    pub missed: Missed,
    pub recovery: Recovered,
    pub waiting: Waiting,
    pub people: People,
    /// Ended as succeeded, once, and nothing speaks against it.
    pub completed: i64,
    /// Effects that people found to be made more than once.
    pub duplicate_effects: i64,
    pub cost: Option<Cost>,
    pub slots: Vec<Slot>,
}

/// Requests that did not become a second effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Duplicates {
    /// A known key with the content it had: answered with its operation.
    pub same_key: i64,
    /// A known event under a new key: answered with its operation.
    pub same_event: i64,
    /// A known event under a new key: refused.
    pub refused: i64,
    /// A command that is under way under a new key: held for a person.
    pub same_command: i64,
    /// A known key with other content: refused. No duplicate, but a mistake of the caller.
    pub other_content: i64,
    /// Refused for a known event, and a person asked for it after all.
    pub wrongly_refused: i64,
    /// Held as the same command, and approved by people as a second one.
    pub wrongly_held: i64,
}

impl Duplicates {
    pub fn suppressed(&self) -> i64 {
        self.same_key + self.same_event + self.refused + self.same_command
    }

    pub fn wrong(&self) -> i64 {
        self.wrongly_refused + self.wrongly_held
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct OfKind {
    pub code: String,
    pub count: i64,
}

/// Whose write was refused, and whose change it met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Pair {
    pub agent: String,
    pub met: Option<String>,
    pub count: i64,
}

/// An outcome nobody is sure of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Case {
    #[schema(value_type = String)]
    pub operation: OperationId,
    pub short_code: String,
    pub title: String,
    pub target: String,
    pub since: Timestamp,
    pub owner: Option<String>,
    pub due_at: Option<Timestamp>,
    pub overdue: bool,
}

/// Approved, and not applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Missed {
    /// Approvals given in the same time.
    pub granted: i64,
    pub expired: i64,
    pub failed: i64,
    pub conflicted: i64,
}

impl Missed {
    pub fn all(&self) -> i64 {
        self.expired + self.failed + self.conflicted
    }
}

/// From the lost answer to what settled it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Recovered {
    pub count: i64,
    pub p50_s: Option<i64>,
    pub p95_s: Option<i64>,
}

impl Recovered {
    fn of(mut spans_s: Vec<i64>) -> Self {
        spans_s.sort_unstable();
        Self { count: spans_s.len() as i64, p50_s: quantile(&spans_s, 50), p95_s: quantile(&spans_s, 95) }
    }
}

/// By nearest rank.
fn quantile(sorted: &[i64], percent: usize) -> Option<i64> {
    let rank = (sorted.len() * percent).div_ceil(100);
    sorted.get(rank.checked_sub(1)?).copied()
}

/// What waits for a vote now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Waiting {
    pub count: usize,
    pub oldest_s: Option<i64>,
    /// By age: under 1, 5, 15, 60 minutes, and over.
    pub ages: [i64; 5],
}

/// Upper bounds of the ages but the last. Seconds.
const AGES_S: [i64; 4] = [60, 5 * 60, 15 * 60, 3600];

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct People {
    /// Votes.
    pub decisions: i64,
    /// Whatever else people did about one operation, lease or run.
    pub interventions: i64,
}

/// One bar of the charts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct Slot {
    pub at: Timestamp,
    pub same_key: i64,
    pub same_event: i64,
    pub same_command: i64,
    pub recovery: Recovered,
    pub people: People,
    pub completed: i64,
}

/// What people's time and mistakes cost. Minor units of `currency`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct UnitCosts {
    /// ISO 4217.
    pub currency: String,
    pub decision_minor: i64,
    pub intervention_minor: i64,
    /// One minute in which an outcome was not known.
    pub unknown_minute_minor: i64,
    /// One effect that was made more than once.
    pub duplicate_effect_minor: i64,
}

impl UnitCosts {
    /// Beyond any real unit cost, and far from where sums overflow.
    const MOST: i64 = 1_000_000_000;

    /// # Errors
    /// `validation_failed`, with the place.
    fn check(&self) -> std::result::Result<(), Problem> {
        if Currency::parse(&self.currency).is_none() {
            let detail = "expected a currency of ISO 4217, such as `EUR`";
            return Err(Problem::at(Code::ValidationFailed, "/currency", detail));
        }
        for (pointer, amount) in [
            ("/decision_minor", self.decision_minor),
            ("/intervention_minor", self.intervention_minor),
            ("/unknown_minute_minor", self.unknown_minute_minor),
            ("/duplicate_effect_minor", self.duplicate_effect_minor),
        ] {
            if !(0..=Self::MOST).contains(&amount) {
                let detail = format!("expected 0 to {} in minor units", Self::MOST);
                return Err(Problem::at(Code::ValidationFailed, pointer, detail));
            }
        }
        Ok(())
    }
}

/// What operations that were completed correctly cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Cost {
    pub currency: String,
    pub total_minor: i64,
    /// Rounded to the nearest; none while nothing was completed.
    pub each_minor: Option<i64>,
    /// Minutes in which outcomes were not known, of those settled in this time.
    pub unknown_minutes: i64,
    /// What people noted as the cost of single cases.
    pub noted_minor: i64,
}

/// What costs, beside the acts of people.
#[derive(Debug, Clone, Copy, Default)]
struct Harm {
    unknown_minutes: i64,
    duplicate_effects: i64,
    noted_minor: i64,
}

impl Cost {
    fn of(costs: UnitCosts, people: People, harm: Harm, completed: i64) -> Self {
        let total_minor = people
            .decisions
            .saturating_mul(costs.decision_minor)
            .saturating_add(people.interventions.saturating_mul(costs.intervention_minor))
            .saturating_add(harm.unknown_minutes.saturating_mul(costs.unknown_minute_minor))
            .saturating_add(harm.duplicate_effects.saturating_mul(costs.duplicate_effect_minor))
            .saturating_add(harm.noted_minor);
        let each_minor = (completed > 0).then(|| total_minor.saturating_add(completed / 2) / completed);
        let Harm { unknown_minutes, noted_minor, .. } = harm;
        Self { currency: costs.currency, total_minor, each_minor, unknown_minutes, noted_minor }
    }

    /// `EUR 0.21`
    pub fn words(&self, amount_minor: i64) -> String {
        match Currency::parse(&self.currency) {
            Some(currency) => money::format(amount_minor, currency),
            None => format!("{} {amount_minor}", self.currency),
        }
    }
}

const UNIT_COSTS: &str = "unit_costs";

pub async fn unit_costs(conn: &mut Conn) -> store::Result<Option<UnitCosts>> {
    setting::get(conn, UNIT_COSTS).await
}

/// # Errors
/// `validation_failed`, with the place.
pub async fn set_unit_costs(desk: &Desk, admin: &Admin, costs: UnitCosts) -> Result<UnitCosts> {
    costs.check()?;
    let by = admin.by();
    desk.commit(move |tx| {
        Box::pin(async move {
            setting::put(tx, UNIT_COSTS, &costs).await?;
            let reason = Some("unit costs".to_owned());
            tx.audit(&Entry { reason, ..by.entry(Event::AdminSettingsChanged) }).await?;
            Ok(Ok(costs))
        })
    })
    .await
}

/// # Errors
/// The database is not to be had.
pub async fn read(desk: &Desk, window: Window) -> Result<Measures> {
    let now = desk.now();
    let since = window.since(now);
    let open = sheet::doubtful(desk, now).await?;
    let mut conn = desk.store.read().await?;
    let conn = &mut conn;
    let range = measures::range(conn, since).await?;
    let counts = measures::counts(conn, range, since, window.slot_ms()).await?;
    let recoveries = measures::recoveries(conn, range).await?;
    let met = measures::conflicts(conn, since).await?;
    let names = sheet::names(conn).await?;

    let of = |word: Word| counts.iter().filter(|count| count.word == word).map(|count| count.n).sum::<i64>();
    let repeats = measures::answered_repeats(conn, since).await?;
    let is_asked_for = |conflict: &&crate::model::conflict::Conflict| {
        conflict.resolution.as_ref().is_some_and(|resolution| resolution.action == Action::Replan)
    };
    let refused = met.iter().filter(|met| met.code == Code::BusinessKeyConflict.as_str()).map(|met| met.n).sum();
    let duplicates = Duplicates {
        same_key: of(Word::SameKey),
        same_event: of(Word::SameEvent),
        refused,
        same_command: of(Word::SameCommand),
        other_content: of(Word::OtherContent),
        wrongly_refused: repeats.iter().filter(is_asked_for).count() as i64,
        wrongly_held: measures::flagged_and_granted(conn, range).await?,
    };
    let resolved = measures::resolutions(conn, range).await?;
    let duplicate_effects = resolved.iter().filter(|resolution| resolution.duplicate_effect).count() as i64;
    let wrong = measures::contradicted(conn, range).await? + duplicate_effects;
    let completed = (of(Word::Completed) + of(Word::FoundApplied) - wrong).max(0);
    let people = people(&counts);
    let unknown_ms: i64 = recoveries.iter().map(span_ms).sum();
    let cost = unit_costs(conn).await?.map(|costs| {
        let noted = resolved.iter().filter_map(|resolution| resolution.cost.as_ref());
        let noted_minor = noted.filter(|cost| cost.currency == costs.currency).map(|cost| cost.minor).sum();
        let harm = Harm { unknown_minutes: unknown_ms / 60_000, duplicate_effects, noted_minor };
        Cost::of(costs, people, harm, completed)
    });
    let unknown: Vec<_> = open.into_iter().map(|one| case(&one.op, one.since, now)).collect();
    Ok(Measures {
        window,
        since,
        until: now,
        cut_at: range.cut_at,
        duplicates,
        conflicts: by_kind(&met, of),
        pairs: by_pair(&met, &names),
        overdue: unknown.iter().filter(|case| case.overdue).count(),
        unknown,
        missed: Missed {
            granted: of(Word::Granted),
            expired: of(Word::ExpiredApproved),
            failed: of(Word::Failed) + of(Word::FoundNotApplied),
            conflicted: of(Word::ConflictedApproved),
        },
        recovery: Recovered::of(recoveries.iter().map(|recovery| span_ms(recovery) / 1000).collect()),
        waiting: waiting(&measures::waiting(conn, now).await?, now),
        people,
        completed,
        duplicate_effects,
        cost,
        slots: slots(window, since, &counts, &recoveries),
    })
}

fn span_ms(recovery: &Recovery) -> i64 {
    recovery.proven_at - recovery.lost_at
}

fn people(counts: &[Count]) -> People {
    let mut people = People::default();
    for count in counts {
        match count.word {
            Word::Decision => people.decisions += count.n,
            Word::Intervention | Word::FoundApplied | Word::FoundNotApplied => people.interventions += count.n,
            _ => {}
        }
    }
    people
}

fn case(op: &Operation, since: Timestamp, now: Timestamp) -> Case {
    let case = open_case(op);
    Case {
        operation: op.id().clone(),
        short_code: op.proposal.fingerprint.short_code(),
        title: op.proposal.title.clone(),
        target: op.proposal.target.to_string(),
        since,
        owner: case.and_then(|case| case.owner.clone()),
        due_at: case.map(|case| case.due_at),
        overdue: case.is_some_and(|case| case.is_overdue(now)),
    }
}

/// The most frequent first.
fn by_kind(met: &[measures::Met], of: impl Fn(Word) -> i64) -> Vec<OfKind> {
    let mut kinds: HashMap<String, i64> = HashMap::new();
    for one in met {
        *kinds.entry(one.code.clone()).or_default() += one.n;
    }
    let refusals = [Word::LeaseHeld, Word::LeaseLost, Word::ReleaseLocked, Word::OwnershipConflict, Word::StaleFence];
    for word in refusals {
        *kinds.entry(word.as_str().to_owned()).or_default() += of(word);
    }
    let mut kinds: Vec<_> = kinds.into_iter().map(|(code, count)| OfKind { code, count }).collect();
    kinds.retain(|kind| kind.count > 0);
    kinds.sort_by(|a, b| (b.count, &a.code).cmp(&(a.count, &b.code)));
    kinds
}

/// Pairs listed.
const PAIRS: usize = 10;

fn by_pair(met: &[measures::Met], names: &HashMap<String, String>) -> Vec<Pair> {
    let name = |id: &str| names.get(id).cloned().unwrap_or_else(|| id.to_owned());
    let mut pairs: HashMap<(String, Option<String>), i64> = HashMap::new();
    for one in met {
        let pair = (name(one.agent.as_str()), one.met_agent.as_ref().map(|id| name(id.as_str())));
        *pairs.entry(pair).or_default() += one.n;
    }
    let mut pairs: Vec<_> = pairs.into_iter().map(|((agent, met), count)| Pair { agent, met, count }).collect();
    pairs.sort_by(|a, b| (b.count, &a.agent, &a.met).cmp(&(a.count, &b.agent, &b.met)));
    pairs.truncate(PAIRS);
    pairs
}

fn waiting(waiting: &[(OperationId, Timestamp)], now: Timestamp) -> Waiting {
    let mut ages = [0; 5];
    for (_, at) in waiting {
        let age_s = (now - *at) / 1000;
        ages[AGES_S.iter().position(|bound| age_s < *bound).unwrap_or(AGES_S.len())] += 1;
    }
    Waiting { count: waiting.len(), oldest_s: waiting.first().map(|(_, at)| (now - *at) / 1000), ages }
}

fn slots(window: Window, since: Timestamp, counts: &[Count], recoveries: &[Recovery]) -> Vec<Slot> {
    let slot_ms = window.slot_ms();
    (0..window.slots() as i64)
        .map(|slot| {
            let here: Vec<_> = counts.iter().filter(|count| count.slot == slot).copied().collect();
            let of = |word: Word| here.iter().filter(|count| count.word == word).map(|count| count.n).sum::<i64>();
            let spans = recoveries.iter().filter(|recovery| (recovery.proven_at - since) / slot_ms == slot);
            Slot {
                at: Timestamp(since.as_millis() + slot * slot_ms),
                same_key: of(Word::SameKey),
                same_event: of(Word::SameEvent),
                same_command: of(Word::SameCommand),
                recovery: Recovered::of(spans.map(|recovery| span_ms(recovery) / 1000).collect()),
                people: people(&here),
                completed: of(Word::Completed) + of(Word::FoundApplied),
            }
        })
        .collect()
}

/// For how long one text of measures is served again. Milliseconds.
const KEEP_MS: i64 = 5_000;

/// What was counted since this process first looked, and the text last served.
#[derive(Default)]
pub struct Totals(Mutex<Running>);

#[derive(Default)]
struct Running {
    next_seq: u64,
    counts: HashMap<Word, i64>,
    recovered: i64,
    recovered_s: i64,
    served: Option<(Timestamp, String)>,
}

impl Running {
    async fn catch_up(&mut self, conn: &mut Conn) -> Result<()> {
        let range: Range = measures::range_from(conn, self.next_seq).await?;
        for Count { word, n, .. } in measures::counts(conn, range, Timestamp(0), i64::MAX).await? {
            *self.counts.entry(word).or_default() += n;
        }
        for recovery in measures::recoveries(conn, range).await? {
            self.recovered += 1;
            self.recovered_s += span_ms(&recovery) / 1000;
        }
        self.next_seq = range.to_seq;
        Ok(())
    }
}

/// The measures as Prometheus reads them, of the whole desk: every node says the same.
///
/// # Errors
/// The database is not to be had.
pub async fn exposition(desk: &Desk) -> Result<String> {
    let mut running = desk.totals.0.lock().await;
    let now = desk.now();
    if let Some((at, text)) = &running.served
        && now - *at < KEEP_MS
    {
        return Ok(text.clone());
    }
    let mut conn = desk.store.read().await?;
    running.catch_up(&mut conn).await?;
    let conflicts_open = conflict::count_open(&mut conn).await?;
    drop(conn);
    let text = text(&read(desk, Window::Day).await?, &running, conflicts_open);
    running.served = Some((now, text.clone()));
    Ok(text)
}

fn text(day: &Measures, running: &Running, conflicts_open: i64) -> String {
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, samples: &[(String, i64)]| {
        // Writing to a string does not fail.
        let _ = writeln!(text, "# HELP counterfoil_{name} {help}\n# TYPE counterfoil_{name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(text, "counterfoil_{name}{labels} {value}");
        }
    };
    let total = |word: Word| running.counts.get(&word).copied().unwrap_or(0);
    let labelled = |label: &str, samples: &[(&str, i64)]| -> Vec<(String, i64)> {
        samples.iter().map(|(value, n)| (format!("{{{label}=\"{value}\"}}"), *n)).collect()
    };
    let plain = |value: i64| vec![(String::new(), value)];
    let words = |label: &str, words: &[Word]| -> Vec<(String, i64)> {
        words.iter().map(|word| (format!("{{{label}=\"{}\"}}", word.as_str()), total(*word))).collect()
    };

    let kinds = [Word::SameKey, Word::SameEvent, Word::SameCommand];
    family(
        "duplicates_suppressed_total",
        "counter",
        "Requests that did not become a second effect.",
        &words("kind", &kinds),
    );
    family(
        "key_conflicts_total",
        "counter",
        "Known keys that came with other content.",
        &plain(total(Word::OtherContent)),
    );
    let stages = [("proposal", total(Word::ConflictedPending)), ("approved", total(Word::ConflictedApproved))];
    family("conflicts_total", "counter", "Operations that ended in conflict.", &labelled("stage", &stages));
    let codes = [Word::LeaseHeld, Word::LeaseLost, Word::ReleaseLocked, Word::OwnershipConflict, Word::StaleFence];
    family("refusals_total", "counter", "Claims and reports refused for others' rights.", &words("code", &codes));
    family("approvals_granted_total", "counter", "Approvals given.", &plain(total(Word::Granted)));
    let failed = total(Word::Failed) + total(Word::FoundNotApplied);
    let missed = [
        ("expired", total(Word::ExpiredApproved)),
        ("failed", failed),
        ("conflicted", total(Word::ConflictedApproved)),
    ];
    family("missed_effects_total", "counter", "Approved and not applied.", &labelled("reason", &missed));
    let completed = total(Word::Completed) + total(Word::FoundApplied);
    family("operations_completed_total", "counter", "Operations that succeeded.", &plain(completed));
    family("unknown_outcomes_total", "counter", "Answers that were lost.", &plain(total(Word::LostAnswer)));
    let interventions = total(Word::Intervention) + total(Word::FoundApplied) + total(Word::FoundNotApplied);
    let acts = [("decision", total(Word::Decision)), ("intervention", interventions)];
    family("human_actions_total", "counter", "What people did.", &labelled("kind", &acts));

    let quantiles = [("0.5", day.recovery.p50_s), ("0.95", day.recovery.p95_s)];
    let mut recovery: Vec<_> =
        quantiles.iter().filter_map(|(q, s)| s.map(|s| (format!("{{quantile=\"{q}\"}}"), s))).collect();
    recovery.extend([("_sum".to_owned(), running.recovered_s), ("_count".to_owned(), running.recovered)]);
    let help = "Seconds from a lost answer to what settled it; quantiles of the last 24 h.";
    family("recovery_seconds", "summary", help, &recovery);

    let oldest_s = day.unknown.iter().map(|case| (day.until - case.since) / 1000).max().unwrap_or(0);
    family("conflicts_open", "gauge", "Conflicts nobody has answered.", &plain(conflicts_open));
    family("unknown_open", "gauge", "Outcomes nobody is sure of.", &plain(day.unknown.len() as i64));
    family("unknown_oldest_seconds", "gauge", "Age of the oldest of them.", &plain(oldest_s));
    family("cases_overdue", "gauge", "Cases past their due time.", &plain(day.overdue as i64));
    family("approvals_waiting", "gauge", "Operations that wait for a vote.", &plain(day.waiting.count as i64));
    let waiting_s = day.waiting.oldest_s.unwrap_or(0);
    family("approvals_oldest_seconds", "gauge", "Age of the oldest of them.", &plain(waiting_s));
    let wrong = [("refused", day.duplicates.wrongly_refused), ("held", day.duplicates.wrongly_held)];
    let help = "Taken for duplicates, and no duplicates to a person, in the last 24 h.";
    family("false_deduplications", "gauge", help, &labelled("kind", &wrong));
    if let Some(Cost { currency, each_minor: Some(each), .. }) = &day.cost {
        let help = "Minor units for each operation completed correctly in the last 24 h.";
        family("cost_per_completion_minor", "gauge", help, &labelled("currency", &[(currency, *each)]));
    }
    text
}

/// Cases past their due time.
///
/// # Errors
/// The database is not to be had.
pub async fn overdue(conn: &mut Conn, now: Timestamp) -> Result<i64> {
    let cases = desk::in_review(conn).await?;
    Ok(cases.iter().filter_map(open_case).filter(|case| case.is_overdue(now)).count() as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_spans_that_occurred() {
        assert_eq!(quantile(&[], 50), None);
        assert_eq!((quantile(&[7], 50), quantile(&[7], 95)), (Some(7), Some(7)));
        let spans: Vec<i64> = (1..=100).collect();
        assert_eq!((quantile(&spans, 50), quantile(&spans, 95)), (Some(50), Some(95)));
    }

    #[test]
    fn a_window_ends_with_the_present_hour_or_day() {
        let now = Timestamp(1_796_083_200_000 + 90 * 60_000);
        assert_eq!(Window::Day.since(now), Timestamp(1_796_083_200_000 - 22 * HOUR_MS));
        assert_eq!(Window::Week.since(now), Timestamp(1_796_083_200_000 - 6 * DAY_MS));
    }

    #[test]
    fn a_cost_is_rounded_to_the_nearest_and_never_made_up() {
        let costs = UnitCosts {
            currency: "EUR".into(),
            decision_minor: 10,
            intervention_minor: 100,
            unknown_minute_minor: 1,
            duplicate_effect_minor: 0,
        };
        let people = People { decisions: 3, interventions: 1 };
        let harm = Harm { unknown_minutes: 5, ..Harm::default() };
        let cost = Cost::of(costs.clone(), people, harm, 4);
        assert_eq!((cost.total_minor, cost.each_minor), (135, Some(34)));
        assert_eq!(cost.words(34), "EUR 0.34");
        assert_eq!(Cost::of(costs, people, Harm::default(), 0).each_minor, None);
    }
}
