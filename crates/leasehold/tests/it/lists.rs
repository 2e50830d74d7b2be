//! Lists of columns that several statements of one direction have to repeat: the tests compare their texts.

use std::collections::BTreeSet;

const CLAIM: &str = include_str!("../../functions/queue/claim.sql");
const FINISH: &str = include_str!("../../functions/queue/finish.sql");

/// Returns the text between each `start` and the next `end`, in one line.
fn each_between(text: &str, start: &str, end: &str) -> Vec<String> {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let parts = text.split(start).skip(1).map(|part| part.split(end).next().unwrap_or_default());
    parts.map(str::to_owned).collect()
}

fn names(list: &str) -> BTreeSet<&str> {
    list.split(',').map(str::trim).collect()
}

#[test]
fn claim_next_returns_the_columns_of_the_other_claims() {
    let type_ = each_between(CLAIM, "create type leasehold.claimed_job as (", ");");
    let of_type: Vec<&str> =
        type_[0].split(',').filter_map(|column| column.trim().split(' ').next()).collect();
    assert!(of_type.len() > 15 && of_type[0] == "id", "{of_type:?}");
    let others = each_between(CLAIM, "select job.id,", "$$;");
    let next = each_between(CLAIM, "select c.id,", "from claimed c");
    assert_eq!((others.len(), next.len()), (1, 1), "each list once");
    let common = next[0].replace("c.", "job.").replace(" length,", " lease,");
    assert_eq!(common.trim(), others[0].trim());
    // One comma less than in a list that `job.id` begins, and one inside of `coalesce`.
    assert_eq!(others[0].matches(',').count() - 1, of_type.len() - 2);
}

#[test]
fn each_way_to_finish_files_the_same_columns() {
    let lists = each_between(FINISH, "insert into leasehold_internal.history (", ")");
    assert_eq!(lists.len(), 3);
    // A job that waits has no worker, and only a cancelled one a note.
    let own = ["claimed_by", "claimed_at", "note"];
    let common = |list: &str| -> BTreeSet<String> {
        names(list).iter().filter(|name| !own.contains(*name)).map(ToString::to_string).collect()
    };
    let first = common(&lists[0]);
    assert!(first.len() > 10 && first.contains("errors"), "{first:?}");
    for list in &lists[1..] {
        assert_eq!(common(list), first);
    }
    let read = each_between(FINISH, "returning j.id, j.queue, j.name,", ")");
    assert_eq!(read.len(), 2);
    // `complete_rows` reads the limit key and the batch before, and only of leases that have any.
    assert_eq!(read[1], read[0].trim_end().to_owned() + ", j.limit_key, j.batch_id ");
}
