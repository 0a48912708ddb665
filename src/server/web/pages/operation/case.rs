//! An outcome nobody is sure of: what was sent, what is the evidence, and what would settle it.

use leptos::prelude::*;

use super::{Paper, address, counted, number, slip, stub};
use crate::{
    model::{
        approval::Role,
        audit::{ActorKind, Event},
        evidence::{Evidence, EvidenceKind, Finding},
        operation::{AttemptResult, Decision, ResolutionFinding, State, rules::Conclusion},
        provider::{Contract, Idempotency, Lookup, is_proven},
        resend::MAX_ATTEMPTS,
        text::Breaks,
        time::Timestamp,
    },
    server::{
        service::{
            provider::ProviderView,
            sheet::{Told, unknown_since},
        },
        store::provider::Guarantee,
        web::pages::parts,
    },
    ui::{
        textarea::TextArea,
        time::{self, Form},
    },
};

fn sent_at(paper: &Paper) -> Option<Timestamp> {
    paper.op().life.attempts.iter().rev().find_map(|attempt| attempt.sent_at)
}

pub fn do_not_retry(paper: &Paper) -> impl IntoView + use<> {
    let op = paper.op();
    let (heading, words) = match (op.life.disputed, &op.life.retry_authorization) {
        (true, _) => (
            "Do not retry",
            "Evidence contradicts how this ended. It may have been carried out otherwise than recorded.",
        ),
        (false, Some(_)) => {
            ("One more try is authorised", "Two people allow it once more, with the same content and the same key.")
        }
        (false, None) => {
            ("Do not retry", "No answer came back. It may have been carried out, and no one can tell yet.")
        }
    };
    let sent = sent_at(paper).map(|at| {
        view! {
            {format!("{} on ", op.proposal.title)}
            {parts::target(op.proposal.target.as_str())}
            " was sent at "
            {parts::when(at, paper.now(), Form::Clock)}
            ". "
        }
    });
    view! {
        <div class="notice notice-doubt notice-top" role="note">
            <div>
                <h1>{heading}</h1>
                <p>{sent}{words}</p>
            </div>
            {number(op)}
        </div>
    }
}

/// What the target waits for.
pub fn hold(paper: &Paper) -> Option<AnyView> {
    paper.is_doubtful().then(|| {
        let waiting = match paper.sheet.waiting_behind.len() {
            0 => " is on hold.".to_owned(),
            1 => " is on hold. 1 later operation waits for this one.".to_owned(),
            several => format!(" is on hold. {several} later operations wait for this one."),
        };
        let target = parts::target(paper.op().proposal.target.as_str());
        view! { <span class="second">{target}{waiting}</span> }.into_any()
    })
}

/// Nobody was sure of it once, or is not now.
pub fn was_doubtful(paper: &Paper) -> bool {
    paper.is_doubtful()
        || !paper.sheet.evidence.is_empty()
        || paper.op().life.attempts.iter().any(|attempt| attempt.result == Some(AttemptResult::Unknown))
}

pub fn sections(paper: &Paper) -> impl IntoView + use<> {
    view! { {timeline(paper)}{evidence(paper)}{other_tries(paper)} }
}

struct Moment {
    at: Timestamp,
    class: &'static str,
    words: AnyView,
}

