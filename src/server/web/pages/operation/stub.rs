//! The people's half: number, fingerprint, votes, clocks, life cycle.

use leptos::prelude::*;

use super::{Paper, address, case, grouped, groups, more_votes, number, slip, span};
use crate::{
    model::{
        change_set::Part,
        kind::LeaseRule,
        operation::{CompensationStatus, Decision, Operation, State, Vote},
        text::Breaks,
        time::Timestamp,
    },
    server::web::pages::{change_set, leases, parts, plans},
    ui::{
        time::{self, Form},
        verify::Verify,
    },
};

pub fn stub(paper: &Paper) -> impl IntoView + use<> {
    let op = paper.op();
    let (word, is_spent) = match op.state() {
        State::Pending => ("open", false),
        State::Approved => ("signed", false),
        state if parts::is_void(state) => ("void", false),
        _ => ("spent", true),
    };
    view! {
        <div class="stub-top">
            {number(op)}
            <span class="second push">{word}</span>
            {is_spent.then(|| view! { <span class="punch" aria-hidden="true"></span> })}
        </div>
        {paper.is_doubtful().then(|| case::clocks(paper))}
        {fingerprint(op)}
        {votes(paper)}
        {clocks(paper)}
        {life_cycle(paper)}
        {whereabouts(paper)}
        {lease(op)}
        {lifted(paper)}
        {case::lift(paper)}
        {panel("If the answer gets lost", slip::prose(&paper.sheet.review.guarantee))}
        {panel("To undo", slip::prose(&op.proposal.rollback))}
        {facts(paper)}
    }
}

pub fn panel(heading: &'static str, words: impl IntoView) -> impl IntoView {
    view! {
        <section class="p">
            <div class="p-head"><h2>{heading}</h2></div>
            <p>{words}</p>
        </section>
    }
}

fn fingerprint(op: &Operation) -> impl IntoView + use<> {
    let fingerprint = &op.proposal.fingerprint;
    let groups: Vec<_> = (0..8).map(|i| fingerprint.hex()[8 * i..8 * i + 8].to_owned()).collect();
    let groups = groups.into_iter().enumerate().map(|(i, group)| match i {
        0 => view! { <b>{group}</b> }.into_any(),
        _ => view! { <span>{group}</span> }.into_any(),
    });
    view! {
        <section class="p">
            <div class="p-head"><h2>"Fingerprint"</h2></div>
            <code class="digest" data-fingerprint="" title=fingerprint.to_string()>
                <span class="unseen">"sha256:"</span>
                {groups.collect::<Vec<_>>()}
            </code>
            <Verify />
        </section>
    }
}

