//! One kind, ready to check proposals.

use std::fmt;

use jsonschema::{
    Draft, JsonType, PatternOptions, ValidationError, Validator,
    error::{TypeKind, ValidationErrorKind},
};
use serde_json::Value;

use super::sentence::{ConsequenceFacts, Sentences};
use crate::model::{
    json,
    kind::{self, Amount, Kind, Risk},
    problem::{Code, FieldError, Problem},
    target::{InvalidTarget, Target},
};

/// A version of a kind with its schema and templates compiled.
pub struct CompiledKind {
    pub kind: Kind,
    pub version: i64,
    validator: Validator,
    sentences: Sentences,
}

/// What a proposal says, once it is known to be valid.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    /// With the schema's defaults filled in.
    pub params: Value,
    pub target: Target,
    pub risk: Risk,
    /// The amount that moves, for kinds that move money.
    pub amount: Option<Amount>,
    /// Equal for operations of one event; see [`Kind::business_key_of`].
    pub business_key: Option<String>,
}

impl CompiledKind {
    /// Compiles the schema and the templates.
    ///
    /// # Errors
    /// 422 `validation_failed` with the place in the kind's document.
    pub fn compile(kind: Kind, version: i64) -> Result<Self, Problem> {
        let validator = compile_schema(&kind.schema)?;
        let sentences = Sentences::compile(&kind)?;
        Ok(Self { kind, version, validator, sentences })
    }

    /// Checks a proposal of this kind.
    ///
    /// # Errors
    /// 422, with pointers into the body: `number_out_of_range`, `validation_failed` with everything that the schema
    /// refuses, `mutable_reference`.
    pub fn check(
        &self,
        params: &Value,
        target: Option<&str>,
        source_event_id: Option<&str>,
    ) -> Result<Checked, Problem> {
        if let Some(at) = kind::inexact_number(params, "/params") {
            return Err(Problem::at(Code::NumberOutOfRange, at, "expected an integer within ±(2^53−1)"));
        }
        let mut params = params.clone();
        kind::fill_defaults(&self.kind.schema, &mut params);
        refuse(Code::ValidationFailed, self.validator.iter_errors(&params).flat_map(|error| self.places(&error)))?;
        refuse(Code::MutableReference, self.mutable_references(&params))?;
        let amount = self.amount(&params)?;
        let target = self.target(&params, target)?;
        let risk = self.kind.risk_of(&params);
        let business_key = self.kind.business_key_of(&params, &target, source_event_id);
        Ok(Checked { params, target, risk, amount, business_key })
    }

    /// The effect in one sentence, from the content alone and what is known of the target.
    pub fn consequence(&self, facts: &ConsequenceFacts) -> String {
        self.sentences.consequence(&self.kind, facts)
    }

    /// How to undo it, or that it cannot be undone.
    pub fn rollback(&self, facts: &ConsequenceFacts) -> String {
        self.sentences.rollback(&self.kind, facts)
    }

    fn mutable_references(&self, params: &Value) -> impl Iterator<Item = FieldError> {
        self.kind.immutable_refs.iter().filter_map(|reference| {
            let text = params.get(&reference.param)?.as_str().unwrap_or_default();
            (!reference.form.accepts(text)).then(|| at_param(&reference.param, reference.form.expected()))
        })
    }

    fn amount(&self, params: &Value) -> Result<Option<Amount>, Problem> {
        let Some(rule) = &self.kind.money else { return Ok(None) };
        let detail = "expected the code of an active currency (ISO 4217)";
        let amount = self.kind.amount_of(params).ok_or_else(|| invalid(at_param(&rule.currency, detail)))?;
        if amount.minor < 1 {
            return Err(invalid(at_param(&rule.amount, "expected an amount of at least 1 minor unit")));
        }
        Ok(Some(amount))
    }

    fn target(&self, params: &Value, stated: Option<&str>) -> Result<Target, Problem> {
        let at_target = |detail: String| invalid(FieldError { pointer: "/target".to_owned(), detail });
        let derived = self.kind.derived_target(params).map_err(invalid)?;
        match (derived, stated) {
            (Some(derived), Some(stated)) if derived.as_str() != stated => {
                Err(at_target(format!("the parameters name `{derived}`: leave `target` out, or state the same")))
            }
            (Some(derived), _) => Ok(derived),
            (None, Some(stated)) => stated.parse().map_err(|error: InvalidTarget| at_target(error.to_string())),
            (None, None) => Err(at_target(format!("`{}` needs a target, such as `order/4711`", self.kind.name))),
        }
    }

