//! Settings: the rules, which of them would match, and their editor.

use axum::{
    Router,
    response::{IntoResponse, Redirect, Response},
    routing::get,
};
use leptos::prelude::*;
use serde::{Deserialize, Serialize};

use super::{
    super::{
        error::sentence,
        parts::{self, Head, Meaning, Notice, Sheet},
        problems::quoted,
        render::{Page, Visitor},
        shell::Place,
    },
    Tab, beside_form, document_editor, faults, is_admin, risk_of, tabs,
};
use crate::{
    model::{
        json::{self, Limits},
        kind::{KindName, Risk},
        policy::{Effective, Rule, Ttl},
        problem::{Code, Problem},
        target::{Target, glob_matches},
    },
    server::{
        service::{
            catalogue::{self, KindView, MatchAnswer, MatchQuestion, PolicyView},
            error::{Error, Result},
            operation,
        },
        store::{agent, person, queue},
        web::{
            auth::Admin,
            body::{Form, Query},
            state::AppState,
        },
    },
    ui::time::{Form as TimeForm, span},
};

pub fn routes() -> Router<AppState> {
    Router::new()
        .route("/settings/policies", get(policies).post(save_policy))
        .route("/settings/policies/edit", get(edit_policy))
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Question {
    kind: String,
    target: String,
    agent: String,
}

/// What came of asking which rule would match.
enum Matched {
    NotAsked,
    Refused(Problem),
    Rule { answer: MatchAnswer, owner: String, able: usize },
}

async fn policies(visitor: Visitor, Query(question): Query<Question>) -> Result<Page> {
    let policy = catalogue::policy_in_force(&visitor.desk).await?;
    let kinds = catalogue::all_kinds(&visitor.desk).await?;
    let matched = matched(&visitor, &question).await?;
    let mut conn = visitor.desk.store.read().await?;
    let agents: Vec<String> = agent::list(&mut conn).await?.into_iter().map(|agent| agent.name).collect();
    let names = person::list(&mut conn).await?;
    let approved = queue::tally(&mut conn, visitor.now, visitor.now).await?.approved;
    drop(conn);
    let who = |id: &Option<String>| match id {
        Some(id) => {
            names.iter().find(|person| person.id.as_str() == id).map_or(id.clone(), |person| person.name.clone())
        }
        None => "nobody: the first start".to_owned(),
    };
    let hit = match &matched {
        Matched::Rule { answer, .. } => Some(answer.place),
        _ => None,
    };
    let now = visitor.now;
    let is_admin = is_admin(&visitor);
    Ok(visitor.page("Policies", Place::Settings, || {
        let latest = policy.versions.first().map(|version| {
            view! {
                <p>
                    "Version "{version.version}", by "{who(&version.changed_by)}", "
                    {parts::when(version.created_at, now, TimeForm::Day)}
                </p>
            }
            .into_any()
        });
        let versions: Vec<_> = policy
            .versions
            .iter()
            .take(8)
            .map(|version| {
                view! {
                    <li class="done">
                        <span>{version.version}", by "{who(&version.changed_by)}</span>
                        <span class="at">{parts::when(version.created_at, now, TimeForm::Day)}</span>
                    </li>
                }
            })
            .collect();
        let slip = view! {
            <ol class="rules-list">
                {policy
                    .rules
                    .iter()
                    .enumerate()
                    .map(|(i, rule)| {
                        let effective = filled(rule, &policy.default_rule);
                        rule_row(Some(i), Some(rule), &effective, &kinds, hit == Some(Some(i)), is_admin)
                    })
                    .collect::<Vec<_>>()}
                {rule_row(None, None, &policy.default_rule, &kinds, hit == Some(None), false)}
            </ol>
            <div class="pane pane-foot">
                {is_admin.then(|| view! { <a class="btn btn-small" href="/settings/policies/edit">"Edit the rules"</a> })}
                <span class="why-off">
                    "High and critical risk is never granted by rule. There is no way to wait for ever or to approve by silence."
                </span>
            </div>
        };
        let stub = view! {
            {asking(&question, &kinds, &agents)}
            {answer(&matched)}
            <section class="p">
                <div class="p-head"><h2>"If you change a rule"</h2></div>
                <p>{approved_words(approved)}</p>
            </section>
            <section class="p">
                <div class="p-head"><h2>"Versions"</h2></div>
                <ol class="steps">{versions}</ol>
            </section>
        };
        view! {
            <Head title="Policies" aside=latest>
                "Who must sign what. Rules are read from the top; the first that matches holds."
            </Head>
            {tabs(Tab::Policies)}
            {shortages(&policy)}
            <div class="gap-top">
                <Sheet slip=slip.into_any() stub=stub.into_any() stub_label="Which rule would match" />
            </div>
        }
    }))
}

fn approved_words(approved: i64) -> String {
    match approved {
        0 => "No approved operation waits to run. Each is checked again when claimed, and goes back to pending if it falls \
              short."
            .to_owned(),
        1 => "1 approved operation is open. It is checked again when claimed, and goes back to pending if it falls short."
            .to_owned(),
        n => format!("{n} approved operations are open. Each is checked again when claimed, and goes back to pending if it \
                      falls short."),
    }
}

fn shortages(policy: &PolicyView) -> impl IntoView + use<> {
    let lines: Vec<String> = policy
        .warnings
        .iter()
        .map(|warning| {
            let place = warning.pointer.strip_prefix("/rules/").and_then(|place| place.parse::<usize>().ok());
            let rule = match place {
                Some(place) => format!("Rule {}, {}", place + 1, policy.rules[place].name),
                None => "The default rule".to_owned(),
            };
            format!("{rule}: {}.", warning.detail)
        })
        .collect();
    (!lines.is_empty()).then(|| {
        view! {
            <div class="gap-top">
                <Notice meaning=Meaning::Heed heading="Some work can never be approved">{lines.join(" ")}</Notice>
            </div>
        }
    })
}

/// A rule with what it leaves open taken from the default rule.
fn filled(rule: &Rule, default_rule: &Effective) -> Effective {
    let require = rule.require.clone();
    Effective {
        rule: rule.name.clone(),
        approvals: require.approvals.unwrap_or(default_rule.approvals),
        groups: require.groups.unwrap_or_else(|| default_rule.groups.clone()),
        auto: require.auto.unwrap_or(false),
        step_up: require.step_up.unwrap_or(false),
        approval_ttl: require.approval_ttl.unwrap_or(default_rule.approval_ttl),
        execution_ttl: require.execution_ttl.unwrap_or(default_rule.execution_ttl),
        retry_ttl: require.retry_ttl.unwrap_or(default_rule.retry_ttl),
        one_reject: require.one_reject.unwrap_or(true),
        review_owner: require.review_owner,
        review_due: require.review_due.unwrap_or(default_rule.review_due),
        escalation: require.escalation.unwrap_or_default(),
        ..default_rule.clone()
    }
}

fn rule_row(
    place: Option<usize>,
    rule: Option<&Rule>,
    asks: &Effective,
    kinds: &[KindView],
    hit: bool,
    is_admin: bool,
) -> impl IntoView + use<> {
    let name = rule.map_or("default", |rule| rule.name.as_str());
    let order = place.map_or("–".to_owned(), |place| (place + 1).to_string());
    view! {
        <li class=if hit { "rule rule-hit" } else { "rule" }>
            <span class="ord">{order}</span>
            <div>
                <h2>{parts::line(name)}</h2>
                <p class="match-on">{parts::line(&matches_words(rule))}</p>
            </div>
            <ul class="req">{requirements(rule, asks, kinds)}</ul>
            {is_admin.then(|| view! { <a href="/settings/policies/edit">"Edit"</a> })}
        </li>
    }
}

/// `deployment.* on release/prod*`
fn matches_words(rule: Option<&Rule>) -> String {
    let Some(rule) = rule else { return "everything else".to_owned() };
    let matches = &rule.matches;
    let mut words = match (matches.kind.is_empty(), matches.target.is_empty()) {
        (true, true) => "everything".to_owned(),
        (false, true) => format!("{} on *", matches.kind.join(" or ")),
        (true, false) => format!("anything on {}", matches.target.join(" or ")),
        (false, false) => format!("{} on {}", matches.kind.join(" or "), matches.target.join(" or ")),
    };
    if !matches.agent.is_empty() {
        words.push_str(&format!(" by {}", matches.agent.join(" or ")));
    }
    words
}

fn requirements(rule: Option<&Rule>, asks: &Effective, kinds: &[KindView]) -> Vec<AnyView> {
    let mut words: Vec<AnyView> = Vec::new();
    let mut add = |view: AnyView| words.push(view! { <li>{view}</li> }.into_any());
    let time = |ttl: Ttl| span(ttl.as_seconds() * 1000);
    if let Some(risks) = rule.map(|rule| &rule.matches.risk).filter(|risks| !risks.is_empty()) {
        let risks: Vec<_> = risks.iter().map(|risk| risk.as_str()).collect();
        add(format!("{} risk only", risks.join(" or ")).into_any());
    }
    let votes = view! { <b>{asks.approvals}</b>" of group "{parts::line(&asks.groups.join(" or "))} };
    if asks.auto {
        add(view! { <b>"Nobody"</b>": granted by rule" }.into_any());
    } else {
        add(votes.into_any());
    }
    if rule.is_some_and(|rule| is_all_risky(rule, kinds)) {
        add("target typed".into_any());
    }
    if asks.step_up {
        add("password within 5 min".into_any());
    }
    if !asks.auto {
        add(view! { <b>{time(asks.approval_ttl)}</b>" to decide" }.into_any());
    }
    add(view! { <b>{time(asks.execution_ttl)}</b>" to run" }.into_any());
    if !asks.one_reject {
        add("one reject is not enough".into_any());
    }
    if let Some(owner) = &asks.review_owner {
        let then =
            if asks.escalation.is_empty() { String::new() } else { format!(", then {}", asks.escalation.join(", ")) };
        add(view! { "doubts go to "{parts::line(owner)}", due in "<b>{time(asks.review_due)}</b>{parts::line(&then)} }
            .into_any());
    }
    words
}

/// Whether everything the rule is about is high or critical, so that its target is always typed.
fn is_all_risky(rule: &Rule, kinds: &[KindView]) -> bool {
    let globs = &rule.matches.kind;
    let mut about = kinds.iter().filter(|kind| globs.iter().any(|glob| glob_matches(glob, &kind.name))).peekable();
    let is_risky = |kind: &KindView| risk_of(&kind.document).is_some_and(Risk::needs_care);
    about.peek().is_some() && about.all(is_risky)
}

async fn matched(visitor: &Visitor, question: &Question) -> Result<Matched> {
    if question.kind.is_empty() && question.target.is_empty() {
        return Ok(Matched::NotAsked);
    }
    let read = || -> std::result::Result<MatchQuestion, Problem> {
        let at = |pointer: &str, error: &dyn std::fmt::Display| {
            Problem::at(Code::ValidationFailed, pointer, error.to_string())
        };
        let kind: KindName = question.kind.parse().map_err(|error| at("/kind", &error))?;
        let target: Target = question.target.trim().parse().map_err(|error| at("/target", &error))?;
        Ok(MatchQuestion { kind, target, risk: None, agent: question.agent.clone() })
    };
    let asked = match read() {
        Ok(asked) => asked,
        Err(problem) => return Ok(Matched::Refused(problem)),
    };
    let answer = match catalogue::match_rule(&visitor.desk, &asked).await {
        Ok(answer) => answer,
        Err(error) => return beside_form(error).map(Matched::Refused),
    };
    let mut conn = visitor.desk.store.read().await?;
    let agent = agent::by_name(&mut conn, &asked.agent).await?;
    let owner = agent.as_ref().map(|agent| agent.owner.clone());
    let voters = operation::voters(&mut conn).await?;
    let able =
        voters.iter().filter(|voter| voter.is_eligible(&answer.rule.groups) && Some(&voter.id) != owner.as_ref());
    let able = able.count();
    Ok(Matched::Rule { able, owner: agent.map(|agent| agent.owner_name).unwrap_or_default(), answer })
}

fn asking(question: &Question, kinds: &[KindView], agents: &[String]) -> impl IntoView + use<> {
    let options = |names: Vec<String>, chosen: &str| {
        let option = |name: String| {
            let selected = name == chosen;
            view! { <option selected=selected>{name}</option> }
        };
        names.into_iter().map(option).collect::<Vec<_>>()
    };
    view! {
        <form class="p p-first" action="/settings/policies" method="get">
            <div class="p-head"><h2>"Which rule would match?"</h2></div>
            <div class="stack">
                <label class="field">
                    <span>"Kind"</span>
                    <select class="in" name="kind">
                        {options(kinds.iter().map(|kind| kind.name.clone()).collect(), &question.kind)}
                    </select>
                </label>
                <label class="field">
                    <span>"Target"</span>
                    <input
                        class="in in-mono"
                        name="target"
                        required
                        placeholder="release/prod-eu"
                        value=question.target.clone()
                        spellcheck="false"
                        autocapitalize="off"
                    />
                </label>
                <label class="field">
                    <span>"Agent"</span>
                    <select class="in" name="agent">{options(agents.to_vec(), &question.agent)}</select>
                </label>
                <button class="btn" type="submit">"Try"</button>
            </div>
        </form>
    }
}

fn answer(matched: &Matched) -> impl IntoView + use<> {
    match matched {
        Matched::NotAsked => ().into_any(),
        Matched::Refused(problem) => view! {
            <section class="p"><p class="err" role="alert">{quoted(&sentence(&problem.detail))}</p></section>
        }
        .into_any(),
        Matched::Rule { answer, owner, able } => {
            let rule = &answer.rule;
            let title = match answer.place {
                Some(place) => format!("Rule {}, {}", place + 1, rule.rule),
                None => "The default rule".to_owned(),
            };
            let people = if rule.approvals == 1 { "1 person" } else { &format!("{} people", rule.approvals) };
            let can = if *able == 1 { "1 person".to_owned() } else { format!("{able} people") };
            let words = match rule.auto {
                true => format!("Granted at once, where the run's write set covers it; {} risk.", answer.risk.as_str()),
                false => format!(
                    "{people} of group {}. Not {owner}, who owns the agent. {can} can sign today.",
                    rule.groups.join(" or ")
                ),
            };
            view! {
                <section class="p" aria-live="polite">
                    <p class="match"><span aria-hidden="true">"✓"</span>{parts::line(&title)}</p>
                    <p>{parts::line(&words)}</p>
                </section>
            }
            .into_any()
        }
    }
}

/// The policy as it is edited, its members in the order in which they are read.
#[derive(Serialize)]
struct Document<'a> {
    rules: &'a [Rule],
}

