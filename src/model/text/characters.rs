//! What the two halves need to know about characters, as ranges small enough for the browser.

/// Characters that show nothing, show as a space that is not U+0020, or change the order of what is shown around them;
/// and those that mean whatever a font says. Sorted. Names are Unicode's; a range shares the name of its block or class.
///
/// Unicode's `White_Space`, `Cc`, `Zs`, `Zl`, `Zp`, `Co` and `Default_Ignorable_Code_Point`, and a few that are blank in fact.
const HIDDEN: &[(u32, u32, &str)] = &[
    (0x00, 0x00, "NULL"),
    (0x01, 0x07, "CONTROL CHARACTER"),
    (0x08, 0x08, "BACKSPACE"),
    (0x09, 0x09, "CHARACTER TABULATION"),
    (0x0a, 0x0a, "LINE FEED"),
    (0x0b, 0x0b, "LINE TABULATION"),
    (0x0c, 0x0c, "FORM FEED"),
    (0x0d, 0x0d, "CARRIAGE RETURN"),
    (0x0e, 0x1a, "CONTROL CHARACTER"),
    (0x1b, 0x1b, "ESCAPE"),
    (0x1c, 0x1f, "CONTROL CHARACTER"),
    (0x7f, 0x7f, "DELETE"),
    (0x80, 0x84, "CONTROL CHARACTER"),
    (0x85, 0x85, "NEXT LINE"),
    (0x86, 0x9f, "CONTROL CHARACTER"),
    (0xa0, 0xa0, "NO-BREAK SPACE"),
    (0xad, 0xad, "SOFT HYPHEN"),
    (0x34f, 0x34f, "COMBINING GRAPHEME JOINER"),
    (0x61c, 0x61c, "ARABIC LETTER MARK"),
    (0x115f, 0x115f, "HANGUL CHOSEONG FILLER"),
    (0x1160, 0x1160, "HANGUL JUNGSEONG FILLER"),
    (0x1680, 0x1680, "OGHAM SPACE MARK"),
    (0x17b4, 0x17b4, "KHMER VOWEL INHERENT AQ"),
    (0x17b5, 0x17b5, "KHMER VOWEL INHERENT AA"),
    (0x180b, 0x180d, "MONGOLIAN FREE VARIATION SELECTOR"),
    (0x180e, 0x180e, "MONGOLIAN VOWEL SEPARATOR"),
    (0x180f, 0x180f, "MONGOLIAN FREE VARIATION SELECTOR"),
    (0x2000, 0x2000, "EN QUAD"),
    (0x2001, 0x2001, "EM QUAD"),
    (0x2002, 0x2002, "EN SPACE"),
    (0x2003, 0x2003, "EM SPACE"),
    (0x2004, 0x2004, "THREE-PER-EM SPACE"),
    (0x2005, 0x2005, "FOUR-PER-EM SPACE"),
    (0x2006, 0x2006, "SIX-PER-EM SPACE"),
    (0x2007, 0x2007, "FIGURE SPACE"),
    (0x2008, 0x2008, "PUNCTUATION SPACE"),
    (0x2009, 0x2009, "THIN SPACE"),
    (0x200a, 0x200a, "HAIR SPACE"),
    (0x200b, 0x200b, "ZERO WIDTH SPACE"),
    (0x200c, 0x200c, "ZERO WIDTH NON-JOINER"),
    (0x200d, 0x200d, "ZERO WIDTH JOINER"),
    (0x200e, 0x200e, "LEFT-TO-RIGHT MARK"),
    (0x200f, 0x200f, "RIGHT-TO-LEFT MARK"),
    (0x2028, 0x2028, "LINE SEPARATOR"),
    (0x2029, 0x2029, "PARAGRAPH SEPARATOR"),
    (0x202a, 0x202a, "LEFT-TO-RIGHT EMBEDDING"),
    (0x202b, 0x202b, "RIGHT-TO-LEFT EMBEDDING"),
    (0x202c, 0x202c, "POP DIRECTIONAL FORMATTING"),
    (0x202d, 0x202d, "LEFT-TO-RIGHT OVERRIDE"),
    (0x202e, 0x202e, "RIGHT-TO-LEFT OVERRIDE"),
    (0x202f, 0x202f, "NARROW NO-BREAK SPACE"),
    (0x205f, 0x205f, "MEDIUM MATHEMATICAL SPACE"),
    (0x2060, 0x2060, "WORD JOINER"),
    (0x2061, 0x2061, "FUNCTION APPLICATION"),
    (0x2062, 0x2062, "INVISIBLE TIMES"),
    (0x2063, 0x2063, "INVISIBLE SEPARATOR"),
    (0x2064, 0x2064, "INVISIBLE PLUS"),
    (0x2065, 0x2065, "UNASSIGNED"),
    (0x2066, 0x2066, "LEFT-TO-RIGHT ISOLATE"),
    (0x2067, 0x2067, "RIGHT-TO-LEFT ISOLATE"),
    (0x2068, 0x2068, "FIRST STRONG ISOLATE"),
    (0x2069, 0x2069, "POP DIRECTIONAL ISOLATE"),
    (0x206a, 0x206a, "INHIBIT SYMMETRIC SWAPPING"),
    (0x206b, 0x206b, "ACTIVATE SYMMETRIC SWAPPING"),
    (0x206c, 0x206c, "INHIBIT ARABIC FORM SHAPING"),
    (0x206d, 0x206d, "ACTIVATE ARABIC FORM SHAPING"),
    (0x206e, 0x206e, "NATIONAL DIGIT SHAPES"),
    (0x206f, 0x206f, "NOMINAL DIGIT SHAPES"),
    (0x2800, 0x2800, "BRAILLE PATTERN BLANK"),
    (0x3000, 0x3000, "IDEOGRAPHIC SPACE"),
    (0x3164, 0x3164, "HANGUL FILLER"),
    (0xe000, 0xf8ff, "PRIVATE USE"),
    (0xfdd0, 0xfdef, "NONCHARACTER"),
    (0xfe00, 0xfe0d, "VARIATION SELECTOR"),
    (0xfe0e, 0xfe0e, "VARIATION SELECTOR-15"),
    (0xfe0f, 0xfe0f, "VARIATION SELECTOR-16"),
    (0xfeff, 0xfeff, "ZERO WIDTH NO-BREAK SPACE"),
    (0xffa0, 0xffa0, "HALFWIDTH HANGUL FILLER"),
    (0xfff0, 0xfff8, "UNASSIGNED"),
    (0xfff9, 0xfff9, "INTERLINEAR ANNOTATION ANCHOR"),
    (0xfffa, 0xfffa, "INTERLINEAR ANNOTATION SEPARATOR"),
    (0xfffb, 0xfffb, "INTERLINEAR ANNOTATION TERMINATOR"),
    (0xfffc, 0xfffc, "OBJECT REPLACEMENT CHARACTER"),
    (0x13430, 0x1343f, "EGYPTIAN HIEROGLYPH FORMAT CONTROL"),
    (0x1bca0, 0x1bca3, "SHORTHAND FORMAT CONTROL"),
    (0x1d159, 0x1d159, "MUSICAL SYMBOL NULL NOTEHEAD"),
    (0x1d173, 0x1d17a, "MUSICAL SYMBOL FORMAT CONTROL"),
    (0xe0000, 0xe0000, "UNASSIGNED"),
    (0xe0001, 0xe0001, "LANGUAGE TAG"),
    (0xe0002, 0xe001f, "UNASSIGNED"),
    (0xe0020, 0xe007e, "TAG CHARACTER"),
    (0xe007f, 0xe007f, "CANCEL TAG"),
    (0xe0080, 0xe00ff, "UNASSIGNED"),
    (0xe0100, 0xe01ef, "VARIATION SELECTOR"),
    (0xe01f0, 0xe0fff, "UNASSIGNED"),
    (0xf0000, 0x10ffff, "PRIVATE USE"),
];

