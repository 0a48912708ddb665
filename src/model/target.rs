//! The resource an operation writes, and the patterns that policies match it with.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize};

/// `type/name`, case-sensitive ASCII: type `[a-z][a-z0-9-]{0,62}`, name `[A-Za-z0-9][A-Za-z0-9._~@:+-]{0,199}`.
/// Always a leaf, such as `release/prod-eu`; never a category.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Target(String);

const MAX_TYPE: usize = 63;
const MAX_NAME: usize = 200;

impl Target {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The part before the slash.
    pub fn resource_type(&self) -> &str {
        self.0.split_once('/').map_or("", |(resource_type, _)| resource_type)
    }

    /// The part after the slash.
    pub fn name(&self) -> &str {
        self.0.split_once('/').map_or("", |(_, name)| name)
    }
}

/// The text is not a target.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTarget {
    #[error("a target is `type/name`, and there is no `/`")]
    NoSlash,
    #[error("the {0} of the target is empty")]
    Empty(Part),
    #[error("the {0} of the target is longer than {max} characters", max = .0.max())]
    TooLong(Part),
    #[error("character {at} of the target is {}: a {part} starts with {start} and goes on with {rest}",
        Shown(*.found), start = .part.start(), rest = .part.rest())]
    Character {
        part: Part,
        found: char,
        /// Counted in characters of the whole target, from 1.
        at: usize,
    },
}

/// Which side of the slash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Type,
    Name,
}

impl Part {
    fn max(self) -> usize {
        match self {
            Part::Type => MAX_TYPE,
            Part::Name => MAX_NAME,
        }
    }

    fn start(self) -> &'static str {
        match self {
            Part::Type => "a-z",
            Part::Name => "A-Z, a-z or 0-9",
        }
    }

    fn rest(self) -> &'static str {
        match self {
            Part::Type => "a-z, 0-9 or `-`",
            Part::Name => "those or one of `._~@:+-`",
        }
    }

    fn allows(self, index: usize, c: char) -> bool {
        match (self, index) {
            (Part::Type, 0) => c.is_ascii_lowercase(),
            (Part::Type, _) => c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-',
            (Part::Name, 0) => c.is_ascii_alphanumeric(),
            (Part::Name, _) => c.is_ascii_alphanumeric() || "._~@:+-".contains(c),
        }
    }

    /// `offset`: characters of the target before `text`.
    fn check(self, text: &str, offset: usize) -> Result<(), InvalidTarget> {
        if text.is_empty() {
            return Err(InvalidTarget::Empty(self));
        }
        match text.chars().enumerate().find(|&(index, c)| !self.allows(index, c)) {
            Some((index, found)) => Err(InvalidTarget::Character { part: self, found, at: offset + index + 1 }),
            None if text.len() > self.max() => Err(InvalidTarget::TooLong(self)),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::Type => "type",
            Part::Name => "name",
        })
    }
}

/// A character in a message: as it is where that cannot mislead, else by its number.
struct Shown(char);

impl fmt::Display for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            c if c.is_ascii_graphic() => write!(f, "`{c}`"),
            c => write!(f, "U+{:04X}", u32::from(c)),
        }
    }
}

impl FromStr for Target {
    type Err = InvalidTarget;