async fn edit_policy(visitor: Visitor, _: Admin) -> Result<Page> {
    let policy = catalogue::policy_in_force(&visitor.desk).await?;
    let text = serde_json::to_string_pretty(&Document { rules: &policy.rules }).map_err(Error::internal)?;
    Ok(policy_editor(&visitor, policy.version, text, None))
}

#[derive(Deserialize)]
struct Edited {
    document: String,
    /// The version it was made from.
    version: i64,
}

async fn save_policy(visitor: Visitor, admin: Admin, Form(edited): Form<Edited>) -> Result<Response> {
    let saved = match json::parse(edited.document.as_bytes(), Limits::BODY) {
        Ok(document) => {
            catalogue::change_policy(&visitor.desk, &(&admin).into(), &document, Some(edited.version)).await
        }
        Err(problem) => Err(problem.into()),
    };
    match saved {
        Ok(_) => Ok(Redirect::to("/settings/policies").into_response()),
        Err(error) => {
            let problem = beside_form(error)?;
            Ok(policy_editor(&visitor, edited.version, edited.document, Some(&problem))
                .refused(problem.code)
                .into_response())
        }
    }
}

fn policy_editor(visitor: &Visitor, version: i64, text: String, refused: Option<&Problem>) -> Page {
    visitor.page("Edit the rules", Place::Settings, || {
        let slip = view! {
            <form class="sec sec-first stack" id="editor" action="/settings/policies" method="post">
                <input type="hidden" name="version" value=version />
                <label class="lab" for="document">"Rules, from the top"</label>
                {document_editor(text, refused)}
                <div class="acts">
                    <button class="btn btn-ink" type="submit">"Put in force"</button>
                    <a href="/settings/policies">"Back, and change nothing"</a>
                </div>
            </form>
        };
        let stub = view! {
            <section class="p p-first">
                <div class="p-head"><h2>"A rule"</h2></div>
                <pre class="sample">{RULE_SAMPLE}</pre>
            </section>
            <section class="p">
                <div class="p-head"><h2>"What holds in any case"</h2></div>
                <ul class="needs">
                    <li>"The first rule that matches holds; what it leaves out comes from the default rule"</li>
                    <li>"Times lie between 1 s and 7 d"</li>
                    <li>"High and critical risk is never granted by rule"</li>
                    <li>"The owner of an agent never approves its work"</li>
                </ul>
            </section>
        };
        view! {
            <Head title="Edit the rules">
                "This makes a new version of the policy. Version "{version}" stays in the history."
            </Head>
            {tabs(Tab::Policies)}
            {faults(refused)}
            <div class="gap-top">
                <Sheet slip=slip.into_any() stub=stub.into_any() stub_label="Help" />
            </div>
        }
    })
}

const RULE_SAMPLE: &str = r#"{
  "name": "production releases",
  "match": {
    "kind": "deployment.*",
    "target": "release/prod*"
  },
  "require": {
    "approvals": 2,
    "groups": ["sre"],
    "step_up": true,
    "approval_ttl_s": 900,
    "execution_ttl_s": 600
  }
}"#;
