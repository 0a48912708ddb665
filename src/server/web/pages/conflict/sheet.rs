//! One conflict: what the write expected, what it met, field by field, who changed that, and the way on.

use axum::response::{IntoResponse, Redirect, Response};
use leptos::prelude::*;
use serde::Deserialize;
use serde_json::Value;

use super::{address, list::chosen};
use crate::{
    model::{
        approval::Role,
        conflict::{Action, ChangedField, Conflict, ConflictResolution, ResolvedBy, ThreeWayRow},
        diff,
        id::ConflictId,
        json,
        kind::Verb,
        operation::{Decision, Operation, State},
        problem::{Code, Problem},
        text::Breaks,
        time::Timestamp,
    },
    server::{
        service::{
            conflict::{self, ConflictSheet, Plan, ResolveRequest, Values, VersionStep},
            error::{Error, Result},
        },
        web::{
            auth::Principal,
            body::{Form, Path, Query},
            pages::{
                error::sentence,
                operation::{address as operation_address, counted, grouped},
                parts::{self, Meaning, Notice},
                plans,
                render::{Page, Visitor, link},
                shell::Place,
                three::{self, Head, Layout, Part, Sight},
            },
        },
    },
    ui::{textarea::TextArea, time::Form as TimeForm},
};

#[derive(Deserialize)]
pub struct Asked {
    #[serde(default)]
    view: String,
    /// What the reader has just decided: believed as far as the conflict bears it out.
    #[serde(default)]
    told: String,
}

/// The page being written.
struct Paper<'a> {
    sheet: &'a ConflictSheet,
    visitor: &'a Visitor,
    layout: Layout,
    told: Told,
}

enum Told {
    Nothing,
    Did(Action),
    /// With what was typed, so that nothing is typed twice.
    Refused(Problem, Action, Words),
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Words {
    instruction: String,
    note: String,
}

pub async fn show(visitor: Visitor, Path(id): Path<ConflictId>, Query(asked): Query<Asked>) -> Result<Page> {
    let sheet = conflict::sheet(&visitor.desk, &visitor.person, &id).await?;
    let told = Action::parse(&asked.told).map_or(Told::Nothing, Told::Did);
    Ok(Paper { sheet: &sheet, visitor: &visitor, layout: Layout::parse(&asked.view), told }.write())
}

pub async fn replan(visitor: Visitor, Path(id): Path<ConflictId>, Form(words): Form<Words>) -> Result<Response> {
    resolve(visitor, id, Action::Replan, words).await
}

pub async fn accept(visitor: Visitor, Path(id): Path<ConflictId>, Form(words): Form<Words>) -> Result<Response> {
    resolve(visitor, id, Action::AcceptCurrent, words).await
}

pub async fn dismiss(visitor: Visitor, Path(id): Path<ConflictId>, Form(words): Form<Words>) -> Result<Response> {
    resolve(visitor, id, Action::Dismiss, words).await
}

async fn resolve(visitor: Visitor, id: ConflictId, action: Action, words: Words) -> Result<Response> {
    let some = |text: &str| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
    let request = ResolveRequest { action, instruction: some(&words.instruction), note: some(&words.note) };
    let result = match action {
        Action::Replan if request.instruction.is_none() => {
            Err(Problem::at(Code::ValidationFailed, "/instruction", "say what the agent is to do otherwise").into())
        }
        _ => conflict::resolve(&visitor.desk, &Principal::Person(visitor.person.clone()), &id, request).await,
    };
    match result {
        Ok(_) => Ok(Redirect::to(&format!("{}?told={}", address(&id), action.as_str())).into_response()),
        Err(Error::Refused(problem)) if problem.code != Code::NotFound => {
            let sheet = conflict::sheet(&visitor.desk, &visitor.person, &id).await?;
            let told = Told::Refused(problem, action, words);
            Ok(Paper { sheet: &sheet, visitor: &visitor, layout: Layout::default(), told }.write().into_response())
        }
        Err(error) => Err(error),
    }
}

impl Paper<'_> {
    fn now(&self) -> Timestamp {
        self.visitor.now
    }

    fn conflict(&self) -> &Conflict {
        &self.sheet.conflict
    }

    fn op(&self) -> &Operation {
        &self.sheet.op
    }