fn timeline(paper: &Paper) -> impl IntoView + use<> {
    let (op, sheet, now) = (paper.op(), paper.sheet, paper.now());
    let mut moments = Vec::new();
    let mut tell = |at: Timestamp, class: &'static str, words: AnyView| moments.push(Moment { at, class, words });
    let approvals = op.life.votes.iter().filter(|vote| vote.stands() && vote.decision == Decision::Approve);
    for vote in approvals {
        tell(vote.at, "done", view! { "Approved by "{parts::line(&vote.name)}"." }.into_any());
    }
    for attempt in &op.life.attempts {
        let by = parts::line(sheet.claimant(&attempt.by));
        let fence = attempt.claim_fence;
        let claimed = view! { "Claimed by "{by}{format!(", claim fence {fence}.")} };
        tell(attempt.claimed_at, "done", claimed.into_any());
        if let Some(at) = attempt.sent_at {
            let key = op.id().to_string();
            let sent = view! { <b>"Sent"</b>" with downstream key "<code class="id">{key}</code> };
            tell(at, "flow", sent.into_any());
        }
        if let (Some(at), Some(result)) = (attempt.ended_at, attempt.result) {
            let (class, words) = match result {
                AttemptResult::Unknown => {
                    ("ask", view! { <b>"No answer."</b>" The claim ended without a definite outcome." }.into_any())
                }
                AttemptResult::Unsent => ("", "The claim ran out; provably nothing was sent under it.".into_any()),
                AttemptResult::Succeeded => ("done", "It was applied.".into_any()),
                AttemptResult::Failed | AttemptResult::Conflicted => ("halt", "It was not applied.".into_any()),
            };
            tell(at, class, words);
        }
    }
    for one in &sheet.told {
        if let Some((class, words)) = told(paper, one) {
            tell(one.at, class, words);
        }
    }
    for item in &sheet.evidence {
        let words = view! { {parts::line(&item.by_name)}{format!(" recorded {}: ", item.id)}{claimed(item)}"." };
        tell(item.observed_at, "", words.into_any());
    }
    moments.sort_by_key(|moment| moment.at);
    let attempts = format!("{} of at most {MAX_ATTEMPTS}.", counted(op.life.attempts.len(), "attempt"));
    let moments = moments.into_iter().map(|Moment { at, class, words }| {
        view! { <li class=class>{parts::when(at, now, Form::Clock)}<div>{words}</div></li> }
    });
    view! {
        <section class="sec" aria-labelledby="h-sent">
            <div class="sec-head">
                <h2 id="h-sent">"What was sent, and when"</h2>
                <span class="note">{attempts}</span>
            </div>
            <ol class="line">{moments.collect::<Vec<_>>()}</ol>
        </section>
    }
}

/// What people and the desk did about it.
fn told(paper: &Paper, one: &Told) -> Option<(&'static str, AnyView)> {
    let by = parts::line(paper.sheet.name(&one.by));
    let reason = parts::line(one.reason.as_deref().unwrap_or_default());
    let told = match (one.event, one.status.as_deref()) {
        (Event::ReviewOpened, _) => ("", view! { "Opened as a case: "{reason}"." }.into_any()),
        (Event::ReviewAssigned, _) => ("", view! { {by}" handed it over: "{reason}"." }.into_any()),
        (Event::ReviewOverdue, _) => ("ask", view! { <b>"Overdue: "</b>{reason}"." }.into_any()),
        (Event::ReviewSeconded, Some("retry")) => {
            ("", view! { {by}" asked for one more try: “"{reason}"”" }.into_any())
        }
        (Event::ReviewSeconded, finding) => {
            let finding = finding.unwrap_or_default().replace('_', " ");
            ("", view! { {by}" found "{finding}"; a second person has to agree." }.into_any())
        }
        (Event::ReviewRetryAuthorized, _) => {
            ("done", view! { <b>"One more try authorised by "{by}": "</b>{reason}"." }.into_any())
        }
        (Event::AttemptLicensed, _) => ("flow", view! { <b>"One more try licensed: "</b>{reason}"." }.into_any()),
        (Event::EvidenceContradiction, _) => ("ask", "Evidence spoke against how it had ended.".into_any()),
        (Event::EvidenceConfirmation, _) => ("done", view! { "Confirmed by "{reason}"." }.into_any()),
        (Event::ReviewResolved, _) => ("done", view! { "Concluded by "{by}": “"{reason}"”" }.into_any()),
        (Event::ReviewAbandoned, _) => ("halt", view! { "Abandoned by "{by}": “"{reason}"”" }.into_any()),
        (Event::ReconcileApplied, _) => ("done", view! { "Found to be applied, by "{reason}"." }.into_any()),
        (Event::ReconcileNotApplied, _) => ("halt", view! { "Found not to be applied, by "{reason}"." }.into_any()),
        _ => return None,
    };
    Some(told)
}

/// Whose word it is, and what it says.
fn claimed(item: &Evidence) -> &'static str {
    match (item.finding, is_mere_word(item)) {
        (Finding::Inconclusive, _) => "inconclusive",
        (Finding::Applied, false) => "applied",
        (Finding::NotApplied, false) => "not applied",
        (Finding::Applied, true) => "claimed to be applied",
        (Finding::NotApplied, true) => "claimed not to be applied",
    }
}

fn kind(item: &Evidence) -> &'static str {
    match item.kind {
        EvidenceKind::Lookup => "look-up",
        EvidenceKind::Callback => "callback",
        EvidenceKind::Receipt => "receipt",
        EvidenceKind::Statement => "statement",
        EvidenceKind::LateReport => "late report",
    }
}

/// A program's own word about what it did.
fn is_mere_word(item: &Evidence) -> bool {
    matches!(item.by.kind, ActorKind::Run | ActorKind::Agent | ActorKind::Executor)
}

