//! What pages show: read models over the store, with lapses decided as of the page's moment.

use std::collections::HashMap;

use serde_json::Value;

use super::{Desk, error::Result, measures};
use crate::{
    model::{
        approval::{Voter, may_vote},
        document,
        id::{AgentId, OperationId, RunId},
        kind::Risk,
        operation::{
            Decision, Operation, State,
            rules::{next_lapse, state_at},
        },
        text::{self, Finding},
        time::Timestamp,
    },
    server::store::{
        Conn,
        agent::{self, Agent},
        catalogue, conflict,
        operation::{self, Filter, Order},
        queue::{self, Tally},
    },
};

/// Milliseconds under which a deadline counts as expiring.
pub const EXPIRING_MS: i64 = 5 * 60 * 1000;
/// Rows of one page.
pub const PAGE: usize = 50;
/// Operations looked at for one page or one count.
const SCAN: i64 = 1000;

/// What the top bar counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Open ones.
    pub conflicts: i64,
    pub unknown: i64,
    /// Of the unknown ones, those past their due time.
    pub overdue: i64,
}

pub async fn counts(desk: &Desk, now: Timestamp) -> Result<Counts> {
    let mut conn = desk.store.read().await?;
    let Tally { unknown, .. } = queue::tally(&mut conn, now, now).await?;
    let conflicts = conflict::count_open(&mut conn).await?;
    Ok(Counts { conflicts, unknown, overdue: measures::overdue(&mut conn, now).await? })
}

/// Outcomes that wait for somebody's finding.
pub async fn in_review(conn: &mut Conn) -> Result<Vec<Operation>> {
    let filter = Filter { states: vec![State::NeedsReview], limit: SCAN, ..Filter::default() };
    let mut cases = operation::list(conn, &filter).await?;
    cases.extend(operation::disputed(conn).await?);
    Ok(cases)
}

/// Names of all kinds, for a filter.
pub async fn kind_names(desk: &Desk) -> Result<Vec<String>> {
    let kinds = catalogue::kinds(&mut desk.store.read().await?).await?;
    let name = |kind: &catalogue::Versioned| kind.document["name"].as_str().map(str::to_owned);
    Ok(kinds.iter().filter_map(name).collect())
}

/// Names of all agents that still work, for a filter.
pub async fn agent_names(desk: &Desk) -> Result<Vec<String>> {
    let agents = agent::list(&mut desk.store.read().await?).await?;
    let mut names: Vec<_> =
        agents.into_iter().filter(|agent| agent.revoked_at.is_none()).map(|agent| agent.name).collect();
    names.sort();
    Ok(names)
}

/// The lists of the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Lane {
    #[default]
    Review,
    Approved,
    Conflicts,
    Unknown,
    Expiring,
    Done,
}

impl Lane {
    pub const ALL: [Self; 6] =
        [Self::Review, Self::Approved, Self::Conflicts, Self::Unknown, Self::Expiring, Self::Done];

    /// As it stands in the address.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Review => "review",
            Self::Approved => "approved",
            Self::Conflicts => "conflicts",
            Self::Unknown => "unknown",
            Self::Expiring => "expiring",
            Self::Done => "done",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|lane| lane.as_str() == text)
    }

    /// Stored states from which its rows come. What nobody has recorded yet is sorted out by [`Lane::holds`].
    fn states(self) -> Vec<State> {
        use State::*;
        match self {
            Self::Review => vec![Pending],
            Self::Approved => vec![Approved, Claimed, Sent, Accepted],
            Self::Conflicts => vec![Conflicted],
            Self::Unknown => vec![Unknown, NeedsReview, Sent, Accepted],
            Self::Expiring => vec![Pending, Approved, Claimed],
            Self::Done => {
                vec![Succeeded, Failed, Rejected, Expired, Cancelled, Superseded, Abandoned, Pending, Approved, Claimed]
            }
        }
    }

    /// Whether an operation in this state, with this deadline, belongs here.
    fn holds(self, state: State, deadline: Option<Timestamp>, now: Timestamp) -> bool {
        use State::*;
        match self {
            Self::Review => state == Pending,
            Self::Approved => matches!(state, Approved | Claimed | Sent | Accepted),
            Self::Conflicts => state == Conflicted,
            Self::Unknown => matches!(state, Unknown | NeedsReview),
            Self::Expiring => {
                matches!(state, Pending | Approved | Claimed) && deadline.is_some_and(|at| at - now <= EXPIRING_MS)
            }
            Self::Done => state.is_terminal() && state != Conflicted,
        }
    }

    fn order(self) -> Order {
        match self {
            Self::Review | Self::Approved | Self::Expiring => Order::SoonestFirst,
            Self::Conflicts | Self::Unknown | Self::Done => Order::NewestFirst,
        }
    }
}