    fn write(&self) -> Page {
        let title = format!("Conflict on {}", self.conflict().resource);
        let page = self.visitor.page(&title, Place::Conflicts, || self.view());
        match &self.told {
            Told::Refused(problem, ..) => page.refused(problem.code),
            _ => page,
        }
    }

    fn view(&self) -> impl IntoView + use<> {
        let conflict = self.conflict();
        let state = if conflict.resolution.is_some() { "Resolved" } else { "Open" };
        view! {
            <div class="split head">
                <nav class="crumbs" aria-label="Place">
                    <a href="/conflicts">"Conflicts"</a>
                    <span>{state}</span>
                </nav>
                <div>{parts::live()}</div>
            </div>
            <article
                class="sheet split signed perf"
                data-id=self.op().id().to_string()
                data-version=self.op().life.version.to_string()
            >
                <div class="slip">{self.slip().into_any()}</div>
                <aside class="stub" aria-label="What it met">{self.stub().into_any()}</aside>
                <section class="decide" id="decide" aria-labelledby="h-decide">{self.strip()}</section>
            </article>
            {self.toast()}
        }
    }

    fn slip(&self) -> impl IntoView + use<> {
        let op = self.op();
        view! {
            <div class="slip-top">
                {parts::state_mark(State::Conflicted, 0, "Conflicted, nothing was written".to_owned())}
                {parts::risk(op.proposal.risk)}
                <span class="push"></span>
                {number(op)}
            </div>
            {self.say().into_any()}
            {self.comparison()}
            {parts::agent_says(self.op().proposal.reason.as_deref()).into_any()}
            {self.told_to_the_agent().into_any()}
        }
    }

    /// The headline sentence: whose write met what.
    fn say(&self) -> impl IntoView + use<> {
        let (op, facts) = (self.op(), &self.sheet.facts);
        let p = &op.proposal;
        let expected = match (p.expected_version, self.is_stale()) {
            (Some(0), _) => " where nothing was.".to_owned(),
            (Some(version), _) => format!(" as it was at version {version}."),
            (None, _) => ".".to_owned(),
        };
        let met = match (facts.current_version, p.expected_version) {
            _ if !self.is_stale() => None,
            (Some(0), _) => Some(" It is not there any more.".to_owned()),
            (Some(current), Some(expected)) if current == expected => None,
            (Some(current), _) => Some(format!(" It is at version {current}.")),
            (None, _) => Some(" Which version is there now is not known here.".to_owned()),
        };
        let hurry = self.conflict().resolution.is_none().then(|| {
            view! { <p class="phone-line"><span>"Waiting for a person"</span><a href="#decide">"Decide"</a></p> }
        });
        view! {
            <header class="say">
                <h1>
                    <b>{parts::line(&self.sheet.agent)}</b>
                    {format!(" wanted to {} ", verb_words(p.verb))}
                    {parts::target(p.target.as_str())}
                    {expected}
                    {met}
                </h1>
                <p class="effect">{self.effect()}</p>
                <p class="by">"Found "{parts::when(self.conflict().at, self.now(), TimeForm::Clock)}", "{votes_short(op)}"."</p>
                {hurry}
            </header>
        }
    }

    fn is_stale(&self) -> bool {
        self.conflict().code == Code::StaleVersion
    }