fn evidence(paper: &Paper) -> impl IntoView + use<> {
    let all = &paper.sheet.evidence;
    let note = match all.len() {
        0 => "None yet.".to_owned(),
        items => format!("{}.", counted(items, "item")),
    };
    let items = all.iter().map(|item| one(paper, item)).collect::<Vec<_>>();
    view! {
        <section class="sec" aria-labelledby="h-ev">
            <div class="sec-head">
                <h2 id="h-ev">"What is the evidence"</h2>
                <span class="note">{note}</span>
            </div>
            <ul>{items}</ul>
            {look_up(paper)}
            {statement_form(paper)}
        </section>
    }
}

fn one(paper: &Paper, item: &Evidence) -> impl IntoView + use<> {
    let class = match (item.finding, is_mere_word(item)) {
        (Finding::Inconclusive, _) => "found",
        (_, true) => "found found-word",
        (Finding::Applied, false) => "found found-yes",
        (Finding::NotApplied, false) => "found found-no",
    };
    let weight = match (item.bound, item.first_hand, item.reference.is_some()) {
        _ if is_mere_word(item) => "A sender’s own word never settles an outcome.",
        (true, true, _) => "Counterfoil asked by the downstream key itself, so it is about this one.",
        (true, false, _) => "It names the downstream key or the provider’s reference of this one.",
        (false, _, true) => "Its reference is not this one’s: an equal amount is not proof.",
        (false, _, false) => "It names no reference, so it is bound to nothing.",
    };
    let reference = item.reference.as_ref().map(|text| view! { <p>"Reference "<code>{parts::line(text)}</code></p> });
    let note = item.note.as_ref().map(|text| view! { <p>"“"{parts::said(text, Breaks::Keep)}"”"</p> });
    let body = item.body.as_ref().map(|body| {
        let text = serde_json::to_string_pretty(body).unwrap_or_default();
        view! {
            <details class="raw">
                <summary>"What was seen"</summary>
                <pre tabindex="0">{parts::said(&text, Breaks::Keep)}</pre>
            </details>
        }
    });
    let digest = item.digest.get(..15).unwrap_or(&item.digest).to_owned();
    view! {
        <li class="ev" id=item.id.to_string()>
            <div class=class>{parts::capital(claimed(item))}</div>
            <div>
                {reference}
                {note}
                {body}
                <p>{weight}</p>
                <p class="meta">
                    {format!("{} · {} by ", item.id, kind(item))}
                    {parts::line(&item.by_name)}
                    " · "
                    {parts::when(item.observed_at, paper.now(), Form::Clock)}
                    {format!(" · {digest}")}
                </p>
            </div>
        </li>
    }
}

/// Asks the provider now.
fn look_up(paper: &Paper) -> Option<AnyView> {
    let op = paper.op();
    if !paper.is_doubtful() || !slip::is_operator(paper.visitor.person.role()) {
        return None;
    }
    let contract = paper.sheet.provider.as_ref().map(|provider| &provider.document);
    let asked = contract.filter(|contract| contract.destination.as_ref().is_some_and(|to| to.lookup.is_some()));
    let words = match (asked, contract) {
        (Some(contract), _) => {
            view! { "Asks "{parts::line(&contract.title)}" by the downstream key. Reads only, sends nothing." }
                .into_any()
        }
        (None, Some(_)) => "Off: the provider does not declare how it is asked.".into_any(),
        (None, None) => "Off: nobody has declared how the provider is asked.".into_any(),
    };
    let form = view! {
        <form class="foot look-up" action=format!("{}/lookup", address(op.id())) method="post" aria-label="Look-up">
            <button
                class="btn"
                type="submit"
                disabled=asked.is_none().then_some("disabled")
                aria-describedby="why-look-up"
            >
                "Look up now"
            </button>
            <span class="why-off" id="why-look-up">{words}</span>
        </form>
    };
    Some(form.into_any())
}

