//! Text that other people wrote, made safe to read: what cannot be seen is shown, what passes for something else is told.
//!
//! Nothing here changes what is stored, hashed or sent.

mod characters;
mod punycode;

use std::collections::BTreeSet;

use characters::{Script, script};

/// What becomes of line breaks and tabs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Breaks {
    /// They are layout, as in a description of many lines.
    Keep,
    /// They are shown as escapes, as in a name or a title.
    Escape,
}

/// A stretch of text for the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Shown as it is.
    Plain(String),
    /// One character, shown by its number: `U+202E`.
    Escape {
        code_point: u32,
        /// Its name in Unicode, or the class it belongs to.
        name: &'static str,
    },
}

/// Splits text into what may be shown as it is and what must be shown as an escape: characters that are invisible, that
/// change the direction of others, that control, or that are spaces other than U+0020.
///
/// Joiners, variation selectors and tags stay plain where they do what they are for: joiners after a virama (RFC 5892,
/// appendix A) or where they change how Arabic letters join; in emoji sequences, the three flags made of tags included.
pub fn pieces(text: &str, breaks: Breaks) -> Vec<Piece> {
    let chars: Vec<char> = text.chars().collect();
    let mut pieces = Vec::new();
    let mut plain = String::new();
    for (i, &c) in chars.iter().enumerate() {
        match characters::hidden(c) {
            Some(name) if !is_ordinary(c, &chars[..i], &chars[i + 1..], breaks) => {
                if !plain.is_empty() {
                    pieces.push(Piece::Plain(std::mem::take(&mut plain)));
                }
                pieces.push(Piece::Escape { code_point: c.into(), name });
            }
            _ => plain.push(c),
        }
    }
    if !plain.is_empty() {
        pieces.push(Piece::Plain(plain));
    }
    pieces
}

/// The text that was split; none if a number is no character.
pub fn join(pieces: &[Piece]) -> Option<String> {
    let mut text = String::new();
    for piece in pieces {
        match piece {
            Piece::Plain(plain) => text.push_str(plain),
            Piece::Escape { code_point, .. } => text.push(char::from_u32(*code_point)?),
        }
    }
    Some(text)
}

/// Whether a hidden character does honest work where it stands.
fn is_ordinary(c: char, before: &[char], after: &[char], breaks: Breaks) -> bool {
    let (previous, next) = (before.last().copied(), after.first().copied());
    match c {
        '\n' | '\t' => breaks == Breaks::Keep,
        '\r' => breaks == Breaks::Keep && next == Some('\n'),
        '\u{200c}' | '\u{200d}' => joiner_is_ordinary(c, before, after),
        '\u{fe0e}' | '\u{fe0f}' => {
            let starts_keycap = matches!(previous, Some('0'..='9' | '#' | '*')) && next == Some('\u{20e3}');
            starts_keycap || previous.is_some_and(characters::is_pictograph)
        }
        '\u{180b}'..='\u{180f}' => previous.is_some_and(characters::is_mongolian),
        '\u{e0020}'..='\u{e007f}' => belongs_to_flag(c, before, after),
        _ => false,
    }
}

fn joiner_is_ordinary(joiner: char, before: &[char], after: &[char]) -> bool {
    let (previous, next) = (before.last().copied(), after.first().copied());
    let follows_virama = previous.is_some_and(characters::is_virama);
    // As in Bengali ra with ya-phalaa.
    let precedes_virama = previous.is_some_and(characters::is_indic) && next.is_some_and(characters::is_virama);
    if follows_virama || precedes_virama {
        return true;
    }
    let skips_mark = |c: &&char| !characters::is_arabic_mark(**c);
    let forward = before.iter().rev().find(skips_mark).is_some_and(|c| characters::joins_forward(*c));
    let backward = after.iter().find(skips_mark).is_some_and(|c| characters::joins_backward(*c));
    if joiner == '\u{200c}' {
        // It parts letters that would join.
        return forward && backward;
    }
    // It joins a letter that would stand alone, or emoji.
    forward != backward || (ends_in_emoji(before) && next.is_some_and(characters::is_pictograph))
}

fn ends_in_emoji(chars: &[char]) -> bool {
    let base = match chars {
        [base @ .., c] if *c == '\u{fe0f}' || characters::is_skin_tone(*c) => base,
        all => all,
    };
    base.last().is_some_and(|c| characters::is_pictograph(*c))
}