    /// Who changed how much, and what the write would have done to that.
    fn effect(&self) -> AnyView {
        let facts = &self.sheet.facts;
        if !self.is_stale() || facts.changed_fields.is_empty() {
            return parts::said(&sentence(&self.conflict().detail), Breaks::Escape).into_any();
        }
        let mut names: Vec<String> = Vec::new();
        for field in &facts.changed_fields {
            let name = self.changer(field);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let count = facts.changed_fields.len();
        let overlapping = facts.rows.iter().filter(|row| row.overlap).count();
        let rest = match (facts.already_satisfied, overlapping) {
            (true, _) => "What is there now is what the write wanted.".to_owned(),
            (false, 0) => "The write touches none of them.".to_owned(),
            (false, 1) if count == 1 => "The write would have overwritten it.".to_owned(),
            (false, all) if all >= count => "The write would have overwritten all of them.".to_owned(),
            (false, some) => format!("The write would have overwritten {some} of them."),
        };
        let more = (!facts.changed_fields_complete)
            .then_some(" More may have changed: not every version in between is known field by field.");
        let who = match names.len() {
            0 => "Somebody".to_owned(),
            1 | 2 => names.join(" and "),
            many => format!("{} and {} others", names[0], many - 1),
        };
        let when = if self.conflict().at_proposal { "since it was read" } else { "while this waited" };
        let fields = counted(count, "field");
        view! { {parts::line(&who)}{format!(" changed {fields} {when}. {rest}")}{more} }.into_any()
    }

    /// Whoever changed a field, by name.
    fn changer(&self, field: &ChangedField) -> String {
        let by = &field.by;
        let id = by.person.as_ref().map(|id| id.as_str()).or(by.agent.as_ref().map(|id| id.as_str()));
        id.map_or("somebody", |id| self.sheet.name_of(id)).to_owned()
    }

    /// Values that are the same in all three readings, each where it is the same as a whole.
    fn same(&self) -> Vec<(String, Value)> {
        let mut same = Vec::new();
        if let (Some(read), Some(proposed), Some(now)) = (&self.sheet.as_read, &self.sheet.proposed, &self.sheet.now) {
            three::same(read, proposed, now, &mut String::new(), &mut same);
        }
        same.retain(|(pointer, _)| !self.sheet.facts.rows.iter().any(|row| diff::touches(&row.pointer, pointer)));
        same
    }

    fn comparison(&self) -> Option<AnyView> {
        let facts = &self.sheet.facts;
        let same = self.same();
        if facts.rows.is_empty() && same.is_empty() {
            return self.reported();
        }
        let (now, conflict) = (self.now(), self.conflict());
        let side = |layout: Layout, words: &'static str| {
            let pairs = [("view", layout.as_str())];
            let pairs = if layout == Layout::default() { &pairs[1..] } else { &pairs[..] };
            let id = &self.conflict().id;
            let address = link(&address(id), pairs);
            let is_here = layout == self.layout;
            view! { <a href=address aria-current=is_here.then_some("true")>{words}</a> }
        };
        let since = |version: i64| {
            let step = self.sheet.chain.iter().find(|step| step.version == version);
            step.map(|step| view! { ", "{parts::when(step.at, now, TimeForm::Clock)} })
        };
        let version = |version: Option<i64>| match version {
            Some(0) => "nothing there".into_any(),
            Some(version) => view! { {format!("version {version}")}{since(version)} }.into_any(),
            None => "not known here".into_any(),
        };
        let heads = [
            Head { title: "As read", note: version(facts.expected_version) },
            Head {
                title: "As proposed",
                note: view! {
                    {parts::line(&self.sheet.agent)}", "
                    {parts::when(self.op().proposal.created_at, now, TimeForm::Clock)}
                }
                .into_any(),
            },
            Head {
                title: if conflict.resolution.is_some() { "When it was decided" } else { "Now" },
                note: version(facts.current_version),
            },
        ];
        let sight = match self.sheet.values {
            Values::Shown => Sight::Values,
            Values::Withheld => Sight::Names,
        };
        let about = |row: &ThreeWayRow| self.about(row);
        let note = match sight {
            Sight::Values => "What both sides touched comes first.",
            Sight::Names => "Values are not shown: you may not read this resource.",
        };
        let table = three::comparison(self.layout, sight, heads, &facts.rows, &same, &about).into_any();
        let section = view! {
            <section class="sec" aria-labelledby="h-three">
                <div class="sec-head">
                    <h2 id="h-three">"Three readings of one document"</h2>
                    <span class="note">{note}</span>
                    <nav class="push toggle" aria-label="Layout">
                        {side(Layout::SideBySide, "Side by side")}
                        {side(Layout::Unified, "Unified")}
                    </nav>
                </div>
                {table}
            </section>
        };
        Some(section.into_any())
    }

    /// What the destination said, where it refused the write itself.
    fn reported(&self) -> Option<AnyView> {
        let value = self.conflict().met.reported.as_ref()?;
        let text = three::print(value);
        let section = view! {
            <section class="sec" aria-labelledby="h-reported">
                <div class="sec-head">
                    <h2 id="h-reported">"What the destination said"</h2>
                    <span class="note">"As it was reported. Nobody has checked it."</span>
                </div>
                <pre class="sample">{parts::said(&text, Breaks::Keep)}</pre>
            </section>
        };
        Some(section.into_any())
    }