/// Whose decisions the review lane shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Whose {
    /// What the reader may decide and has not.
    #[default]
    Mine,
    Everyones,
}

/// What the address asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    pub lane: Lane,
    pub whose: Whose,
    pub kind: Option<String>,
    pub risk: Option<Risk>,
    /// By name.
    pub agent: Option<String>,
    /// Part of a target, kind, number, id or agent's name.
    pub q: Option<String>,
    /// Where the page before ended: a deadline in milliseconds and an id, or an id.
    pub after: Option<Cursor>,
}

/// The last row of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cursor {
    pub deadline: Option<Timestamp>,
    pub id: OperationId,
}

impl Cursor {
    pub fn parse(text: &str) -> Option<Self> {
        let (deadline, id) = match text.split_once('.') {
            Some((ms, id)) => (Some(Timestamp(ms.parse().ok()?)), id),
            None => (None, text),
        };
        Some(Self { deadline, id: id.parse().ok()? })
    }
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.deadline {
            Some(deadline) => write!(f, "{}.{}", deadline.as_millis(), self.id),
            None => write!(f, "{}", self.id),
        }
    }
}

/// What the reader may do about a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Waits for them.
    Open,
    Voted,
    /// Their own agent's: they may reject it.
    Own,
    /// Not open to them.
    Closed,
}

/// One operation in a list.
#[derive(Debug, Clone)]
pub struct Row {
    pub op: Operation,
    /// With its lapses decided.
    pub state: State,
    pub agent: String,
    /// Until when it is decided or run.
    pub deadline: Option<Timestamp>,
    pub standing: Standing,
    pub looks: Looks,
    /// The operation it repeats: its state, and since when.
    pub repeats: Option<(State, Timestamp)>,
}

/// What in the content may deceive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Looks {
    pub hidden: usize,
    pub look_alikes: usize,
}

/// One page of the queue.
#[derive(Debug, Clone)]
pub struct Queue {
    pub rows: Vec<Row>,
    pub next: Option<Cursor>,
    /// Waiting for the reader, filters aside.
    pub mine: usize,
    /// Waiting for somebody, filters aside.
    pub pending: usize,
    /// More wait than were counted.
    pub counted: Counted,
    pub tally: Tally,
    /// Unknown outcomes past their due time.
    pub overdue: usize,
    /// Names of agents, for the filter.
    pub agents: Vec<String>,
}

/// Whether a count is the whole count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    All,
    AtLeast,
}

