select a.id::text as key, a.version,
       jsonb_build_object(
           'url', d.url, 'user', u.name, 'group', coalesce(g.moved_to, g.id), 'kind', a.kind,
           'quote', a.quote, 'text', a.text, 'tags', to_jsonb(a.tags),
           'parent', a.parent_id, 'root', a.root_id,
           'created', a.created_at, 'updated', a.updated_at) as document
  from annotations.annotation a
  join annotations.user_account u on u.id = a.user_id
  join annotations.user_group g on g.id = a.group_id
  join annotations.document d on d.id = a.document_id
 where a.id = any($1)