/// For those who look after what has gone wrong.
fn statement_form(paper: &Paper) -> Option<AnyView> {
    slip::is_operator(paper.visitor.person.role()).then(|| {
        let draft = paper.draft();
        let form = view! {
            <details class="raw add" open=paper.sheet.evidence.is_empty()>
                <summary>"Add a look-up, receipt or statement"</summary>
                <form
                    class="stack"
                    action=format!("{}/evidence", address(paper.op().id()))
                    method="post"
                    aria-label="Add evidence"
                >
                    <fieldset>
                        <legend class="lab">"It says"</legend>
                        <div class="codes">
                            {radio("finding", "applied", "Applied")}
                            {radio("finding", "not_applied", "Not applied")}
                            {radio("finding", "inconclusive", "Inconclusive")}
                        </div>
                    </fieldset>
                    <fieldset>
                        <legend class="lab">"It is"</legend>
                        <div class="codes">
                            {radio("kind", "lookup", "A look-up")}
                            {radio("kind", "receipt", "A receipt")}
                            {radio("kind", "statement", "A statement")}
                        </div>
                    </fieldset>
                    <label class="field">
                        <span>"Reference at the provider"</span>
                        <input
                            class="in in-mono"
                            name="reference"
                            maxlength="500"
                            autocomplete="off"
                            spellcheck="false"
                            value=draft.reference
                        />
                    </label>
                    <label class="field">
                        <span>"What was found, and where"</span>
                        <TextArea id="note-evidence" name="note" rows=2 maxlength=4000 value=draft.words />
                    </label>
                    <div class="foot">
                        <button class="btn" type="submit">"Record"</button>
                        <span class="why-off">"Kept under your name, for good. It changes no state by itself."</span>
                    </div>
                </form>
            </details>
        };
        form.into_any()
    })
}

fn radio(name: &'static str, value: &'static str, label: &'static str) -> impl IntoView {
    view! { <label><input type="radio" name=name value=value required />{label}</label> }
}

/// Why another try is justified, or why there is none: what the provider declares about a lost answer, what has been
/// shown of it, and which tries were licensed by it.
fn other_tries(paper: &Paper) -> impl IntoView + use<> {
    let (op, now) = (paper.op(), paper.now());
    let row = |name: &'static str, words: AnyView, shown: AnyView| {
        view! { <tr><th scope="row">{name}</th><td class="words">{words}</td><td class="kind">{shown}</td></tr> }
            .into_any()
    };
    let mut rows = Vec::new();
    match &paper.sheet.provider {
        None => {
            let words = match &op.proposal.provider {
                Some(name) => view! { {parts::line(name)}" has declared nothing about a lost answer." }.into_any(),
                None => "Nobody has declared what a lost answer means.".into_any(),
            };
            rows.push(row("Provider", words, "".into_any()));
        }
        Some(provider) => {
            let contract = &provider.document;
            let name = view! { {parts::line(&contract.title)}", version "{provider.version} };
            rows.push(row("Provider", name.into_any(), "declared".into_any()));
            let key = match &contract.idempotency {
                Idempotency::Honoured(key) => {
                    format!("honoured for {}, header {}", super::span(key.retention_s), key.header)
                }
                Idempotency::None => "not honoured: the same request twice may act twice".to_owned(),
            };
            let is_declared = contract.idempotency != Idempotency::None;
            let shown = is_declared.then(|| proof(provider, Guarantee::Idempotency, now)).into_any();
            rows.push(row("The same key", key.into_any(), shown));
            let look_up = match contract.lookup {
                Lookup::Authoritative => "finds at once what was applied".to_owned(),
                Lookup::Eventual { settle_s } => format!("finds what was applied after {}", super::span(settle_s)),
                Lookup::None => "cannot be asked".to_owned(),
            };
            let is_declared = contract.lookup != Lookup::None;
            let shown = is_declared.then(|| proof(provider, Guarantee::Lookup, now)).into_any();
            rows.push(row("Look-up", look_up.into_any(), shown));
            rows.push(row("In flight", in_flight(paper, contract), "declared".into_any()));
        }
    }
    if let Some(until) = op.life.approval.retry_until {
        let words = if now >= until { "over since " } else { "in force until " };
        let words = view! { {words}{parts::when(until, now, Form::Clock)} };
        rows.push(row("Approval", words.into_any(), "".into_any()));
    }
    let licences = paper.sheet.told.iter().filter(|one| one.event == Event::AttemptLicensed);
    for one in licences.clone() {
        let reason = parts::line(one.reason.as_deref().unwrap_or_default());
        let words = view! { {reason}", "{parts::when(one.at, now, Form::Clock)} };
        rows.push(row("Licensed", words.into_any(), "one try".into_any()));
    }
    let authorised = op.life.retry_authorization.as_ref();
    if let Some(authorised) = authorised {
        let (first, second) = (parts::line(&authorised.asked.name), parts::line(&authorised.seconded.name));
        let words = view! { "by "{first}" and "{second}", not claimed yet" };
        rows.push(row("Authorised", words.into_any(), "one try".into_any()));
    }
    let mut is_licensed = licences.count() > 0 || authorised.is_some();
    if let Some(doubt) = paper.is_doubtful().then_some(paper.sheet.doubt.as_ref()).flatten() {
        let licence = doubt.licence(now);
        is_licensed |= licence.is_ok();
        let words = match licence {
            Ok(reason) => format!("may be claimed: {reason}"),
            Err(against) => format!("not now: {against}"),
        };
        rows.push(row("Another try", words.into_any(), "".into_any()));
    }
    let heading = match is_licensed {
        true => "Why another try is justified",
        false => "Why there is no other try",
    };
    view! {
        <section class="sec" aria-labelledby="h-retry">
            <div class="sec-head"><h2 id="h-retry">{heading}</h2></div>
            <table class="fields fields-words">
                <tbody>{rows}</tbody>
            </table>
        </section>
    }
}