    /// Who changed a field, under whose approval, and how the two sides differ.
    fn about(&self, row: &ThreeWayRow) -> Option<AnyView> {
        let part = Part::of(row);
        let field = self
            .sheet
            .facts
            .changed_fields
            .iter()
            .find(|field| crate::model::diff::touches(&field.pointer, &row.pointer));
        let field = match part {
            Part::Proposal => return None,
            _ => field?,
        };
        let how = match (part, row.proposed == row.as_read) {
            (Part::Both, true) => Some("The proposal leaves it as it was read, and would have put it back. "),
            (Part::Both, false) => Some("Pulled both ways. "),
            _ => None,
        };
        let now = self.now();
        let step = self.sheet.chain.iter().find(|step| step.version == field.version);
        let through = step.map(through);
        let words = view! {
            {how}
            {format!("Changed in version {} by ", field.version)}
            <b>{parts::line(&self.changer(field))}</b>
            {through}
            ", "
            {parts::when(field.at, now, TimeForm::Clock)}
            "."
        };
        Some(words.into_any())
    }

    fn told_to_the_agent(&self) -> impl IntoView + use<> {
        let problem = self.conflict().problem();
        let problem = match self.is_stale() {
            true => self.sheet.facts.clone().into_problem(problem),
            false => problem,
        };
        let heading = format!("What the agent is told: {} {}, as JSON", problem.code.status(), problem.code.as_str());
        let mut document = problem.members.clone();
        document.insert("code".into(), problem.code.as_str().into());
        document.insert("detail".into(), problem.detail.clone().into());
        let document = Value::Object(document);
        view! {
            <section class="sec" aria-label="What the agent is told">
                <details class="raw">
                    <summary>{heading}</summary>
                    <pre>{parts::shown(&json::canonical(&document), Breaks::Escape)}</pre>
                </details>
            </section>
        }
    }

    fn stub(&self) -> impl IntoView + use<> {
        view! {
            <div class="stub-top void-top">{number(self.op())}<span class="second push">"void"</span></div>
            {self.versions()}
            {self.votes().into_any()}
            {self.chain().into_any()}
            {self.why().into_any()}
            {self.facts().into_any()}
        }
    }

    fn versions(&self) -> Option<AnyView> {
        let facts = &self.sheet.facts;
        if facts.expected_version.is_none() && facts.current_version.is_none() {
            return None;
        }
        let figure = |version: Option<i64>| match version {
            Some(0) => "none".to_owned(),
            Some(version) => grouped(version as u64),
            None => "?".to_owned(),
        };
        let sign = if facts.expected_version == facts.current_version { "=" } else { "≠" };
        let words = match (self.op().proposal.managed, &facts.reported_by) {
            (true, _) => {
                view! { "Compared where the document is kept, in the same transaction as the write." }.into_any()
            }
            (false, Some(report)) => view! {
                "It lives elsewhere: the version is what "
                {parts::line(self.sheet.name_of(&report.id))}
                " reported, "
                {parts::when(report.at, self.now(), TimeForm::Clock)}
                "."
            }
            .into_any(),
            (false, None) => "It lives elsewhere, and only the destination can check.".into_any(),
        };
        let panel = view! {
            <section class="p" aria-label="Versions">
                <div class="versions">
                    <div><span class="l">"Expected"</span><span class="t">{figure(facts.expected_version)}</span></div>
                    <div class="ne" aria-hidden="true">{sign}</div>
                    <div><span class="l">"Current"</span><span class="t">{figure(facts.current_version)}</span></div>
                </div>
                <p>{words}</p>
            </section>
        };
        Some(panel.into_any())
    }