fn votes(paper: &Paper) -> impl IntoView + use<> {
    let (op, now) = (paper.op(), paper.now());
    let approval = &op.life.approval;
    let signed = op.life.votes.iter().map(|vote| signature(vote, now)).collect::<Vec<_>>();
    let mine = paper.sheet.rights.approve.is_ok() && paper.own_vote().is_none();
    let missing = match op.state() {
        State::Pending => (approval.required - op.granted()).max(0),
        _ => 0,
    };
    let open = (0..missing).map(|i| {
        let whose = match i == 0 && mine {
            true => format!("open to you, {}", paper.visitor.person.name()),
            false => "open".to_owned(),
        };
        view! {
            <li class="sig sig-open">
                <span class="tick" aria-hidden="true">"○"</span>
                <b>{whose}</b>
                <span class="at">{groups(&approval.groups)}</span>
            </li>
        }
    });
    let open = open.collect::<Vec<_>>();
    let is_auto = approval.auto && approval.granted_at.is_some();
    let by_rule = (is_auto && approval.run_approval.is_none()).then(|| {
        view! {
            <li class="sig">
                <span class="tick" aria-hidden="true">"✓"</span>
                <b>"the rule"</b>
                <span class="at">"granted "{approval.granted_at.map(|at| parts::when(at, now, Form::Clock))}</span>
            </li>
        }
    });
    let ahead = approval.run_approval.as_ref().map(|under| {
        view! {
            <li class="sig">
                <span class="tick" aria-hidden="true">"✓"</span>
                <b>{parts::line(&under.by_name)}</b>
                <span class="at">"approved ahead"</span>
            </li>
        }
    });
    let ahead_note = approval.run_approval.as_ref().map(|under| {
        let address = format!("/runs/{}#{}", op.proposal.run, under.id);
        view! { <p class="note-gap">"Approved ahead, for its run, "<a href=address>"within bounds"</a>"."</p> }
    });
    let count = match (&approval.run_approval, is_auto) {
        (Some(_), _) => "ahead".into_any(),
        (None, true) => parts::votes(op.granted(), 0).into_any(),
        (None, false) => parts::votes(op.granted(), approval.required).into_any(),
    };
    let spent = approval.spent_at.zip(approval.spent_by.as_ref()).map(|(at, by)| {
        let by = paper.sheet.name(by).to_owned();
        view! { <p class="note-gap">"Spent "{parts::when(at, now, Form::Clock)}" by "{parts::line(&by)}"."</p> }
    });
    view! {
        <section class="p">
            <div class="p-head">
                <h2>"Votes"</h2>
                <span class="push">{count}</span>
            </div>
            <ol class="sigs">{by_rule}{ahead}{signed}{open}</ol>
            {ahead_note}
            {spent}
            <p class="note-gap">
                "Rule "<a href="/settings/policies">{parts::line(&approval.rule)}</a>
                {format!(", policy {}.", approval.policy_version)}
            </p>
        </section>
    }
}

fn signature(vote: &Vote, now: Timestamp) -> impl IntoView + use<> {
    let (class, tick, word, at) = match (vote.void_at, vote.decision) {
        (Some(at), _) => ("sig sig-void", "–", "withdrawn ", at),
        (None, Decision::Approve) => ("sig", "✓", "approved ", vote.at),
        (None, Decision::Reject) => ("sig sig-no", "×", "rejected ", vote.at),
    };
    let note = vote.reason.as_ref().map(|words| {
        let code = vote.reason_code.map(|code| format!("{}. ", code.label()));
        view! { <p class="sig-note">{code}"“"{parts::said(words, Breaks::Keep)}"”"</p> }
    });
    view! {
        <li>
            <div class=class>
                <span class="tick" aria-hidden="true">{tick}</span>
                <b>{parts::line(&vote.name)}</b>
                <span class="at">{word}{parts::when(at, now, Form::Clock)}</span>
            </div>
            {note}
        </li>
    }
}

/// A deadline: the figure, a bar of what is left of the whole, and the moment.
pub fn clock(label: &'static str, until: Timestamp, whole_s: i64, now: Timestamp) -> impl IntoView {
    let left = until - now;
    let is_soon = left < time::SOON_MS;
    let (seconds, words) =
        ((left.max(0) / 1000).min(whole_s), format!("{label}: {} of {}", time::left(left), span(whole_s)));
    view! {
        <div class=if is_soon { "clock clock-soon" } else { "clock" }>
            <span class="l">{label}</span>
            <time class="t" datetime=until.to_string() data-left="">{time::left(left)}</time>
            <progress max=whole_s.to_string() value=seconds.to_string() aria-label=words></progress>
            <span class="u">"until "{parts::when(until, now, Form::Clock)}</span>
        </div>
    }
}

/// A span that does not run yet.
fn waiting(label: &'static str, whole_s: i64, why: &'static str) -> impl IntoView {
    let words = format!("{label}: {}, not started", span(whole_s));
    view! {
        <div class="clock clock-wait">
            <span class="l">{label}</span>
            <span class="t">{time::left(whole_s * 1000)}</span>
            <progress max=whole_s.to_string() value="0" aria-label=words></progress>
            <span class="u">{why}</span>
        </div>
    }
}