/// # Errors
/// When the database is away.
pub async fn queue(desk: &Desk, reader: &Voter, asked: &Asked, now: Timestamp) -> Result<Queue> {
    let mut conn = desk.store.read().await?;
    let agents = agents(&mut conn).await?;
    let tally = queue::tally(&mut conn, now, Timestamp(now.as_millis() + EXPIRING_MS)).await?;

    let waiting = Filter { states: vec![State::Pending], order: Order::SoonestFirst, limit: SCAN, ..Filter::default() };
    let waiting = operation::list(&mut conn, &waiting).await?;
    let counted = if waiting.len() as i64 == SCAN { Counted::AtLeast } else { Counted::All };
    let waiting: Vec<_> = waiting.iter().filter(|op| state_at(op, now) == State::Pending).collect();
    let mine = waiting.iter().filter(|op| standing(op, reader, &agents) == Standing::Open).count();

    let agent = match &asked.agent {
        Some(name) => agents.values().find(|agent| agent.name == *name).map(|agent| agent.id.clone()),
        None => None,
    };
    let mut queue = Queue {
        rows: Vec::new(),
        next: None,
        mine,
        pending: waiting.len(),
        counted,
        tally,
        overdue: measures::overdue(&mut conn, now).await? as usize,
        agents: agents.values().filter(|agent| agent.revoked_at.is_none()).map(|agent| agent.name.clone()).collect(),
    };
    queue.agents.sort();
    if asked.agent.is_some() && agent.is_none() {
        return Ok(queue);
    }

    let lane = asked.lane;
    let mut filter = Filter {
        states: lane.states(),
        kind: asked.kind.clone(),
        agent,
        risk: asked.risk.map(|risk| risk.as_str().to_owned()),
        q: asked.q.clone(),
        order: lane.order(),
        limit: 4 * PAGE as i64,
        ..Filter::default()
    };
    if let Some(cursor) = &asked.after {
        continue_after(&mut filter, cursor.clone());
    }
    // Rows are sorted out after they are read, so that more is read until a page is full.
    for _ in 0..SCAN / filter.limit {
        let found = operation::list(&mut conn, &filter).await?;
        let is_last = (found.len() as i64) < filter.limit;
        for op in found {
            if queue.rows.len() == PAGE {
                queue.next = queue.rows.last().map(|row| cursor(&row.op, lane));
                break;
            }
            let (state, deadline) = (state_at(&op, now), next_lapse(&op));
            continue_after(&mut filter, cursor(&op, lane));
            let standing = standing(&op, reader, &agents);
            let is_asked = lane != Lane::Review || asked.whose == Whose::Everyones || standing == Standing::Open;
            if !is_asked || !lane.holds(state, deadline, now) {
                continue;
            }
            queue.rows.push(row(op, reader, &agents, now));
        }
        if is_last || queue.next.is_some() {
            break;
        }
    }
    for row in &mut queue.rows {
        row.repeats = repeats(&mut conn, &row.op, now).await?;
    }
    Ok(queue)
}

/// What one run proposed, the newest first, and whether there is more.
pub async fn operations_of_run(
    desk: &Desk,
    reader: &Voter,
    run: &RunId,
    before: Option<OperationId>,
    now: Timestamp,
) -> Result<(Vec<Row>, Option<OperationId>)> {
    let mut conn = desk.store.read().await?;
    let agents = agents(&mut conn).await?;
    let filter = Filter { run: Some(run.clone()), before, limit: PAGE as i64 + 1, ..Filter::default() };
    let mut found = operation::list(&mut conn, &filter).await?;
    let has_more = found.len() > PAGE;
    found.truncate(PAGE);
    let next = found.last().filter(|_| has_more).map(|op| op.id().clone());
    Ok((found.into_iter().map(|op| row(op, reader, &agents, now)).collect(), next))
}

async fn agents(conn: &mut Conn) -> Result<HashMap<AgentId, Agent>> {
    Ok(agent::all(conn).await?.into_iter().map(|agent| (agent.id.clone(), agent)).collect())
}

fn row(op: Operation, reader: &Voter, agents: &HashMap<AgentId, Agent>, now: Timestamp) -> Row {
    Row {
        state: state_at(&op, now),
        agent: agents.get(&op.proposal.agent).map(|agent| agent.name.clone()).unwrap_or_default(),
        deadline: next_lapse(&op),
        standing: standing(&op, reader, agents),
        looks: looks(&op),
        repeats: None,
        op,
    }
}