    fn from_str(text: &str) -> Result<Self, InvalidTarget> {
        let (resource_type, name) = text.split_once('/').ok_or(InvalidTarget::NoSlash)?;
        Part::Type.check(resource_type, 0)?;
        Part::Name.check(name, resource_type.len() + 1)?;
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Whether `pattern` matches the whole of `text`: `*` stands for any run of characters, the empty one included;
/// everything else for itself. Linear: each piece between stars is taken where it first fits, which loses no match.
pub fn glob_matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let (middle, end) = rest.rsplit_once('*').unwrap_or(("", rest));
    let Some(mut text) = text.strip_prefix(start) else {
        return false;
    };
    for piece in middle.split('*') {
        match text.find(piece) {
            Some(at) => text = &text[at + piece.len()..],
            None => return false,
        }
    }
    text.ends_with(end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn error(text: &str) -> String {
        text.parse::<Target>().expect_err(text).to_string()
    }

    #[test]
    fn a_target_is_a_type_and_a_name() {
        for text in [
            "release/prod-eu",
            "order/4711",
            "user/nika+ops@quayside.test",
            "credential/billing-sync.key-07",
            "a/0._~@:+-",
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!(format!("{}/{}", target.resource_type(), target.name()), text);
            assert_eq!(serde_json::from_str::<Target>(&serde_json::to_string(&target).unwrap()).unwrap(), target);
        }
        assert_ne!("order/A".parse::<Target>().unwrap(), "order/a".parse().unwrap());
        assert!(format!("{}/{}", "t".repeat(63), "N".repeat(200)).parse::<Target>().is_ok());
    }

    #[test]
    fn what_is_no_target_is_told_what_and_where() {
        assert_eq!(error("production"), "a target is `type/name`, and there is no `/`");
        assert_eq!(error(""), "a target is `type/name`, and there is no `/`");
        assert_eq!(error("/x"), "the type of the target is empty");
        assert_eq!(error("release/"), "the name of the target is empty");
        assert_eq!(
            error("Release/x"),
            "character 1 of the target is `R`: a type starts with a-z and goes on with a-z, 0-9 or `-`"
        );
        assert_eq!(
            error("release/a/b"),
            "character 10 of the target is `/`: a name starts with A-Z, a-z or 0-9 and goes on with those or one of `._~@:+-`"
        );
        assert!(error("release/prod\u{202e}eu").starts_with("character 13 of the target is U+202E:"));
        assert!(error("release/\u{430}pi").starts_with("character 9 of the target is U+0430:"));
        assert!(error("release/x ").contains("character 10 of the target is U+0020"));
        assert_eq!(error(&format!("{}/x", "t".repeat(64))), "the type of the target is longer than 63 characters");
        assert_eq!(error(&format!("t/{}", "x".repeat(201))), "the name of the target is longer than 200 characters");
        for text in ["-a/x", "1a/x", "a_b/x", "a/.x", "a/-x", "a//x", "a/x\n", "\0/x"] {
            error(text);
        }
    }

    #[test]
    fn a_star_stands_for_any_run() {
        for (pattern, text) in [
            ("*", ""),
            ("*", "release/prod-eu"),
            ("**", "x"),
            ("release/*", "release/prod-eu"),
            ("release/*", "release/"),
            ("*/prod*", "release/prod-eu"),
            ("deployment.*", "deployment.release"),
            ("a*b*c", "abxbxc"),
            ("a*aa", "aaa"),
            ("*aa", "aaa"),
            ("pay?ent", "pay?ent"),
            ("*é*", "caféx"),
        ] {
            assert!(glob_matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [
            ("", "x"),
            ("x", ""),
            ("release/*", "Release/prod"),
            ("release/*", "release"),
            ("pay?ent", "payment"),
            ("ab*ba", "aba"),
            ("a*b", "abc"),
            ("*ab*ba*", "aba"),
            ("[a-z]*", "abc"),
        ] {
            assert!(!glob_matches(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn a_hostile_pattern_costs_no_more_than_it_is_long() {
        let text = "a".repeat(100_000);
        assert!(!glob_matches(&("a*".repeat(20_000) + "b"), &text));
        assert!(!glob_matches(&("*a".repeat(20_000) + "*b*"), &text));
    }

    /// By definition: either the star takes nothing, or it takes one character and stays.
    fn by_definition(pattern: &[char], text: &[char]) -> bool {
        match (pattern, text) {
            ([], []) => true,
            (['*', rest @ ..], _) if by_definition(rest, text) => true,
            (['*', ..], [_, text @ ..]) => by_definition(pattern, text),
            ([p, pattern @ ..], [t, text @ ..]) => p == t && by_definition(pattern, text),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn a_glob_matches_what_its_definition_matches(pattern in "[ab*é]{0,8}", text in "[abé]{0,10}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(glob_matches(&pattern, &text), by_definition(&chars(&pattern), &chars(&text)));
        }

        #[test]
        fn every_target_of_the_grammar_is_accepted_as_it_is(text in "[a-z][a-z0-9-]{0,62}/[A-Za-z0-9][A-Za-z0-9._~@:+-]{0,199}") {
            let target = text.parse::<Target>().unwrap();
            prop_assert_eq!(target.as_str(), text);
        }

        #[test]
        fn no_text_upsets_the_parser_and_no_message_carries_it(text in "\\PC*[\u{202e}\u{7f}é ]\\PC*") {
            prop_assert!(error(&text).is_ascii());
        }
    }
}