/// The flags of England, Scotland and Wales: the only tag sequences recommended for interchange (UTS #51, annex C).
fn belongs_to_flag(c: char, before: &[char], after: &[char]) -> bool {
    const LENGTH: usize = 6;
    let Some(done) = before.iter().rev().take(LENGTH).position(|c| *c == '\u{1f3f4}') else {
        return false;
    };
    let tags = before[before.len() - done..].iter().chain([&c]).chain(after).take(LENGTH);
    let letters: Option<String> = tags.map(|c| char::from_u32(u32::from(*c).checked_sub(0xe0000)?)).collect();
    matches!(letters.as_deref(), Some("gbeng\u{7f}" | "gbsct\u{7f}" | "gbwls\u{7f}"))
}

/// Something a reader of the text should be told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    /// Characters that [`pieces`] shows as escapes.
    Hidden {
        count: usize,
        /// Which, once each.
        code_points: BTreeSet<u32>,
    },
    /// A word, host name or address with letters that pass for Latin ones. Told once per word.
    MixedScript {
        /// Without hidden characters.
        word: String,
        /// As a resolver would ask for it, `xn--…`; none if it is too long to be asked for.
        punycode: Option<String>,
    },
    /// A name spelled in Punycode. Told once per word.
    Punycode {
        word: String,
        /// What it stands for; it may itself hold hidden characters and look-alikes. None if it stands for nothing.
        decoded: Option<String>,
    },
}

/// Everything in the text that may deceive. Line breaks and tabs are layout here.
pub fn findings(text: &str) -> Vec<Finding> {
    let mut visible = String::new();
    let mut count = 0;
    let mut code_points = BTreeSet::new();
    for piece in pieces(text, Breaks::Keep) {
        match piece {
            Piece::Plain(plain) => visible.push_str(&plain),
            Piece::Escape { code_point, .. } => {
                count += 1;
                code_points.insert(code_point);
                // A space ends a word; what takes no room hides inside it.
                if char::from_u32(code_point).is_some_and(characters::is_blank) {
                    visible.push(' ');
                }
            }
        }
    }
    let mut findings = Vec::new();
    if count > 0 {
        findings.push(Finding::Hidden { count, code_points });
    }
    let mut told = BTreeSet::new();
    for word in visible.split(|c| !belongs_to_word(c)) {
        let word = word.trim_matches(is_separator);
        let (is_mixed, is_coded) = (passes_for_latin(word), labels(word).any(is_punycode));
        if !(is_mixed || is_coded) || !told.insert(word) {
            continue;
        }
        if is_mixed {
            let punycode = map_labels(word, |label| {
                if label.is_ascii() {
                    return Some(label.to_owned());
                }
                Some(format!("xn--{}", punycode::encode(&label.to_lowercase())?))
            });
            findings.push(Finding::MixedScript { word: word.to_owned(), punycode });
        }
        if is_coded {
            let decoded = map_labels(word, |label| {
                if is_punycode(label) { punycode::decode(&label[4..]) } else { Some(label.to_owned()) }
            });
            findings.push(Finding::Punycode { word: word.to_owned(), decoded });
        }
    }
    findings
}

/// Words are taken wide: a host name or an address is one.
fn belongs_to_word(c: char) -> bool {
    c.is_alphanumeric() || is_separator(c) || matches!(c, '\u{300}'..='\u{36f}') || script(c) != Script::Other
}

fn is_separator(c: char) -> bool {
    matches!(c, '-' | '_' | '.' | '@')
}

fn is_label_end(c: char) -> bool {
    matches!(c, '.' | '@')
}

fn labels(word: &str) -> impl Iterator<Item = &str> {
    word.split(is_label_end)
}

fn map_labels(word: &str, map: impl Fn(&str) -> Option<String>) -> Option<String> {
    word.split_inclusive(is_label_end)
        .map(|part| {
            let label = part.trim_end_matches(is_label_end);
            Some(map(label)? + &part[label.len()..])
        })
        .collect()
}

fn is_punycode(label: &str) -> bool {
    label.get(..4).is_some_and(|prefix| prefix.eq_ignore_ascii_case("xn--"))
}