/// The name of a character that deceives unless its context makes it ordinary.
pub fn hidden(c: char) -> Option<&'static str> {
    if matches!(c, ' '..='~') {
        return None;
    }
    let code_point = u32::from(c);
    // The last two of every plane.
    if code_point & 0xfffe == 0xfffe {
        return Some("NONCHARACTER");
    }
    let (start, _, name) = HIDDEN[HIDDEN.partition_point(|&(_, end, _)| end < code_point)..].first()?;
    (*start <= code_point).then_some(name)
}

/// Whether a hidden character takes the room of a space.
pub fn is_blank(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{115f}' | '\u{1160}' | '\u{2800}' | '\u{3164}' | '\u{ffa0}')
}

/// Kills the inherent vowel, and takes joiners (`Canonical_Combining_Class=Virama`, RFC 5892 appendix A.1).
pub fn is_virama(c: char) -> bool {
    match u32::from(c) {
        block @ 0x0900..0x0d80 => block & 0x7f == 0x4d || matches!(block, 0x0d3b | 0x0d3c),
        other => matches!(
            other,
            0x0dca
                | 0x0f84
                | 0x1039
                | 0x103a
                | 0x1714
                | 0x1734
                | 0x17d2
                | 0x1a60
                | 0x1b44
                | 0x1baa
                | 0x1bab
                | 0x1bf2
                | 0x1bf3
                | 0xa806
                | 0xa8c4
                | 0xa953
                | 0xa9c0
                | 0xaaf6
                | 0xabed
        ),
    }
}

