-- Finds the live pastes of one content: a ban ends all of them, and without this index it reads every
-- paste.
--
-- Blocks writes to pastes.pastes while the index is built; readers do not wait. An older program works with
-- it as before.
create index idx_copies on pastes.pastes (content_id) where deletion_status = 'NOT_EXPIRED';