    fn votes(&self) -> impl IntoView + use<> {
        let (op, now) = (self.op(), self.now());
        let votes: Vec<_> = op
            .life
            .votes
            .iter()
            .map(|vote| {
                let word = match vote.decision {
                    Decision::Approve => "approved ",
                    Decision::Reject => "rejected ",
                };
                view! {
                    <li class="sig sig-void">
                        <span class="tick" aria-hidden="true">"×"</span>
                        <b>{parts::line(&vote.name)}</b>
                        <span class="at">{word}{parts::when(vote.at, now, TimeForm::Clock)}</span>
                    </li>
                }
            })
            .collect();
        let missing = if op.life.approval.auto { 0 } else { (op.life.approval.required - op.granted()).max(0) };
        let open: Vec<_> = (0..missing)
            .map(|_| {
                view! {
                    <li class="sig sig-open">
                        <span class="tick" aria-hidden="true">"○"</span>
                        <b>"never given"</b>
                        <span class="at"></span>
                    </li>
                }
            })
            .collect();
        view! {
            <section class="p">
                <div class="p-head"><h2>"Votes"</h2><span class="push">"void"</span></div>
                <ol class="sigs">{votes}{open}</ol>
                <p class="note-gap">"A vote belongs to one number. It does not carry over to a new plan."</p>
            </section>
        }
    }

