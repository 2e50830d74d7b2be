//! Maps a grammar's scopes to the few classes that our stylesheet knows.
//!
//! Grammars name thousands of scopes. A closed list of classes keeps the HTML small, and lets a test
//! check the contrast of every colour.

use std::sync::LazyLock;

use syntect::parsing::Scope;

/// The class of a piece of text; `None` is plain.
pub type Class = Option<&'static str>;

/// The first rule that matches the innermost scope wins; otherwise the scope around it is tried. A
/// `None` ends the search: code inside a string is code again.
const RULES: &[(&str, Class)] = &[
    ("comment", Some("t-com")),
    ("constant.character.escape", Some("t-esc")),
    ("constant.character.entity", Some("t-esc")),
    ("constant.other.placeholder", Some("t-esc")),
    ("constant.other.color", Some("t-num")),
    ("constant", Some("t-num")),
    ("string.regexp", Some("t-esc")),
    ("string", Some("t-str")),
    ("keyword.operator.word", Some("t-kwd")),
    ("keyword.operator.logical.python", Some("t-kwd")),
    ("keyword.operator", Some("t-opr")),
    ("keyword", Some("t-kwd")),
    ("storage", Some("t-kwd")),
    ("variable.language", Some("t-kwd")),
    ("variable.function", Some("t-fun")),
    ("variable.annotation", Some("t-pre")),
    ("variable.parameter", Some("t-var")),
    ("entity.name.function", Some("t-fun")),
    ("entity.name.tag", Some("t-tag")),
    ("entity.name.section", Some("t-hed")),
    ("entity.name", Some("t-typ")),
    ("entity.other.attribute-name", Some("t-att")),
    ("entity.other.inherited-class", Some("t-typ")),
    ("support.function", Some("t-fun")),
    ("support.macro", Some("t-fun")),
    ("support.type.property-name", Some("t-att")),
    ("support.constant", Some("t-num")),
    ("support", Some("t-typ")),
    ("meta.annotation", Some("t-pre")),
    ("meta.diff.header", Some("t-hed")),
    ("meta.diff.range", Some("t-pre")),
    ("markup.heading", Some("t-hed")),
    ("markup.bold", Some("t-bld")),
    ("markup.italic", Some("t-ita")),
    ("markup.inserted", Some("t-add")),
    ("markup.deleted", Some("t-del")),
    ("markup.underline.link", Some("t-fun")),
    ("markup.raw", Some("t-str")),
    ("markup.quote", Some("t-com")),
    ("meta.interpolation", None),
    ("meta.template.expression", None),
    ("source", None),
];

static PARSED: LazyLock<Vec<(Scope, Class)>> = LazyLock::new(|| {
    RULES.iter().filter_map(|(name, class)| Some((Scope::new(name).ok()?, *class))).collect()
});

/// Returns the class for text inside these scopes, outermost first.
pub fn class(scopes: &[Scope]) -> Class {
    scopes
        .iter()
        .rev()
        .find_map(|scope| PARSED.iter().find(|(rule, _)| rule.is_prefix_of(*scope)))
        .and_then(|(_, class)| *class)
}

/// Returns every class that [`class`] can return, for the test that looks for their colours.
#[cfg(test)]
pub fn classes() -> std::collections::BTreeSet<&'static str> {
    assert_eq!(PARSED.len(), RULES.len(), "every rule names a scope");
    RULES.iter().filter_map(|(_, class)| *class).collect()
}
