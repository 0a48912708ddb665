//! Kinds: the type of an operation, as data. A kind says what its parameters are, what they write, how risky that is
//! and which rules hold; the server compiles its schema and its sentences.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value, json};

use super::{
    fingerprint::Fingerprint,
    json,
    money::{self, Currency},
    problem::{Code, FieldError, Problem},
    strict,
    target::{InvalidTarget, Target},
};

/// How much harm the write can do, in rising order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    Low,
    Medium,
    High,
    Critical,
}

impl Risk {
    pub const ALL: [Risk; 4] = [Risk::Low, Risk::Medium, Risk::High, Risk::Critical];

    /// High and critical writes are never granted by rule, never decided in bulk, and need the target typed.
    pub fn needs_care(self) -> bool {
        self >= Risk::High
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Risk::Low => "low",
            Risk::Medium => "medium",
            Risk::High => "high",
            Risk::Critical => "critical",
        }
    }
}

/// What an operation does to its target, as write sets name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    Create,
    Replace,
    Update,
    Delete,
    Deploy,
    Rollback,
    Pay,
    Refund,
    Comment,
    Transition,
    Invite,
    Request,
    Lease,
}

impl Verb {
    pub fn as_str(self) -> &'static str {
        match self {
            Verb::Create => "create",
            Verb::Replace => "replace",
            Verb::Update => "update",
            Verb::Delete => "delete",
            Verb::Deploy => "deploy",
            Verb::Rollback => "rollback",
            Verb::Pay => "pay",
            Verb::Refund => "refund",
            Verb::Comment => "comment",
            Verb::Transition => "transition",
            Verb::Invite => "invite",
            Verb::Request => "request",
            Verb::Lease => "lease",
        }
    }
}

/// Whether the proposer states the version it planned on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Conditional {
    Required,
    #[default]
    Optional,
    Never,
    /// Required, and it is 0: the target does not exist yet.
    Absent,
}

/// Whether claim and `sent` present a lease on the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseRule {
    Required,
    #[default]
    Never,
}

/// What a stale write calls for. The first, and the second while the fields are disjoint, are left to the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Resolver {
    Regenerable,
    Mergeable,
    #[default]
    Exclusive,
    Irreversible,
    Destructive,
}

/// Who carries the operation out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Executor {
    /// The proposing agent, or an executor registered for the kind.
    #[default]
    Agent,
    /// Counterfoil sends the approved HTTP request.
    Gateway,
    /// Counterfoil holds the resource and writes it in the approving transaction.
    Managed,
}

/// A lock held from the claim to the terminal state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lock {
    /// One deployment of an environment at a time.
    Release,
}

/// A link that the operation has to carry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequiredLink {
    Supersedes,
    Replans,
    Compensates,
    RollsBack,
}

/// A named rule over an operation and its neighbours, checked when the operation is inserted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    /// The refunds of a payment, open and succeeded, stay within what is known to be captured of it.
    RefundsWithinCaptured,
}

/// What a compensation may not exceed without a decision of its own group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompensationLimit {
    SameTarget,
    AmountWithinOriginal,
}

/// A name such as `ticket.create`: `[a-z][a-z0-9-]*(\.[a-z][a-z0-9-]*)+`, at most 100 characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct KindName(String);

impl KindName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for KindName {
    type Err = InvalidKindName;

    fn from_str(text: &str) -> Result<Self, InvalidKindName> {
        let word = |word: &str| {
            word.starts_with(|c: char| c.is_ascii_lowercase())
                && word.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        };
        if text.len() <= 100 && text.contains('.') && text.split('.').all(word) {
            Ok(Self(text.to_owned()))
        } else {
            Err(InvalidKindName)
        }
    }
}

impl fmt::Display for KindName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for KindName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The text does not name a kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected words of lower-case letters, digits and `-`, joined by dots, such as `ticket.create`")]
pub struct InvalidKindName;

/// Text with `{parameter}` in it, such as `release/{environment}`. What is put in is data, never read as a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Words(String),
    Name(String),
}

impl Pattern {
    /// The names in braces, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> + Clone {
        self.0.iter().filter_map(|piece| match piece {
            Piece::Name(name) => Some(name.as_str()),
            Piece::Words(_) => None,
        })
    }

    /// Fills every name by `value`; `None` if one has no value.
    pub fn fill(&self, value: impl Fn(&str) -> Option<String>) -> Option<Vec<Phrase>> {
        self.0
            .iter()
            .map(|piece| match piece {
                Piece::Words(words) => Some(Phrase::Words(words.clone())),
                Piece::Name(name) => value(name).map(Phrase::Value),
            })
            .collect()
    }

    /// [`Pattern::fill`] as one text.
    pub fn text(&self, value: impl Fn(&str) -> Option<String>) -> Option<String> {
        Some(self.fill(value)?.iter().map(Phrase::as_str).collect())
    }
}

impl FromStr for Pattern {
    type Err = InvalidPattern;