/// Whether a part of the word mixes Latin with letters that pass for Latin, or consists of nothing else than such
/// letters beside a part that is Latin. Parts joined by a separator may be of different scripts: `API-ключ` is ordinary.
fn passes_for_latin(word: &str) -> bool {
    if word.is_ascii() {
        return false;
    }
    let parts = || word.split(is_separator);
    let beside_latin = parts().any(|part| part.is_ascii() && part.contains(|c: char| c.is_ascii_alphabetic()));
    parts().any(|part| {
        let suspicious = |c| match script(c) {
            Script::Cyrillic | Script::Near | Script::Disguise => true,
            // Units and symbols, such as `kΩ` and `μs`, mix ordinarily.
            Script::Greek => characters::is_look_alike(c),
            Script::Latin | Script::Other => false,
        };
        if part.contains(|c| script(c) == Script::Latin) {
            return part.contains(suspicious);
        }
        let mut letters = part.chars().filter(|c| c.is_alphabetic()).peekable();
        // One Greek letter is a symbol: `α-amylase`.
        let is_symbol = part.chars().count() == 1 && part.contains(|c| script(c) == Script::Greek);
        beside_latin && letters.peek().is_some() && !is_symbol && letters.all(characters::is_look_alike)
    })
}

/// What a careless screen would show: directional overrides applied, what is invisible left out, blanks as spaces.
///
/// Best effort, for telling the reader what to beware of: only overrides reorder; text of right-to-left scripts keeps its
/// logical order, and look-alikes stay as they are.
pub fn reads_as(text: &str) -> String {
    let mut out = String::new();
    // The end of a paragraph ends every override (UAX #9, rules P1 and X8).
    for (i, line) in text.split(['\n', '\u{85}', '\u{2029}']).enumerate() {
        if i > 0 {
            out.push('\n');
        }
        read_line(line.strip_suffix('\r').unwrap_or(line), &mut out);
    }
    out
}

fn read_line(line: &str, out: &mut String) {
    /// UAX #9, definition BD2.
    const MAX_DEPTH: u8 = 125;
    #[derive(PartialEq)]
    enum Opened {
        Embedding,
        Isolate,
    }
    let mut opened: Vec<(Opened, u8)> = Vec::new();
    let mut shown: Vec<(char, u8)> = Vec::new();
    for piece in pieces(line, Breaks::Keep) {
        let level = opened.last().map_or(0, |(_, level)| *level);
        let escape = match piece {
            Piece::Plain(plain) => {
                shown.extend(plain.chars().map(|c| (c, level)));
                continue;
            }
            Piece::Escape { code_point, .. } => char::from_u32(code_point),
        };
        let (odd, even) = ((level + 1) | 1, (level + 2) & !1);
        let mut open = |kind, next| opened.push((kind, if next > MAX_DEPTH { level } else { next }));
        match escape {
            Some('\u{202e}') => open(Opened::Embedding, odd),
            Some('\u{202a}' | '\u{202b}' | '\u{202d}') => open(Opened::Embedding, even),
            Some('\u{2066}'..='\u{2068}') => open(Opened::Isolate, even),
            Some('\u{202c}') => _ = opened.pop_if(|(kind, _)| *kind == Opened::Embedding),
            Some('\u{2069}') => {
                if let Some(at) = opened.iter().rposition(|(kind, _)| *kind == Opened::Isolate) {
                    opened.truncate(at);
                }
            }
            Some(c) if characters::is_blank(c) => shown.push((' ', level)),
            _ => {}
        }
    }
    // UAX #9, rules L2 and L4.
    for level in (1..=shown.iter().map(|(_, level)| *level).max().unwrap_or(0)).rev() {
        for run in shown.chunk_by_mut(|a, b| (a.1 >= level) == (b.1 >= level)) {
            if run[0].1 >= level {
                run.reverse();
            }
        }
    }
    out.extend(shown.into_iter().map(|(c, level)| if level % 2 == 1 { mirrored(c) } else { c }));
}

fn mirrored(c: char) -> char {
    const PAIRS: [(char, char); 4] = [('(', ')'), ('[', ']'), ('{', '}'), ('<', '>')];
    PAIRS.iter().find_map(|&(a, b)| if c == a { Some(b) } else { (c == b).then_some(a) }).unwrap_or(c)
}

#[cfg(test)]
mod tests {
    use proptest::{collection, prelude::*, sample};

    use super::*;

    fn is_plain(text: &str) -> bool {
        pieces(text, Breaks::Keep) == [Piece::Plain(text.to_owned())]
    }

