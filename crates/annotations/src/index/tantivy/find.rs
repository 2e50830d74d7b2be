//! A query in tantivy's terms.

use tantivy::Term;
use tantivy::query::{
    BooleanQuery, EmptyQuery, Occur, PhraseQuery, Query as Asked, TermQuery, TermSetQuery,
};
use tantivy::schema::{Field, IndexRecordOption};

use super::fields::Fields;
use super::words;
use crate::index::document::fold_tag;
use crate::index::query::{MOST_WORDS, Query, Words};

pub fn question(fields: &Fields, query: &Query) -> Box<dyn Asked> {
    // Tombstones are documents too, and a query without any condition would find them.
    let mut all = vec![term(Term::from_field_bool(fields.deleted, false))];
    let mut equal = |field: Field, value: Option<&str>| {
        all.extend(value.map(|value| term(Term::from_field_text(field, value))));
    };
    equal(fields.url, query.url.as_deref());
    equal(fields.user, query.user.as_deref());
    equal(fields.kind, query.kind.as_deref());
    equal(fields.reference, query.reference.as_deref());
    let tag = query.tag.as_deref().map(fold_tag);
    equal(fields.tag, tag.as_deref());
    if let Some(groups) = &query.groups {
        let groups = groups.iter().map(|group| Term::from_field_text(fields.group, group));
        all.push(if groups.len() == 0 {
            Box::new(EmptyQuery)
        } else {
            Box::new(TermSetQuery::new(groups))
        });
    }
    if let Some(words) = query.words.as_deref().and_then(Words::parse) {
        full_text(fields.words, &words, &mut all);
    }
    Box::new(BooleanQuery::new(all.into_iter().map(|query| (Occur::Must, query)).collect()))
}

fn full_text(field: Field, words: &Words, all: &mut Vec<Box<dyn Asked>>) {
    if !words.plain.is_empty() {
        let found = words::split(&words.plain);
        if found.is_empty() {
            // The query has a part without any word, which matches no document.
            all.push(Box::new(EmptyQuery));
        }
        let found = found.iter().take(MOST_WORDS);
        all.extend(found.map(|word| term(Term::from_field_text(field, word))));
    }
    for phrase in &words.phrases {
        let found = words::split(phrase);
        let mut terms: Vec<Term> =
            found.iter().take(MOST_WORDS).map(|word| Term::from_field_text(field, word)).collect();
        all.push(match terms.len() {
            0 => Box::new(EmptyQuery),
            1 => term(terms.remove(0)),
            _ => Box::new(PhraseQuery::new(terms)),
        });
    }
}

fn term(term: Term) -> Box<dyn Asked> {
    Box::new(TermQuery::new(term, IndexRecordOption::Basic))
}