/// How long what was sent may still act.
fn in_flight(paper: &Paper, contract: &Contract) -> AnyView {
    let Some(seconds) = contract.max_in_flight_s.seconds() else {
        return "without a bound: it may act at any time".into_any();
    };
    let ended = paper.op().life.attempts.iter().rev().find_map(|attempt| attempt.ended_at);
    let over = ended.map(|ended| {
        let over = ended.plus_seconds(seconds);
        let words = if paper.now() >= over { ", over since " } else { ", until " };
        view! { {words}{parts::when(over, paper.now(), Form::Clock)} }
    });
    view! { "at most "{super::span(seconds)}{over} }.into_any()
}

/// When a guarantee was last shown, and whether that still counts.
fn proof(provider: &ProviderView, guarantee: Guarantee, now: Timestamp) -> AnyView {
    let Some(check) = provider.checks.iter().find(|check| check.guarantee == guarantee) else {
        return view! { <span class="warn">"never proven"</span> }.into_any();
    };
    let at = parts::when(check.checked_at, now, Form::Day);
    match (check.passed, is_proven(Some(check.checked_at), now)) {
        (true, true) => view! { "proven "{at} }.into_any(),
        (true, false) => view! { <span class="warn">"proven "{at}", lapsed"</span> }.into_any(),
        (false, _) => view! { <span class="warn">"not kept "{at}</span> }.into_any(),
    }
}

/// On the stub: until when somebody looks into it, and for how long nobody knows.
pub fn clocks(paper: &Paper) -> impl IntoView + use<> {
    let (op, now) = (paper.op(), paper.now());
    let since = unknown_since(op);
    let case = op.life.review_case.as_ref().filter(|case| case.resolution.is_none());
    let due = case.map(|case| match case.overdue_since.or(case.is_overdue(now).then_some(case.due_at)) {
        Some(since) => view! {
            <div class="clock clock-soon">
                <span class="l">"Overdue for"</span>
                <span class="t">{time::span(now - since)}</span>
                <span class="u">"since "{parts::when(since, now, Form::Clock)}</span>
            </div>
        }
        .into_any(),
        None => stub::clock("Due in", case.due_at, (case.due_at - case.opened_at) / 1000, now).into_any(),
    });
    let owner = match case.map(|case| case.owner.clone()) {
        Some(Some(owner)) => view! { <b>{parts::line(&owner)}</b>". Passing the due time decides nothing." }.into_any(),
        Some(None) => "Nobody by name: any operator may settle it.".into_any(),
        None => "No case is open yet. An operator’s finding opens it.".into_any(),
    };
    view! {
        <section class="p">
            <div class="clocks">
                {due}
                <div class="clock clock-wait">
                    <span class="l">"Unknown for"</span>
                    <time class="t" datetime=since.to_string() data-since="">{time::span(now - since)}</time>
                    <span class="u">"since "{parts::when(since, now, Form::Clock)}</span>
                </div>
            </div>
        </section>
        <section class="p">
            <div class="p-head"><h2>"Owner"</h2></div>
            <p>{owner}</p>
            {slip::is_operator(paper.visitor.person.role()).then(|| hand_over(paper))}
        </section>
        {held_behind(paper)}
    }
}

/// Due times on offer. Seconds.
const DUE: [(&str, i64); 5] =
    [("15 min", 15 * 60), ("1 h", 3600), ("4 h", 4 * 3600), ("1 d", 24 * 3600), ("3 d", 3 * 24 * 3600)];