    fn from_str(text: &str) -> Result<Self, InvalidPattern> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some(open) = rest.find(['{', '}']) {
            let name = rest[open..].strip_prefix('{').and_then(|inner| inner.split_once('}')).ok_or(InvalidPattern)?.0;
            if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
                return Err(InvalidPattern);
            }
            if open > 0 {
                pieces.push(Piece::Words(rest[..open].to_owned()));
            }
            pieces.push(Piece::Name(name.to_owned()));
            rest = &rest[open + name.len() + 2..];
        }
        if !rest.is_empty() {
            pieces.push(Piece::Words(rest.to_owned()));
        }
        Ok(Self(pieces))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|piece| match piece {
            Piece::Words(words) => f.write_str(words),
            Piece::Name(name) => write!(f, "{{{name}}}"),
        })
    }
}

impl Serialize for Pattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Pattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A brace without its partner, or something else than a name between the two.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected text with parameter names in braces, such as `release/{{environment}}`")]
pub struct InvalidPattern;

/// A piece of a sentence: our words, or a value that the agent supplied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phrase {
    Words(String),
    Value(String),
}

impl Phrase {
    pub fn as_str(&self) -> &str {
        match self {
            Phrase::Words(text) | Phrase::Value(text) => text,
        }
    }
}

/// Where the target comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetRule {
    /// The proposer names it: `"body"`.
    Body,
    /// It follows from the parameters.
    Derived(Pattern),
}

impl Serialize for TargetRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            TargetRule::Body => serializer.serialize_str("body"),
            TargetRule::Derived(pattern) => pattern.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for TargetRule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match String::deserialize(deserializer)?.as_str() {
            "body" => Ok(TargetRule::Body),
            text => text.parse().map(TargetRule::Derived).map_err(serde::de::Error::custom),
        }
    }
}

/// Raises the risk when one parameter meets a test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RiskRule {
    pub when: When,
    pub risk: Risk,
}

/// One test of one parameter; exactly one of the tests is set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct When {
    pub param: String,
    /// The text starts so, in any case: a destination may not tell `Prod` from `prod`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub equals: Option<Value>,
    /// The integer is this or more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least: Option<i64>,
}

impl When {
    fn holds(&self, params: &Value) -> bool {
        let Some(value) = params.get(&self.param) else { return false };
        let prefix = self.prefix.as_deref().is_some_and(|prefix| {
            let head = value.as_str().and_then(|text| text.get(..prefix.len()));
            head.is_some_and(|head| head.eq_ignore_ascii_case(prefix))
        });
        prefix
            || self.equals.as_ref() == Some(value)
            || self.at_least.is_some_and(|least| value.as_i64().is_some_and(|n| n >= least))
    }

    fn tests(&self) -> usize {
        usize::from(self.prefix.is_some()) + usize::from(self.equals.is_some()) + usize::from(self.at_least.is_some())
    }
}

/// The fields that name the event behind an operation within its kind and target, across agents and runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BusinessKey {
    /// Parameters, or `source_event_id`. A proposal that leaves one out has no business key.
    pub fields: Vec<String>,
    pub on_duplicate: OnDuplicate,
    #[serde(default, rename = "while")]
    pub while_: KeyLife,
}

/// The member of the envelope that a business key may name beside parameters.
pub const SOURCE_EVENT_ID: &str = "source_event_id";

/// What a second operation for the same event is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnDuplicate {
    /// The existing operation.
    Existing,
    /// 409 `business_key_conflict`.
    Refuse,
}

/// How long an operation keeps its business key. What was possibly applied counts as succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyLife {
    Open,
    #[default]
    OpenOrSucceeded,
}

/// A parameter whose meaning may not move after it was approved.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ImmutableRef {
    pub param: String,
    pub form: RefForm,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefForm {
    /// `sha256:` and 64 lower-case hex digits.
    Artifact,
    /// 40 or 64 lower-case hex digits.
    Commit,
}

impl RefForm {
    pub fn accepts(self, text: &str) -> bool {
        let hex = |text: &str| text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        match self {
            RefForm::Artifact => text.strip_prefix("sha256:").is_some_and(|digest| digest.len() == 64 && hex(digest)),
            RefForm::Commit => matches!(text.len(), 40 | 64) && hex(text),
        }
    }

    /// What is expected instead of a reference that can move.
    pub fn expected(self) -> &'static str {
        match self {
            RefForm::Artifact => "expected `sha256:` and 64 lower-case hex digits; a tag can move",
            RefForm::Commit => {
                "expected a full commit of 40 or 64 lower-case hex digits; a branch, tag or short hash can move"
            }
        }
    }
}

/// Which parameters are an amount in minor units and its ISO 4217 currency.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MoneyParams {
    pub amount: String,
    pub currency: String,
    /// The parameter with the provider's reference of the payment that this one draws on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub draws_on: Option<String>,
}

/// An amount of money: `EUR 149.00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Amount {
    /// In minor units of the currency.
    pub minor: i64,
    pub currency: Currency,
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&money::format(self.minor, self.currency))
    }
}

