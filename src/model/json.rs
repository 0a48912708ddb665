//! Strict JSON in, canonical JSON out.
//!
//! Hand-written because the usual parsers keep the last of two equal names without a word, round integers they cannot
//! hold, and report a line and a column where a caller needs a JSON pointer.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Number, Value};

use super::problem::{Code, Problem};

/// The largest integer every JSON reader holds exactly: 2^53 − 1 (RFC 7493, section 2.2).
pub const MAX_INTEGER: i64 = (1 << 53) - 1;

/// How much is read at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub max_bytes: usize,
    /// Nested containers, the outermost included. The parser recurses this deep and no deeper.
    pub max_depth: u8,
}

impl Limits {
    /// What a client may send.
    pub const BODY: Self = Self { max_bytes: 64 * 1024, max_depth: 32 };

    /// Our own stored text: whatever was accepted once stays readable, with the envelope and the defaults added to it.
    pub const STORED: Self = Self { max_bytes: usize::MAX, max_depth: 64 };
}

/// Whether `integer` lies within ±[`MAX_INTEGER`].
pub fn is_exact(integer: i64) -> bool {
    (-MAX_INTEGER..=MAX_INTEGER).contains(&integer)
}

/// Reads JSON (RFC 8259) under the restrictions of I-JSON (RFC 7493), integers only.
///
/// The first fault in document order is the one reported, with its JSON pointer. A fault inside a member's name is
/// reported at the object, since the name cannot be told.
///
/// # Errors
/// `payload_too_large` · `malformed_json`: syntax, UTF-8, U+0000, lone surrogates, nesting, trailing data ·
/// `duplicate_json_key`: two names that are equal once unescaped · `number_out_of_range`: a fraction, an exponent, an
/// integer beyond ±[`MAX_INTEGER`], or `-0`, which readers of doubles keep apart from `0` and the canonical form does not.
pub fn parse(bytes: &[u8], limits: Limits) -> Result<Value, Problem> {
    if bytes.len() > limits.max_bytes {
        let detail = format!("the body is {} bytes long, and {} are allowed", bytes.len(), limits.max_bytes);
        return Err(Problem::new(Code::PayloadTooLarge, detail));
    }
    let mut parser = Parser { bytes, at: 0, pointer: String::new(), levels_left: limits.max_depth };
    let value = parser.value()?;
    parser.skip_space();
    if parser.at < bytes.len() { Err(parser.expected("the end")) } else { Ok(value) }
}

struct Parser<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The value being read.
    pointer: String,
    levels_left: u8,
}

