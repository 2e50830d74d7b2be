select is_end, id, kind, parent_id, root_id, quote, selectors, text, is_cut, tags, created_at, updated_at,
       version, user_id, user_name, display_name, counted_group, group_name, url, title
  from annotations.search_notes(
           $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)