/// Which kinds may compensate this one, and within what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compensation {
    pub kinds: Vec<KindName>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<CompensationLimit>,
    /// Who decides beyond the limits; where nobody is named that is refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
}

/// What an operation writes, as far as limits go.
#[derive(Debug, Clone, Copy)]
pub struct Extent<'a> {
    pub target: &'a Target,
    pub amount: Option<Amount>,
}

impl Compensation {
    /// # Errors
    /// In words, for a kind that is not one of those declared.
    pub fn allows(&self, kind: &KindName) -> Result<(), String> {
        if self.kinds.contains(kind) {
            return Ok(());
        }
        let kinds: Vec<_> = self.kinds.iter().map(|kind| format!("`{kind}`")).collect();
        Err(format!("expected {}", kinds.join(" or ")))
    }

    /// The limit that `undo` exceeds, in words; `spent` is what others move of the amount, in minor units.
    pub fn excess(&self, original: Extent<'_>, undo: Extent<'_>, spent: i64) -> Option<(CompensationLimit, String)> {
        self.limits.iter().find_map(|limit| {
            let words = match (limit, original.amount, undo.amount) {
                (CompensationLimit::SameTarget, ..) if undo.target != original.target => {
                    format!("expected `{}`", original.target)
                }
                (CompensationLimit::AmountWithinOriginal, Some(whole), Some(part))
                    if part.currency != whole.currency || part.minor > whole.minor.saturating_sub(spent) =>
                {
                    let left = Amount { minor: whole.minor.saturating_sub(spent).max(0), ..whole };
                    format!("expected at most {left} of {whole}")
                }
                _ => return None,
            };
            Some((*limit, words))
        })
    }
}

/// A kind, as its document says it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kind {
    pub name: KindName,
    /// A word or two for lists: `Create ticket`.
    pub title: String,
    /// What the agent asks, after its name: `asks to release {service} to {environment}`. Names are required
    /// parameters, `target`, and `money` where the kind has it.
    pub headline: Pattern,
    /// JSON Schema 2020-12 of `params`. Its defaults are filled in before anything else is looked at.
    pub schema: Value,
    pub target: TargetRule,
    pub verb: Verb,
    /// MiniJinja: the effect, as one sentence.
    pub consequence: String,
    /// MiniJinja: how to undo it, or that it cannot be undone.
    pub rollback: String,
    pub risk: Risk,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub risk_rules: Vec<RiskRule>,
    #[serde(default)]
    pub conditional: Conditional,
    #[serde(default)]
    pub lease: LeaseRule,
    #[serde(default)]
    pub resolver: Resolver,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub business_key: Option<BusinessKey>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub immutable_refs: Vec<ImmutableRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub money: Option<MoneyParams>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limits: Vec<Limit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compensation: Option<Compensation>,
    /// Groups that may read bodies; empty means everyone who may see the operation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub readers: Vec<String>,
    /// Seconds after which bodies of terminal operations are erased; none means they are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body_retention_s: Option<i64>,
    /// The provider whose contract says what an unknown outcome allows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    #[serde(default)]
    pub executor: Executor,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required_link: Option<RequiredLink>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<Lock>,
}

impl Kind {
    /// Reads and checks a kind's document, but for what only a compiler can see in its schema and templates.
    ///
    /// # Errors
    /// 422 `validation_failed` with every place that is not valid.
    pub fn load(document: &Value) -> Result<Self, Problem> {
        let kind: Self = strict::read(document)?;
        let errors = kind.faults();
        if errors.is_empty() { Ok(kind) } else { Err(Problem::invalid(Code::ValidationFailed, errors)) }
    }

    /// The schema of each parameter.
    pub fn params(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.schema.get("properties").and_then(Value::as_object).into_iter().flatten().map(|(k, v)| (k.as_str(), v))
    }

    /// The risk of this content: the kind's, raised by every rule that holds.
    pub fn risk_of(&self, params: &Value) -> Risk {
        let raised = self.risk_rules.iter().filter(|rule| rule.when.holds(params)).map(|rule| rule.risk);
        raised.fold(self.risk, Risk::max)
    }

    /// The target that the parameters name, or `None` if the proposer names it. `params` have passed the schema.
    ///
    /// # Errors
    /// The parameters spell no target; the pointer is into the body.
    pub fn derived_target(&self, params: &Value) -> Result<Option<Target>, FieldError> {
        let TargetRule::Derived(pattern) = &self.target else { return Ok(None) };
        let value = |name: &str| spelled(params.get(name)?);
        let parsed = pattern.text(value).unwrap_or_default().parse();
        parsed.map(Some).map_err(|error: InvalidTarget| {
            // Blame the parameter that spells no target even among well-behaved ones.
            let alone =
                |blamed: &str| pattern.text(|name| if name == blamed { value(name) } else { Some("x".to_owned()) });
            let mut names = pattern.names();
            let blamed = names.clone().find(|name| alone(name).is_none_or(|text| text.parse::<Target>().is_err()));
            let pointer = blamed.or(names.next()).map_or("/params".to_owned(), |name| below("/params", name));
            FieldError { pointer, detail: error.to_string() }
        })
    }