    fn chain(&self) -> impl IntoView + use<> {
        let (op, now, conflict) = (self.op(), self.now(), self.conflict());
        let step = |class: &'static str, words: AnyView, at: AnyView, is_here: bool| {
            view! {
                <li class=class aria-current=is_here.then_some("step")>
                    <span>{words}</span>
                    <span class="at">{at}</span>
                </li>
            }
            .into_any()
        };
        let when = |at: Timestamp| parts::when(at, now, TimeForm::Clock).into_any();
        let of_version = |step: &VersionStep| {
            let by = match &step.by.operation {
                Some(id) => view! { <a href=operation_address(id)>{parts::line(&step.by.name)}</a> }.into_any(),
                None => parts::line(&step.by.name).into_any(),
            };
            let run = step.by.run.as_ref().map(|run| view! { ", "<a href=format!("/runs/{run}")>"run"</a> });
            view! { {format!("Version {}, by ", step.version)}{by}{run} }.into_any()
        };
        let agent = || parts::line(&self.sheet.agent);
        // In the order in which things happened.
        let mut steps: Vec<(Timestamp, u8, AnyView)> = Vec::new();
        for version in &self.sheet.chain {
            steps.push((version.at, 1, step("done", of_version(version), when(version.at), false)));
        }
        let proposed = view! { {agent()}" proposes" }.into_any();
        steps.push((op.proposal.created_at, 2, step("", proposed, when(op.proposal.created_at), false)));
        let found = "This one conflicts".into_any();
        steps.push((conflict.at, 3, step("halt", found, when(conflict.at), false)));
        match &conflict.resolution {
            Some(done) => {
                let words = view! { {parts::capital(chosen(done.action))}", by "{parts::line(&done.by_name)} };
                steps.push((done.at, 4, step("done", words.into_any(), when(done.at), false)));
                if let Some(Plan { op, .. }) = &self.sheet.replanned_by {
                    let words = view! { {agent()}" plans anew, "{plans::link(op)} };
                    let at = op.proposal.created_at;
                    steps.push((at, 5, step("here", words.into_any(), when(at), true)));
                } else if done.action == Action::Replan {
                    let words = view! { "Waiting for "{agent()} };
                    let since = parts::since(done.at, now).into_any();
                    steps.push((now, 6, step("here", words.into_any(), since, true)));
                }
            }
            None => {
                let since = parts::since(conflict.at, now).into_any();
                steps.push((now, 6, step("here", "Waiting for a person".into_any(), since, true)));
            }
        }
        steps.sort_by_key(|(at, order, _)| (*at, *order));
        let left_out = self.sheet.earlier_steps;
        let more = (left_out > 0).then(|| {
            view! { <p class="note-gap">{counted(left_out as usize, "earlier version")}" in between not shown. "<a href=format!("/resources/{}", conflict.resource)>"See the history"</a></p> }
        });
        view! {
            <section class="p">
                <div class="p-head"><h2>"Who changed it"</h2></div>
                <ol class="steps">{steps.into_iter().map(|(.., step)| step).collect::<Vec<_>>()}</ol>
                {more}
            </section>
        }
    }

    /// Why a person, or why the agent itself.
    fn why(&self) -> impl IntoView + use<> {
        let facts = &self.sheet.facts;
        let overlapping = facts.rows.iter().filter(|row| row.overlap).count();
        let (heading, words) = match facts.resolver {
            ResolvedBy::Agent if facts.already_satisfied => (
                "Who may settle it",
                "What is there is what was wanted: the agent may accept that by itself.".to_owned(),
            ),
            ResolvedBy::Agent => (
                "Who may settle it",
                "The agent may read it again and plan anew by itself. A person may decide first.".to_owned(),
            ),
            ResolvedBy::Human if overlapping > 0 => (
                "Why a person",
                format!("{} overlap, so the agent may not settle this by itself.", counted(overlapping, "field")),
            ),
            ResolvedBy::Human => {
                ("Why a person", "Writes of this kind are not settled by the agent that proposed them.".to_owned())
            }
        };
        view! {
            <section class="p">
                <div class="p-head"><h2>{heading}</h2></div>
                <p>{words}</p>
            </section>
        }
    }

    fn facts(&self) -> impl IntoView + use<> {
        let (conflict, op) = (self.conflict(), self.op());
        let resource = &conflict.resource;
        let is_known = self.sheet.facts.current_version.is_some() && self.sheet.values == Values::Shown;
        let resource = is_known.then(|| {
            view! { <dt>"Resource"</dt><dd><a href=format!("/resources/{resource}")>{parts::target(resource)}</a></dd> }
        });
        let records = matches!(self.visitor.person.role(), Role::Auditor | Role::Admin).then(|| {
            let address = format!("/audit?operation={}", op.id());
            view! { <dt>"Record"</dt><dd><a href=address>"in the audit log"</a></dd> }
        });
        let replans = self.sheet.replans.as_ref().map(|plan| {
            view! { <dt>"Replans"</dt><dd>{plans::link(&plan.op)}</dd> }
        });
        view! {
            <section class="p">
                <dl class="facts">
                    {resource}
                    <dt>"Conflict"</dt>
                    <dd class="id">{conflict.id.to_string()}</dd>
                    <dt>"Operation"</dt>
                    <dd class="id"><a href=operation_address(op.id())>{op.id().to_string()}</a></dd>
                    <dt>"Run"</dt>
                    <dd class="id"><a href=format!("/runs/{}", op.proposal.run)>{op.proposal.run.to_string()}</a>" "{parts::line(&self.sheet.run_label)}</dd>
                    {replans}
                    <dt>"New key"</dt>
                    <dd>{if conflict.safe_new_key { "safe to use" } else { "not safe" }}</dd>
                    {records}
                </dl>
            </section>
        }
    }

    fn strip(&self) -> AnyView {
        let refusal = self.refusal();
        match &self.conflict().resolution {
            Some(done) => view! { {refusal}{self.resolved(done).into_any()} }.into_any(),
            None => view! { {refusal}{self.choices().into_any()} }.into_any(),
        }
    }

    /// Why what the reader sent was not done.
    fn refusal(&self) -> Option<AnyView> {
        let Told::Refused(problem, action, words) = &self.told else { return None };
        let someone_else =
            self.conflict().resolution.as_ref().filter(|done| done.by.id != self.visitor.person.id().as_str());
        let (heading, sentence) = match someone_else {
            Some(done) => (
                format!("{} was faster", parts::plain(&done.by_name)),
                "Your choice was not taken; it is decided once.".to_owned(),
            ),
            None => {
                let detail = problem.errors().first().map_or(problem.detail.clone(), |error| error.detail.clone());
                (problem.code.title().to_owned(), sentence(&detail))
            }
        };
        let kept = match action {
            Action::Replan => &words.instruction,
            Action::AcceptCurrent | Action::Dismiss => &words.note,
        };
        let kept = (someone_else.is_some() && !kept.trim().is_empty()).then(|| {
            view! {
                <div class="claim kept">
                    <p class="claim-title">"You wrote"</p>
                    <blockquote>{parts::said(kept, Breaks::Keep)}</blockquote>
                </div>
            }
        });
        let notice = view! {
            <div class="decide-notices">
                <Notice meaning=Meaning::Heed heading=heading>{sentence}</Notice>
                {kept}
            </div>
        };
        Some(notice.into_any())
    }

    fn draft(&self, action: Action) -> Words {
        match &self.told {
            Told::Refused(_, asked, words) if *asked == action => words.clone(),
            _ => Words::default(),
        }
    }

    fn choices(&self) -> impl IntoView + use<> {
        let (conflict, facts) = (self.conflict(), &self.sheet.facts);
        let agent = self.sheet.agent.clone();
        let here = address(&conflict.id);
        let off = self.sheet.rights.resolve.as_ref().err().map(|problem| sentence(&problem.detail));
        let is_refused = |action: Action| matches!(&self.told, Told::Refused(_, asked, _) if *asked == action);
        let reads = match facts.current_version {
            Some(0) | None => "reads it afresh".to_owned(),
            Some(version) => format!("reads version {version}"),
        };
        let version = facts.current_version.filter(|version| *version > 0);
        let stands = match version {
            Some(version) => format!("Version {version} stands. "),
            None => "What is there stands. ".to_owned(),
        };
        let accept = version.map_or("Accept what is there".to_owned(), |version| format!("Accept version {version}"));
        let thing = if self.op().proposal.managed { "document" } else { "resource" };
        let foot = |words: String, class: &'static str, id: &'static str| {
            let why = off.clone().map(|why| view! { <p class="why-off" id=id>"Off: "{lower_first(&why)}</p> });
            let is_off = off.is_some();
            view! {
                <div class="foot">
                    <button
                        class=format!("btn {class}").trim_end().to_owned()
                        type="submit"
                        disabled=is_off
                        aria-describedby=is_off.then_some(id)
                    >
                        {words}
                    </button>
                    {why}
                </div>
            }
        };
        view! {
            <div class="decide-head">
                <h2 id="h-decide">"What should happen next"</h2>
                <span class="second">{format!("Each choice is recorded, once. None of them writes to the {thing}.")}</span>
            </div>
            <div class="choice choice-three">
                <form class="opt opt-first" action=format!("{here}/replan") method="post" aria-label="Re-plan">
                    <h3>"Re-plan"</h3>
                    <p>
                        {parts::line(&agent)}
                        {format!(" reads your instruction, {reads} and proposes anew. The new operation has its own number and needs its own vote.")}
                    </p>
                    <label class="field" for="instruction">
                        <span>"Instruction to the agent"</span>
                    </label>
                    <TextArea
                        id="instruction"
                        name="instruction"
                        rows=4
                        value=self.draft(Action::Replan).instruction
                        invalid=is_refused(Action::Replan).then_some("true")
                    />
                    {foot("Ask for a new plan".to_owned(), "btn-ink", "off-replan").into_any()}
                </form>
                <form class="opt" action=format!("{here}/accept") method="post" aria-label="Accept what is there">
                    <h3>"Accept what is there"</h3>
                    <p>{stands}"The agent is told its change is no longer wanted."</p>
                    <label class="field" for="accept-note">
                        <span>"Note, for people"</span>
                    </label>
                    <TextArea id="accept-note" name="note" rows=2 value=self.draft(Action::AcceptCurrent).note />
                    {foot(accept, "", "off-accept").into_any()}
                </form>
                <form class="opt" action=format!("{here}/dismiss") method="post" aria-label="Dismiss">
                    <h3>"Dismiss"</h3>
                    <p>"Close the conflict without an answer. The agent may read and propose again."</p>
                    <label class="field" for="dismiss-note">
                        <span>"Note, for people"</span>
                    </label>
                    <TextArea id="dismiss-note" name="note" rows=2 value=self.draft(Action::Dismiss).note />
                    {foot("Dismiss".to_owned(), "", "off-dismiss").into_any()}
                </form>
            </div>
        }
    }

    /// What was decided, and what came of it.
    fn resolved(&self, done: &ConflictResolution) -> impl IntoView + use<> {
        let now = self.now();
        let by = if done.by.id == self.visitor.person.id().as_str() { "You".to_owned() } else { done.by_name.clone() };
        let agent = &self.sheet.agent;
        let (heading, words) = match done.action {
            Action::Replan if self.sheet.replanned_by.is_none() => (
                "asked for a new plan",
                format!("{agent} reads the instruction on its operation. It has not proposed anew yet."),
            ),
            Action::Replan => ("asked for a new plan", format!("{agent} has proposed anew.")),
            Action::AcceptCurrent => (
                "accepted what is there",
                match done.version {
                    Some(version) if version > 0 => {
                        format!("Version {version} stands. {agent} is told that its change is no longer wanted.")
                    }
                    _ => format!("What is there stands. {agent} is told that its change is no longer wanted."),
                },
            ),
            Action::Dismiss => {
                ("dismissed it", format!("Nothing follows from it. {agent} may read and propose again."))
            }
        };
        let instruction = done.instruction.as_ref().map(|words| quoted("The instruction", words));
        let note = done.note.as_ref().map(|words| quoted("A note, for people", words));
        let plan = self.sheet.replanned_by.as_ref().map(|Plan { op, changes }| {
            view! {
                <div class="box plan">
                    <div class="plan-head">
                        {parts::state(op, now)}
                        <span class="push">
                            <a class="btn btn-small" href=operation_address(op.id())>
                                "Open the new plan "
                                <span class="no">{op.proposal.fingerprint.short_code()}</span>
                            </a>
                        </span>
                    </div>
                    {plans::difference(self.op(), op, changes).into_any()}
                </div>
            }
        });
        view! {
            <div class="decide-head">
                <h2 id="h-decide">{parts::line(&by)}" "{heading}</h2>
                <span class="second">{parts::when(done.at, now, TimeForm::Clock)}</span>
            </div>
            <div class="settled">
                <p>{parts::line(&words)}</p>
                {instruction}
                {note}
                {plan}
            </div>
        }
    }

    /// What the reader just did, said once.
    fn toast(&self) -> Option<AnyView> {
        /// How long a deed is news. Milliseconds.
        const NEWS_MS: i64 = 60_000;
        let Told::Did(action) = self.told else { return None };
        let done = self.conflict().resolution.as_ref()?;
        let is_mine = done.by.id == self.visitor.person.id().as_str() && done.action == action;
        if !is_mine || self.now() - done.at > NEWS_MS {
            return None;
        }
        let words = match action {
            Action::Replan => "Asked for a new plan.",
            Action::AcceptCurrent => "Accepted what is there.",
            Action::Dismiss => "Dismissed.",
        };
        let agent = parts::plain(&self.sheet.agent);
        let toast = view! {
            <div class="toast toast-here" role="status" data-toast="">
                <span>{format!("{words} {agent} was told.")}</span>
                <a href="/conflicts">"Conflicts"</a>
            </div>
        };
        Some(toast.into_any())
    }
}

