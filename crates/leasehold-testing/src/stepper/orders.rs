//! Chooses the next script: walks the tree of all choices, one path per run.

/// The choices of the current run and how far each of them was explored.
///
/// Only what PostgreSQL allows is ever chosen: a script that waits for a lock is no choice. So no
/// order runs twice, and none that could not happen.
#[derive(Default)]
pub(super) struct Orders {
    path: Vec<Choice>,
    depth: usize,
    /// Choices that differed when they were reached again.
    pub diverged: u64,
}

struct Choice {
    open: Vec<usize>,
    taken: usize,
}

impl Orders {
    /// Chooses one of the scripts that can continue. `open` must not be empty.
    pub(super) fn choose(&mut self, open: Vec<usize>) -> usize {
        let depth = self.depth;
        self.depth += 1;
        if self.path.get(depth).is_some_and(|known| known.open != open) {
            // PostgreSQL picks the victim of a deadlock unpredictably; follow what happened.
            self.diverged += 1;
            self.path.truncate(depth);
        }
        if depth == self.path.len() {
            self.path.push(Choice { open, taken: 0 });
        }
        let choice = &self.path[depth];
        choice.open[choice.taken]
    }

    /// Moves to the next order. Returns false if there is none.
    pub(super) fn next(&mut self) -> bool {
        self.depth = 0;
        while let Some(last) = self.path.last_mut() {
            last.taken += 1;
            if last.taken < last.open.len() {
                return true;
            }
            self.path.pop();
        }
        false
    }
}

/// Returns how many orders there are if no step ever waits: (a + b + …)! / (a! b! …).
pub(super) fn count(lengths: &[usize]) -> u64 {
    let mut total = 0u64;
    let mut orders = 1u128;
    for length in lengths {
        for step in 1..=*length as u64 {
            total += 1;
            orders = orders.saturating_mul(total.into()) / u128::from(step);
        }
    }
    u64::try_from(orders).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Plays scripts of these lengths in which no step waits.
    fn all_orders(lengths: &[usize]) -> Vec<Vec<usize>> {
        let mut orders = Orders::default();
        let mut seen = Vec::new();
        loop {
            let mut left = lengths.to_vec();
            let mut order = Vec::new();
            while left.iter().any(|left| *left > 0) {
                let open = (0..left.len()).filter(|script| left[*script] > 0).collect();
                let chosen = orders.choose(open);
                left[chosen] -= 1;
                order.push(chosen);
            }
            seen.push(order);
            if !orders.next() {
                assert_eq!(orders.diverged, 0);
                return seen;
            }
        }
    }

    #[test]
    fn orders_visit_every_order_once() {
        for lengths in [&[2, 2][..], &[3, 3], &[2, 2, 2], &[1, 4], &[3], &[]] {
            let seen = all_orders(lengths);
            let distinct: HashSet<_> = seen.iter().collect();
            assert_eq!(seen.len(), distinct.len());
            assert_eq!(seen.len() as u64, count(lengths), "{lengths:?}");
        }
    }

    #[test]
    fn count_equals_the_multinomial() {
        assert_eq!(count(&[4, 4]), 70);
        assert_eq!(count(&[3, 3, 3]), 1680);
        assert_eq!(count(&[100, 100]), u64::MAX);
    }
}
