//! Which addresses are public, and which lead into a private network.
//!
//! # Invariants
//! - IPv6 is an allow list: only global unicast, and of that not the ranges that wrap an IPv4
//!   address or are reserved. A newly assigned range is rejected until this list changes.
//! - IPv4 is a deny list, because nearly all of it is in use. The ranges are those that the
//!   special-purpose registry does not call globally reachable, plus addresses under which clouds
//!   hand out credentials.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns why the worker sends nothing to this address, or `None` if it is public.
pub fn not_public(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => not_public_v4(address),
        IpAddr::V6(address) => not_public_v6(address),
    }
}

/// First address of the range, its prefix length, its description.
const V4: [(Ipv4Addr, u32, &str); 17] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8, "unspecified"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "private"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "shared by a carrier (CGNAT)"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "loopback"),
    (Ipv4Addr::new(168, 63, 129, 16), 32, "a cloud's metadata service"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "link-local"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "private"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "reserved for protocols"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "for documentation"),
    (Ipv4Addr::new(192, 31, 196, 0), 24, "reserved for protocols"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "a 6to4 relay"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "private"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "for benchmarks"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "for documentation"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "for documentation"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "multicast"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "reserved"),
];

fn not_public_v4(address: Ipv4Addr) -> Option<&'static str> {
    V4.iter()
        .find(|(first, prefix, _)| {
            let mask = u32::MAX << (32 - prefix);
            address.to_bits() & mask == first.to_bits()
        })
        .map(|(_, _, what)| *what)
}

/// Ranges inside global unicast that are not public.
const V6: [(Ipv6Addr, u32, &str); 5] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "reserved for protocols (Teredo and others)"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "for documentation"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "6to4, which wraps an IPv4 address"),
    (Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0), 48, "reserved for protocols"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "for documentation"),
];

fn not_public_v6(address: Ipv6Addr) -> Option<&'static str> {
    let first = address.segments()[0];
    // Global unicast is 2000::/3.
    if first & 0xe000 != 0x2000 {
        return Some(outside_global_unicast(address));
    }
    V6.iter()
        .find(|(first, prefix, _)| {
            let mask = u128::MAX << (128 - prefix);
            address.to_bits() & mask == first.to_bits()
        })
        .map(|(_, _, what)| *what)
}

/// Names the range for the error text; all of them are rejected.
fn outside_global_unicast(address: Ipv6Addr) -> &'static str {
    let [first, second, ..] = address.segments();
    if address.is_unspecified() {
        "unspecified"
    } else if address.is_loopback() {
        "loopback"
    } else if address.to_ipv4_mapped().is_some() {
        "an IPv4 address in the form of IPv6"
    } else if first == 0x64 && second == 0xff9b {
        "NAT64, which wraps an IPv4 address"
    } else if first & 0xfe00 == 0xfc00 {
        "private (ULA)"
    } else if first & 0xffc0 == 0xfe80 {
        "link-local"
    } else if first & 0xff00 == 0xff00 {
        "multicast"
    } else {
        "not global unicast"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn h7_address_ranges_begin_and_end_exactly() {
        let refused = |text: &str| not_public(text.parse().expect("an address")).is_some();
        for inside in [
            "0.255.255.255",
            "10.0.0.0",
            "10.255.255.255",
            "100.64.0.0",
            "100.127.255.255",
            "127.255.255.255",
            "169.254.255.255",
            "172.16.0.0",
            "172.31.255.255",
            "192.0.0.255",
            "192.168.255.255",
            "198.18.0.0",
            "198.19.255.255",
            "224.0.0.0",
            "239.255.255.255",
            "240.0.0.0",
            "255.255.255.255",
            "168.63.129.16",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:8.8.8.8",
            "64:ff9b::808:808",
            "64:ff9b:1::1",
            "100::1",
            "1fff:ffff::1",
            "2001::1",
            "2001:1ff::1",
            "2001:db8::1",
            "2002:808:808::1",
            "3fff::1",
            "3fff:fff::1",
            "4000::1",
            "5f00::1",
            "fc00::1",
            "fdff::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(refused(inside), "{inside}");
        }
        for outside in [
            "1.0.0.0",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "168.63.129.15",
            "168.63.129.17",
            "169.253.255.255",
            "169.255.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2000::1",
            "2001:200::1",
            "2001:db7::1",
            "2001:db9::1",
            "2003::1",
            "2606:4700::1",
            "3ffe::1",
        ] {
            assert!(!refused(outside), "{outside}");
        }
    }
}