    /// As the screen shows it: escapes in angle brackets.
    fn shown(text: &str, breaks: Breaks) -> String {
        let show = |piece| match piece {
            Piece::Plain(plain) => plain,
            Piece::Escape { code_point, .. } => format!("<{code_point:04X}>"),
        };
        pieces(text, breaks).into_iter().map(show).collect()
    }

    fn mixed(word: &str, punycode: &str) -> Finding {
        Finding::MixedScript { word: word.into(), punycode: Some(punycode.into()) }
    }

    #[test]
    fn what_makes_the_screen_lie_is_shown_by_number_and_name() {
        for (c, name) in [
            ('\u{202e}', "RIGHT-TO-LEFT OVERRIDE"),
            ('\u{2066}', "LEFT-TO-RIGHT ISOLATE"),
            ('\u{2067}', "RIGHT-TO-LEFT ISOLATE"),
            ('\u{2068}', "FIRST STRONG ISOLATE"),
            ('\u{2069}', "POP DIRECTIONAL ISOLATE"),
            ('\u{200b}', "ZERO WIDTH SPACE"),
            ('\u{200c}', "ZERO WIDTH NON-JOINER"),
            ('\u{200d}', "ZERO WIDTH JOINER"),
            ('\u{200e}', "LEFT-TO-RIGHT MARK"),
            ('\u{ad}', "SOFT HYPHEN"),
            ('\u{feff}', "ZERO WIDTH NO-BREAK SPACE"),
            ('\u{2028}', "LINE SEPARATOR"),
            ('\u{2029}', "PARAGRAPH SEPARATOR"),
            ('\u{e0100}', "VARIATION SELECTOR"),
            ('\u{e0041}', "TAG CHARACTER"),
            ('\u{fe0f}', "VARIATION SELECTOR-16"),
            ('\u{3000}', "IDEOGRAPHIC SPACE"),
            ('\u{a0}', "NO-BREAK SPACE"),
            ('\u{2009}', "THIN SPACE"),
            ('\u{3164}', "HANGUL FILLER"),
            ('\u{2800}', "BRAILLE PATTERN BLANK"),
            ('\u{1b}', "ESCAPE"),
            ('\u{7f}', "DELETE"),
            ('\u{9b}', "CONTROL CHARACTER"),
            ('\u{e000}', "PRIVATE USE"),
            ('\u{1ffff}', "NONCHARACTER"),
            ('\u{10ffff}', "NONCHARACTER"),
        ] {
            let text = format!("a{c}b");
            let expected =
                [Piece::Plain("a".into()), Piece::Escape { code_point: c.into(), name }, Piece::Plain("b".into())];
            assert_eq!(pieces(&text, Breaks::Keep), expected);
            assert_eq!(findings(&text), [Finding::Hidden { count: 1, code_points: BTreeSet::from([c.into()]) }]);
        }
        assert_eq!(pieces("", Breaks::Escape), []);
        assert_eq!(shown(&"\u{3000}".repeat(300), Breaks::Keep), "<3000>".repeat(300));
    }

    #[test]
    fn line_breaks_and_tabs_are_layout_only_where_that_is_asked_for() {
        let text = "a\tb\nc\r\nd\re";
        assert_eq!(shown(text, Breaks::Keep), "a\tb\nc\r\nd<000D>e");
        assert_eq!(shown(text, Breaks::Escape), "a<0009>b<000A>c<000D><000A>d<000D>e");
        assert_eq!(findings("a\tb\nc\r\nd"), []);
    }