    /// What one finding of the validator means to whoever sent the parameters. Never repeats what was sent.
    fn places(&self, error: &ValidationError) -> Vec<FieldError> {
        use ValidationErrorKind as Kind;

        let at = format!("/params{}", error.instance_path());
        let below = |name: &str| {
            let mut pointer = at.clone();
            json::push_token(&mut pointer, name);
            pointer
        };
        let detail = match error.kind() {
            Kind::Required { property } => {
                let name = property.as_str().unwrap_or_default();
                return vec![FieldError { pointer: below(name), detail: "is required".to_owned() }];
            }
            Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
                let detail = format!("`{}` has no such parameter", self.kind.name);
                return unexpected
                    .iter()
                    .map(|name| FieldError { pointer: below(name), detail: detail.clone() })
                    .collect();
            }
            Kind::Type { kind } => format!("expected {}", types(kind)),
            Kind::Enum { options } => {
                let options = options.as_array().map(Vec::as_slice).unwrap_or_default();
                format!("expected one of {}", options.iter().map(|v| format!("`{v}`")).collect::<Vec<_>>().join(", "))
            }
            Kind::Constant { expected_value } => format!("expected `{expected_value}`"),
            Kind::MinLength { limit: 1 } => "is empty".to_owned(),
            Kind::MinLength { limit } => format!("is shorter than {limit} characters"),
            Kind::MaxLength { limit } => format!("is longer than {limit} characters"),
            Kind::MinItems { limit } => format!("has fewer than {limit} elements"),
            Kind::MaxItems { limit } => format!("has more than {limit} elements"),
            Kind::MinProperties { limit } => format!("has fewer than {limit} members"),
            Kind::MaxProperties { limit } => format!("has more than {limit} members"),
            Kind::Minimum { limit } => format!("expected at least {limit}"),
            Kind::Maximum { limit } => format!("expected at most {limit}"),
            Kind::Pattern { pattern } => self.described(error, format!("does not match `{pattern}`")),
            Kind::Not { .. } => self.described(error, "is not allowed".to_owned()),
            _ => error.masked_with("this value").to_string(),
        };
        vec![FieldError { pointer: at, detail }]
    }

    /// `detail`, with what the schema says the place is for.
    fn described(&self, error: &ValidationError, detail: String) -> String {
        let keyword = error.schema_path().as_str();
        let schema = keyword.rsplit_once('/').and_then(|(schema, _)| self.kind.schema.pointer(schema));
        match schema.and_then(|schema| schema["description"].as_str()) {
            Some(description) => format!("{detail}: {description}"),
            None => detail,
        }
    }
}

/// Compiles a schema (JSON Schema 2020-12), which can refer to nothing outside itself.
///
/// # Errors
/// 422 `validation_failed` with the place below `/schema`.
pub fn compile_schema(schema: &Value) -> Result<Validator, Problem> {
    let options = jsonschema::options()
        .with_draft(Draft::Draft202012)
        .offline()
        // Linear in the length of the text, whatever the pattern.
        .with_pattern_options(PatternOptions::regex())
        .should_validate_formats(true)
        .should_ignore_unknown_formats(false);
    options.build(schema).map_err(|error| {
        Problem::at(Code::ValidationFailed, format!("/schema{}", error.instance_path()), error.to_string())
    })
}

impl fmt::Debug for CompiledKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.name, self.version)
    }
}

fn invalid(error: FieldError) -> Problem {
    Problem::invalid(Code::ValidationFailed, vec![error])
}

fn at_param(param: &str, detail: impl Into<String>) -> FieldError {
    let mut pointer = "/params".to_owned();
    json::push_token(&mut pointer, param);
    FieldError { pointer, detail: detail.into() }
}

/// Refuses if there is anything to complain about.
fn refuse(code: Code, errors: impl Iterator<Item = FieldError>) -> Result<(), Problem> {
    let errors: Vec<_> = errors.collect();
    if errors.is_empty() { Ok(()) } else { Err(Problem::invalid(code, errors)) }
}

fn types(kind: &TypeKind) -> String {
    let word = |one: JsonType| match one {
        JsonType::Null => "null",
        JsonType::Boolean => "a boolean",
        JsonType::Integer | JsonType::Number => "an integer",
        JsonType::String => "a string",
        JsonType::Array => "a list",
        JsonType::Object => "an object",
    };
    match kind {
        TypeKind::Single(one) => word(*one).to_owned(),
        TypeKind::Multiple(some) => some.iter().map(word).collect::<Vec<_>>().join(" or "),
    }
}
