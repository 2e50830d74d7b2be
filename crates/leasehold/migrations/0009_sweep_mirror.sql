-- Who declared a sweep, what its watchdog counted, and when a mirror took another set of its store.
--
-- Why: the sample read the swept table with the rights of the schema's owner, so that any role that may
-- declare a sweep could have the owner run its code. The worker now counts claimed rows with its own
-- rights, as it counts due ones, and the sample reads what the worker recorded here. A check of a
-- mirror must not publish a comparison with a set that the store has lost since.
-- Locks: `sweep` and `mirror` for a moment; the new columns are null and no row is written.
-- An old binary sees: no `measure_sweep` any more. Its samples fail, and a new one takes them; its
-- checks of mirrors are interrupted. Everything else is as it was.

alter table leasehold.sweep
    -- The role that declared it. Null: declared by an earlier release; the next declaration fills it.
    add column declared_by text,
    -- What a watchdog counted last, each up to ten thousand: claimed rows, those of them that have no
    -- failure, and those that should have been reset.
    add column claimed_now bigint,
    add column unfailed_now bigint,
    add column stuck_now bigint,
    add column oldest_claim_at timestamptz,
    add column claims_counted_at timestamptz;

alter table leasehold.mirror
    -- When the store was last found to search another set than the recorded one.
    add column adopted_at timestamptz;

drop function if exists leasehold.measure_sweep(text, timestamptz, boolean);
drop function if exists leasehold.measured_sweeps();
drop function if exists leasehold.quoted_table(text);
drop function if exists leasehold.mirror_pending(text, text[]);
drop function if exists leasehold.mirror_equal(text, text, text, text[]);
drop function if exists leasehold.mirror_seen(text, text[]);