/// Through which operation a version came about, and under whose approval.
fn through(step: &VersionStep) -> impl IntoView + use<> {
    let by = &step.by;
    let operation = by.operation.as_ref().zip(by.number.clone()).map(|(id, number)| {
        view! { ", "<a class="no no-ours" href=operation_address(id)>{number}</a> }
    });
    let approved = match (by.approvers.is_empty(), by.granted_by_rule.is_some()) {
        (false, _) => format!(", approved by {}", by.approvers.join(" and ")),
        (true, true) => ", granted by rule".to_owned(),
        (true, false) => String::new(),
    };
    view! { {operation}{parts::line(&approved)} }
}

fn number(op: &Operation) -> impl IntoView + use<> {
    view! { <span class="no no-void">{op.proposal.fingerprint.short_code()}</span> }
}

fn quoted(title: &'static str, words: &str) -> impl IntoView + use<> {
    view! {
        <div class="claim kept">
            <p class="claim-title">{title}</p>
            <blockquote>{parts::said(words, Breaks::Keep)}</blockquote>
        </div>
    }
}

/// `one vote short of approval`.
fn votes_short(op: &Operation) -> String {
    let approval = &op.life.approval;
    match (approval.granted_at, approval.required - op.granted()) {
        (Some(_), _) => "after it was approved".to_owned(),
        (None, missing) if op.granted() > 0 => {
            format!("{} short of approval", counted(missing.max(0) as usize, "vote"))
        }
        (None, _) => "before anybody voted".to_owned(),
    }
}

fn verb_words(verb: Verb) -> String {
    match verb {
        Verb::Deploy => "release to".to_owned(),
        Verb::Rollback => "roll back".to_owned(),
        Verb::Comment => "comment on".to_owned(),
        Verb::Request => "call".to_owned(),
        verb => verb.as_str().to_owned(),
    }
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}