/// Of the scripts that viramas belong to.
pub fn is_indic(c: char) -> bool {
    matches!(c, '\u{900}'..='\u{dff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' | '\u{1b00}'..='\u{1bff}')
}

pub fn is_mongolian(c: char) -> bool {
    matches!(c, '\u{1820}'..='\u{18aa}')
}

/// Arabic letters that join the letter before them (`Joining_Type` D, R and C).
pub fn joins_backward(c: char) -> bool {
    matches!(u32::from(c),
        0x620 | 0x622..=0x64a | 0x66e..=0x66f | 0x671..=0x673 | 0x675..=0x6d3 | 0x6d5 | 0x6ee..=0x6ef | 0x6fa..=0x6fc
        | 0x6ff | 0x750..=0x77f | 0x8a0..=0x8ac | 0x8ae..=0x8c8)
}

/// Arabic letters that join the letter after them (`Joining_Type` D and C).
pub fn joins_forward(c: char) -> bool {
    let ends_a_run = matches!(u32::from(c),
        0x622..=0x625 | 0x627 | 0x629 | 0x62f..=0x632 | 0x648 | 0x671..=0x673 | 0x675..=0x677 | 0x688..=0x699 | 0x6c0
        | 0x6c3..=0x6cb | 0x6cd | 0x6cf | 0x6d2..=0x6d3 | 0x6d5 | 0x6ee..=0x6ef | 0x759..=0x75b | 0x76b..=0x76c | 0x771
        | 0x773..=0x774 | 0x778..=0x779 | 0x8aa..=0x8ac | 0x8ae | 0x8b1..=0x8b2 | 0x8b9);
    joins_backward(c) && !ends_a_run
}

/// Arabic marks that joining looks through (`Joining_Type` T).
pub fn is_arabic_mark(c: char) -> bool {
    matches!(u32::from(c),
        0x610..=0x61a | 0x64b..=0x65f | 0x670 | 0x6d6..=0x6dc | 0x6df..=0x6e4 | 0x6e7..=0x6e8 | 0x6ea..=0x6ed
        | 0x8ca..=0x8e1 | 0x8e3..=0x8ff)
}

/// `Extended_Pictographic`, a little generously in the blocks that hold little else.
pub fn is_pictograph(c: char) -> bool {
    matches!(u32::from(c),
        0xa9 | 0xae | 0x203c | 0x2049 | 0x2122 | 0x2139 | 0x2194..=0x2199 | 0x21a9..=0x21aa | 0x231a..=0x23ff | 0x24c2
        | 0x25aa..=0x25ab | 0x25b6 | 0x25c0 | 0x25fb..=0x27bf | 0x2934..=0x2935 | 0x2b05..=0x2b55 | 0x3030 | 0x303d
        | 0x3297 | 0x3299 | 0x1f000..=0x1f1e5 | 0x1f200..=0x1f3fa | 0x1f400..=0x1faff)
}

pub fn is_skin_tone(c: char) -> bool {
    matches!(c, '\u{1f3fb}'..='\u{1f3ff}')
}

/// Scripts as far as look-alikes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Script {
    Latin,
    Greek,
    Cyrillic,
    /// Other scripts in which some letters are shaped like Latin ones.
    Near,
    /// Latin letters dressed up as symbols, and characters shaped like `.`, `/` and `:`.
    Disguise,
    /// Everything else: digits, punctuation, and scripts nobody takes for Latin.
    Other,
}