fn hand_over(paper: &Paper) -> impl IntoView + use<> {
    let case = paper.op().life.review_case.as_ref().filter(|case| case.resolution.is_none());
    let owner = case.and_then(|case| case.owner.clone());
    let people = paper.sheet.owners.iter().map(|name| {
        let is_owner = owner.as_ref() == Some(name);
        view! { <option value=name.clone() selected=is_owner>{parts::plain(name)}</option> }
    });
    let times = DUE.map(|(words, seconds)| view! { <option value=seconds.to_string()>"in "{words}</option> });
    let stays = if case.is_some() { "as it is" } else { "by the rule" };
    view! {
        <details class="raw">
            <summary>{if case.is_some() { "Hand over, or move the due time" } else { "Take it up" }}</summary>
            <form
                class="stack gap-top"
                action=format!("{}/case", address(paper.op().id()))
                method="post"
                aria-label="Owner and due time"
            >
                <label class="field">
                    <span>"Owner"</span>
                    <select class="in" name="owner">{people.collect::<Vec<_>>()}</select>
                </label>
                <label class="field">
                    <span>"Due"</span>
                    <select class="in" name="due_in_s">
                        <option value="">{stays}</option>
                        {times.into_iter().collect::<Vec<_>>()}
                    </select>
                </label>
                <div class="foot"><button class="btn btn-small" type="submit">"Save"</button></div>
            </form>
        </details>
    }
}

/// What waits on the same target until this is settled.
fn held_behind(paper: &Paper) -> Option<AnyView> {
    let held = &paper.sheet.waiting_behind;
    (!held.is_empty()).then(|| {
        let links = held.iter().map(|other| {
            let words = format!("{} {}", other.proposal.title, other.proposal.fingerprint.short_code());
            view! { <li><a href=address(other.id())>{words}</a>", approved, waits."</li> }
        });
        view! {
            <section class="p">
                <div class="p-head"><h2>"On hold behind it"</h2></div>
                <ul>{links.collect::<Vec<_>>()}</ul>
                <p class="second">"An operator may let one of them past, on its page, with a reason."</p>
            </section>
        }
        .into_any()
    })
}

/// On a later operation: an operator may let it past what holds its target.
pub fn lift(paper: &Paper) -> Option<AnyView> {
    let op = paper.op();
    let waits = paper.sheet.waits_for.is_some()
        && op.life.hold_override.is_none()
        && matches!(op.state(), State::Pending | State::Approved)
        && slip::is_operator(paper.visitor.person.role());
    waits.then(|| {
        view! {
            <section class="p">
                <div class="p-head"><h2>"Hold on the target"</h2></div>
                <p>"An earlier write may still have its effect. This one can be let past it, under your name."</p>
                <details class="raw">
                    <summary>"Let it past"</summary>
                    <form
                        class="stack gap-top"
                        action=format!("{}/override", address(op.id()))
                        method="post"
                        aria-label="Let it past the hold"
                    >
                        <label class="field">
                            <span>"Why that is safe"</span>
                            <input class="in" name="reason" required maxlength="1000" autocomplete="off" />
                        </label>
                        <div class="foot"><button class="btn btn-small" type="submit">"Let it past"</button></div>
                    </form>
                </details>
            </section>
        }
        .into_any()
    })
}

fn people(paper: &Paper) -> Conclusion {
    Conclusion::of(paper.op(), paper.sheet.provider.as_ref().map(|provider| &provider.document))
}

/// The ways out, each with what it needs.
pub fn settle(paper: &Paper) -> AnyView {
    let op = paper.op();
    let second = match people(paper) {
        Conclusion::Two => "It takes two people. Time settles nothing.",
        Conclusion::One => "Time settles nothing.",
    };
    let refused = paper.refusal().map(|problem| slip::refused(paper, problem));
    view! {
        <section class="decide" id="decide" aria-labelledby="h-decide">
            <div class="decide-head">
                <h2 id="h-decide">"Settle "{number(op)}</h2>
                <span class="second">{second}</span>
            </div>
            <div class="decide-notices">{refused}{slip::kept_words(paper)}</div>
            <div class="ways">
                {way(paper, ResolutionFinding::Applied)}
                {way(paper, ResolutionFinding::NotApplied)}
                {one_more_try(paper)}
                {way(paper, ResolutionFinding::Abandon)}
            </div>
        </section>
    }
    .into_any()
}

/// How a way out is written.
struct Words {
    heading: &'static str,
    effect: &'static str,
    button: &'static str,
    value: &'static str,
    note: &'static str,
    why: &'static str,
}

fn words(finding: ResolutionFinding) -> Words {
    match finding {
        ResolutionFinding::Applied => Words {
            heading: "It was applied",
            effect: "Ends as succeeded. The reference is kept.",
            button: "Applied",
            value: "applied",
            note: "note-applied",
            why: "why-applied",
        },
        ResolutionFinding::NotApplied => Words {
            heading: "It was not applied",
            effect: "Ends as failed. A new key is then safe.",
            button: "Not applied",
            value: "not_applied",
            note: "note-not-applied",
            why: "why-not-applied",
        },
        ResolutionFinding::Abandon => Words {
            heading: "Abandon without proof",
            effect: "Stays possibly applied. So does the hold.",
            button: "Abandon",
            value: "abandon",
            note: "note-abandon",
            why: "why-abandon",
        },
    }
}