fn clocks(paper: &Paper) -> Option<AnyView> {
    let (op, now) = (paper.op(), paper.now());
    let (life, approval) = (&op.life, &op.life.approval);
    let asked_s = (approval.expires_at - op.proposal.created_at) / 1000;
    let two = match (op.state(), life.execution_deadline, &life.claim) {
        (State::Pending, ..) if op.proposal.managed => view! {
            {clock("Left to decide", approval.expires_at, asked_s, now)}
            <div class="clock clock-wait">
                <span class="l">"Then written"</span>
                <span class="t">"at once"</span>
                <span class="u">"with the last vote"</span>
            </div>
        }
        .into_any(),
        (State::Pending, ..) => view! {
            {clock("Left to decide", approval.expires_at, asked_s, now)}
            {waiting("Then to run", approval.execution_ttl_s, "starts with the last vote")}
        }
        .into_any(),
        (State::Approved, Some(until), _) => view! {
            <div class="clock clock-wait">
                <span class="l">"Decided in"</span>
                <span class="t">{approval.granted_at.map(|at| time::span(at - op.proposal.created_at))}</span>
                <span class="u">{approval.granted_at.map(|at| parts::when(at, now, Form::Clock))}</span>
            </div>
            {clock("Left to run", until, approval.execution_ttl_s, now)}
        }
        .into_any(),
        (State::Claimed, Some(until), Some(claim)) => view! {
            {clock("Claim ends in", claim.deadline_at, (claim.deadline_at - claim.claimed_at) / 1000, now)}
            {clock("Left to run", until, approval.execution_ttl_s, now)}
        }
        .into_any(),
        (State::Sent, _, Some(claim)) => {
            clock("Answer expected within", claim.deadline_at, (claim.deadline_at - claim.claimed_at) / 1000, now)
                .into_any()
        }
        _ => return None,
    };
    Some(view! { <section class="p"><div class="clocks">{two}</div></section> }.into_any())
}

/// How far the version of a target is to be trusted, for writes that were planned on one.
fn whereabouts(paper: &Paper) -> Option<AnyView> {
    let (op, sheet, now) = (paper.op(), paper.sheet, paper.now());
    let is_waiting = matches!(op.state(), State::Pending | State::Approved);
    if !is_waiting || op.proposal.managed || op.proposal.expected_version.is_none() {
        return None;
    }
    let words = match &sheet.known {
        Some(known) => view! {
            {format!("It lives elsewhere. Version {} was reported by ", known.version)}
            {parts::line(sheet.name_of(&known.updated_by))}
            ", "
            {parts::since(known.updated_at, now)}
            " ago; whether it has moved since, only the destination can check. "
            <a href=format!("/resources/{}", op.proposal.target)>"What is known of it"</a>
        }
        .into_any(),
        None => {
            "It lives elsewhere, and nobody has reported its version: only the executor and the destination can check."
                .into_any()
        }
    };
    Some(panel("The target", words).into_any())
}

/// The lease that the claim came with, or has to come with.
fn lease(op: &Operation) -> Option<AnyView> {
    let presented = op.life.claim.as_ref().and_then(|claim| claim.lease.as_ref());
    let words = match presented {
        Some(lease) => view! {
            "Claimed under "
            <a href=leases::address(&lease.id)>"its lease"</a>
            {format!(", fencing token {}.", lease.fencing_token)}
        }
        .into_any(),
        None if op.proposal.lease == LeaseRule::Required && op.nothing_sent() && !op.state().is_terminal() => {
            "Only who holds the lease of the target claims and sends it.".into_any()
        }
        None => return None,
    };
    Some(panel("Lease", words).into_any())
}

