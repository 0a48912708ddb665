//! Refusals: a closed set of codes, each with its status, its title and its way on (RFC 9457).

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

macro_rules! codes {
    ($($status:literal { $($code:ident: $retry:ident, $title:literal;)* })*) => {
        /// Why something was refused. The snake-case name is the `code` on the wire.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code { $($($code,)*)* }

        impl Code {
            pub const ALL: &[Code] = &[$($(Code::$code,)*)*];

            /// HTTP status.
            pub fn status(self) -> u16 {
                match self { $($(Code::$code => $status,)*)* }
            }

            /// One sentence that is true of every refusal with this code.
            pub fn title(self) -> &'static str {
                match self { $($(Code::$code => $title,)*)* }
            }

            /// What the caller may do next, unless the refusal itself knows better.
            pub fn retry(self) -> RetryMode {
                match self { $($(Code::$code => RetryMode::$retry,)*)* }
            }
        }
    };
}

codes! {
    400 {
        IdempotencyKeyMissing: NewOperation, "The request needs one `Idempotency-Key` header";
        IdempotencyKeyInvalid: NewOperation, "The `Idempotency-Key` header is not a valid key";
        MalformedJson: NewOperation, "The body is not JSON this API accepts";
        DuplicateJsonKey: NewOperation, "A JSON object names the same member twice";
        MalformedEtag: AfterFreshRead, "The entity tag is malformed";
        BadRequest: None, "The request cannot be understood";
    }
    401 { Unauthenticated: None, "Sign in, or send a valid token"; }
    403 {
        Forbidden: None, "This principal may not do that";
        NotEligible: None, "Your role or groups may not vote on this operation";
        SelfApproval: None, "Nobody approves their own agent's work";
        OutsideWriteSet: None, "The write is outside what was granted";
        RunStopped: None, "The run has stopped or expired";
        HumansOnly: None, "Only a person may do that";
        CrossSite: None, "The request did not come from this site";
        StepUpRequired: None, "Enter the password again first";
    }
    404 { NotFound: None, "There is nothing here for you"; }
    405 { MethodNotAllowed: None, "This address does not take that method"; }
    409 {
        FingerprintConflict: None, "The key is already bound to another command";
        UnknownKey: None, "A retry was declared, and this key is not known";
        ApprovalExpired: NewOperation, "The deadline has passed";
        ApprovalSpent: None, "The approval is already spent";
        ApprovalMismatch: None, "The fingerprint is not the one that was approved";
        ApprovalWithdrawn: AwaitDecision, "The approval was withdrawn";
        NotApproved: AwaitDecision, "The operation is not approved";
        AlreadyDecided: None, "Somebody has already decided";
        AlreadyClaimed: None, "Somebody else holds the claim";
        InvalidState: None, "The operation is not in a state that allows this";
        PolicyChanged: AwaitDecision, "The policy now asks for more than was given";
        OwnershipConflict: AfterFreshRead, "A live run has reserved this";
        LeaseHeld: SameKey, "Somebody else holds the lease";
        LeaseLost: None, "The lease is gone";
        StaleFence: None, "A successor has taken over";
        ReleaseLocked: SameKey, "Another deployment of this environment is under way";
        BusinessKeyConflict: None, "This event already has its operation";
        InvariantViolated: None, "The write would break a rule of its target";
        OutcomeUnknown: Operator, "The outcome of an earlier write is not known";
        NotBulk: None, "High and critical operations are decided one at a time";
    }
    410 { IdempotencyKeyExpired: NewOperation, "The key is past its retention"; }
    412 {
        StaleVersion: AfterFreshRead, "The resource has changed since it was read";
        StaleView: AfterFreshRead, "What was shown is older than the operation";
    }
    413 { PayloadTooLarge: NewOperation, "The body is too large"; }
    415 { UnsupportedMediaType: NewOperation, "The media type is not supported"; }
    422 {
        ValidationFailed: NewOperation, "The content is not valid";
        MutableReference: NewOperation, "The reference could change its meaning";
        NumberOutOfRange: NewOperation, "The number is not an exact integer";
    }
    428 { PreconditionRequired: AfterFreshRead, "State the version you planned on"; }
    429 {
        RateLimited: SameKey, "Too many requests";
        OpenOperationsLimit: SameKey, "Too many open operations";
    }
    500 { Internal: SameKey, "Something went wrong on this side"; }
    503 {
        Unavailable: SameKey, "Nothing was done; send it again";
        Paused: SameKey, "The desk is paused";
    }
}

