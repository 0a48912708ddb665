//! The place to sign: the safe choice first, and a reason beside everything that is off.

use leptos::prelude::*;

use super::{Paper, Told, address, case, groups, more_votes, slip, span};
use crate::{
    model::{
        operation::{Decision, ReasonCode, State, Vote},
        problem::Code,
    },
    server::web::pages::parts,
    ui::{textarea::TextArea, time::Form},
};

/// None where nothing is left to decide.
pub fn strip(paper: &Paper) -> Option<AnyView> {
    match paper.op().state() {
        State::Pending => Some(pending(paper)),
        State::Approved | State::Claimed if can_take_back(paper) => Some(take_back(paper)),
        _ if paper.is_doubtful() => Some(case::settle(paper)),
        _ => paper.refusal().map(|problem| {
            let notice = slip::refused(paper, problem);
            view! {
                <section class="decide" id="decide" aria-label="Decision">
                    <div class="decide-notices">{notice}{slip::kept_words(paper)}</div>
                </section>
            }
            .into_any()
        }),
    }
}

/// What there is to say first, and a place for what the browser has to say.
fn told(paper: &Paper) -> impl IntoView + use<> {
    let refused = paper.refusal().map(|problem| slip::refused(paper, problem));
    view! { <div class="decide-notices" data-notices="">{refused}</div> }
}

fn pending(paper: &Paper) -> AnyView {
    let (op, sheet) = (paper.op(), paper.sheet);
    let until = op.life.approval.expires_at;
    let (id, agent) = (op.id(), sheet.agent.name.clone());
    let choice = match paper.own_vote() {
        Some(vote) => voted(paper, vote),
        None if sheet.rights.approve.is_err() && sheet.rights.reject.is_err() => closed_to(paper),
        None => view! { <div class="choice">{reject(paper)}{approve(paper)}</div> }.into_any(),
    };
    view! {
        <section
            class="decide"
            id="decide"
            aria-labelledby="h-decide"
            data-decide=""
            data-lapses=""
            data-post=format!("/api/v1/operations/{id}/decisions")
            data-next=format!("{}?told=", address(id))
            data-me=paper.visitor.person.id().to_string()
            data-agent=agent
            data-expires=until.to_string()
        >
            <div class="decide-head">
                <h2 id="h-decide">"Your decision on "{super::number(op)}</h2>
                <span class="second">"A rejection is final. An approval can be withdrawn until it is spent."</span>
                <span class="push left">{parts::left(until, paper.now())}" left"</span>
            </div>
            {told(paper)}
            {choice}
            {may_cancel(paper).then(|| cancel(paper))}
        </section>
    }
    .into_any()
}

/// The fields every ballot carries: what was shown.
fn shown(paper: &Paper) -> impl IntoView + use<> {
    view! {
        <input type="hidden" name="fingerprint" data-fingerprint="" value=paper.op().proposal.fingerprint.to_string() />
        <input type="hidden" name="review_digest" value=paper.sheet.digest.clone() />
    }
}

fn reject(paper: &Paper) -> impl IntoView + use<> {
    let (op, draft) = (paper.op(), paper.draft());
    let codes = ReasonCode::ALL.map(|(code, name, label)| {
        let is_chosen = draft.reason_code == Some(code);
        view! {
            <label>
                <input type="radio" name="reason_code" value=name required checked=is_chosen />
                {label}
            </label>
        }
    });
    let usual = match op.life.approval.one_reject {
        true => "One rejection is enough.",
        false => "Rejected once the votes it needs cannot be reached.",
    };
    view! {
        <form
            class="opt opt-first"
            action=format!("{}/reject", address(op.id()))
            method="post"
            aria-labelledby="h-reject"
            data-decision="reject"
        >
            <h3 id="h-reject">"Reject"</h3>
            {shown(paper)}
            <fieldset>
                <legend class="lab">"Reason, sent to the agent"</legend>
                <div class="codes">{codes.into_iter().collect::<Vec<_>>()}</div>
            </fieldset>
            <label class="field">
                <span>"Note"</span>
                <TextArea id="note" name="reason" rows=2 value=draft.words />
            </label>
            <div class="foot">
                <button class="btn btn-ink" type="submit">"Reject"</button>
                <span class="why-off" data-why=usual>{usual}</span>
            </div>
        </form>
    }
}