fn cursor(op: &Operation, lane: Lane) -> Cursor {
    let deadline = match lane.order() {
        Order::SoonestFirst => next_lapse(op),
        Order::NewestFirst => None,
    };
    Cursor { deadline, id: op.id().clone() }
}

fn continue_after(filter: &mut Filter, cursor: Cursor) {
    match (filter.order, cursor) {
        (Order::SoonestFirst, Cursor { deadline: Some(deadline), id }) => filter.after = Some((deadline, id)),
        (Order::NewestFirst, Cursor { id, .. }) => filter.before = Some(id),
        (Order::SoonestFirst, Cursor { deadline: None, .. }) => {}
    }
}

/// What `reader` may do about a pending operation.
fn standing(op: &Operation, reader: &Voter, agents: &HashMap<AgentId, Agent>) -> Standing {
    let owner = agents.get(&op.proposal.agent).map_or(&op.proposal.owner, |agent| &agent.owner);
    if op.standing_votes().any(|vote| vote.by == reader.id) {
        return Standing::Voted;
    }
    match (may_vote(op, reader, Decision::Approve, owner), may_vote(op, reader, Decision::Reject, owner)) {
        (Ok(()), _) => Standing::Open,
        (Err(_), Ok(())) => Standing::Own,
        (Err(_), Err(_)) => Standing::Closed,
    }
}

/// The operation that an intent duplicate repeats.
async fn repeats(conn: &mut Conn, op: &Operation, now: Timestamp) -> Result<Option<(State, Timestamp)>> {
    let Some(first) = &op.proposal.duplicate_of else { return Ok(None) };
    let first = operation::find(conn, first).await?;
    Ok(first.map(|first| (state_at(&first, now), first.life.updated_at)))
}

/// What in an operation's content may deceive.
pub fn looks(op: &Operation) -> Looks {
    let mut looks = Looks::default();
    every_text(&document::params(op), &mut |text| {
        for finding in text::findings(text) {
            match finding {
                Finding::Hidden { count, .. } => looks.hidden += count,
                Finding::MixedScript { .. } | Finding::Punycode { .. } => looks.look_alikes += 1,
            }
        }
    });
    looks
}

fn every_text(value: &Value, see: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => see(text),
        Value::Array(items) => items.iter().for_each(|item| every_text(item, see)),
        Value::Object(members) => {
            for (name, value) in members {
                see(name);
                every_text(value, see);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_survives_the_address() {
        let id = OperationId::from_parts(1, 2);
        for cursor in [Cursor { deadline: Some(Timestamp(7)), id: id.clone() }, Cursor { deadline: None, id }] {
            assert_eq!(Cursor::parse(&cursor.to_string()), Some(cursor));
        }
        for bad in ["", "x", "7", "x.op_1", "7.op_1"] {
            assert_eq!(Cursor::parse(bad), None);
        }
    }

    #[test]
    fn what_has_lapsed_is_in_the_lane_where_it_will_be_recorded() {
        let now = Timestamp(0);
        assert!(Lane::Done.holds(State::Expired, None, now));
        assert!(!Lane::Review.holds(State::Expired, None, now));
        assert!(Lane::Unknown.holds(State::Unknown, None, now) && Lane::Unknown.states().contains(&State::Sent));
        assert!(Lane::Expiring.holds(State::Pending, Some(Timestamp(EXPIRING_MS)), now));
        assert!(!Lane::Expiring.holds(State::Pending, Some(Timestamp(EXPIRING_MS + 1)), now));
        for state in State::ALL {
            let homes = [Lane::Review, Lane::Approved, Lane::Conflicts, Lane::Unknown, Lane::Done];
            assert_eq!(homes.iter().filter(|lane| lane.holds(state, None, now)).count(), 1, "{state}");
        }
    }
}
