//! Names and values of the user as parts of SQL.

/// Quotes a name.
pub fn quote_name(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Quotes a value of type text.
pub fn quote_literal(text: &str) -> String {
    let doubled = text.replace('\'', "''");
    if text.contains('\\') {
        format!("E'{}'", doubled.replace('\\', "\\\\"))
    } else {
        format!("'{doubled}'")
    }
}

/// Quotes `schema.table` or `table`. A dot after the first one belongs to the name of the table.
pub fn quote_table(name: &str) -> String {
    name.splitn(2, '.').map(quote_name).collect::<Vec<_>>().join(".")
}

/// Shortens the name of an object to 63 bytes: Postgres cuts longer names, and two long ones could then
/// be equal.
pub fn short_name(name: &str) -> String {
    if name.len() <= 63 {
        return name.to_owned();
    }
    let mut tail: String = name.chars().skip(name.chars().count().saturating_sub(30)).collect();
    while tail.len() > 50 {
        tail.remove(0);
    }
    format!("x{:08x}_{tail}", stable_hash(name))
}

/// Returns a number made from a text, the same in every release: FNV-1a.
pub fn stable_hash(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_cannot_leave_their_quotes() {
        assert_eq!(quote_table("a.b.c"), "\"a\".\"b.c\"");
        assert_eq!(quote_table("x\"; drop table y; --"), "\"x\"\"; drop table y; --\"");
        assert_eq!(quote_literal("it's"), "'it''s'");
        assert_eq!(quote_literal("b\\'"), "E'b\\\\'''");
    }

    #[test]
    fn long_names_stay_different_and_fit() {
        let long = |last: char| format!("mirror_{}_{last}", "ü".repeat(60));
        let (one, other) = (short_name(&long('a')), short_name(&long('b')));
        assert!(one.len() <= 63 && other.len() <= 63 && one != other, "{one} {other}");
        let (one, other) =
            (short_name(&format!("a{}", "x".repeat(80))), short_name(&"x".repeat(81)));
        assert_ne!(one, other, "they differ only where the name is cut");
        assert_eq!(short_name("short"), "short");
    }

    #[test]
    fn hash_of_a_text_never_changes() {
        // Workers of two releases must use the same advisory lock, and find the same triggers.
        assert_eq!(stable_hash("pastes.expiry").cast_signed(), -1_588_694_650);
        assert_eq!(stable_hash("a").cast_signed(), -468_965_076);
    }
}