    #[test]
    fn ordinary_text_of_many_scripts_stays_as_it_is() {
        for text in [
            "Rotate staging certificate #12, 50 % (see https://api.example.test/a?b=c&d=e)",
            "क्\u{200d}षमा: प्रमाणपत्र बदलें",     // with U+200D
            "उद्\u{200c}घाटन और नमस्\u{200c}ते", // with U+200C
            "র\u{200d}্যাব ও উদ্\u{200c}বোধন",
            "ಬ್ಯಾಂಕ್\u{200c} ಸಾಫ್ಟ್\u{200c}ವೇರ್",
            "ശ്രീ ന്\u{200d} അവന്\u{200d}",
            "ශ්\u{200d}රී ලංකා",
            "தமிழ் மற்றும் తెలుగు",
            "می\u{200c}خواهم، نمی\u{200c}دانم و خانه\u{200c}ای",
            "سال ۱۳۵۸ ه\u{200d}.ش.",
            "شهادة الخادم منتهية الصلاحية، يرجى التجديد",
            "اُردُو میں لکھیں",
            "עברית עם ניקוד: שָׁלוֹם",
            "ไทย ລາວ ខ្មែរ မြန်မာ བོད་ཡིག",
            "ᠮᠣᠩᠭᠣᠯ ᠤᠨ\u{180e}ᠠ",
            "日本語のタイトル、ＡＰＩ「東京」と API、１２３ 号",
            "中文标题：重启 web 服务器／数据库",
            "한국어 제목 API서버",
            "Обновить API-ключ на сервере api.example.test, а затем SMS и e-mail-адрес",
            "Съешь ещё этих мягких французских булок, да выпей чаю; 2-х часов хватит",
            "Ενημέρωση του API-κλειδιού στο api.example.test",
            "10 kΩ, 25 μs, 25 µs, ΔT, α-amylase, γ-ray, 5 €/m², n°5, Acme™, №5, ½",
            "Việt Nam, naïve café, Straße, İstanbul, kapı, Łódź, ħ",
            "e\u{301}tude",
            "👨\u{200d}👩\u{200d}👧\u{200d}👦 👩🏽\u{200d}🚀 🧑🏻\u{200d}❤\u{fe0f}\u{200d}💋\u{200d}🧑🏼 🏳\u{fe0f}\u{200d}🌈 🏴\u{200d}☠\u{fe0f} 🐻\u{200d}❄\u{fe0f}",
            "❤\u{fe0f} ☎\u{fe0e} ⚠\u{fe0f} ©\u{fe0f} ™\u{fe0f} ℹ\u{fe0f}",
            "1\u{fe0f}\u{20e3} #\u{fe0f}\u{20e3} *\u{fe0f}\u{20e3}",
            "🇩🇪 DE🇮🇳",
            "🏴\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}🏴\u{e0067}\u{e0062}\u{e0073}\u{e0063}\u{e0074}\u{e007f}",
        ] {
            assert!(is_plain(text), "{}", shown(text, Breaks::Keep));
            assert_eq!(findings(text), [], "{text}");
            assert_eq!(reads_as(text), text);
        }
    }

    #[test]
    fn joiners_and_selectors_out_of_their_place_are_shown() {
        for (text, expected) in [
            ("pass\u{200d}word", "pass<200D>word"),
            ("pass\u{200c}word", "pass<200C>word"),
            ("क\u{200d}ख", "क<200D>ख"),
            ("क्\u{200d}\u{200d}ष", "क्\u{200d}<200D>ष"),
            // After alef nothing joins, between beh and beh everything does: both would go unseen.
            ("ا\u{200c}ب", "ا<200C>ب"),
            ("ب\u{200d}ب", "ب<200D>ب"),
            ("ب\u{200c} ", "ب<200C> "),
            ("👨\u{200d}x", "👨<200D>x"),
            ("x\u{200d}👨", "x<200D>👨"),
            ("👨\u{200d}\u{200d}👩", "👨<200D><200D>👩"),
            ("1\u{fe0f}2", "1<FE0F>2"),
            ("a\u{fe0f}", "a<FE0F>"),
            ("❤\u{fe0f}\u{fe0f}", "❤\u{fe0f}<FE0F>"),
            ("漢\u{fe00}", "漢<FE00>"),
            ("🏴\u{e0068}\u{e0069}\u{e007f}", "🏴<E0068><E0069><E007F>"),
            ("🏴\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}", "🏴<E0067><E0062><E0065><E006E><E0067>"),
            (
                "🏴\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}\u{e0067}",
                "🏴\u{e0067}\u{e0062}\u{e0065}\u{e006e}\u{e0067}\u{e007f}<E0067>",
            ),
        ] {
            assert_eq!(shown(text, Breaks::Keep), expected);
        }
    }