/// An operator's word that lets it pass what holds its target.
fn lifted(paper: &Paper) -> Option<AnyView> {
    let lifted = paper.op().life.hold_override.as_ref()?;
    let words = view! {
        {parts::line(&lifted.by_name)}
        " lets it pass what holds its target, "
        {parts::when(lifted.at, paper.now(), Form::Clock)}
        ": “"
        {parts::said(&lifted.reason, Breaks::Keep)}
        "”"
    };
    Some(panel("Hold lifted", words).into_any())
}

fn votes_word(votes: i64) -> String {
    if votes == 1 { "1 vote".to_owned() } else { format!("{votes} votes") }
}

enum Hole {
    Done,
    Here,
    Ask,
    Halt,
    Later,
}

fn step(hole: Hole, words: impl Into<String>, at: Option<AnyView>) -> AnyView {
    let (class, words) = (
        match hole {
            Hole::Done => "done",
            Hole::Here => "here",
            Hole::Ask => "ask here",
            Hole::Halt => "halt here",
            Hole::Later => "later",
        },
        words.into(),
    );
    let is_now = matches!(hole, Hole::Here | Hole::Ask | Hole::Halt);
    view! {
        <li class=class aria-current=is_now.then_some("step")>
            <span>{words}</span>
            {at.map(|at| view! { <span class="at">{at}</span> })}
        </li>
    }
    .into_any()
}

fn life_cycle(paper: &Paper) -> impl IntoView + use<> {
    let (op, now) = (paper.op(), paper.now());
    let (life, approval) = (&op.life, &op.life.approval);
    let at = |moment: Timestamp| Some(parts::when(moment, now, Form::Clock).into_any());
    let here = || Some("now".into_any());
    let mut steps = vec![step(Hole::Done, "Proposed", at(op.proposal.created_at))];
    let later = |words: &'static str| step(Hole::Later, words, None);
    let claimed_at = life.attempts.last().map(|attempt| attempt.claimed_at).or(approval.spent_at);
    let sent_at = life.attempts.iter().find_map(|attempt| attempt.sent_at);
    let approved = |steps: &mut Vec<AnyView>| {
        if let Some(granted) = approval.granted_at {
            let by = match &approval.run_approval {
                Some(under) => format!("Approved ahead by {}", parts::plain(&under.by_name)),
                None if approval.auto => "Granted by the rule".to_owned(),
                None => format!("Approved by {} of {}", op.granted(), approval.required),
            };
            steps.push(step(Hole::Done, by, at(granted)));
        }
    };
    match op.state() {
        State::Pending => {
            let words = match approval.required - op.granted() {
                missing if op.granted() == 0 => format!("Waiting for {}", votes_word(missing)),
                missing => format!("Waiting for {}", more_votes(missing)),
            };
            steps.push(step(Hole::Here, words, here()));
            steps.push(later("Approved, may run once"));
            steps.push(later("Claimed: the approval is spent"));
            steps.push(later("Sent"));
            steps.push(later("Outcome, with proof"));
        }
        State::Approved => {
            approved(&mut steps);
            steps.push(step(Hole::Here, "May run once", here()));
            steps.push(later("Claimed: the approval is spent"));
            steps.push(later("Sent"));
            steps.push(later("Outcome, with proof"));
        }
        state => {
            approved(&mut steps);
            if let Some(moment) = claimed_at {
                steps.push(step(Hole::Done, "Claimed", at(moment)));
            }
            if let Some(moment) = sent_at {
                steps.push(step(Hole::Done, "Sent", at(moment)));
            }
            let ended =
                life.ending.as_ref().map(|ending| ending.at).or(life.outcome.as_ref().map(|outcome| outcome.at));
            let ended = ended.unwrap_or(life.updated_at);
            match state {
                State::Claimed => {
                    steps.push(step(Hole::Here, "Not sent yet", here()));
                    steps.push(later("Sent"));
                    steps.push(later("Outcome, with proof"));
                }
                State::Sent => {
                    steps.push(step(Hole::Here, "Waiting for the answer", here()));
                    steps.push(later("Outcome, with proof"));
                }
                State::Accepted => {
                    steps.push(step(Hole::Here, "Accepted by the provider, under way", here()));
                    steps.push(later("Outcome, with proof"));
                }
                State::Unknown => {
                    steps.push(step(Hole::Ask, "Unknown", here()));
                    steps.push(later("Applied, not applied, or one more try"));
                }
                State::NeedsReview => {
                    steps.push(step(Hole::Ask, "Unknown, in review", here()));
                    steps.push(later("Applied, not applied, or one more try"));
                }
                State::Succeeded => steps.push(step(Hole::Done, "Succeeded", at(ended))),
                state => steps.push(step(Hole::Halt, parts::capital(state.as_str()), at(ended))),
            }
        }
    }
    view! {
        <section class="p">
            <div class="p-head"><h2>"Life cycle"</h2></div>
            <ol class="steps">{steps}</ol>
        </section>
    }
}

