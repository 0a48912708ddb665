//! The sentences of a kind, written by the server from the content: what the agent sent is data in them, never a
//! template, and plain text, never markup.

use minijinja::{
    Environment, Error, ErrorKind, Output, State, UndefinedBehavior, escape_formatter,
    value::{Serde, Value, ValueKind},
};
use serde_json::json;

use crate::model::{
    kind::{Amount, Kind},
    problem::{Code, FieldError, Problem},
    target::Target,
};

/// What the sentences of one operation may speak of.
#[derive(Debug, Clone, Copy)]
pub struct ConsequenceFacts<'a> {
    /// Checked, with defaults.
    pub params: &'a serde_json::Value,
    pub target: &'a Target,
    pub expected_version: Option<i64>,
    /// What is on the target now, if that is known here: a resource's value, or the parameters of the operation that
    /// last succeeded on an external target.
    pub current: Option<&'a serde_json::Value>,
    /// The payment that this operation draws on, if it is known here.
    pub payment: Option<&'a LinkedPayment>,
}

/// An earlier payment, as far as a capture or a refund speaks of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkedPayment {
    pub payee: String,
    pub invoice: String,
    pub amount: Amount,
}

/// Names that a sentence may use.
const NAMES: [&str; 6] = ["params", "target", "expected_version", "current", "money", "payment"];
/// About 20,000 steps, or 1 MB of text that is put together.
const FUEL: u64 = 20_000;
const LONGEST: usize = 8_000;

const CONSEQUENCE: &str = "consequence";
const ROLLBACK: &str = "rollback";

