-- Finding: every row that leaves here passes the same test of who may see it.

-- Notes with what people see of them. The group is the one that counts now.
create or replace view annotations.shown as
    select a.id, a.kind, a.parent_id, a.root_id, a.quote, a.selectors, a.text, a.tags,
           a.created_at, a.updated_at, a.version, a.user_id, u.name as user_name, u.display_name,
           a.group_id, e.id as counted_group, e.name as group_name, a.document_id, d.url, d.title
      from annotations.annotation a
      join annotations.user_account u on u.id = a.user_id and u.deleted_at is null
      join annotations.user_group g on g.id = a.group_id
      join annotations.user_group e on e.id = coalesce(g.moved_to, g.id)
      join annotations.document d on d.id = a.document_id;

-- True when every word stands in the note.
create or replace function annotations.has_words(words text[], quote text, body text, tags text[])
returns boolean
language sql immutable set search_path = pg_temp as $$
    select coalesce(bool_and(position(lower(w) in
        lower(quote || ' ' || body || ' ' || array_to_string(tags, ' '))) > 0), true)
      from unnest(words) as w
$$;

-- The notes that a person may see, newest first. A filter that is null does not count.
--
-- `own_since`: only one's own that changed after that moment. `among`: only these, as an index found
-- them; then the words were looked for already.
create or replace function annotations.find(
    viewer bigint, of_url text, of_user text, of_group text, of_tag text, of_kind text,
    of_parent text, words text[], before_at timestamptz, before_id text, own_since timestamptz,
    among text[], most int
)
returns setof annotations.shown
language plpgsql stable
set search_path = annotations, pg_temp set plan_cache_mode = force_custom_plan set jit = off as $$
declare
    groups text[] := case when of_group is null then annotations.readable(viewer)
                          else annotations.readable_as(viewer, of_group) end;
    on_document bigint;
    by_user bigint;
begin
    if of_url is not null then
        select d.id into on_document from annotations.document d where d.url = of_url;
        if not found then return; end if;
    end if;
    if of_user is not null then
        select u.id into by_user from annotations.user_account u
         where u.name = of_user and u.deleted_at is null;
        if not found then return; end if;
    end if;
    if own_since is not null then
        if viewer is null or by_user <> viewer then return; end if;
        by_user := viewer;
    end if;
    return query
    with candidate as materialized (
        -- However rare the words are, no more than this is read for them.
        select a.id, a.updated_at, a.quote, a.text, a.tags
          from annotations.annotation a
         where a.group_id = any (groups)
           and (among is null or a.id = any (among))
           and (on_document is null or a.document_id = on_document)
           and (by_user is null or a.user_id = by_user)
           and (of_tag is null or annotations.folded(a.tags) @> array[lower(of_tag)])
           and (of_kind is null or a.kind = of_kind)
           and (of_parent is null or a.root_id = of_parent or a.parent_id = of_parent)
           and (own_since is null or a.updated_at > own_since)
           and (before_at is null or (a.updated_at, a.id) < (before_at, before_id))
         order by a.updated_at desc, a.id desc
         limit case when words is null then most + 1000 else 20000 end
    )
    select s.*
      from candidate c join annotations.shown s on s.id = c.id
     where words is null or annotations.has_words(words, c.quote, c.text, c.tags)
     order by c.updated_at desc, c.id desc
     limit most;
end $$;

-- How many notes a person may see on a page, of each kind; beyond ten thousand it is ten thousand.
create or replace function annotations.counts(viewer bigint, of_url text)
returns table (annotations bigint, page_notes bigint, replies bigint)
language sql stable set search_path = annotations, pg_temp set jit = off as $$
    select count(*) filter (where c.kind = 'annotation'),
           count(*) filter (where c.kind = 'page_note'),
           count(*) filter (where c.kind = 'reply')
      from (select a.kind
              from annotations.annotation a
              join annotations.user_account u on u.id = a.user_id and u.deleted_at is null
             where a.document_id = (select d.id from annotations.document d where d.url = of_url)
               -- Asked once, and not for each row.
               and a.group_id = any ((select annotations.readable(viewer))::text[])
             limit 10000) c
$$;
