//! Names that show in the server's log which test they belong to.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

/// PostgreSQL truncates longer names, and two of them could become equal.
const NAME_BYTES: usize = 63;

/// `lh_5f3a9c01_7_claim_takes_due_jobs`: a random mark, a number, the test.
pub(super) fn unique(prefix: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // The test harness names each thread after its test.
    let thread = thread::current();
    build(prefix, rand::random(), number, thread.name().unwrap_or("test"))
}

fn build(prefix: &str, mark: u32, number: u32, thread: &str) -> String {
    let start = format!("{prefix}_{mark:08x}_{number}_");
    let test = thread.rsplit("::").next().unwrap_or_default();
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }
    };
    start.chars().chain(test.chars().map(plain)).take(NAME_BYTES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn database_name_is_plain_and_short() {
        let name = build("lh", 0xabc, 7, &format!("queue::Größe\"{}", "x".repeat(99)));
        assert!(name.starts_with("lh_00000abc_7_gr__e_x"), "{name}");
        assert_eq!(name.len(), NAME_BYTES);
    }
}