fn way(paper: &Paper, finding: ResolutionFinding) -> impl IntoView + use<> {
    let (op, me) = (paper.op(), &paper.visitor.person);
    let Words { heading, effect, button, value, note, why } = words(finding);
    let wanted = match finding {
        ResolutionFinding::Applied => Some(Finding::Applied),
        ResolutionFinding::NotApplied => Some(Finding::NotApplied),
        ResolutionFinding::Abandon => None,
    };
    // A sender's own word never settles an outcome.
    let fitting = paper.sheet.evidence.iter().filter(|item| {
        let binds = item.bound || finding != ResolutionFinding::Applied;
        Some(item.finding) == wanted && !is_mere_word(item) && binds
    });
    let fitting: Vec<_> = fitting.collect();
    let first = op.life.review_case.as_ref().and_then(|case| case.seconded.as_ref());
    let first = first.filter(|first| first.finding == finding);
    let is_mine = first.is_some_and(|first| first.by == *me.id());
    let mut needs = Vec::new();
    let mut off = None;
    let mut need = |is_met: bool, words: String, reason: &'static str| {
        let class = if is_met { "ok" } else { "no-go" };
        needs.push(view! { <li class=class>{words}</li> }.into_any());
        if !is_met && off.is_none() {
            off = Some(reason);
        }
    };
    if finding == ResolutionFinding::Abandon {
        need(me.role() == Role::Admin, "An admin".to_owned(), "Off: only admins may.");
    } else {
        need(slip::is_operator(me.role()), "An operator or an admin".to_owned(), "Off: only operators and admins may.");
        let words = match finding {
            ResolutionFinding::Applied => "Evidence of it, with a reference bound to this key".to_owned(),
            _ => "Evidence that says so".to_owned(),
        };
        need(!fitting.is_empty(), words, "Off: no evidence says so yet. Record it first.");
        if people(paper) == Conclusion::Two {
            match first {
                Some(_) if is_mine => {
                    need(
                        false,
                        "A second person".to_owned(),
                        "Off: yours is recorded, and a second person has to agree.",
                    );
                }
                Some(first) => {
                    needs.push(view! { <li class="ok">{format!("{} found the same", first.name)}</li> }.into_any())
                }
                None => needs.push(view! { <li>"A second person, after you"</li> }.into_any()),
            }
        }
    }
    let noted = if finding == ResolutionFinding::Abandon { "A reason" } else { "A note" };
    needs.push(view! { <li>{noted}</li> }.into_any());
    let choose = (!fitting.is_empty() && off.is_none()).then(|| {
        let options = fitting.iter().map(|item| {
            let tail = item.id.as_str().len().saturating_sub(6);
            let words = format!("{} by {}, …{}", parts::capital(kind(item)), item.by_name, &item.id.as_str()[tail..]);
            view! { <option value=item.id.to_string()>{words}</option> }
        });
        view! {
            <label class="field">
                <span>"It rests on"</span>
                <select class="in" name="evidence">{options.collect::<Vec<_>>()}</select>
            </label>
        }
    });
    let noted = off.is_none().then(|| {
        view! {
            <label class="field"><span>{noted}</span><TextArea id=note name="note" rows=2 maxlength=4000 /></label>
        }
    });
    let harm = (off.is_none() && finding != ResolutionFinding::Abandon).then(harm);
    view! {
        <form
            class="opt"
            action=format!("{}/resolution", address(op.id()))
            method="post"
            aria-label=heading
        >
            <h3>{heading}</h3>
            <p>{effect}</p>
            <input type="hidden" name="finding" value=value />
            <ul class="needs">{needs}</ul>
            {choose}
            {noted}
            {harm}
            <div class="foot">
                <button class="btn" type="submit" disabled=off.map(|_| "disabled") aria-describedby=why>{button}</button>
                <span class="why-off" id=why>{off}</span>
            </div>
        </form>
    }
}

/// A condition of one more try: whether it holds, how it reads, and why the button is off without it.
struct Condition {
    holds: bool,
    words: AnyView,
    off: &'static str,
}