impl Code {
    /// The name on the wire, `stale_version`.
    pub fn as_str(self) -> String {
        let mut out = String::new();
        for (i, c) in format!("{self:?}").char_indices() {
            if c.is_ascii_uppercase() && i > 0 {
                out.push('_');
            }
            out.push(c.to_ascii_lowercase());
        }
        out
    }

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == name)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.as_str())
    }
}

impl Serialize for Code {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Code {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Self::parse(&name).ok_or_else(|| serde::de::Error::custom(format!("unknown code `{name}`")))
    }
}

/// What the caller may do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryMode {
    None,
    SameKey,
    AfterFreshRead,
    NewOperation,
    AwaitDecision,
    Operator,
}

/// The way on, as data: `retry` on operations and problems.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    pub mode: RetryMode,
    /// Seconds to wait first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_s: Option<i64>,
}

/// A refusal: nothing was done beyond what `detail` says.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    pub code: Code,
    /// What happened, where, and what to do.
    pub detail: String,
    pub retry: Retry,
    /// Whether the same action may be proposed under a new key without risk of a second effect.
    pub safe_new_key: bool,
    /// The code's own members.
    pub members: Map<String, Value>,
}

impl Problem {
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        let mode = code.retry();
        let after_s = (mode == RetryMode::SameKey).then_some(1);
        // Refused before anything was bound to the key: the caller may as well use another. What became of a forgotten
        // key's operation is not known here, and a vote on an old view is about no key at all.
        let says_nothing_of_keys = matches!(code, Code::IdempotencyKeyExpired | Code::StaleView);
        let safe_new_key = matches!(mode, RetryMode::NewOperation | RetryMode::AfterFreshRead) && !says_nothing_of_keys;
        Self { code, detail: detail.into(), retry: Retry { mode, after_s }, safe_new_key, members: Map::new() }
    }

    /// 422 or 400 with the place: `pointer` is an RFC 6901 JSON pointer into the body.
    pub fn at(code: Code, pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::invalid(code, vec![FieldError { pointer: pointer.into(), detail: detail.into() }])
    }

    /// Several places at once; at least one.
    pub fn invalid(code: Code, errors: Vec<FieldError>) -> Self {
        let detail = match errors.as_slice() {
            [one] if one.pointer.is_empty() => one.detail.clone(),
            [one] => format!("`{}`: {}", one.pointer, one.detail),
            many => format!("{} places are not valid; see `errors`", many.len()),
        };
        Self::new(code, detail).with("errors", errors)
    }

    /// The same about a part of a body, `pointer` being where that part is.
    pub fn below(self, pointer: &str) -> Self {
        let mut errors = self.errors();
        if errors.is_empty() {
            errors.push(FieldError { pointer: String::new(), detail: self.detail.clone() });
        }
        for error in &mut errors {
            error.pointer.insert_str(0, pointer);
        }
        let Self { retry, safe_new_key, mut members, .. } = self;
        let placed = Self::invalid(self.code, errors);
        members.extend(placed.members);
        Self { retry, safe_new_key, members, ..placed }
    }

    pub fn with(mut self, name: &str, value: impl Serialize) -> Self {
        let value = serde_json::to_value(value).unwrap_or(Value::Null);
        self.members.insert(name.to_owned(), value);
        self
    }

    pub fn retry(mut self, mode: RetryMode, after_s: Option<i64>) -> Self {
        self.retry = Retry { mode, after_s };
        self
    }

    pub fn safe_new_key(mut self, safe: bool) -> Self {
        self.safe_new_key = safe;
        self
    }

    /// The places that are not valid, if that is what it is about.
    pub fn errors(&self) -> Vec<FieldError> {
        self.members.get("errors").and_then(|errors| serde_json::from_value(errors.clone()).ok()).unwrap_or_default()
    }

    /// Whether sending the very same request again can help.
    pub fn retryable(&self) -> bool {
        self.retry.mode == RetryMode::SameKey
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.detail)
    }
}

impl std::error::Error for Problem {}

/// One place in the body that is not valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldError {
    /// RFC 6901 JSON pointer.
    pub pointer: String,
    pub detail: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_found_by_its_wire_name() {
        for &code in Code::ALL {
            assert_eq!(Code::parse(&code.as_str()), Some(code));
        }
        assert_eq!(Code::IdempotencyKeyMissing.as_str(), "idempotency_key_missing");
        assert_eq!(Code::StaleVersion.status(), 412);
    }
}
