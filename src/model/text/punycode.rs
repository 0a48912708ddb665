//! Punycode (RFC 3492): how a name with other letters is spelled where only ASCII is allowed.

const BASE: u32 = 36;
const T_MIN: u32 = 1;
const T_MAX: u32 = 26;
const INITIAL_BIAS: u32 = 72;
const INITIAL_N: u32 = 128;

/// Longer labels are not coded: the work grows with the square of the length, and a host name ends at 253 anyway.
const MAX_LENGTH: usize = 255;

/// The label without `xn--`; none if it is too long.
pub fn encode(label: &str) -> Option<String> {
    let code_points: Vec<u32> = label.chars().map(u32::from).collect();
    if code_points.len() > MAX_LENGTH {
        return None;
    }
    let mut out: String = label.chars().filter(char::is_ascii).collect();
    let basic = u32::try_from(out.len()).ok()?;
    if basic > 0 {
        out.push('-');
    }
    let (mut n, mut delta, mut bias, mut done) = (INITIAL_N, 0u32, INITIAL_BIAS, basic);
    while let Some(next) = code_points.iter().copied().filter(|c| *c >= n).min() {
        delta = delta.checked_add((next - n).checked_mul(done + 1)?)?;
        n = next;
        for &c in &code_points {
            if c < n {
                delta = delta.checked_add(1)?;
            }
            if c == n {
                let mut q = delta;
                for k in (BASE..).step_by(BASE as usize) {
                    let t = threshold(k, bias);
                    if q < t {
                        break;
                    }
                    out.push(digit(t + (q - t) % (BASE - t)));
                    q = (q - t) / (BASE - t);
                }
                out.push(digit(q));
                bias = adapt(delta, done + 1, done == basic);
                delta = 0;
                done += 1;
            }
        }
        delta = delta.checked_add(1)?;
        n += 1;
    }
    Some(out)
}

/// The label that `encoded` (without `xn--`) stands for; none if it stands for nothing, or is too long.
pub fn decode(encoded: &str) -> Option<String> {
    if encoded.len() > MAX_LENGTH || !encoded.is_ascii() {
        return None;
    }
    let (basic, extended) = encoded.rsplit_once('-').unwrap_or(("", encoded));
    let mut label: Vec<char> = basic.chars().collect();
    let mut digits = extended.bytes();
    let (mut n, mut i, mut bias) = (INITIAL_N, 0u32, INITIAL_BIAS);
    while digits.len() > 0 {
        let start = i;
        let mut weight = 1u32;
        for k in (BASE..).step_by(BASE as usize) {
            let value = value(digits.next()?)?;
            i = i.checked_add(value.checked_mul(weight)?)?;
            let t = threshold(k, bias);
            if value < t {
                break;
            }
            weight = weight.checked_mul(BASE - t)?;
        }
        let length = u32::try_from(label.len()).ok()? + 1;
        bias = adapt(i - start, length, start == 0);
        n = n.checked_add(i / length)?;
        i %= length;
        label.insert(i as usize, char::from_u32(n)?);
        i += 1;
    }
    Some(label.into_iter().collect())
}

fn threshold(k: u32, bias: u32) -> u32 {
    k.saturating_sub(bias).clamp(T_MIN, T_MAX)
}

/// RFC 3492, section 6.1.
fn adapt(delta: u32, length: u32, first: bool) -> u32 {
    let mut delta = delta / if first { 700 } else { 2 };
    delta += delta / length;
    let mut k = 0;
    while delta > (BASE - T_MIN) * T_MAX / 2 {
        delta /= BASE - T_MIN;
        k += BASE;
    }
    k + (BASE - T_MIN + 1) * delta / (delta + 38)
}

fn digit(value: u32) -> char {
    char::from(b"abcdefghijklmnopqrstuvwxyz0123456789"[value as usize])
}

