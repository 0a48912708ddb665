//! Entity tags and preconditions (RFC 9110 §8.8.3, §13.1.1). A version's tag is its number in quotes, `"41"`.

use super::problem::{Code, Problem};

/// Tags of one header, and bytes of it.
const MAX_TAGS: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntityTag {
    pub weak: bool,
    /// Between the quotes.
    pub opaque: String,
}

impl EntityTag {
    /// The version a strong tag of ours names.
    pub fn version(&self) -> Option<i64> {
        let canonical = self.opaque.parse::<i64>().ok().filter(|v| *v >= 0 && v.to_string() == self.opaque);
        canonical.filter(|_| !self.weak)
    }
}

/// What `If-Match` or `If-None-Match` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tags {
    /// `*`
    Any,
    List(Vec<EntityTag>),
}

/// Reads the field lines of one header; `None` when there is none or only empty ones.
///
/// # Errors
/// `malformed_etag`.
pub fn parse<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> Result<Option<Tags>, Problem> {
    let malformed = |detail: &str| Problem::new(Code::MalformedEtag, detail);
    let mut text = String::new();
    for line in lines {
        let line = std::str::from_utf8(line).map_err(|_| malformed("an entity tag is ASCII in double quotes"))?;
        if !text.is_empty() {
            text.push(',');
        }
        text.push_str(line);
    }
    let mut rest = text.trim();
    if rest.is_empty() {
        return Ok(None);
    }
    if rest == "*" {
        return Ok(Some(Tags::Any));
    }
    let mut tags = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if rest.is_empty() {
            break;
        }
        let (weak, quoted) = match rest.strip_prefix("W/") {
            Some(quoted) => (true, quoted),
            None => (false, rest),
        };
        let inner =
            quoted.strip_prefix('"').ok_or_else(|| malformed("write the version in double quotes, `\"41\"`"))?;
        let end = inner.find('"').ok_or_else(|| malformed("an entity tag is not closed by a double quote"))?;
        let opaque = &inner[..end];
        if !opaque.bytes().all(|b| b == 0x21 || (0x23..=0x7e).contains(&b) || b >= 0x80) {
            return Err(malformed("an entity tag holds no spaces and no control characters"));
        }
        tags.push(EntityTag { weak, opaque: opaque.to_owned() });
        if tags.len() > MAX_TAGS {
            return Err(malformed("more than 100 entity tags"));
        }
        rest = inner[end + 1..].trim_start_matches([' ', '\t']);
        if !rest.is_empty() && !rest.starts_with(',') {
            return Err(malformed("entity tags are separated by commas"));
        }
    }
    if tags.is_empty() { Err(malformed("the header names no entity tag")) } else { Ok(Some(Tags::List(tags))) }
}

/// The tag of a version.
pub fn of(version: i64) -> String {
    format!("\"{version}\"")
}

impl Tags {
    /// Weak comparison, for `If-None-Match` on a read (RFC 9110 §13.1.2).
    pub fn names(&self, version: i64) -> bool {
        match self {
            Tags::Any => true,
            Tags::List(tags) => tags.iter().any(|tag| tag.opaque == version.to_string()),
        }
    }

    /// Versions named by strong tags, in order.
    pub fn versions(&self) -> Vec<i64> {
        match self {
            Tags::Any => Vec::new(),
            Tags::List(tags) => tags.iter().filter_map(EntityTag::version).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<Tags>, Code> {
        parse([text.as_bytes()]).map_err(|problem| problem.code)
    }

    #[test]
    fn only_a_strong_quoted_number_names_a_version() {
        for (text, versions) in [
            ("\"41\"", vec![41]),
            ("W/\"41\"", vec![]),
            ("\"\"", vec![]),
            ("\"041\"", vec![]),
            ("\"-1\"", vec![]),
            ("\"41\", W/\"42\" ,\"43\"", vec![41, 43]),
            ("\"a,b\"", vec![]),
        ] {
            assert_eq!(read(text).unwrap().unwrap().versions(), versions, "{text}");
        }
        assert_eq!(read("*"), Ok(Some(Tags::Any)));
        assert_eq!(read(""), Ok(None));
        assert_eq!(read("  "), Ok(None));
    }

    #[test]
    fn what_is_not_a_tag_is_malformed() {
        for text in ["41", "\"41", "w/\"41\"", "\"4 1\"", "\"41\" \"42\"", "*, \"41\"", ",", "W/41"] {
            assert_eq!(read(text), Err(Code::MalformedEtag), "{text}");
        }
        assert_eq!(read(&"\"1\",".repeat(10_000)), Err(Code::MalformedEtag));
    }
}