impl Parser<'_> {
    fn value(&mut self) -> Result<Value, Problem> {
        self.skip_space();
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::array),
            Some(b'"') => self.string().map(Value::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => [("null", Value::Null), ("true", Value::Bool(true)), ("false", Value::Bool(false))]
                .into_iter()
                .find_map(|(word, value)| self.take_all(word).then_some(value))
                .ok_or_else(|| self.expected("a value")),
        }
    }

    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Result<Value, Problem>) -> Result<Value, Problem> {
        self.levels_left =
            self.levels_left.checked_sub(1).ok_or_else(|| self.malformed("the value is nested too deep"))?;
        self.at += 1;
        let value = read(self)?;
        self.levels_left += 1;
        Ok(value)
    }

    fn object(&mut self) -> Result<Value, Problem> {
        let mut members = Map::new();
        self.skip_space();
        if self.take(b'}') {
            return Ok(Value::Object(members));
        }
        loop {
            self.skip_space();
            if self.peek() != Some(b'"') {
                return Err(self.expected("a member name"));
            }
            let name = self.string()?;
            let here = self.pointer.len();
            push_token(&mut self.pointer, &name);
            if members.contains_key(&name) {
                return Err(self.refuse(Code::DuplicateJsonKey, "the object names this member twice"));
            }
            self.skip_space();
            if !self.take(b':') {
                return Err(self.expected("`:`"));
            }
            members.insert(name, self.value()?);
            self.pointer.truncate(here);
            self.skip_space();
            if self.take(b'}') {
                return Ok(Value::Object(members));
            }
            if !self.take(b',') {
                return Err(self.expected("`,` or `}`"));
            }
        }
    }

    fn array(&mut self) -> Result<Value, Problem> {
        let mut elements = Vec::new();
        self.skip_space();
        if self.take(b']') {
            return Ok(Value::Array(elements));
        }
        loop {
            let here = self.pointer.len();
            push_index(&mut self.pointer, elements.len());
            elements.push(self.value()?);
            self.pointer.truncate(here);
            self.skip_space();
            if self.take(b']') {
                return Ok(Value::Array(elements));
            }
            if !self.take(b',') {
                return Err(self.expected("`,` or `]`"));
            }
        }
    }

    fn string(&mut self) -> Result<String, Problem> {
        self.at += 1;
        let mut text = String::new();
        loop {
            let rest = &self.bytes[self.at..];
            let plain = rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20)).unwrap_or(rest.len());
            match std::str::from_utf8(&rest[..plain]) {
                Ok(run) => text.push_str(run),
                Err(_) => return Err(self.malformed("the text is not UTF-8")),
            }
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(text);
                }
                Some(b'\\') => text.push(self.escape()?),
                Some(_) => return Err(self.malformed("the text holds a control character that is not escaped")),
                None => return Err(self.expected("the end of the text")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, Problem> {
        self.at += 1;
        let letter = self.peek();
        self.at += 1;
        Ok(match letter {
            Some(c @ (b'"' | b'\\' | b'/')) => char::from(c),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                let first = self.code_unit()?;
                let is_high = (0xd800..0xdc00).contains(&first);
                let second = if is_high && self.take_all("\\u") { Some(self.code_unit()?) } else { None };
                match char::decode_utf16([first].into_iter().chain(second)).next() {
                    Some(Ok('\0')) => return Err(self.malformed("the text holds U+0000")),
                    Some(Ok(c)) => c,
                    _ => return Err(self.malformed("the text holds half of a surrogate pair")),
                }
            }
            _ => return Err(self.malformed("the text holds an unknown escape")),
        })
    }

    fn code_unit(&mut self) -> Result<u16, Problem> {
        let digits = self.bytes.get(self.at..self.at + 4).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        let unit = digits
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|hex| u16::from_str_radix(hex, 16).ok());
        self.at += 4;
        unit.ok_or_else(|| self.malformed("`\\u` needs four hexadecimal digits"))
    }

    fn number(&mut self) -> Result<Value, Problem> {
        let start = self.at;
        self.take(b'-');
        if !self.take(b'0') {
            self.digits()?;
        }
        let whole = self.at;
        if self.take(b'.') {
            self.digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _ = self.take(b'+') || self.take(b'-');
            self.digits()?;
        }
        let text = std::str::from_utf8(&self.bytes[start..self.at]).unwrap_or_default();
        if self.at > whole {
            return Err(self.refuse(Code::NumberOutOfRange, "numbers are whole, without fraction or exponent"));
        }
        if text == "-0" {
            return Err(self.refuse(Code::NumberOutOfRange, "zero has no sign"));
        }
        match text.parse() {
            Ok(integer) if is_exact(integer) => Ok(Value::from(integer)),
            _ => Err(self.refuse(Code::NumberOutOfRange, format!("integers lie within ±{MAX_INTEGER}"))),
        }
    }

    fn digits(&mut self) -> Result<(), Problem> {
        let start = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at == start { Err(self.expected("a digit")) } else { Ok(()) }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn take_all(&mut self, word: &str) -> bool {
        let found = self.bytes[self.at..].starts_with(word.as_bytes());
        self.at += if found { word.len() } else { 0 };
        found
    }

    fn expected(&self, what: &str) -> Problem {
        match self.peek() {
            Some(_) => self.malformed(format!("expected {what} at byte {}", self.at)),
            None => self.malformed(format!("expected {what}, and the body ends")),
        }
    }

    fn malformed(&self, detail: impl Into<String>) -> Problem {
        self.refuse(Code::MalformedJson, detail)
    }

    fn refuse(&self, code: Code, detail: impl Into<String>) -> Problem {
        Problem::at(code, self.pointer.as_str(), detail)
    }
}

