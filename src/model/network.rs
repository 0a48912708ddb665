//! Which addresses a request may go to: public ones, and the private networks somebody has listed.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A block of addresses in CIDR notation, `10.1.0.0/16` (RFC 4632).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    base: IpAddr,
    prefix: u8,
}

/// The text names no network.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected a network such as `10.1.0.0/16`, with no bits set behind its prefix")]
pub struct InvalidNetwork;

impl Network {
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.base, unmapped(address)) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                self.prefix == 0 || (base.to_bits() ^ address.to_bits()).leading_zeros() >= u32::from(self.prefix)
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                self.prefix == 0 || (base.to_bits() ^ address.to_bits()).leading_zeros() >= u32::from(self.prefix)
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = InvalidNetwork;

    fn from_str(text: &str) -> Result<Self, InvalidNetwork> {
        let (base, prefix) = text.split_once('/').ok_or(InvalidNetwork)?;
        let base: IpAddr = base.parse().map_err(|_| InvalidNetwork)?;
        let prefix: u8 = prefix.parse().map_err(|_| InvalidNetwork)?;
        let host_bits = |bits: u128, width: u8| width > prefix && bits & (u128::MAX >> (128 - (width - prefix))) != 0;
        let right = match base {
            IpAddr::V4(base) => prefix <= 32 && !host_bits(base.to_bits().into(), 32),
            IpAddr::V6(base) => prefix <= 128 && !host_bits(base.to_bits(), 128),
        };
        if right { Ok(Self { base, prefix }) } else { Err(InvalidNetwork) }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

impl Serialize for Network {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Whether a request may go to `address`: it is public, or inside a network that is listed for the destination.
pub fn may_reach(address: IpAddr, listed: &[Network]) -> bool {
    is_public(address) || listed.iter().any(|network| network.contains(address))
}

/// An address that everybody reaches the same way. Everything in the registries of special-purpose addresses (RFC 6890)
/// is not, and neither is what only wraps such an address.
pub fn is_public(address: IpAddr) -> bool {
    match unmapped(address) {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// `::ffff:10.0.0.1` is `10.0.0.1` (RFC 4291 §2.5.5.2).
fn unmapped(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !matches!(
        (a, b, c),
        (0 | 10 | 127, ..)
            | (100, 64..=127, _)
            | (169, 254, _)
            | (172, 16..=31, _)
            | (192, 0, 0 | 2)
            | (192, 88, 99)
            | (192, 168, _)
            | (198, 18 | 19, _)
            | (198, 51, 100)
            | (203, 0, 113)
            | (224..=255, ..)
    )
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let s = address.segments();
    let embedded = |high: u16, low: u16| is_public_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match s {
        // NAT64 (RFC 6052) and 6to4 (RFC 3056) lead to the address inside.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => embedded(high, low),
        // Protocol assignments, Teredo among them, and documentation.
        [0x2001, ..=0x01ff, ..] | [0x2001, 0x0db8, ..] | [0x3fff, ..=0x0fff, ..] => false,
        // Only 2000::/3 is global unicast.
        _ => s[0] & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_are_reached_unless_listed() {
        for address in [
            "127.0.0.1",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "192.0.2.1",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "fc00::1",
            "fd12:3456::1",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a00:1",
            "2002:a00:1::",
            "2002:7f00:1::",
            "64:ff9b:1::1",
            "::127.0.0.1",
        ] {
            let address: IpAddr = address.parse().unwrap();
            assert!(!is_public(address), "{address}");
            assert!(!may_reach(address, &[]), "{address}");
        }
        for address in [
            "1.1.1.1",
            "172.32.0.1",
            "100.128.0.1",
            "192.0.1.1",
            "2606:4700::1111",
            "2002:101:101::",
            "64:ff9b::101:101",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
        let listed = ["10.1.0.0/16".parse().unwrap(), "::1/128".parse().unwrap()];
        for (address, reached) in
            [("10.1.2.3", true), ("::ffff:10.1.2.3", true), ("10.2.0.1", false), ("::1", true), ("::2", false)]
        {
            assert_eq!(may_reach(address.parse().unwrap(), &listed), reached, "{address}");
        }
    }

    #[test]
    fn a_network_is_written_in_full_or_refused() {
        for text in ["10.0.0.0/8", "0.0.0.0/0", "127.0.0.1/32", "::/0", "fd00::/8", "::1/128"] {
            assert_eq!(text.parse::<Network>().unwrap().to_string(), text);
        }
        for text in
            ["10.0.0.1/8", "10.0.0.0", "10.0.0.0/33", "::1/127", "8000::/0", "::/129", "host/8", "10.0.0.0/-1", ""]
        {
            assert_eq!(text.parse::<Network>(), Err(InvalidNetwork), "{text}");
        }
    }
}