/// A condition of Approve.
enum Need {
    Met(String),
    /// The reader's to do.
    Open(&'static str, String),
    Impossible(String),
}

fn needs(paper: &Paper) -> Vec<Need> {
    let (op, rights) = (paper.op(), &paper.sheet.rights);
    let rule_groups = &op.life.approval.groups;
    let mut needs = vec![match &rights.approve {
        Ok(()) => {
            let mine: Vec<_> =
                rule_groups.iter().filter(|group| paper.visitor.person.groups().contains(group)).cloned().collect();
            Need::Met(format!("You are not its owner, and you are in {}", groups(&mine)))
        }
        Err(problem) if problem.code == Code::SelfApproval => {
            Need::Impossible(format!("You own {}: somebody else approves", paper.sheet.agent.name))
        }
        Err(_) => Need::Impossible(format!("An approver in {}", groups(rule_groups))),
    }];
    if rights.approve.is_err() {
        return needs;
    }
    needs.push(Need::Open("fingerprint", "The fingerprint matches what you see".to_owned()));
    needs.push(Need::Open("unfolded", "All of the content is unfolded".to_owned()));
    if op.proposal.risk.needs_care() {
        let words = format!("Type the target, because the risk is {}", op.proposal.risk.as_str());
        needs.push(Need::Open("target", words));
    }
    if rights.needs_password {
        needs.push(Need::Open("password", "Your password again, asked next, because the rule says so".to_owned()));
    }
    needs
}

/// Whose vote is it: what the next one makes of the operation.
fn consequence(paper: &Paper) -> String {
    let op = paper.op();
    let agent = &paper.sheet.agent.name;
    let approval = &op.life.approval;
    let missing = approval.required - op.granted();
    let runs = match op.proposal.managed {
        true => "It is carried out at once.".to_owned(),
        false => format!("{agent} may then run it once, within {}.", span(approval.execution_ttl_s)),
    };
    match (missing, approval.required) {
        (2.., _) => format!("After yours, it waits for {}.", more_votes(missing - 1)),
        (_, 1) => format!("Yours is the one vote it needs. {runs}"),
        (_, required) => format!("Yours is the last of {required} votes. {runs}"),
    }
}

fn approve(paper: &Paper) -> impl IntoView + use<> {
    let op = paper.op();
    let is_possible = paper.sheet.rights.approve.is_ok();
    let items = needs(paper).into_iter().map(|need| match need {
        Need::Met(words) => view! { <li class="ok">{words}</li> }.into_any(),
        Need::Open(name, words) => view! { <li data-need=name>{words}</li> }.into_any(),
        Need::Impossible(words) => view! { <li class="no-go">{words}</li> }.into_any(),
    });
    let items = items.collect::<Vec<_>>();
    let target = (is_possible && op.proposal.risk.needs_care()).then(|| target_field(paper, "why-approve"));
    let why = match &paper.sheet.rights.approve {
        Ok(()) => "",
        Err(problem) if problem.code == Code::SelfApproval => "Off: you own this agent.",
        Err(_) => "Off: the rule asks for somebody else.",
    };
    // Only what can be met is the browser's to watch.
    let watched = is_possible.then_some("approve");
    view! {
        <form
            class="opt"
            action=format!("{}/approve", address(op.id()))
            method="post"
            aria-labelledby="h-approve"
            data-decision=watched
        >
            <h3 id="h-approve">"Approve"</h3>
            {shown(paper)}
            <p>{consequence(paper)}</p>
            <ul class="needs">{items}</ul>
            {target}
            <div class="foot">
                <button
                    class="btn btn-sign"
                    type="submit"
                    aria-describedby="why-approve"
                    disabled=(!is_possible).then_some("disabled")
                >
                    "Approve "
                    {super::number(op)}
                </button>
                <span class="why-off" id="why-approve" data-why="">{why}</span>
            </div>
        </form>
    }
}

/// The deliberate second step: the target, typed.
pub fn target_field(paper: &Paper, described_by: &'static str) -> impl IntoView + use<> {
    let target = paper.op().proposal.target.to_string();
    view! {
        <label class="field">
            <span>"Target: "<code>{target.clone()}</code></span>
            <input
                class="in in-mono"
                name="confirm_target"
                autocomplete="off"
                autocapitalize="off"
                spellcheck="false"
                aria-describedby=described_by
                data-target=target
            />
        </label>
    }
}

/// The reader has voted.
fn voted(paper: &Paper, vote: &Vote) -> AnyView {
    let (op, now) = (paper.op(), paper.now());
    let how = if vote.decision == Decision::Approve { "approved" } else { "rejected" };
    let at = parts::when(vote.at, now, Form::Clock);
    let missing = more_votes(op.life.approval.required - op.granted());
    let withdraw = (vote.decision == Decision::Approve).then(|| withdraw(paper, "Withdraw your vote"));
    view! {
        <div class="choice">
            <div class="opt">
                <h3>"You "{how}" this"</h3>
                <p>"At "{at}". It waits for "{missing}"."</p>
                {slip::kept_words(paper)}
                {withdraw}
            </div>
        </div>
    }
    .into_any()
}

/// The reader may neither approve nor reject.
fn closed_to(paper: &Paper) -> AnyView {
    let asked = groups(&paper.op().life.approval.groups);
    let role = paper.visitor.person.role().as_str();
    view! {
        <div class="choice">
            <div class="opt">
                <h3>"Not yours to decide"</h3>
                <p>
                    "The rule asks for an approver, operator or admin in "{asked}". You are "{role}
                    ", and may read everything here."
                </p>
            </div>
        </div>
    }
    .into_any()
}

fn may_withdraw(paper: &Paper) -> bool {
    let op = paper.op();
    let own = op.standing_approvals().any(|vote| vote.by == *paper.visitor.person.id());
    let any = op.standing_approvals().next().is_some() && slip::is_operator(paper.visitor.person.role());
    op.life.approval.spent_at.is_none() && (own || any)
}

fn may_cancel(paper: &Paper) -> bool {
    let me = &paper.visitor.person;
    let is_owner = *me.id() == paper.sheet.agent.owner;
    paper.op().nothing_sent() && (is_owner || slip::is_operator(me.role()))
}

fn can_take_back(paper: &Paper) -> bool {
    may_withdraw(paper) || may_cancel(paper)
}

/// Approved, and nothing sent.
fn take_back(paper: &Paper) -> AnyView {
    let op = paper.op();
    let words = match op.state() {
        State::Approved => "It is approved and not claimed yet.",
        _ => "It is claimed, and nothing was sent yet.",
    };
    let withdraw_form = may_withdraw(paper).then(|| {
        let words = match paper.own_vote() {
            Some(_) => "It waits for votes again, until its time to decide is over.",
            None => "Every approval is withdrawn. It waits for votes again.",
        };
        let label = if paper.own_vote().is_some() { "Withdraw your vote" } else { "Withdraw the approval" };
        view! { <div class="opt"><h3>"Withdraw"</h3><p>{words}</p>{withdraw(paper, label)}</div> }
    });
    let cancel_form = may_cancel(paper).then(|| view! { <div class="opt">{cancel_form(paper)}</div> });
    view! {
        <section class="decide" id="decide" aria-labelledby="h-decide">
            <div class="decide-head">
                <h2 id="h-decide">"Take back "{super::number(op)}</h2>
                <span class="second">{words}</span>
            </div>
            {told(paper)}
            <div class="choice">{withdraw_form}{cancel_form}</div>
        </section>
    }
    .into_any()
}

fn withdraw(paper: &Paper, label: &'static str) -> impl IntoView + use<> {
    view! {
        <form action=format!("{}/withdraw", address(paper.op().id())) method="post">
            <div class="foot"><button class="btn" type="submit">{label}</button></div>
        </form>
    }
}

fn cancel(paper: &Paper) -> impl IntoView + use<> {
    let is_open =
        matches!(&paper.told, Told::Refused(problem, _) if problem.errors().iter().any(|e| e.pointer == "/reason"));
    view! {
        <details class="raw instead" open=is_open>
            <summary>"Cancel it instead"</summary>
            <div class="opt">{cancel_form(paper)}</div>
        </details>
    }
}

fn cancel_form(paper: &Paper) -> impl IntoView + use<> {
    let agent = paper.sheet.agent.name.clone();
    view! {
        <form
            class="stack"
            action=format!("{}/cancel", address(paper.op().id()))
            method="post"
            aria-labelledby="h-cancel"
        >
            <h3 id="h-cancel">"Cancel"</h3>
            <p class="second">"Ends it for good. Nothing was sent. "{agent}" is told why."</p>
            <label class="field">
                <span>"Reason"</span>
                <input class="in" name="reason" required maxlength="1000" autocomplete="off" />
            </label>
            <div class="foot"><button class="btn" type="submit">"Cancel the operation"</button></div>
        </form>
    }
}
