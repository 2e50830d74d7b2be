-- Finding: every row that is returned here has passed the same check of who may see it.

-- Notes as readers see them. `counted_group` is the group after moves.
create or replace view annotations.shown as
    select a.id, a.kind, a.parent_id, a.root_id, a.quote, a.selectors, a.text, a.tags,
           a.created_at, a.updated_at, a.version, a.user_id, u.name as user_name, u.display_name,
           a.group_id, e.id as counted_group, e.name as group_name, a.document_id, d.url, d.title
      from annotations.annotation a
      join annotations.user_account u on u.id = a.user_id and u.deleted_at is null
      join annotations.user_group g on g.id = a.group_id
      join annotations.user_group e on e.id = coalesce(g.moved_to, g.id)
      join annotations.document d on d.id = a.document_id;

-- Returns true if `content` contains every word and matches every phrase. All of them are in lower case.
-- Words come first, because a phrase is a regular expression and costs more.
create or replace function annotations.matches_words(words text[], phrases text[], content text)
returns boolean
language plpgsql immutable set search_path = pg_temp as $$
declare
    one text;
begin
    foreach one in array words loop
        if position(one in content) = 0 then return false; end if;
    end loop;
    foreach one in array phrases loop
        if content !~ one then return false; end if;
    end loop;
    return true;
end $$;

-- Returns the notes that a user may see, newest first. A filter that is null does not apply.
--
-- `own_since`: only the viewer's own notes that changed after that moment. `among`: only these ids, as
-- an index found them, which has already matched the words. `most_bytes`: the page ends before the note
-- that would make it larger, but has at least one. `preview`: the most characters of a text.
--
-- If there may be more, a last row with `is_end` has the position after which the next page begins, and
-- no note.
create or replace function annotations.search_notes(
    viewer bigint, page text, author text, readers text, label text, sort text, conversation text,
    words text[], phrases text[], before_at timestamptz, before_id text, own_since timestamptz,
    among text[], most int, most_bytes bigint, preview int
)
returns table (
    is_end boolean, id text, kind text, parent_id text, root_id text, quote text, selectors jsonb,
    text text, is_cut boolean, tags text[], created_at timestamptz, updated_at timestamptz,
    version bigint, user_id bigint, user_name text, display_name text, counted_group text,
    group_name text, url text, title text
)
language plpgsql stable
set search_path = annotations, pg_temp set plan_cache_mode = force_custom_plan set jit = off as $$
#variable_conflict use_column
declare
    groups text[] := case when readers is null then annotations.readable(viewer)
                          else annotations.readable_as(viewer, readers) end;
    by_words boolean := words is not null;
    low_words text[] := array(select lower(w) from unnest(words) as w);
    low_phrases text[] := array(select lower(p) from unnest(phrases) as p);
    on_document bigint;
    by_user bigint;
    note record;
    content text;
    -- A search by words reads no more notes than this, however rare the words are.
    most_read int := case when by_words then 20000 else most + 1000 end;
    most_octets bigint := 16777216;
    seen int := 0;
    octets bigint := 0;
    ids text[] := '{}';
    bytes bigint := 0;
    -- Where the page ends, if there may be more.
    ends boolean := false;
    end_at timestamptz;
    end_id text;
begin
    if page is not null then
        select d.id into on_document from annotations.document d where d.url = page;
        if not found then return; end if;
    end if;
    if author is not null then
        select u.id into by_user from annotations.user_account u
         where u.name = author and u.deleted_at is null;
        if not found then return; end if;
    end if;
    if own_since is not null then
        if viewer is null or by_user <> viewer then return; end if;
        by_user := viewer;
    end if;
    for note in
        select a.id, a.updated_at, u.deleted_at is null as is_shown,
               -- Lengths are known without reading a long text.
               octet_length(a.quote) + octet_length(a.text) as octets,
               -- The selectors contain the quote, too; the rest is bounded by this or less.
               2000 + 2 * octet_length(a.quote) + octet_length(array_to_string(a.tags, ''))
               + least(octet_length(a.text), 4 * preview) as size
          from annotations.annotation a
          join annotations.user_account u on u.id = a.user_id
         where a.group_id = any (groups)
           and (among is null or a.id = any (among))
           and (on_document is null or a.document_id = on_document)
           and (by_user is null or a.user_id = by_user)
           and (label is null or annotations.folded(a.tags) @> array[lower(label)])
           and (sort is null or a.kind = sort)
           and (conversation is null or a.root_id = conversation or a.parent_id = conversation)
           and (own_since is null or a.updated_at > own_since)
           and (before_at is null or (a.updated_at, a.id) < (before_at, before_id))
         order by a.updated_at desc, a.id desc
         limit most_read
    loop
        if by_words and seen > 0 and octets + note.octets > most_octets then
            ends := true;
            exit;
        end if;
        seen := seen + 1;
        octets := octets + note.octets;
        if by_words and note.is_shown then
            -- Read here and not above: a sort would read the text of every candidate before the first
            -- note, and neither bound would hold.
            select lower(a.quote || ' ' || a.text || ' ' || array_to_string(a.tags, ' ')) into content
              from annotations.annotation a where a.id = note.id;
        end if;
        if note.is_shown and (not by_words or annotations.matches_words(low_words, low_phrases, content)) then
            if cardinality(ids) >= most
               or cardinality(ids) > 0 and bytes + note.size > most_bytes then
                ends := true;
                exit;
            end if;
            ids := ids || note.id;
            bytes := bytes + note.size;
        end if;
        end_at := note.updated_at;
        end_id := note.id;
    end loop;
    return query
        select false, s.id, s.kind, s.parent_id, s.root_id, s.quote, s.selectors,
               case when preview is null then s.text else left(s.text, preview) end,
               coalesce(octet_length(s.text) > preview
                        and char_length(left(s.text, preview + 1)) > preview, false),
               s.tags, s.created_at, s.updated_at, s.version, s.user_id, s.user_name, s.display_name,
               s.counted_group, s.group_name, s.url, s.title
          from annotations.shown s
         where s.id = any (ids)
         order by s.updated_at desc, s.id desc;
    if ends or seen >= most_read then
        is_end := true;
        id := end_id;
        updated_at := end_at;
        return next;
    end if;
end $$;

-- Returns how many notes of each kind a user may see on a page, counting up to 10,000 in all.
create or replace function annotations.counts(viewer bigint, url text)
returns table (annotations bigint, page_notes bigint, replies bigint)
language sql stable set search_path = annotations, pg_temp set jit = off as $$
    select count(*) filter (where c.kind = 'annotation'),
           count(*) filter (where c.kind = 'page_note'),
           count(*) filter (where c.kind = 'reply')
      from (select a.kind
              from annotations.annotation a
              join annotations.user_account u on u.id = a.user_id and u.deleted_at is null
             where a.document_id = (select d.id from annotations.document d where d.url = counts.url)
               -- A subquery, so that it runs once and not per row.
               and a.group_id = any ((select annotations.readable(viewer))::text[])
             limit 10000) c
$$;