pub fn script(c: char) -> Script {
    match u32::from(c) {
        0x251 | 0x261 | 0x269 | 0x1d00..=0x1d22 | 0xa730..=0xa731 // phonetic letters and small capitals
        | 0x2024 | 0x2044 | 0x2215 | 0x29f8 | 0xa789 | 0xfe52 // punctuation
        | 0x2102 | 0x210a..=0x2113 | 0x2115 | 0x2119..=0x211d | 0x2124 | 0x2128 | 0x212a | 0x212c..=0x2131
        | 0x2133..=0x2134 | 0x2139 | 0x2145..=0x2149 | 0x1d400..=0x1d6a3 // mathematical letters
        | 0x249c..=0x24e9 | 0x1f110..=0x1f189 // enclosed letters
        | 0xff21..=0xff3a | 0xff41..=0xff5a => Script::Disguise, // full-width letters
        0x41..=0x5a | 0x61..=0x7a | 0xaa | 0xba | 0xc0..=0xd6 | 0xd8..=0xf6 | 0xf8..=0x2af | 0x1d23..=0x1d25
        | 0x1d2c..=0x1d5c | 0x1d62..=0x1d65 | 0x1d6b..=0x1d77 | 0x1d79..=0x1dbe | 0x1e00..=0x1eff | 0x2c60..=0x2c7f
        | 0xa722..=0xa787 | 0xa78b..=0xa7ff | 0xab30..=0xab64 => Script::Latin,
        0x3e2..=0x3ef | 0x2c80..=0x2cff // Coptic
        | 0x530..=0x58f // Armenian
        | 0x10a0..=0x10ff | 0x1c90..=0x1cbf | 0x2d00..=0x2d2f // Georgian
        | 0x13a0..=0x13ff | 0xab70..=0xabbf // Cherokee
        | 0x1400..=0x167f // Canadian syllabics
        | 0x16a0..=0x16ff // Runic
        | 0x2d30..=0x2d7f // Tifinagh
        | 0xa4d0..=0xa4ff // Lisu
        | 0x10400..=0x1044f => Script::Near, // Deseret
        0x370..=0x3ff | 0x1d26..=0x1d2a | 0x1d5d..=0x1d61 | 0x1d66..=0x1d6a | 0x1f00..=0x1fff => Script::Greek,
        0x400..=0x52f | 0x1c80..=0x1c8f | 0x1d2b | 0x1d78 | 0x2de0..=0x2dff | 0xa640..=0xa69f => Script::Cyrillic,
        _ => Script::Other,
    }
}

/// Letters that pass for a Latin one in common type (Greek and Cyrillic after UTS #39, `confusables.txt`).
pub fn is_look_alike(c: char) -> bool {
    script(c) == Script::Disguise
        || "ΑΒΕΖΗΙΚΜΝΟΡΤΥΧαγικνορυχϲϳϹϝ\
     АВЕЅІЈКМНОРСТУХаеорсухѕіјһѵӏӀѴԁԍԛԝԚԜҮүҺЬ"
            .contains(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_its_ranges_are_apart() {
        assert!(HIDDEN.iter().all(|(start, end, _)| start <= end));
        assert!(HIDDEN.windows(2).all(|pair| pair[0].1 < pair[1].0));
    }

    #[test]
    fn every_control_and_every_space_but_one_is_hidden() {
        for c in (char::MIN..=char::MAX).filter(|c| c.is_control() || c.is_whitespace()) {
            assert_eq!(hidden(c).is_some(), c != ' ', "{c:?}");
        }
    }

    /// `Default_Ignorable_Code_Point` of Unicode 17.
    #[test]
    fn everything_a_renderer_may_ignore_is_hidden() {
        let ignorable = [
            0xad..=0xad,
            0x34f..=0x34f,
            0x61c..=0x61c,
            0x115f..=0x1160,
            0x17b4..=0x17b5,
            0x180b..=0x180f,
            0x200b..=0x200f,
            0x202a..=0x202e,
            0x2060..=0x206f,
            0x3164..=0x3164,
            0xfe00..=0xfe0f,
            0xfeff..=0xfeff,
            0xffa0..=0xffa0,
            0xfff0..=0xfff8,
            0x1bca0..=0x1bca3,
            0x1d173..=0x1d17a,
            0xe0000..=0xe0fff,
        ];
        for c in ignorable.into_iter().flatten().filter_map(char::from_u32) {
            assert!(hidden(c).is_some(), "{c:?}");
        }
    }

    #[test]
    fn no_letter_of_a_living_script_is_hidden() {
        let fillers = ['\u{115f}', '\u{1160}', '\u{3164}', '\u{ffa0}'];
        for c in (char::MIN..=char::MAX).filter(|c| c.is_alphanumeric() && !fillers.contains(c)) {
            assert_eq!(hidden(c), None, "{c:?}");
        }
    }

    #[test]
    fn a_look_alike_is_never_plain_latin() {
        for c in (char::MIN..=char::MAX).filter(|c| is_look_alike(*c)) {
            assert!(matches!(script(c), Script::Greek | Script::Cyrillic | Script::Disguise), "{c:?}");
        }
        for c in (char::MIN..=char::MAX).filter(char::is_ascii_alphabetic) {
            assert_eq!(script(c), Script::Latin);
        }
    }
}