fn conditions(paper: &Paper) -> Vec<Condition> {
    let (op, now) = (paper.op(), paper.now());
    let doubt = paper.sheet.doubt.as_ref();
    let proofs = doubt.map(|doubt| doubt.proofs).unwrap_or_default();
    let in_force = doubt.is_some_and(|doubt| doubt.approval_in_force);
    let until = op.life.approval.retry_until.map(|until| {
        let words = if now < until { ", until " } else { "; it ended " };
        view! { {words}{parts::when(until, now, Form::Clock)} }
    });
    vec![
        Condition {
            holds: is_proven(proofs.idempotency, now) || is_proven(proofs.lookup, now),
            words: "A provider that honours the key or can be asked, proven".into_any(),
            off: match paper.sheet.provider {
                None => "Off: no provider has declared what it guarantees.",
                Some(_) => "Off: what the provider declares is not proven now.",
            },
        },
        Condition {
            holds: in_force,
            words: view! { "The approval in force"{until} }.into_any(),
            off: "Off: the approval is no longer in force.",
        },
        Condition {
            holds: doubt.is_some_and(|doubt| doubt.attempts < MAX_ATTEMPTS),
            words: format!("Fewer than {MAX_ATTEMPTS} attempts").into_any(),
            off: "Off: all attempts are used up.",
        },
    ]
}

/// What a finding says besides: for the measures.
fn harm() -> impl IntoView {
    view! {
        <details class="raw">
            <summary>"What it cost"</summary>
            <div class="stack gap-top">
                <label class="tick">
                    <input type="checkbox" name="duplicate_effect" value="true" />
                    "The effect was made more than once"
                </label>
                <label class="field">
                    <span>"Cost, in minor units"</span>
                    <input class="in in-mono" name="cost_minor" inputmode="numeric" maxlength="15" autocomplete="off" />
                </label>
                <label class="field">
                    <span>"Currency"</span>
                    <input class="in in-mono" name="currency" maxlength="3" autocomplete="off" spellcheck="false" />
                </label>
            </div>
        </details>
    }
}

fn one_more_try(paper: &Paper) -> impl IntoView + use<> {
    let (op, me) = (paper.op(), &paper.visitor.person);
    let conditions = conditions(paper);
    let unmet = conditions.iter().find(|condition| !condition.holds).map(|condition| condition.off.to_owned());
    let first = op.life.review_case.as_ref().and_then(|case| case.retry_asked.as_ref());
    let owns = op.proposal.owner == *me.id() || paper.sheet.agent.owner == *me.id();
    let may = slip::is_operator(me.role()) || me.role() == Role::Approver;
    let against = paper.sheet.doubt.as_ref().and_then(|doubt| doubt.licence(paper.now()).err());
    let off = match op.life.state {
        State::NeedsReview if owns => Some("Off: you own this agent, and others decide about another try.".to_owned()),
        State::NeedsReview if !may => Some("Off: an operator and an approver may.".to_owned()),
        State::NeedsReview if first.is_some_and(|first| first.by == *me.id()) => {
            Some("Off: your word is recorded, and a second person has to agree.".to_owned())
        }
        State::NeedsReview => unmet.or(against.map(|against| format!("Off: {against}."))),
        State::Unknown if op.life.retry_authorization.is_some() => {
            Some("Authorised already: it waits to be claimed again.".to_owned())
        }
        State::Unknown => unmet.or(Some(match against {
            None => "Licensed already: it may be claimed again.".to_owned(),
            Some(against) => format!("Off: {against}. Take it up as a case first."),
        })),
        _ => Some("Off: it has ended.".to_owned()),
    };
    let needs: Vec<_> = conditions
        .into_iter()
        .map(|Condition { holds, words, .. }| view! { <li class=if holds { "ok" } else { "no-go" }>{words}</li> })
        .collect();
    let people = match first {
        Some(first) => {
            view! { <li class="ok">{parts::line(&first.name)}" asked for it: “"{parts::line(&first.note)}"”"</li> }
                .into_any()
        }
        None => view! { <li>"An operator and an approver, two people"</li> }.into_any(),
    };
    let note = off.is_none().then(|| {
        view! {
            <label class="field">
                <span>"Why it is justified"</span>
                <TextArea id="note-retry" name="note" rows=2 maxlength=4000 />
            </label>
        }
    });
    view! {
        <form
            class="opt"
            action=format!("{}/retry-authorization", address(op.id()))
            method="post"
            aria-label="Authorise one more try"
        >
            <h3>"Authorise one more try"</h3>
            <p>"Same content, same key, once."</p>
            <input type="hidden" name="fingerprint" value=op.proposal.fingerprint.to_string() />
            <ul class="needs">{needs}{people}</ul>
            {note}
            <div class="foot">
                <button
                    class="btn"
                    type="submit"
                    disabled=off.is_some().then_some("disabled")
                    aria-describedby="why-retry"
                >
                    "Authorise one try"
                </button>
                <span class="why-off" id="why-retry">{off}</span>
            </div>
        </form>
    }
}