/// Appends one reference token to a JSON pointer, escaped (RFC 6901, section 3).
pub fn push_token(pointer: &mut String, token: &str) {
    pointer.push('/');
    for c in token.chars() {
        match c {
            '~' => pointer.push_str("~0"),
            '/' => pointer.push_str("~1"),
            _ => pointer.push(c),
        }
    }
}

fn push_index(pointer: &mut String, index: usize) {
    push_token(pointer, &index.to_string());
}

/// The canonical form (RFC 8785).
///
/// # Panics
/// If a number is not an integer within ±[`MAX_INTEGER`]: writing it would round it, and two commands would share a
/// fingerprint. Values from [`parse`] and [`unflatten`] hold no such number.
pub fn canonical(value: &Value) -> String {
    assert_exact(value);
    serde_json_canonicalizer::to_string(value).expect("a value has names that are text, once each")
}

fn assert_exact(value: &Value) {
    match value {
        Value::Number(number) => _ = exact(number),
        Value::Array(elements) => elements.iter().for_each(assert_exact),
        Value::Object(members) => members.values().for_each(assert_exact),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn exact(number: &Number) -> i64 {
    number.as_i64().filter(|integer| is_exact(*integer)).expect("numbers are exact integers")
}

/// Members in the order of the canonical form: by UTF-16 code units (RFC 8785, section 3.2.3).
fn in_order(members: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut members: Vec<_> = members.iter().collect();
    members.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
    members
}

/// Where two values differ: the JSON pointers of the leaves, and of whole members and elements that only one side has,
/// in canonical order. Arrays are compared by index, so a reordered array names every index that changed.
pub fn differing_pointers(a: &Value, b: &Value) -> Vec<String> {
    let mut found = Vec::new();
    differ(a, b, &mut String::new(), &mut found);
    found
}

fn differ(a: &Value, b: &Value, pointer: &mut String, found: &mut Vec<String>) {
    let mut child = |a: Option<&Value>, b: Option<&Value>, push: &dyn Fn(&mut String)| {
        let here = pointer.len();
        push(pointer);
        match (a, b) {
            (Some(a), Some(b)) => differ(a, b, pointer, found),
            _ => found.push(pointer.clone()),
        }
        pointer.truncate(here);
    };
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            let mut both = a.clone();
            both.extend(b.clone());
            for (name, _) in in_order(&both) {
                child(a.get(name), b.get(name), &|pointer| push_token(pointer, name));
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            for index in 0..a.len().max(b.len()) {
                child(a.get(index), b.get(index), &|pointer| push_index(pointer, index));
            }
        }
        _ if a == b => {}
        _ => found.push(pointer.clone()),
    }
}

/// One line of a value laid out for reading: a container or a leaf.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// RFC 6901 JSON pointer.
    pub pointer: String,
    /// Containers around it; 0 for the whole value.
    pub depth: usize,
    /// The member's name; none for the whole value and for array elements.
    pub name: Option<String>,
    pub kind: NodeKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeKind {
    /// The next `len` values one level down are its members.
    Object {
        len: usize,
    },
    /// The next `len` values one level down are its elements.
    Array {
        len: usize,
    },
    Text(String),
    Integer(i64),
    Bool(bool),
    Null,
}

/// Every container and every leaf, in the order of the canonical form.
///
/// # Panics
/// As [`canonical`].
pub fn flatten(value: &Value) -> Vec<Node> {
    let mut nodes = Vec::new();
    lay_out(value, String::new(), 0, None, &mut nodes);
    nodes
}

fn lay_out(value: &Value, pointer: String, depth: usize, name: Option<String>, nodes: &mut Vec<Node>) {
    let kind = match value {
        Value::Object(members) => NodeKind::Object { len: members.len() },
        Value::Array(elements) => NodeKind::Array { len: elements.len() },
        Value::String(text) => NodeKind::Text(text.clone()),
        Value::Number(number) => NodeKind::Integer(exact(number)),
        Value::Bool(bool) => NodeKind::Bool(*bool),
        Value::Null => NodeKind::Null,
    };
    nodes.push(Node { pointer: pointer.clone(), depth, name, kind });
    match value {
        Value::Object(members) => {
            for (name, member) in in_order(members) {
                let mut pointer = pointer.clone();
                push_token(&mut pointer, name);
                lay_out(member, pointer, depth + 1, Some(name.clone()), nodes);
            }
        }
        Value::Array(elements) => {
            for (index, element) in elements.iter().enumerate() {
                let mut pointer = pointer.clone();
                push_index(&mut pointer, index);
                lay_out(element, pointer, depth + 1, None, nodes);
            }
        }
        _ => {}
    }
}

/// The value that [`flatten`] turns into exactly these nodes; none if there is no such value.
pub fn unflatten(nodes: &[Node]) -> Option<Value> {
    let mut rest = nodes;
    let value = rebuild(&mut rest, Limits::STORED.max_depth)?;
    (flatten(&value) == nodes).then_some(value)
}

fn rebuild(rest: &mut &[Node], levels_left: u8) -> Option<Value> {
    let (node, after) = rest.split_first()?;
    *rest = after;
    Some(match &node.kind {
        NodeKind::Object { len } => {
            let levels_left = levels_left.checked_sub(1)?;
            let member = |_| Some((rest.first()?.name.clone()?, rebuild(rest, levels_left)?));
            Value::Object((0..*len).map(member).collect::<Option<_>>()?)
        }
        NodeKind::Array { len } => {
            let levels_left = levels_left.checked_sub(1)?;
            Value::Array((0..*len).map(|_| rebuild(rest, levels_left)).collect::<Option<_>>()?)
        }
        NodeKind::Text(text) => Value::String(text.clone()),
        NodeKind::Integer(integer) => is_exact(*integer).then(|| Value::from(*integer))?,
        NodeKind::Bool(bool) => Value::Bool(*bool),
        NodeKind::Null => Value::Null,
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::{collection, prelude::*, sample};
    use serde_json::json;

    use super::*;

    /// Any value this crate accepts, of moderate depth.
    pub(crate) fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::Bool),
            prop_oneof![-9i64..9, -MAX_INTEGER..=MAX_INTEGER].prop_map(Value::from),
            texts().prop_map(Value::String),
        ];
        leaf.prop_recursive(5, 40, 6, |inner| {
            prop_oneof![
                collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
                collection::btree_map(texts(), inner, 0..6)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    /// Any text but U+0000, with the characters that matter to JSON, pointers and sorting well represented.
    fn texts() -> impl Strategy<Value = String> {
        let special = sample::select(vec![
            '"', '\\', '/', '~', '\n', '\u{1f}', '\u{7f}', 'é', '\u{202e}', '\u{fb33}', '😀', '0', 'a',
        ]);
        collection::vec(prop_oneof![special, any::<char>()], 0..8)
            .prop_map(|chars| chars.into_iter().filter(|c| *c != '\0').collect())
    }

    /// Writes a value in some legal spelling: members rotated, space anywhere, characters escaped; steered by `dice`.
    fn spell(value: &Value, dice: &mut impl Iterator<Item = u8>, out: &mut String) {
        fn space(dice: &mut impl Iterator<Item = u8>, out: &mut String) {
            out.push_str(["", " ", "\n\t", "\r "][usize::from(dice.next().unwrap_or(0) % 4)]);
        }
        fn text(text: &str, dice: &mut impl Iterator<Item = u8>, out: &mut String) {
            out.push('"');
            for c in text.chars() {
                let must = matches!(c, '"' | '\\' | '\0'..='\u{1f}');
                if must || dice.next().unwrap_or(0).is_multiple_of(3) {
                    c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| *out += &format!("\\u{unit:04X}"));
                } else {
                    out.push(c);
                }
            }
            out.push('"');
        }
        space(dice, out);
        match value {
            Value::Object(members) => {
                let mut members: Vec<_> = members.iter().collect();
                if !members.is_empty() {
                    let by = usize::from(dice.next().unwrap_or(0)) % members.len();
                    members.rotate_left(by);
                }
                out.push('{');
                for (i, (name, member)) in members.into_iter().enumerate() {
                    out.push_str(if i == 0 { "" } else { "," });
                    space(dice, out);
                    text(name, dice, out);
                    space(dice, out);
                    out.push(':');
                    spell(member, dice, out);
                }
                space(dice, out);
                out.push('}');
            }
            Value::Array(elements) => {
                out.push('[');
                for (i, element) in elements.iter().enumerate() {
                    out.push_str(if i == 0 { "" } else { "," });
                    spell(element, dice, out);
                }
                space(dice, out);
                out.push(']');
            }
            Value::String(string) => text(string, dice, out),
            leaf => out.push_str(&leaf.to_string()),
        }
        space(dice, out);
    }

    fn spelled(value: &Value, dice: &[u8]) -> String {
        let mut out = String::new();
        spell(value, &mut dice.iter().copied().cycle().take(10_000), &mut out);
        out
    }

    fn read(text: impl AsRef<[u8]>) -> Result<Value, Problem> {
        parse(text.as_ref(), Limits::BODY)
    }

    /// The code and the pointer of the refusal.
    #[track_caller]
    fn refusal(text: impl AsRef<[u8]>) -> (Code, String) {
        let problem = read(text.as_ref()).expect_err(&String::from_utf8_lossy(text.as_ref()));
        let errors = problem.members.get("errors").and_then(Value::as_array).expect("errors");
        assert_eq!(errors.len(), 1);
        assert!(!errors[0]["detail"].as_str().unwrap().is_empty());
        (problem.code, errors[0]["pointer"].as_str().unwrap().to_owned())
    }

    #[track_caller]
    fn refused(text: impl AsRef<[u8]>, code: Code, pointer: &str) {
        assert_eq!(refusal(text.as_ref()), (code, pointer.to_owned()), "{}", String::from_utf8_lossy(text.as_ref()));
    }

    #[test]
    fn broken_syntax_is_refused_at_its_place() {
        for text in [
            "",
            " ",
            "{",
            "[",
            "\"",
            "nul",
            "nulll",
            "{\"a\"",
            "{\"a\":1,}",
            "[1,]",
            "[1 2]",
            "{}{}",
            "1 1",
            "'a'",
            "{a:1}",
        ] {
            assert_eq!(refusal(text).0, Code::MalformedJson, "{text}");
        }
        for number in
            ["01", "-", "+1", ".5", "1.", "1.e3", "1e", "1e+", "--1", "0x1", "NaN", "Infinity", "-Infinity", "1_000"]
        {
            assert_eq!(refusal(number).0, Code::MalformedJson, "{number}");
        }
        refused("{\"a\":[1,{\"b\":}]}", Code::MalformedJson, "/a/1/b");
        refused("{\"a/b~c\":[true,tru]}", Code::MalformedJson, "/a~1b~0c/1");
        refused("\u{feff}{}", Code::MalformedJson, "");
        refused("[1]//", Code::MalformedJson, "");
        refused("[\"\\x\"]", Code::MalformedJson, "/0");
        refused("[\"\\u00g0\"]", Code::MalformedJson, "/0");
        refused("[\"\\u+041\"]", Code::MalformedJson, "/0");
        refused("[\"\\u00", Code::MalformedJson, "/0");
    }

    #[test]
    fn the_detail_says_what_was_expected_and_where() {
        let detail = |text: &str| read(text).unwrap_err().detail;
        assert_eq!(detail(r#"{"a" 1}"#), "`/a`: expected `:` at byte 5");
        assert_eq!(detail(r#"{"kind":"#), "`/kind`: expected a value, and the body ends");
        assert_eq!(detail("[1.5]"), "`/0`: numbers are whole, without fraction or exponent");
    }

    #[test]
    fn text_that_cannot_be_stored_is_refused() {
        refused(r#"{"a":["x\u0000"]}"#, Code::MalformedJson, "/a/0");
        refused("{\"a\":\"\0\"}", Code::MalformedJson, "/a");
        refused(r#"{"p":{"a\u0000":1}}"#, Code::MalformedJson, "/p");
        refused("{\"a\":\"line\nbreak\"}", Code::MalformedJson, "/a");
        for lone in [r"\ud800", r"\udc00", r"\ud800\ud800", r"\ud800x", r"\ud800\n", r"\uDBFF"] {
            refused(format!("[1,\"{lone}\"]"), Code::MalformedJson, "/1");
            refused(format!("{{\"{lone}\":1}}"), Code::MalformedJson, "");
        }
        refused(b"[\"\xff\"]", Code::MalformedJson, "/0");
        refused(b"[\"\xed\xa0\x80\"]", Code::MalformedJson, "/0");
        refused(b"[\"\xc0\x80\"]", Code::MalformedJson, "/0");
        assert_eq!(read(r#""\ud83d\uDE00\/\b\f\n\r\t\"\\""#).unwrap(), json!("😀/\u{8}\u{c}\n\r\t\"\\"));
    }

    #[test]
    fn a_name_twice_is_refused_once_unescaped_at_any_depth() {
        refused(r#"{"a":1,"a":1}"#, Code::DuplicateJsonKey, "/a");
        refused(r#"{"target":1,"\u0074arget":2}"#, Code::DuplicateJsonKey, "/target");
        refused(r#"{"p":[{"x":{},"y":0,"x":null}]}"#, Code::DuplicateJsonKey, "/p/0/x");
        refused(r#"{"":1,"":2}"#, Code::DuplicateJsonKey, "/");
        // Equal only after normalisation, which nothing here does.
        assert!(read("{\"\u{e9}\":1,\"e\u{301}\":2}").is_ok());
    }

    #[test]
    fn only_exact_integers_are_numbers() {
        for text in
            ["1.0", "1e3", "1E3", "1e-3", "0.0", "-0.0", "0e0", "-0", "-0e1", "1e999", "1.5", "9007199254740993.0"]
        {
            refused(format!("[0,{text}]"), Code::NumberOutOfRange, "/1");
        }
        for text in
            ["9007199254740992", "-9007199254740992", "9223372036854775808", "-9223372036854775809", &"9".repeat(4000)]
        {
            refused(format!("{{\"n\":{text}}}"), Code::NumberOutOfRange, "/n");
        }
        assert_eq!(read("[9007199254740991,-9007199254740991,0]").unwrap(), json!([MAX_INTEGER, -MAX_INTEGER, 0]));
    }

    #[test]
    fn the_number_samples_of_rfc_8785_are_refused_but_for_zero() {
        let samples = "5e-324 -5e-324 1.7976931348623157e+308 9007199254740992 -9007199254740992 295147905179352830000 \
            9.999999999999997e+22 1e+23 1.0000000000000001e+23 999999999999999700000 1e+21 9.999999999999997e-7 0.000001 \
            333333333.3333332 -0.0000033333333333333333 1424953923781206.2 333333333.33333329 1E30 4.50 2e-3";
        for sample in samples.split_whitespace() {
            refused(sample, Code::NumberOutOfRange, "");
        }
        assert_eq!(canonical(&read("0").unwrap()), "0");
    }

    #[test]
    fn nesting_beyond_the_limit_is_refused_without_following_it() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(read(nested(32)).is_ok());
        refused(nested(33), Code::MalformedJson, &"/0".repeat(32));
        refused("{\"a\":".repeat(200), Code::MalformedJson, &"/a".repeat(32));
        let huge = Limits { max_bytes: usize::MAX, ..Limits::BODY };
        assert_eq!(parse("[".repeat(10_000_000).as_bytes(), huge).unwrap_err().code, Code::MalformedJson);
        // Siblings do not add up.
        assert!(read(format!("[{}[]]", "[[]],".repeat(1000))).is_ok());
    }

    #[test]
    fn a_body_over_the_limit_is_not_read() {
        let body = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
        assert!(read(body(64 * 1024)).is_ok());
        let problem = read(body(64 * 1024 + 1)).unwrap_err();
        assert_eq!((problem.code, problem.code.status()), (Code::PayloadTooLarge, 413));
    }

    #[test]
    fn of_several_faults_the_first_in_the_document_is_named() {
        refused(r#"{"a":1.5,"b":1,"b":2,"c":"\ud800"}"#, Code::NumberOutOfRange, "/a");
        refused(r#"{"b":1,"b":2.5,"c":"#, Code::DuplicateJsonKey, "/b");
        refused(r#"{"c":"\ud800","a":1.5,"#, Code::MalformedJson, "/c");
        refused("[1.5,\"\0\"", Code::NumberOutOfRange, "/0");
    }

    #[test]
    fn members_are_sorted_by_utf_16_code_units() {
        let sample = r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One",
            "\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#;
        let value = read(sample).unwrap();
        let titles: Vec<_> = flatten(&value).into_iter().filter_map(|node| node.name).collect();
        assert_eq!(titles, ["\r", "1", "\u{80}", "ö", "€", "😀", "\u{fb33}"]);
        assert!(canonical(&value).starts_with(r#"{"\r":"Carriage Return","1":"One","#));
    }

    #[test]
    #[should_panic(expected = "numbers are exact integers")]
    fn a_number_that_would_be_rounded_is_never_written() {
        canonical(&json!({"amount_minor": [MAX_INTEGER + 2]}));
    }

    #[test]
    fn differences_are_named_by_pointer() {
        let differ = |a, b| differing_pointers(&a, &b);
        assert_eq!(differ(json!({"a": 1, "b": [1, 2]}), json!({"b": [1, 2], "a": 1})), [""; 0]);
        assert_eq!(differ(json!({"a": {"b": 1, "c/d": 2}}), json!({"a": {"b": 2, "c/d": 3}})), ["/a/b", "/a/c~1d"]);
        assert_eq!(differ(json!({"a": null}), json!({"b": {"c": 1}})), ["/a", "/b"]);
        assert_eq!(differ(json!([1, 2, 3]), json!([2, 1, 3])), ["/0", "/1"]);
        assert_eq!(differ(json!([1]), json!([1, [], 2])), ["/1", "/2"]);
        assert_eq!(differ(json!({"a": {}}), json!({"a": []})), ["/a"]);
        assert_eq!(differ(json!(1), json!("1")), [""]);
    }

    #[test]
    fn a_value_is_laid_out_in_reading_order() {
        let nodes = flatten(&json!({"b": [true, null], "a": {"x/y": -1}, "c": ""}));
        let node = |pointer: &str, depth, name: Option<&str>, kind| Node {
            pointer: pointer.into(),
            depth,
            name: name.map(Into::into),
            kind,
        };
        let expected = [
            node("", 0, None, NodeKind::Object { len: 3 }),
            node("/a", 1, Some("a"), NodeKind::Object { len: 1 }),
            node("/a/x~1y", 2, Some("x/y"), NodeKind::Integer(-1)),
            node("/b", 1, Some("b"), NodeKind::Array { len: 2 }),
            node("/b/0", 2, None, NodeKind::Bool(true)),
            node("/b/1", 2, None, NodeKind::Null),
            node("/c", 1, Some("c"), NodeKind::Text(String::new())),
        ];
        assert_eq!(nodes, expected);
    }

    #[test]
    fn nodes_that_no_value_has_are_not_rebuilt() {
        let nodes = flatten(&json!({"a": [1, 2], "b": "x"}));
        let change = |change: &dyn Fn(&mut Vec<Node>)| {
            let mut nodes = nodes.clone();
            change(&mut nodes);
            unflatten(&nodes)
        };
        assert!(change(&|_| {}).is_some());
        assert_eq!(change(&|nodes| nodes.clear()), None);
        assert_eq!(change(&|nodes| _ = nodes.pop()), None);
        assert_eq!(change(&|nodes| nodes.push(nodes[2].clone())), None);
        assert_eq!(change(&|nodes| nodes.swap(2, 3)), None);
        assert_eq!(change(&|nodes| nodes[1].kind = NodeKind::Array { len: usize::MAX }), None);
        assert_eq!(change(&|nodes| nodes[1].name = None), None);
        assert_eq!(change(&|nodes| nodes[2].name = Some("0".into())), None);
        assert_eq!(change(&|nodes| nodes[2].kind = NodeKind::Integer(MAX_INTEGER + 1)), None);
        assert_eq!(change(&|nodes| nodes[4].pointer = "/c".into()), None);
        assert_eq!(change(&|nodes| nodes[4].name = Some("a".into())), None);
        let deep =
            vec![Node { pointer: String::new(), depth: 0, name: None, kind: NodeKind::Array { len: 1 } }; 1_000_000];
        assert_eq!(unflatten(&deep), None);
    }

    proptest! {
        #[test]
        fn every_spelling_of_a_value_is_one_value_with_one_canonical_form(value in values(), dice in collection::vec(any::<u8>(), 1..60)) {
            let text = spelled(&value, &dice);
            let read = parse(text.as_bytes(), Limits::BODY).unwrap();
            prop_assert_eq!(&read, &value, "{}", text);
            let canonical = canonical(&read);
            prop_assert_eq!(&parse(canonical.as_bytes(), Limits::STORED).unwrap(), &value);
            prop_assert_eq!(differing_pointers(&read, &value), Vec::<String>::new());
        }

        #[test]
        fn what_is_accepted_is_what_serde_json_reads_and_a_refusal_has_its_reason(
            value in values(), dice in collection::vec(any::<u8>(), 1..20),
            edits in collection::vec((any::<sample::Index>(), 0usize..3, sample::select(b"{}[]\":,\\u0d8-.e1 a\0\xff".to_vec())), 1..4),
        ) {
            let mut bytes = spelled(&value, &dice).into_bytes();
            for (index, delete, insert) in edits {
                let at = index.index(bytes.len());
                bytes.splice(at..(at + delete).min(bytes.len()), [insert]);
            }
            let theirs = serde_json::from_slice::<Value>(&bytes);
            match (parse(&bytes, Limits::BODY), theirs) {
                (Ok(ours), theirs) => prop_assert_eq!(theirs.ok(), Some(ours)),
                (Err(_), Err(_)) => {}
                (Err(problem), Ok(_)) => {
                    let nul = problem.code == Code::MalformedJson && problem.detail.contains("U+0000");
                    prop_assert!(nul || matches!(problem.code, Code::DuplicateJsonKey | Code::NumberOutOfRange), "{}", problem);
                }
            }
        }

        #[test]
        fn no_bytes_upset_the_parser(bytes in collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes, Limits::BODY);
        }

        #[test]
        fn laying_out_and_rebuilding_are_inverse(value in values()) {
            let nodes = flatten(&value);
            prop_assert_eq!(unflatten(&nodes), Some(value.clone()));
            for node in &nodes {
                prop_assert!(value.pointer(&node.pointer).is_some());
            }
        }

        #[test]
        fn rebuilt_nodes_are_the_ones_given(a in values(), b in values(), index: sample::Index) {
            let mut nodes = flatten(&a);
            let other = flatten(&b);
            let at = index.index(nodes.len());
            nodes[at] = other[index.index(other.len())].clone();
            if let Some(value) = unflatten(&nodes) {
                prop_assert_eq!(flatten(&value), nodes);
            }
        }

        #[test]
        fn differences_are_where_the_values_differ(a in values(), b in values()) {
            let pointers = differing_pointers(&a, &b);
            prop_assert_eq!(pointers.is_empty(), a == b);
            for pointer in &pointers {
                prop_assert_ne!(a.pointer(pointer), b.pointer(pointer));
            }
            prop_assert_eq!(differing_pointers(&b, &a), pointers);
        }
    }
}