    /// A digest of what names the event behind the operation, the same for every operation with that business key.
    /// `None` if the kind has no business key or the operation leaves out one of its fields.
    pub fn business_key_of(&self, params: &Value, target: &Target, source_event_id: Option<&str>) -> Option<String> {
        let fields = self.business_key.as_ref()?.fields.iter().map(|field| match field.as_str() {
            SOURCE_EVENT_ID => Some((field.clone(), source_event_id?.into())),
            name => Some((field.clone(), params.get(name).filter(|value| !value.is_null())?.clone())),
        });
        let fields: Map<String, Value> = fields.collect::<Option<_>>()?;
        let event = json::canonical(&json!([self.name, target, fields]));
        Some(Fingerprint::of_canonical(&event).as_str().to_owned())
    }

    /// What follows the agent's name in the headline. `params` have passed the schema.
    pub fn headline_of(&self, params: &Value, target: &Target) -> Vec<Phrase> {
        let value = |name: &str| match name {
            "target" => Some(target.to_string()),
            "money" => self.amount_of(params).map(|amount| amount.to_string()),
            name => spelled(params.get(name)?),
        };
        self.headline.fill(value).unwrap_or_else(|| {
            vec![Phrase::Words(format!("asks to {} ", self.verb.as_str())), Phrase::Value(target.to_string())]
        })
    }

    /// The amount that moves. `None` if the kind moves no money, or the parameters are no amount of a known currency.
    pub fn amount_of(&self, params: &Value) -> Option<Amount> {
        let rule = self.money.as_ref()?;
        let currency = Currency::parse(params.get(&rule.currency)?.as_str()?)?;
        Some(Amount { minor: params.get(&rule.amount)?.as_i64()?, currency })
    }

    fn faults(&self) -> Vec<FieldError> {
        let mut faults = Faults(Vec::new());
        faults.text("/title", &self.title, 60);
        faults.text("/consequence", &self.consequence, 4000);
        faults.text("/rollback", &self.rollback, 4000);
        self.schema_faults(&mut faults);

        for name in self.headline.names().filter(|name| *name != "target") {
            match (name, &self.money) {
                ("money", Some(_)) => {}
                ("money", None) => faults.add("/headline", "`{money}` needs `money`, which this kind does not have"),
                _ => self.needs("/headline", name, &["string", "integer"], &mut faults),
            }
        }
        if let TargetRule::Derived(pattern) = &self.target {
            let typed = matches!(pattern.0.first(), Some(Piece::Words(words)) if words.contains('/'));
            let sample = pattern.text(|_| Some("x".to_owned())).and_then(|text| text.parse::<Target>().ok());
            if !typed || sample.is_none() {
                faults.add("/target", "expected `body`, or a type, `/` and a name such as `release/{environment}`");
            }
            for name in pattern.names() {
                self.needs("/target", name, &["string", "integer"], &mut faults);
            }
        }
        for (i, rule) in self.risk_rules.iter().enumerate() {
            let at = format!("/risk_rules/{i}");
            self.knows(&format!("{at}/when/param"), &rule.when.param, &mut faults);
            if rule.when.tests() != 1 {
                faults.add(format!("{at}/when"), "expected exactly one of `prefix`, `equals` and `at_least`");
            }
            if rule.risk <= self.risk {
                faults.add(
                    format!("{at}/risk"),
                    format!("a rule raises the risk; it is `{}` already", self.risk.as_str()),
                );
            }
        }
        if let Some(key) = &self.business_key {
            if key.fields.is_empty() {
                faults.add("/business_key/fields", "expected at least one field");
            }
            for (i, field) in key.fields.iter().enumerate().filter(|(_, field)| *field != SOURCE_EVENT_ID) {
                self.knows(&format!("/business_key/fields/{i}"), field, &mut faults);
            }
        }
        for (i, reference) in self.immutable_refs.iter().enumerate() {
            self.has_type(&format!("/immutable_refs/{i}/param"), &reference.param, &["string"], &mut faults);
        }
        if let Some(money) = &self.money {
            self.needs("/money/amount", &money.amount, &["integer"], &mut faults);
            self.needs("/money/currency", &money.currency, &["string"], &mut faults);
            if let Some(param) = &money.draws_on {
                self.needs("/money/draws_on", param, &["string"], &mut faults);
            }
        }
        if self.executor == Executor::Managed {
            self.managed_faults(&mut faults);
        }
        if self.limits.contains(&Limit::RefundsWithinCaptured)
            && self.money.as_ref().is_none_or(|money| money.draws_on.is_none())
        {
            faults.add("/limits", "`refunds_within_captured` needs `money` with `draws_on`");
        }
        for (i, group) in self.readers.iter().enumerate() {
            faults.text(&format!("/readers/{i}"), group, 64);
        }
        for (i, group) in self.compensation.iter().flat_map(|rule| &rule.groups).enumerate() {
            faults.text(&format!("/compensation/groups/{i}"), group, 64);
        }
        if let Some(provider) = &self.provider {
            faults.text("/provider", provider, 64);
        }
        if self.body_retention_s.is_some_and(|seconds| seconds < 1) {
            faults.add("/body_retention_s", "expected at least 1 second");
        }
        faults.0
    }