fn value(digit: u8) -> Option<u32> {
    match digit.to_ascii_lowercase() {
        letter @ b'a'..=b'z' => Some(u32::from(letter - b'a')),
        number @ b'0'..=b'9' => Some(u32::from(number - b'0') + 26),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// RFC 3492, section 7.1.
    const SAMPLES: [(&str, &str); 19] = [
        ("ليهمابتكلموشعربي؟", "egbpdaj6bu4bxfgehfvwxn"),
        ("他们为什么不说中文", "ihqwcrb4cv8a8dqg056pqjye"),
        ("他們爲什麽不說中文", "ihqwctvzc91f659drss3x8bo0yb"),
        ("Pročprostěnemluvíčesky", "Proprostnemluvesky-uyb24dma41a"),
        ("למההםפשוטלאמדבריםעברית", "4dbcagdahymbxekheh6e0a7fei0b"),
        ("यहलोगहिन्दीक्योंनहींबोलसकतेहैं", "i1baa7eci9glrd9b2ae1bj0hfcgg6iyaf8o0a1dig0cd"),
        ("なぜみんな日本語を話してくれないのか", "n8jok5ay5dzabd5bym9f0cm5685rrjetr6pdxa"),
        (
            "세계의모든사람들이한국어를이해한다면얼마나좋을까",
            "989aomsvi5e83db1d2a355cv1e0vak1dwrv93d5xbh15a0dt30a5jpsd879ccm6fea98c",
        ),
        ("почемужеонинеговорятпорусски", "b1abfaaepdrnnbgefbaDotcwatmq2g4l"),
        ("PorquénopuedensimplementehablarenEspañol", "PorqunopuedensimplementehablarenEspaol-fmd56a"),
        ("TạisaohọkhôngthểchỉnóitiếngViệt", "TisaohkhngthchnitingVit-kjcr8268qyxafd2f1b9g"),
        ("3年B組金八先生", "3B-ww4c5e180e575a65lsy2b"),
        ("安室奈美恵-with-SUPER-MONKEYS", "-with-SUPER-MONKEYS-pc58ag80a8qai00g7n9n"),
        ("Hello-Another-Way-それぞれの場所", "Hello-Another-Way--fc4qua05auwb3674vfr0b"),
        ("ひとつ屋根の下2", "2-u9tlzr9756bt3uc0v"),
        ("MajiでKoiする5秒前", "MajiKoi5-783gue6qz075azm5e"),
        ("パフィーdeルンバ", "de-jg4avhby1noc0d"),
        ("そのスピードで", "d9juau41awczczp"),
        ("-> $1.00 <-", "-> $1.00 <--"),
    ];

    #[test]
    fn the_samples_of_the_rfc_hold_both_ways() {
        for (label, encoded) in SAMPLES {
            assert_eq!(decode(encoded).as_deref(), Some(label));
            // Capital letters in the coded part annotate the case of what they stand for; we do not write them.
            assert_eq!(encode(label).unwrap().to_ascii_lowercase(), encoded.to_ascii_lowercase());
        }
    }

    #[test]
    fn what_stands_for_nothing_is_not_decoded() {
        for encoded in ["99999999", "a-b!", "\u{fc}", "tda\0", "b", "zzzzzzzz9", &"a".repeat(256)] {
            assert_eq!(decode(encoded), None, "{encoded}");
        }
        assert_eq!(encode(&"\u{fc}".repeat(256)), None);
    }

    proptest! {
        #[test]
        fn decoding_undoes_encoding(label in any::<String>()) {
            let encoded = encode(&label).unwrap();
            prop_assert!(encoded.is_ascii());
            if encoded.len() <= MAX_LENGTH {
                prop_assert_eq!(decode(&encoded), Some(label));
            }
        }

        #[test]
        fn no_text_upsets_the_decoder(text in "[a-zA-Z0-9-]{0,60}") {
            let _ = decode(&text);
        }
    }
}