    #[test]
    fn letters_that_pass_for_latin_are_told_with_punycode() {
        for (text, expected) in [
            ("https://\u{430}pi.example.test/v1", mixed("\u{430}pi.example.test", "xn--pi-6kc.example.test")),
            ("to ops@ex\u{430}mple.test now", mixed("ops@ex\u{430}mple.test", "ops@xn--exmple-4nf.test")),
            ("p\u{430}yment", mixed("p\u{430}yment", "xn--pyment-3nf")),
            ("P\u{410}YPAL", mixed("P\u{410}YPAL", "xn--pypal-4ve")),
            ("Яndex", mixed("Яndex", "xn--ndex-k8d")),
            // Nothing but look-alikes, in a name that is otherwise ASCII.
            ("аррӏе.com", mixed("аррӏе.com", "xn--80ak6aa92e.com")),
            ("checkout-\u{430}\u{440}\u{456}", mixed("checkout-\u{430}\u{440}\u{456}", "xn--checkout--8yh0pok")),
            ("ο\u{3bd}.example", mixed("ο\u{3bd}.example", "xn--yxad.example")),
            ("b\u{3bf}b", mixed("b\u{3bf}b", "xn--bb-jbc")),
            ("api․example", mixed("api․example", "xn--apiexample-2z6e")),
            ("𝐚pi.example", mixed("𝐚pi.example", "xn--pi-sf70a.example")),
            ("ɡoogle.com", mixed("ɡoogle.com", "xn--oogle-qmc.com")),
            ("Ꭺpi", mixed("Ꭺpi", "xn--pi-zg1i")),
            ("օps", mixed("օps", "xn--ps-ffd")),
        ] {
            assert_eq!(findings(text), [expected], "{text}");
        }
        // Hidden characters do not break a word in two.
        let hidden = Finding::Hidden { count: 1, code_points: BTreeSet::from([0x200b]) };
        assert_eq!(findings("\u{430}\u{200b}pi"), [hidden, mixed("\u{430}pi", "xn--pi-6kc")]);
        // Each word once.
        assert_eq!(findings("\u{430}pi \u{430}pi").len(), 1);
        assert_eq!(findings(&("\u{430}".to_owned() + &"x".repeat(300))).len(), 1);
    }

    #[test]
    fn whole_names_of_another_script_are_ordinary() {
        for text in [
            "пример.рф",
            "пример.com",
            "сор.рф",
            "παράδειγμα.δοκιμή",
            "münchen.example",
            "例え.example",
            "Հայաստան.com",
        ] {
            assert_eq!(findings(text), [], "{text}");
        }
    }

    #[test]
    fn a_name_in_punycode_is_told_with_what_it_stands_for() {
        let told = |word: &str, decoded: Option<&str>| Finding::Punycode {
            word: word.into(),
            decoded: decoded.map(Into::into),
        };
        assert_eq!(findings("release/xn--pi-6kc.example"), [told("xn--pi-6kc.example", Some("\u{430}pi.example"))]);
        assert_eq!(findings("ops@XN--MNCHEN-3YA.test!"), [told("ops@XN--MNCHEN-3YA.test", Some("ops@MüNCHEN.test"))]);
        assert_eq!(findings("xn--99999999"), [told("xn--99999999", None)]);
        assert_eq!(findings("xn--"), []);
        assert_eq!(findings("axn--pi-6kc"), []);
    }

    #[test]
    fn it_tells_what_a_careless_screen_would_show() {
        for (text, expected) in [
            ("checkout\u{202e}ipa-", "checkout-api"),
            ("pay\u{200b}ment\u{feff}", "payment"),
            ("a\u{a0}b\u{3000}c\u{2800}d", "a b c d"),
            ("\u{202e}cod.exe\u{202c}.txt", "exe.doc.txt"),
            ("\u{202e}(1)x", "x(1)"),
            // An override inside an override counts as one letter of the outer one.
            ("\u{202e}fed\u{202d}123\u{202c}cba", "abc123def"),
            ("\u{202e}fed\u{2066}x\u{202e}zy\u{2069}cba", "abcxyzdef"),
            ("\u{202c}\u{2069}ab", "ab"),
            // The end of the line ends it.
            ("\u{202e}ba\ndc", "ab\ndc"),
            ("\u{202e}ba\u{2029}dc\r\n", "ab\ndc\n"),
            ("\u{202e}ba\u{2028}dc", "cd ab"),
            ("a\u{ad}b\u{e0041}c\u{1b}d", "abcd"),
        ] {
            assert_eq!(reads_as(text), expected, "{}", shown(text, Breaks::Escape));
        }
    }