    /// What Counterfoil writes itself is a whole document or a merge patch, on a stated version.
    fn managed_faults(&self, faults: &mut Faults) {
        let conditional = match self.verb {
            Verb::Create => Conditional::Absent,
            Verb::Replace | Verb::Update | Verb::Delete => Conditional::Required,
            verb => {
                let detail = format!("Counterfoil can create, replace, update and delete, not `{}`", verb.as_str());
                return faults.add("/executor", detail);
            }
        };
        if self.conditional != conditional {
            let detail = "a managed creation is `absent`, every other managed write `required`";
            faults.add("/conditional", detail);
        }
        if self.lease == LeaseRule::Required {
            faults.add(
                "/lease",
                "a managed write is carried out where it is approved, and nobody presents a lease there",
            );
        }
        let required = |name: &str| {
            self.schema["required"].as_array().is_some_and(|names| names.iter().any(|required| required == name))
        };
        match self.verb {
            Verb::Create | Verb::Replace if !required("value") => {
                faults.add("/schema", "a managed kind that writes a document requires its parameter `value`");
            }
            Verb::Update if !required("patch") || self.schema["properties"]["patch"]["type"] != "object" => {
                faults.add("/schema", "a managed kind that updates requires its parameter `patch`, an object");
            }
            _ => {}
        }
    }

    fn schema_faults(&self, faults: &mut Faults) {
        if self.schema.get("type") != Some(&Value::from("object")) || !self.schema["properties"].is_object() {
            faults.add("/schema", "expected `\"type\": \"object\"` with `properties`");
        }
        if self.schema.get("additionalProperties") != Some(&Value::Bool(false)) {
            faults.add(
                "/schema",
                "expected `\"additionalProperties\": false`: nobody can approve a field that nobody described",
            );
        }
        if let Some(at) = inexact_number(&self.schema, "/schema") {
            faults.add(at, "expected an integer within ±(2^53−1)");
        }
        keyword_faults(&self.schema, "/schema", Filling::Reached, faults);
    }

    /// `param` is declared.
    fn knows(&self, at: &str, param: &str, faults: &mut Faults) -> bool {
        let known = self.params().any(|(name, _)| name == param);
        if !known {
            faults.add(at, format!("the schema has no parameter `{param}`"));
        }
        known
    }

    /// `param` is declared with one of `types`.
    fn has_type(&self, at: &str, param: &str, types: &[&str], faults: &mut Faults) {
        if self.knows(at, param, faults) {
            let declared = self.schema["properties"][param].get("type").and_then(Value::as_str);
            if declared.is_none_or(|declared| !types.contains(&declared)) {
                faults.add(at, format!("parameter `{param}` has to be of type {}", types.join(" or ")));
            }
        }
    }

    /// `param` is declared with one of `types`, and every proposal has it.
    fn needs(&self, at: &str, param: &str, types: &[&str], faults: &mut Faults) {
        self.has_type(at, param, types, faults);
        let required = self.schema["required"].as_array().is_some_and(|names| names.iter().any(|name| name == param));
        let defaulted = self.schema["properties"][param].get("default").is_some();
        if !required && !defaulted {
            faults.add(at, format!("parameter `{param}` has to be required by the schema"));
        }
    }
}

/// The places of a document that are not valid.
struct Faults(Vec<FieldError>);

impl Faults {
    fn add(&mut self, pointer: impl Into<String>, detail: impl Into<String>) {
        self.0.push(FieldError { pointer: pointer.into(), detail: detail.into() });
    }

    fn text(&mut self, at: &str, text: &str, longest: usize) {
        if text.trim().is_empty() || text.chars().count() > longest {
            self.add(at, format!("expected 1 to {longest} characters"));
        }
    }
}

/// Digests cut to their first 8 digits, for one-line sentences; wherever it matters they stand in full.
pub fn short_digests(text: &str) -> String {
    let mut pieces = text.split("sha256:");
    let mut short = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        short.push_str("sha256:");
        let digits = piece.bytes().take_while(u8::is_ascii_hexdigit).count();
        match digits {
            64 => short.extend([&piece[..8], "…", &piece[64..]]),
            _ => short.push_str(piece),
        }
    }
    short
}

/// A scalar as it stands in a target or a headline.
fn spelled(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

/// Fills in the defaults that `schema` declares under `properties` and `items`, at every depth that `value` has.
pub fn fill_defaults(schema: &Value, value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, schema) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
                if let Some(default) = schema.get("default") {
                    members.entry(name).or_insert_with(|| default.clone());
                }
                if let Some(member) = members.get_mut(name) {
                    fill_defaults(schema, member);
                }
            }
        }
        Value::Array(elements) => {
            if let Some(schema) = schema.get("items") {
                elements.iter_mut().for_each(|element| fill_defaults(schema, element));
            }
        }
        _ => {}
    }
}

