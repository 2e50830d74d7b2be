-- The moves that a paste may make. The conditions are in the `when` of the triggers, so that a legal
-- move costs two comparisons and no function call.
create or replace function pastes.refuse_move()
returns trigger language plpgsql as $$
begin
    raise exception 'paste % cannot go from % to %', old.short_code,
        case tg_argv[0] when 'status' then old.status else old.deletion_status end,
        case tg_argv[0] when 'status' then new.status else new.deletion_status end
        using errcode = 'PB001', hint = 'docs/states.md draws the moves that a paste can make.';
end $$;

create or replace trigger upload_moves before update of status on pastes.pastes
    for each row when (
        old.status is distinct from new.status
        and not (old.status = 'IN_PROGRESS' and new.status in ('PROCESSED', 'FAILED')))
    execute function pastes.refuse_move('status');

-- Only the watchdog moves a paste back. The engine sets `leasehold.watchdog` to the sweep whose
-- watchdog runs.
create or replace trigger deletion_moves before update of deletion_status on pastes.pastes
    for each row when (
        old.deletion_status is distinct from new.deletion_status
        and not (old.deletion_status = 'NOT_EXPIRED' and new.deletion_status = 'DELETION_IN_PROGRESS')
        and not (old.deletion_status = 'DELETION_IN_PROGRESS' and new.deletion_status = 'DELETED')
        and not (old.deletion_status = 'DELETION_IN_PROGRESS' and new.deletion_status = 'NOT_EXPIRED'
                 and current_setting('leasehold.watchdog', true) = 'pastes.expiry'))
    execute function pastes.refuse_move('deletion_status');

create or replace function pastes.refuse_content_move()
returns trigger language plpgsql as $$
begin
    raise exception 'content % cannot go from % to %', old.content_id, old.state, new.state
        using errcode = 'PB001', hint = 'docs/states.md draws the moves that content can make.';
end $$;

create or replace trigger content_moves before update of state on pastes.contents
    for each row when (
        old.state is distinct from new.state
        and not (old.state = 'STAGED' and new.state in ('LIVE', 'DOOMED'))
        and not (old.state = 'LIVE' and new.state = 'DOOMED')
        and not (old.state = 'DOOMED' and new.state = 'GONE'))
    execute function pastes.refuse_content_move();
