-- Finds the replies to one note. Without this index a search for a conversation reads every note that
-- its reader may see.
--
-- Blocks writes to both tables while the indexes are built; readers do not wait. An older
-- program works with it as before.
create index annotation_of_parent on annotations.annotation (parent_id) where parent_id is not null;

-- Finds the groups of one owner, when the owner's account is deleted.
create index group_of_owner on annotations.user_group (owner_id) where owner_id is not null;