/// Whether [`fill_defaults`] gets to a part of a schema.
#[derive(Clone, Copy, PartialEq)]
enum Filling {
    Reached,
    Beyond,
}

/// Keywords of JSON Schema 2020-12 without schemas in them. The validator ignores any other, such as a misspelt one.
const KEYWORDS: [&str; 35] = [
    "$anchor",
    "$comment",
    "$dynamicAnchor",
    "$dynamicRef",
    "$id",
    "$ref",
    "$schema",
    "const",
    "contentEncoding",
    "contentMediaType",
    "default",
    "dependentRequired",
    "deprecated",
    "description",
    "enum",
    "examples",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "format",
    "maxContains",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minContains",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "pattern",
    "required",
    "title",
    "type",
    "uniqueItems",
];

/// Finds misspelt keywords, and defaults that are never filled in: they would be known to their author only.
fn keyword_faults(schema: &Value, at: &str, filling: Filling, faults: &mut Faults) {
    for (keyword, value) in schema.as_object().into_iter().flatten() {
        let at = below(at, keyword);
        match (keyword.as_str(), value) {
            ("default", _) if filling == Filling::Beyond || at == "/schema/default" => {
                faults.add(at, "a default takes effect only under `properties` and `items`");
            }
            ("properties", Value::Object(members)) => {
                for (name, schema) in members {
                    keyword_faults(schema, &below(&at, name), filling, faults);
                }
            }
            ("items", _) => keyword_faults(value, &at, filling, faults),
            ("patternProperties" | "$defs" | "dependentSchemas", Value::Object(members)) => {
                for (name, schema) in members {
                    keyword_faults(schema, &below(&at, name), Filling::Beyond, faults);
                }
            }
            ("allOf" | "anyOf" | "oneOf" | "prefixItems", Value::Array(schemas)) => {
                for (i, schema) in schemas.iter().enumerate() {
                    keyword_faults(schema, &format!("{at}/{i}"), Filling::Beyond, faults);
                }
            }
            (
                "additionalProperties"
                | "unevaluatedProperties"
                | "unevaluatedItems"
                | "contains"
                | "propertyNames"
                | "not"
                | "if"
                | "then"
                | "else",
                _,
            ) => keyword_faults(value, &at, Filling::Beyond, faults),
            (keyword, _) if !KEYWORDS.contains(&keyword) => faults.add(at, "is no keyword of JSON Schema 2020-12"),
            _ => {}
        }
    }
}

fn below(at: &str, token: &str) -> String {
    let mut pointer = at.to_owned();
    json::push_token(&mut pointer, token);
    pointer
}