    #[test]
    fn hostile_text_costs_no_more_than_it_is_long() {
        let size = 64 * 1024;
        for text in [
            "\u{202e}".repeat(size / 3),
            "\u{202e}a\u{202d}b".repeat(size / 8),
            "\u{2066}\u{2069}".repeat(size / 6),
            "\u{e0041}".repeat(size / 4),
            "ب\u{64b}\u{200d}".repeat(size / 7),
            "\u{64b}".repeat(size / 2),
            "\u{430}x".repeat(size / 3),
            "\u{430}x ".repeat(size / 4),
            "xn--a.".repeat(size / 6),
            "xn--".to_owned() + &"z".repeat(size),
            (0xf0000..0x100000).step_by(4).filter_map(char::from_u32).collect(),
        ] {
            assert_eq!(join(&pieces(&text, Breaks::Escape)), Some(text.clone()));
            findings(&text);
            reads_as(&text);
        }
    }

    #[test]
    fn pieces_that_hold_no_character_are_not_joined() {
        assert_eq!(join(&[Piece::Escape { code_point: 0xd800, name: "" }]), None);
    }

    /// Text in which the characters that matter meet often.
    fn texts() -> impl Strategy<Value = String> {
        let special: Vec<char> = "a1#.-@ \t\n\r\u{ad}\u{200b}\u{200c}\u{200d}\u{202a}\u{202c}\u{202d}\u{202e}\u{2066}\u{2069}\u{fe0f}\u{20e3}\
            \u{2029}क्षबاه\u{64b}👩🏽🚀❤🏴\u{e0067}\u{e0062}\u{e007f}аοxn"
            .chars()
            .collect();
        collection::vec(prop_oneof![4 => sample::select(special), 1 => any::<char>()], 0..40)
            .prop_map(|chars| chars.into_iter().collect())
    }

    proptest! {
        #[test]
        fn splitting_loses_nothing_and_leaves_no_piece_to_merge(text in texts(), keep: bool) {
            let pieces = pieces(&text, if keep { Breaks::Keep } else { Breaks::Escape });
            prop_assert_eq!(join(&pieces), Some(text));
            prop_assert!(pieces.iter().all(|piece| *piece != Piece::Plain(String::new())));
            let both_plain = |pair: &[Piece]| matches!(pair, [Piece::Plain(_), Piece::Plain(_)]);
            prop_assert!(!pieces.windows(2).any(both_plain));
        }

        #[test]
        fn plain_pieces_never_hold_what_reorders_or_controls(text in texts()) {
            for piece in pieces(&text, Breaks::Escape) {
                if let Piece::Plain(plain) = piece {
                    let lies = |c: char| c.is_control() || (c.is_whitespace() && c != ' ') || "\u{200b}\u{200e}\u{200f}\u{61c}".contains(c)
                        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{e0080}'..='\u{e0fff}');
                    prop_assert!(!plain.contains(lies), "{:?}", plain);
                }
            }
        }

        #[test]
        fn hidden_characters_are_found_exactly_when_they_are_shown(text in texts()) {
            let escapes = pieces(&text, Breaks::Keep).iter().filter(|piece| matches!(piece, Piece::Escape { .. })).count();
            let hidden = findings(&text).iter().find_map(|finding| match finding {
                Finding::Hidden { count, code_points } => Some((*count, code_points.len())),
                _ => None,
            });
            prop_assert_eq!(hidden.map_or(0, |(count, _)| count), escapes);
            prop_assert!(hidden.is_none_or(|(count, distinct)| distinct >= 1 && distinct <= count));
        }

        #[test]
        fn what_would_be_read_hides_nothing(text in texts()) {
            let read = reads_as(&text);
            let bidi = |c| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
            prop_assert!(!read.contains(bidi));
            prop_assert!(read.chars().count() <= text.chars().count());
        }

        #[test]
        fn plain_ascii_is_nobodys_business(text in "[ -~\n\t]{0,60}") {
            prop_assume!(!text.to_lowercase().contains("xn--") && !text.is_empty());
            prop_assert!(is_plain(&text));
            prop_assert_eq!(findings(&text), []);
            prop_assert_eq!(reads_as(&text), text);
        }

        #[test]
        fn one_look_alike_in_a_latin_word_is_always_told(before in "[a-z]{0,5}", after in "[a-z]{1,5}", letter in sample::select("асеорхуіѕԁοανА".chars().collect::<Vec<_>>())) {
            let word = format!("{before}{letter}{after}");
            let told = findings(&format!("use {word} now")).into_iter().any(|finding| matches!(finding, Finding::MixedScript { word: told, .. } if told == word));
            prop_assert!(told);
        }
    }
}