fn facts(paper: &Paper) -> impl IntoView + use<> {
    let (op, sheet) = (paper.op(), paper.sheet);
    let records = sheet.records.map(|(first, last)| {
        let words = if first == last { grouped(first) } else { format!("{} to {}", grouped(first), grouped(last)) };
        let reads_log = matches!(
            paper.visitor.person.role(),
            crate::model::approval::Role::Auditor | crate::model::approval::Role::Admin
        );
        let words = match reads_log {
            true => view! { <a href=format!("/audit?operation={}", op.id())>{words}</a> }.into_any(),
            false => words.into_any(),
        };
        view! { <dt>"Record"</dt><dd>{words}</dd> }
    });
    let links = [
        ("Supersedes", &op.proposal.links.supersedes),
        ("Replans", &op.proposal.links.replans),
        ("Makes good", &op.proposal.links.compensates),
        ("Rolls back", &op.proposal.links.rolls_back),
    ];
    let links = links.into_iter().filter_map(|(word, id)| {
        let id = id.as_ref()?;
        Some(view! { <dt>{word}</dt><dd class="id"><a href=address(id)>{id.to_string()}</a></dd> })
    });
    let set = sheet.change_set.as_ref().map(|(set, place)| {
        let number = place.step + 1;
        let part = match place.part {
            Part::Write => format!("Step {number} of "),
            Part::Compensation => format!("Undoes step {number} of "),
        };
        view! { <dt>"Change set"</dt><dd>{part}<a href=change_set::address(&set.id)>{parts::line(&set.title)}</a></dd> }
    });
    let compensated = op.life.compensation.as_ref().map(|note| {
        let how_far = match note.status {
            CompensationStatus::None | CompensationStatus::Proposed => "Proposed, not done yet",
            CompensationStatus::Compensated => "Made good",
            CompensationStatus::Failed => "Failed: the effect stands",
        };
        view! { <dt>"Compensation"</dt><dd><a href=address(&note.by)>{how_far}</a></dd> }
    });
    let replans = sheet.replanned_by.as_ref().map(|plan| view! { <dt>"Planned anew"</dt><dd>{plans::link(plan)}</dd> });
    view! {
        <section class="p">
            <dl class="facts">
                <dt>"Operation"</dt>
                <dd class="id">{op.id().to_string()}</dd>
                <dt>"Run"</dt>
                <dd class="id">
                    <a href=format!("/runs/{}", op.proposal.run)>{op.proposal.run.to_string()}</a>
                    {(!sheet.run_label.is_empty()).then(|| view! { " "{parts::line(&sheet.run_label)} })}
                </dd>
                <dt>"Owner"</dt>
                <dd>{parts::line(&sheet.agent.owner_name)}</dd>
                {set}
                {links.collect::<Vec<_>>()}
                {compensated}
                {replans}
                {records}
            </dl>
        </section>
    }
}