/// Where `value` holds a number that canonical JSON could not carry exactly.
pub fn inexact_number(value: &Value, at: &str) -> Option<String> {
    match value {
        Value::Number(number) => (!number.as_i64().is_some_and(json::is_exact)).then(|| at.to_owned()),
        Value::Array(elements) => {
            elements.iter().enumerate().find_map(|(i, element)| inexact_number(element, &format!("{at}/{i}")))
        }
        Value::Object(members) => members.iter().find_map(|(name, member)| inexact_number(member, &below(at, name))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn document() -> Value {
        json!({
            "name": "invoice.pay", "title": "Pay invoice", "headline": "asks to pay {money} for {invoice} on {target}",
            "schema": {
                "type": "object",
                "properties": {
                    "invoice": {"type": "string"},
                    "region": {"type": "string"},
                    "amount": {"type": "integer"},
                    "currency": {"type": "string", "default": "EUR"},
                    "lines": {"type": "array", "items": {
                        "type": "object",
                        "properties": {"tax": {"type": "integer", "default": 0}, "tags": {"type": "array", "default": []}},
                    }},
                },
                "required": ["invoice", "region", "amount"],
                "additionalProperties": false,
            },
            "target": "invoice/{region}.{invoice}", "verb": "pay",
            "consequence": "Pays {{ money }}", "rollback": "It cannot be undone",
            "risk": "medium",
            "risk_rules": [
                {"when": {"param": "amount", "at_least": 100_000}, "risk": "high"},
                {"when": {"param": "region", "equals": "ch"}, "risk": "high"},
                {"when": {"param": "invoice", "prefix": "PROD"}, "risk": "critical"},
            ],
            "money": {"amount": "amount", "currency": "currency"},
            "business_key": {"fields": ["invoice", "source_event_id"], "on_duplicate": "refuse"},
        })
    }

    fn kind() -> Kind {
        Kind::load(&document()).unwrap()
    }

    #[test]
    fn a_kind_survives_being_stored() {
        let kind = kind();
        assert_eq!(Kind::load(&serde_json::to_value(&kind).unwrap()).unwrap(), kind);
        assert_eq!(
            (kind.conditional, kind.lease, kind.resolver),
            (Conditional::Optional, LeaseRule::Never, Resolver::Exclusive)
        );
        assert_eq!(kind.business_key.unwrap().while_, KeyLife::OpenOrSucceeded);
    }

    #[test]
    fn what_contradicts_itself_is_no_kind() {
        for (member, value, at) in [
            ("name", json!("pay"), "/name"),
            ("name", json!("Invoice.pay"), "/name"),
            ("name", json!("invoice..pay"), "/name"),
            ("title", json!(" "), "/title"),
            ("headline", json!("asks {"), "/headline"),
            ("headline", json!("asks {invoice} {nothing}"), "/headline"),
            ("headline", json!("asks {lines}"), "/headline"),
            ("schema", json!({}), "/schema"),
            ("target", json!("{region}/{invoice}"), "/target"),
            ("target", json!("invoice"), "/target"),
            ("target", json!("Invoice/{invoice}"), "/target"),
            ("target", json!("invoice/a b {invoice}"), "/target"),
            ("target", json!("invoice/{lines}"), "/target"),
            ("verb", json!("destroy"), "/verb"),
            ("consequence", json!(""), "/consequence"),
            ("risk", json!("none"), "/risk"),
            ("risk_rules", json!([{"when": {"param": "amount"}, "risk": "high"}]), "/risk_rules/0/when"),
            (
                "risk_rules",
                json!([{"when": {"param": "x", "at_least": 1}, "risk": "high"}]),
                "/risk_rules/0/when/param",
            ),
            ("risk_rules", json!([{"when": {"param": "amount", "at_least": 1}, "risk": "low"}]), "/risk_rules/0/risk"),
            ("conditional", json!("maybe"), "/conditional"),
            ("business_key", json!({"fields": [], "on_duplicate": "refuse"}), "/business_key/fields"),
            ("business_key", json!({"fields": ["x"], "on_duplicate": "refuse"}), "/business_key/fields/0"),
            ("immutable_refs", json!([{"param": "amount", "form": "commit"}]), "/immutable_refs/0/param"),
            ("money", json!({"amount": "invoice", "currency": "currency"}), "/money/amount"),
            ("money", json!({"amount": "amount", "currency": "currency", "draws_on": "x"}), "/money/draws_on"),
            ("limits", json!(["refunds_within_captured"]), "/limits"),
            ("limits", json!(["anything"]), "/limits/0"),
            ("readers", json!([""]), "/readers/0"),
            ("body_retention_s", json!(0), "/body_retention_s"),
            ("required_link", json!("parent"), "/required_link"),
            ("colour", json!("red"), "/colour"),
        ] {
            let mut document = document();
            document[member] = value.clone();
            let problem = Kind::load(&document).expect_err(&format!("{member} {value}"));
            assert_eq!(problem.code, Code::ValidationFailed);
            assert_eq!(problem.members["errors"][0]["pointer"], at, "{member} {value}: {problem}");
        }
    }

    #[test]
    fn a_schema_is_closed_exact_and_has_no_default_that_is_never_filled_in() {
        for (at, value, pointer) in [
            ("/schema/additionalProperties", json!(true), "/schema"),
            ("/schema/type", json!(["object", "null"]), "/schema"),
            ("/schema/properties/region/maximum", json!(0.5), "/schema/properties/region/maximum"),
            ("/schema/default", json!({}), "/schema/default"),
            ("/schema/$defs", json!({"a/b": {"default": 1}}), "/schema/$defs/a~1b/default"),
            ("/schema/allOf", json!([{"properties": {"a": {"default": 1}}}]), "/schema/allOf/0/properties/a/default"),
            ("/schema/properties/region/not", json!({"default": 1}), "/schema/properties/region/not/default"),
            ("/schema/properties/region/maxLenght", json!(3), "/schema/properties/region/maxLenght"),
        ] {
            let mut document = document();
            let (parent, member) = at.rsplit_once('/').unwrap();
            document.pointer_mut(parent).unwrap()[member] = value;
            let problem = Kind::load(&document).expect_err(at);
            assert_eq!(problem.members["errors"][0]["pointer"], pointer, "{problem}");
        }
    }

    #[test]
    fn defaults_are_filled_in_at_every_depth_and_replace_nothing() {
        let kind = kind();
        for (given, filled) in [
            (json!({}), json!({"currency": "EUR"})),
            (json!({"currency": null}), json!({"currency": null})),
            (
                json!({"currency": "CHF", "lines": [{}, {"tax": 7, "tags": ["a"]}, 3]}),
                json!({"currency": "CHF", "lines": [{"tax": 0, "tags": []}, {"tax": 7, "tags": ["a"]}, 3]}),
            ),
            (json!([{}]), json!([{}])),
        ] {
            let mut params = given;
            fill_defaults(&kind.schema, &mut params);
            assert_eq!(params, filled);
            fill_defaults(&kind.schema, &mut params);
            assert_eq!(params, filled);
        }
    }

    #[test]
    fn the_parameter_that_spells_no_target_is_the_one_that_is_blamed() {
        let kind = kind();
        let derived = |region: &str, invoice: &str| kind.derived_target(&json!({"region": region, "invoice": invoice}));
        assert_eq!(derived("eu", "17").unwrap().unwrap().as_str(), "invoice/eu.17");
        assert_eq!(derived("eu", "1/7").unwrap_err().pointer, "/params/invoice");
        assert_eq!(derived("-", "17").unwrap_err().pointer, "/params/region");
        assert_eq!(derived(&"x".repeat(120), &"x".repeat(120)).unwrap_err().pointer, "/params/region");
    }

    #[test]
    fn an_event_without_all_its_fields_has_no_business_key() {
        let kind = kind();
        let target = "invoice/eu.17".parse().unwrap();
        let key = |params: Value, event| kind.business_key_of(&params, &target, event);
        assert!(key(json!({"invoice": "17"}), Some("e")).is_some());
        assert_eq!(key(json!({"invoice": "17"}), None), None);
        assert_eq!(key(json!({"invoice": null}), Some("e")), None);
        assert_eq!(key(json!({}), Some("e")), None);
        assert_ne!(key(json!({"invoice": "17"}), Some("e")), key(json!({"invoice": 17}), Some("e")));
        assert_ne!(key(json!({"invoice": "a"}), Some("b")), key(json!({"invoice": "b"}), Some("a")));
    }

    #[test]
    fn risk_rises_with_each_rule_that_holds() {
        let kind = kind();
        for (params, risk) in [
            (json!({"amount": 99_999, "region": "eu", "invoice": "x-prod"}), Risk::Medium),
            (json!({"amount": 100_000, "region": "eu", "invoice": ""}), Risk::High),
            (json!({"amount": "100000", "region": "ch"}), Risk::High),
            (json!({"amount": 100_000, "invoice": "prod-1"}), Risk::Critical),
            (json!({"invoice": "pro\u{301}d"}), Risk::Medium),
            (json!({"invoice": "pr€"}), Risk::Medium),
            (json!(null), Risk::Medium),
        ] {
            assert_eq!(kind.risk_of(&params), risk, "{params}");
        }
    }

    #[test]
    fn a_reference_that_could_move_is_told_from_one_that_cannot() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        assert!(RefForm::Artifact.accepts(&digest));
        assert!(RefForm::Commit.accepts(&"0a".repeat(20)) && RefForm::Commit.accepts(&"0a".repeat(32)));
        for text in
            ["", "latest", "sha256:", &digest[..70], &digest.to_uppercase(), &format!("{digest}0"), &"0a".repeat(32)]
        {
            assert!(!RefForm::Artifact.accepts(text), "{text}");
        }
        for text in ["", "main", "v1.2", "0a0a0a0", &"0a".repeat(21), &"0A".repeat(20), &"0g".repeat(20), &digest] {
            assert!(!RefForm::Commit.accepts(text), "{text}");
        }
    }

    #[test]
    fn digests_are_cut_only_where_they_are_digests() {
        let digest = format!("sha256:2b{}", "0".repeat(62));
        assert_eq!(
            short_digests(&format!("Puts {digest} on {digest}, now")),
            "Puts sha256:2b000000… on sha256:2b000000…, now"
        );
        for text in ["", "sha256:", "sha256:2b", "sha256:é", &format!("{digest}0"), "no digest"] {
            assert_eq!(short_digests(text), text);
        }
    }

    #[test]
    fn a_pattern_is_text_with_names_in_braces() {
        let spelled = |text: &str| {
            let pattern: Pattern = text.parse().unwrap();
            assert_eq!(pattern.to_string(), text);
            pattern.text(|name| (name != "no").then(|| format!("<{name}>")))
        };
        assert_eq!(spelled("a {b}{c_1} d").as_deref(), Some("a <b><c_1> d"));
        assert_eq!(spelled("").as_deref(), Some(""));
        assert_eq!(spelled("{no}"), None);
        for text in ["{", "}", "{}", "a}b", "{a b}", "{{a}}", "{a", "{é}"] {
            assert_eq!(text.parse::<Pattern>(), Err(InvalidPattern), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_upsets_the_readers_of_names_and_patterns(text in "\\PC{0,40}") {
            if let Ok(pattern) = text.parse::<Pattern>() {
                prop_assert_eq!(pattern.to_string(), text.clone());
            }
            if let Ok(name) = text.parse::<KindName>() {
                prop_assert_eq!(name.as_str(), text.as_str());
            }
            short_digests(&text);
        }

        #[test]
        fn a_derived_target_is_a_target_or_names_a_parameter(region in "\\PC{0,8}", invoice in "[a-zA-Z0-9./@ ]{0,8}") {
            match kind().derived_target(&json!({"region": region, "invoice": invoice})) {
                Ok(target) => prop_assert_eq!(target.unwrap().to_string(), format!("invoice/{region}.{invoice}")),
                Err(error) => prop_assert!(["/params/region", "/params/invoice"].contains(&error.pointer.as_str())),
            }
        }
    }
}
