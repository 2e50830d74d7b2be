//! Decides what to do about one row. Pure: it takes what the table has and what the store holds, and
//! returns a decision.
//!
//! # Invariants
//! - The caller asks the store before the table. A document is written only after its row was
//!   committed, so a store that is ahead of the table now stays ahead, and the row's version must be
//!   raised.

use crate::mirror::sets::StoredVersion;

/// What the table has for a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// A document in this version.
    Document(i64),
    /// No document. The version is that of the deletion, or of the row if it exists and has no
    /// document; `None`: the table has neither a row nor a deletion of this key.
    Gone(Option<i64>),
}

/// What was found or written, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// Compared: the store has the document.
    UpToDate,
    /// Compared: the store has the deletion.
    Deleted,
    /// The store did not have the document.
    WroteMissing,
    /// The store had another version.
    WroteDifferent,
    /// The store did not have the deletion.
    WroteDeleted,
    /// The job asked for it with `force`.
    WroteForced,
}

impl Outcome {
    /// Returns the name under which it is counted.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::UpToDate => "completed_up_to_date",
            Self::Deleted => "completed_deleted",
            Self::WroteMissing => "synced_missing",
            Self::WroteDifferent => "synced_different",
            Self::WroteDeleted => "synced_deleted",
            Self::WroteForced => "forced",
        }
    }
}

/// What to do about a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Nothing: the store has it.
    Equal(Outcome),
    /// Write it. `same_version`: replace what the store holds in the same version.
    Write { why: Outcome, same_version: bool },
    /// The store has a higher version than the table: raise the table's above this one, then write.
    Raise { above: i64, why: Outcome },
}

pub(crate) fn decide(want: Want, held: Option<StoredVersion>, force: bool) -> Step {
    let write = |why| Step::Write { why, same_version: false };
    let over = |why| Step::Write { why, same_version: true };
    match (want, held) {
        (Want::Document(_), None) => write(Outcome::WroteMissing),
        (Want::Document(version), Some(held)) => {
            let why = if held.deleted { Outcome::WroteMissing } else { Outcome::WroteDifferent };
            match held.version.cmp(&version) {
                std::cmp::Ordering::Less => write(why),
                // The row was hidden and shown again by something that raised no version.
                std::cmp::Ordering::Equal if held.deleted => over(why),
                std::cmp::Ordering::Equal if force => over(Outcome::WroteForced),
                std::cmp::Ordering::Equal => Step::Equal(Outcome::UpToDate),
                std::cmp::Ordering::Greater => Step::Raise { above: held.version, why },
            }
        }
        // The deletion itself must be there: a slow write of an older version may still be on its way.
        (Want::Gone(Some(_)), None) => write(Outcome::WroteDeleted),
        (Want::Gone(Some(version)), Some(held)) => match (held.deleted, held.version.cmp(&version))
        {
            (_, std::cmp::Ordering::Less) => write(Outcome::WroteDeleted),
            (true, _) => Step::Equal(Outcome::Deleted),
            (false, std::cmp::Ordering::Equal) => over(Outcome::WroteDeleted),
            (false, std::cmp::Ordering::Greater) => {
                Step::Raise { above: held.version, why: Outcome::WroteDeleted }
            }
        },
        (Want::Gone(None), Some(StoredVersion { version, deleted: false })) => {
            Step::Raise { above: version, why: Outcome::WroteDeleted }
        }
        // The key was never used, or both sides have forgotten its deletion.
        (Want::Gone(None), _) => Step::Equal(Outcome::Deleted),
    }
}

/// Returns whether the store holds what was written, or something newer.
pub(crate) fn is_seen(version: i64, deleted: bool, held: Option<StoredVersion>) -> bool {
    held.is_some_and(|held| {
        held.version > version || (held.version == version && held.deleted == deleted)
    })
}

#[cfg(test)]
mod tests {
    use super::Outcome::*;
    use super::*;

    fn live(version: i64) -> Option<StoredVersion> {
        Some(StoredVersion { version, deleted: false })
    }

    fn dead(version: i64) -> Option<StoredVersion> {
        Some(StoredVersion { version, deleted: true })
    }

    fn write(why: Outcome) -> Step {
        Step::Write { why, same_version: false }
    }

    fn over(why: Outcome) -> Step {
        Step::Write { why, same_version: true }
    }

    #[test]
    fn document_is_written_where_it_is_missing_or_older() {
        let want = Want::Document(5);
        assert_eq!(decide(want, None, false), write(WroteMissing));
        assert_eq!(decide(want, live(4), false), write(WroteDifferent));
        assert_eq!(decide(want, dead(4), false), write(WroteMissing));
        assert_eq!(decide(want, live(5), false), Step::Equal(UpToDate));
    }

    #[test]
    fn document_that_is_there_is_written_again_only_on_request() {
        assert_eq!(decide(Want::Document(5), live(5), true), over(WroteForced));
        assert_eq!(decide(Want::Document(5), live(4), true), write(WroteDifferent));
    }

    #[test]
    fn f2_deletion_is_written_even_where_no_document_is() {
        let want = Want::Gone(Some(6));
        assert_eq!(decide(want, None, false), write(WroteDeleted));
        assert_eq!(decide(want, live(5), false), write(WroteDeleted));
        assert_eq!(decide(want, dead(5), false), write(WroteDeleted));
        assert_eq!(decide(want, dead(6), false), Step::Equal(Deleted));
        assert_eq!(decide(want, dead(9), false), Step::Equal(Deleted));
    }

    #[test]
    fn row_that_is_hidden_or_shown_without_a_new_version_is_written_over() {
        assert_eq!(decide(Want::Gone(Some(5)), live(5), false), over(WroteDeleted));
        assert_eq!(decide(Want::Document(5), dead(5), false), over(WroteMissing));
    }

    #[test]
    fn store_that_is_ahead_is_overtaken() {
        let ahead = Step::Raise { above: 9, why: WroteDifferent };
        assert_eq!(decide(Want::Document(5), live(9), false), ahead);
        let ahead = Step::Raise { above: 9, why: WroteMissing };
        assert_eq!(decide(Want::Document(5), dead(9), false), ahead);
        let ahead = Step::Raise { above: 9, why: WroteDeleted };
        assert_eq!(decide(Want::Gone(Some(5)), live(9), false), ahead);
    }

    #[test]
    fn ghost_gets_a_deletion_above_its_version() {
        let ghost = Step::Raise { above: 9, why: WroteDeleted };
        assert_eq!(decide(Want::Gone(None), live(9), false), ghost);
        assert_eq!(decide(Want::Gone(None), None, false), Step::Equal(Deleted));
        assert_eq!(decide(Want::Gone(None), dead(9), true), Step::Equal(Deleted));
    }

    #[test]
    fn only_this_version_or_a_newer_one_counts_as_seen() {
        assert!(is_seen(5, false, live(5)) && is_seen(5, false, live(6)));
        assert!(is_seen(5, false, dead(6)) && is_seen(5, true, dead(5)));
        assert!(!is_seen(5, false, live(4)) && !is_seen(5, false, None));
        assert!(!is_seen(5, false, dead(5)) && !is_seen(5, true, live(5)));
    }
}
