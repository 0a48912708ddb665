//! Money: integer minor units and an ISO 4217 code. No floats, no rounding, no conversion.

use std::fmt;

/// The active codes of ISO 4217 by their number of minor-unit digits (SIX list one, published 2026-01-01). Codes without
/// a minor unit (metals, XDR, XSU, XUA, bond units, XTS, XXX) are left out: an amount in minor units of them says nothing.
const CODES: [(u8, &str); 4] = [
    (0, "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF"),
    (
        2,
        "AED AFN ALL AMD AOA ARS AUD AWG AZN BAM BBD BDT BMD BND BOB BOV BRL BSD BTN BWP BYN BZD CAD CDF CHE CHF CHW CNY \
         COP COU CRC CUP CVE CZK DKK DOP DZD EGP ERN ETB EUR FJD FKP GBP GEL GHS GIP GMD GTQ GYD HKD HNL HTG HUF IDR ILS \
         INR IRR JMD KES KGS KHR KPW KYD KZT LAK LBP LKR LRD LSL MAD MDL MGA MKD MMK MNT MOP MRU MUR MVR MWK MXN MXV MYR \
         MZN NAD NGN NIO NOK NPR NZD PAB PEN PGK PHP PKR PLN QAR RON RSD RUB SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP \
         STN SVC SYP SZL THB TJS TMT TOP TRY TTD TWD TZS UAH USD USN UYU UZS VED VES WST XAD XCD XCG YER ZAR ZMW ZWG",
    ),
    (3, "BHD IQD JOD KWD LYD OMR TND"),
    (4, "CLF UYW"),
];

/// An active currency with a minor unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Currency {
    code: &'static str,
    minor_digits: u8,
}

impl Currency {
    /// The three capital letters of ISO 4217; none for anything else.
    pub fn parse(code: &str) -> Option<Self> {
        CODES.iter().find_map(|&(minor_digits, codes)| {
            codes.split(' ').find(|known| *known == code).map(|code| Self { code, minor_digits })
        })
    }

    pub fn code(self) -> &'static str {
        self.code
    }

    /// How many decimal digits the minor unit takes: 2 for EUR, 0 for JPY.
    pub fn minor_digits(self) -> u8 {
        self.minor_digits
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code)
    }
}

/// The amount for reading, `EUR 149.00`: exact, every minor digit written, no grouping.
pub fn format(amount_minor: i64, currency: Currency) -> String {
    let sign = if amount_minor < 0 { "-" } else { "" };
    let unit = 10u64.pow(currency.minor_digits.into());
    let (whole, minor) = (amount_minor.unsigned_abs() / unit, amount_minor.unsigned_abs() % unit);
    match usize::from(currency.minor_digits) {
        0 => format!("{currency} {sign}{whole}"),
        digits => format!("{currency} {sign}{whole}.{minor:0digits$}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn currency(code: &str) -> Currency {
        Currency::parse(code).expect(code)
    }

    #[test]
    fn amounts_are_written_exactly() {
        for (amount, code, text) in [
            (14900, "EUR", "EUR 149.00"),
            (1, "EUR", "EUR 0.01"),
            (0, "EUR", "EUR 0.00"),
            (-5, "EUR", "EUR -0.05"),
            (500, "JPY", "JPY 500"),
            (-500, "JPY", "JPY -500"),
            (1234, "KWD", "KWD 1.234"),
            (12345, "CLF", "CLF 1.2345"),
            (9_007_199_254_740_991, "USD", "USD 90071992547409.91"),
            (i64::MIN, "UYW", "UYW -922337203685477.5808"),
        ] {
            assert_eq!(format(amount, currency(code)), text);
        }
    }

    #[test]
    fn only_active_codes_with_a_minor_unit_are_currencies() {
        for code in [
            "", " ", "EU", "EURO", "eur", "EUR ", " EUR", "EUR USD", "XAU", "XTS", "XXX", "HRK", "ANG", "ZWL", "BGN",
            "ÉUR",
        ] {
            assert_eq!(Currency::parse(code), None, "{code}");
        }
    }

    #[test]
    fn the_table_is_complete_and_names_each_code_once() {
        let mut all: Vec<&str> = CODES.iter().flat_map(|(_, codes)| codes.split(' ')).collect();
        assert_eq!(all.len(), 165);
        assert!(all.iter().all(|code| code.len() == 3 && code.bytes().all(|byte| byte.is_ascii_uppercase())));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 165);
    }

    proptest! {
        #[test]
        fn the_digits_of_the_amount_are_the_digits_of_the_text(amount: i64, row in 0..CODES.len()) {
            let currency = currency(&CODES[row].1[..3]);
            let text = format(amount, currency);
            let number = text.strip_prefix(currency.code()).unwrap().trim_start();
            let decimals = number.split_once('.').map_or(0, |(_, minor)| minor.len());
            prop_assert_eq!(decimals, usize::from(currency.minor_digits()));
            prop_assert_eq!(number.replace('.', "").parse::<i64>().unwrap(), amount);
        }
    }
}