/// Both templates of a kind.
pub(super) struct Sentences(Environment<'static>);

impl Sentences {
    pub(super) fn compile(kind: &Kind) -> Result<Self, Problem> {
        let mut env = Environment::new();
        env.set_undefined_behavior(UndefinedBehavior::SemiStrict);
        env.set_fuel(Some(FUEL));
        env.set_recursion_limit(50);
        env.set_formatter(spell);
        env.add_filter("counted", counted);
        env.add_filter("fields", fields);
        env.add_filter("removed", removed);
        env.add_filter("compared", compared);
        env.add_filter("listed", listed);

        let mut errors = Vec::new();
        for (name, text) in [(CONSEQUENCE, &kind.consequence), (ROLLBACK, &kind.rollback)] {
            let mut fault = |detail| errors.push(FieldError { pointer: format!("/{name}"), detail });
            match env.add_template_owned(name, text.clone()).and_then(|()| env.get_template(name)) {
                Err(error) => fault(error.to_string()),
                Ok(template) => {
                    let mut used: Vec<_> = template.undeclared_variables(true).into_iter().collect();
                    used.sort();
                    used.into_iter().filter(|name| !is_known(kind, name)).for_each(|name| {
                        fault(format!("`{name}` is none of {} and the parameters", NAMES.join(", ")));
                    });
                }
            }
        }
        if !errors.is_empty() {
            return Err(Problem::invalid(Code::ValidationFailed, errors));
        }
        let sentences = Self(env);
        sentences.rehearse(kind)?;
        Ok(sentences)
    }

    /// Filters and tests are looked up only as a sentence is written: writes each once, over made-up parameters, to
    /// find the ones that do not exist. What else goes wrong may be the parameters' fault and proves nothing.
    fn rehearse(&self, kind: &Kind) -> Result<(), Problem> {
        let params = kind.params().map(|(name, schema)| (name.to_owned(), made_up(schema))).collect();
        let context = Value::from(Serde(json!({
            "params": serde_json::Value::Object(params),
            "target": "type/name", "expected_version": 1, "current": null, "money": null, "payment": null,
        })));
        for name in [CONSEQUENCE, ROLLBACK] {
            let written = self.0.get_template(name).and_then(|template| template.render(context.clone()));
            if let Err(error) = written
                && matches!(error.kind(), ErrorKind::UnknownFilter | ErrorKind::UnknownTest | ErrorKind::UnknownMethod)
            {
                return Err(Problem::at(Code::ValidationFailed, format!("/{name}"), error.to_string()));
            }
        }
        Ok(())
    }

    pub(super) fn consequence(&self, kind: &Kind, facts: &ConsequenceFacts) -> String {
        self.render(CONSEQUENCE, kind, facts).unwrap_or_else(|| {
            format!("{} {}: what it does cannot be summed up here, read the content", kind.title, facts.target)
        })
    }

    pub(super) fn rollback(&self, kind: &Kind, facts: &ConsequenceFacts) -> String {
        self.render(ROLLBACK, kind, facts).unwrap_or_else(|| "Not known here".to_owned())
    }

    /// `None` where a template does not fit the content; the approver is told so rather than shown half a sentence.
    fn render(&self, name: &str, kind: &Kind, facts: &ConsequenceFacts) -> Option<String> {
        let mut params = facts.params.clone();
        for (name, _) in kind.params() {
            if let Some(members) = params.as_object_mut() {
                members.entry(name).or_insert(serde_json::Value::Null);
            }
        }
        let payment = facts.payment.map(
            |payment| json!({"payee": payment.payee, "invoice": payment.invoice, "amount": payment.amount.to_string()}),
        );
        let context = json!({
            "params": params,
            "target": facts.target,
            "expected_version": facts.expected_version,
            "current": facts.current,
            "money": kind.amount_of(facts.params).map(|amount| amount.to_string()),
            "payment": payment,
        });
        match self.0.get_template(name).and_then(|template| template.render(Value::from(Serde(context)))) {
            Ok(text) if (1..=LONGEST).contains(&text.trim().len()) => Some(text.trim().to_owned()),
            Ok(text) => {
                tracing::error!(kind = %kind.name, template = name, bytes = text.len(), "a kind's sentence is empty or too long");
                None
            }
            Err(error) => {
                tracing::error!(kind = %kind.name, template = name, %error, "a kind's sentence does not fit the content");
                None
            }
        }
    }
}

/// Whether `path`, such as `params.title`, has a value when the sentence is written.
fn is_known(kind: &Kind, path: &str) -> bool {
    let mut names = path.split('.');
    match (names.next(), names.next()) {
        (Some("params"), Some(param)) => kind.params().any(|(name, _)| name == param),
        (Some(root), _) => NAMES.contains(&root),
        (None, _) => false,
    }
}

/// Some value of the type that `schema` asks for.
fn made_up(schema: &serde_json::Value) -> serde_json::Value {
    match schema["type"].as_str() {
        Some("integer" | "number") => 1.into(),
        Some("boolean") => true.into(),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => "x".into(),
    }
}

/// Values as JSON spells them, text without quotes.
fn spell(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    match value.kind() {
        ValueKind::None => Ok(out.write_str("not given")?),
        ValueKind::Bool => Ok(out.write_str(if value.is_true() { "true" } else { "false" })?),
        _ => escape_formatter(out, state, value),
    }
}

/// `1 field`, `3 fields`.
fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// `a, b and c`; of more than six, four and how many more.
fn listed(items: Vec<String>) -> String {
    let (shown, rest) = items.split_at(if items.len() > 6 { 4 } else { items.len() });
    let last = if rest.is_empty() { shown.last().cloned() } else { Some(format!("{} more", rest.len())) };
    let first = if rest.is_empty() { &shown[..shown.len().saturating_sub(1)] } else { shown };
    match last {
        Some(last) if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        Some(last) => last,
        None => "no fields".to_owned(),
    }
}

/// The paths of the leaves that have a value: `quiet_hours.from`. What is no object has no fields and is told itself.
fn fields(document: &Value) -> Result<Vec<String>, Error> {
    if document.kind() != ValueKind::Map {
        return Ok(vec![brief(document)]);
    }
    Ok(leaves(document)?.into_iter().filter(|(_, value)| !value.is_none()).map(|(path, _)| path).collect())
}

/// The paths of the leaves that a merge patch removes.
fn removed(patch: &Value) -> Result<Vec<String>, Error> {
    Ok(leaves(patch)?.into_iter().filter(|(_, value)| value.is_none()).map(|(path, _)| path).collect())
}

/// What becomes of each leaf when `new` takes the place of `old`; of what changes at most six are told one by one.
fn compared(new: &Value, old: &Value) -> Result<Vec<String>, Error> {
    let (new, old) = (leaves(new)?, leaves(old)?);
    let before = |path: &str| old.iter().find(|(known, _)| known == path).map(|(_, value)| value);
    let (mut changes, mut same) = (Vec::new(), Vec::new());
    for (path, value) in &new {
        match before(path) {
            Some(known) if known == value => same.push(format!("{path} stays {}", brief(value))),
            Some(known) if brief(known) == brief(value) => changes.push(format!("{path} changes")),
            Some(known) => changes.push(format!("{path} goes from {} to {}", brief(known), brief(value))),
            None => changes.push(format!("{path} is added as {}", brief(value))),
        }
    }
    let gone = old.iter().filter(|(path, _)| new.iter().all(|(kept, _)| kept != path));
    changes.extend(gone.map(|(path, _)| format!("{path} is removed")));
    if changes.len() > 6 {
        let more = changes.split_off(4).len();
        changes.push(format!("{more} more change"));
    }
    if same.len() > 2 {
        same = vec![format!("{} stay", same.len())];
    }
    same.extend(changes);
    Ok(same)
}

/// A leaf's value where it is short enough for a sentence.
fn brief(value: &Value) -> String {
    match value.kind() {
        ValueKind::None => "null".to_owned(),
        ValueKind::Bool => value.is_true().to_string(),
        ValueKind::Number | ValueKind::String => {
            let text = value.to_string();
            let length = text.chars().count();
            if length <= 40 { text } else { format!("a text of {length} characters") }
        }
        ValueKind::Seq => format!("a list of {}", value.len().unwrap_or_default()),
        _ => "an empty object".to_owned(),
    }
}

/// Every leaf below `document` with its path; lists and empty objects are leaves, and so is a document without fields.
fn leaves(document: &Value) -> Result<Vec<(String, Value)>, Error> {
    fn walk(value: &Value, path: &str, found: &mut Vec<(String, Value)>) -> Result<(), Error> {
        if value.kind() != ValueKind::Map || (value.len() == Some(0) && !path.is_empty()) {
            found.push((path.to_owned(), value.clone()));
            return Ok(());
        }
        for key in value.try_iter()? {
            let name = key.as_str().ok_or_else(|| Error::new(ErrorKind::NonKey, "expected names"))?;
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            walk(&value.get_item(&key)?, &path, found)?;
        }
        Ok(())
    }
    let mut found = Vec::new();
    match document.kind() {
        ValueKind::Map => walk(document, "", &mut found)?,
        _ => found.push(("the value".to_owned(), document.clone())),
    }
    Ok(found)
}
