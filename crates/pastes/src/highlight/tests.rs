#![allow(clippy::string_slice, reason = "a wrong slice ends the test, as it should")]

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// Returns the text content as a browser sees it: tags dropped, references resolved. Panics on markup
/// that is not ours, so every test that uses it also tests for foreign tags.
fn text_content(html: &str) -> String {
    let mut text = String::new();
    let mut rest = html;
    while let Some(at) = rest.find(['<', '&']) {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.find(if rest.starts_with('<') { '>' } else { ';' }).unwrap();
        let (piece, after) = rest.split_at(end + 1);
        match piece {
            "&amp;" => text.push('&'),
            "&lt;" => text.push('<'),
            "&gt;" => text.push('>'),
            _ if piece.starts_with("&#x") => {
                let code = u32::from_str_radix(&piece[3..end], 16).unwrap();
                text.push(char::from_u32(code).unwrap());
            }
            "&#13;" => text.push('\r'),
            tag => assert!(is_ours(tag), "foreign markup {tag:?} in {html:?}"),
        }
        rest = after;
    }
    text.push_str(rest);
    assert!(!html.contains('\r') && !html.contains('\0'), "a parser would change these");
    text
}

fn is_ours(tag: &str) -> bool {
    let number = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    if matches!(tag, "</span>" | "</a>" | "<span class=\"l\">") {
        return true;
    }
    if let Some(class) = tag.strip_prefix("<span class=\"t-").and_then(|t| t.strip_suffix("\">")) {
        return class.len() == 3 && class.bytes().all(|b| b.is_ascii_lowercase());
    }
    if let Some(n) =
        tag.strip_prefix("<span class=\"l\" id=\"L").and_then(|t| t.strip_suffix("\">"))
    {
        return number(n);
    }
    if let Some(n) =
        tag.strip_prefix("<a href=\"#L").and_then(|t| t.strip_suffix("\" tabindex=\"-1\">"))
    {
        return number(n);
    }
    tag.strip_prefix("<span class=\"bidi\" data-u=\"U+")
        .and_then(|t| t.strip_suffix("\">"))
        .is_some_and(|code| code.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Limits with an hour of time, so that a slow machine changes nothing.
fn no_time_limit() -> Limits {
    Limits { budget: Duration::from_secs(3600), ..Limits::default() }
}

fn every_language() -> impl Iterator<Item = &'static Language> {
    languages().iter().chain([language::plain()])
}

/// Texts that try to become markup.
const ATTACKS: &[&str] = &[
    "<script>alert(1)</script>",
    "</code></pre><script>alert(1)</script>",
    "</span></textarea></title></style><img src=x onerror=alert(1)>",
    "\"><svg/onload=alert(1)>",
    "' onmouseover='alert(1)",
    "<!--<script>--><![CDATA[<script>]]>",
    "javascript:alert(1)",
    "&lt;script&gt;&#60;script&#62;&amp;lt;",
    "<a href=\"data:text/html,<script>alert(1)</script>\">",
    "// <script>\n/* </script> */ \"<b>\" '<i>' `<u>${\"<s>\"}` # <x> -- <y> {{ <z> }}",
    "<?php echo '<script>'; ?><% \"<script>\" %>",
    "\u{202e}<script>\u{2066}",
    "\0<scr\0ipt>",
    "a\r\nb\rc\n\r",
];

#[test]
fn h3_no_text_becomes_markup_in_any_language() {
    for language in every_language() {
        for attack in ATTACKS {
            let shown = highlight_within(attack, Some(language.id), &no_time_limit());
            assert_eq!(
                text_content(&shown.html),
                attack.replace('\0', "\u{fffd}"),
                "{}",
                language.id
            );
            let whole = highlight_whole(attack, Some(language.id), Colours::Wanted).unwrap();
            assert_eq!(
                text_content(&whole.html),
                attack.replace('\0', "\u{fffd}"),
                "{}",
                language.id
            );
        }
    }
}

#[test]
fn h3_unknown_language_is_plain_text_and_never_markup() {
    for attack in ATTACKS {
        let shown = highlight("x", Some(attack));
        assert_eq!(shown.language.id, "text");
        assert_eq!(text_content(&shown.html), "x");
    }
}

fn any_text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "\\PC{0,20}",
        2 => "[ -~\\n\\t]{0,40}",
        2 => "[<>&\"'`{}()\\[\\]/*#$%\\\\;:=.\\n\\r -]{0,30}",
        1 => any::<String>(),
        1 => prop::sample::select(ATTACKS).prop_map(str::to_owned),
        1 => prop::sample::select(vec![
            "fn main() {\n", "/*", "*/", "\"\"\"", "<!--", "<<EOF\n", "<script>", "<?php ", "```rust\n",
            "begin\n", "class A:\n", "#!/bin/sh\n", "r#\"", "\\begin{x}", "@@ -1 +1 @@\n",
        ]).prop_map(str::to_owned),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn h3_text_content_of_the_html_is_the_text(text in any_text(), n in 0..200_usize) {
        let all: Vec<_> = every_language().collect();
        let language = all[n % all.len()];
        let shown = highlight_within(&text, Some(language.id), &no_time_limit());
        prop_assert_eq!(text_content(&shown.html), text.replace('\0', "\u{fffd}"));
        prop_assert_eq!(shown.lines, text.split_inclusive('\n').count());
        prop_assert_eq!(shown.html.matches("class=\"l\"").count(), shown.lines);
        prop_assert!(!shown.truncated);
        let again = highlight_within(&text, Some(language.id), &no_time_limit());
        prop_assert_eq!(shown, again, "the same text looks the same");
    }

    #[test]
    fn truncated_html_shows_the_beginning_of_the_text(text in any_text(), room in 0..200_usize, lines in 1..5_usize) {
        let limits = Limits { shown_bytes: room, shown_lines: lines, ..no_time_limit() };
        let shown = highlight_within(&text, Some("rust"), &limits);
        let seen = text_content(&shown.html);
        let text = text.replace('\0', "\u{fffd}");
        prop_assert!(text.starts_with(&seen));
        prop_assert_eq!(shown.truncated, seen != text);
        prop_assert!(shown.html.matches("class=\"l\"").count() <= lines);
    }

    #[test]
    fn render_accepts_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        match render(&bytes, None, Colours::Wanted) {
            Content::Text(text) => prop_assert_eq!(text_content(&text.html).into_bytes(), bytes),
            Content::Binary => prop_assert!(bytes.contains(&0) || std::str::from_utf8(&bytes).is_err()),
        }
    }
}

#[test]
fn bytes_that_are_not_text_are_binary() {
    for bytes in [&b"\x89PNG\r\n"[..], b"caf\xe9", b"MZ\0\0", b"\xff\xfea\0"] {
        assert_eq!(render(bytes, None, Colours::Wanted), Content::Binary, "{bytes:?}");
    }
    assert!(matches!(render("caffè ☕".as_bytes(), None, Colours::Wanted), Content::Text(_)));
    assert!(matches!(render(b"", None, Colours::Wanted), Content::Text(_)));
}

#[test]
fn tokens_get_classes_of_our_stylesheet() {
    let shown = highlight_within("let x = \"a\\n\"; // why\n", Some("rust"), &no_time_limit());
    for (class, words) in [("kwd", "let"), ("str", "\"a"), ("esc", "\\n"), ("com", "// why")] {
        let span = format!("<span class=\"t-{class}\">{words}</span>");
        assert!(shown.html.contains(&span), "{span} is not in {}", shown.html);
    }
    assert_eq!(shown.plain, None);
}

#[test]
fn own_grammars_highlight_their_languages() {
    for (language, text, class, words) in [
        ("toml", "[package]\nname = \"x\\n\" # why\n", "hed", "[package]"),
        ("toml", "name = \"x\"\n", "tag", "name"),
        ("toml", "at = 2026-11-15T00:00:00Z\n", "num", "2026-11-15T00:00:00Z"),
        ("ini", "; why\n[a b]\nkey = yes ; no\n", "num", "yes"),
        ("ini", "export KEY=\"a ${HOME}\"\n", "tag", "KEY"),
        ("dockerfile", "FROM debian:12 AS build\nRUN make && echo \"$X\"\n", "typ", "build"),
        ("dockerfile", "RUN --mount=x a\n", "kwd", "RUN"),
        ("typescript", "const a: Map<string> = `x ${b} y`;\n", "esc", "${b}"),
        ("typescript", "function f(a) { return 'it\\'s' } // why\n", "fun", "f"),
        ("kotlin", "val s = \"\"\"a\nb\"\"\" + 'c'\n", "str", "b\"\"\""),
        ("swift", "func go() -> Int? { nil }\n", "typ", "Int"),
        ("zig", "const x = @import(\"std\");\n", "pre", "@import"),
        ("powershell", "$x = 'a' # why\n", "com", "# why"),
        ("protobuf", "/* a\n b */ message M {}\n", "com", " b */"),
        ("elixir", "def f(x), do: :ok\n", "kwd", "def"),
        ("hcl", "resource \"a\" \"b\" {} // why\n", "kwd", "resource"),
    ] {
        let shown = highlight_within(text, Some(language), &no_time_limit());
        let span = format!("<span class=\"t-{class}\">{words}</span>");
        assert!(shown.html.contains(&span), "{language}: {span} is not in {}", shown.html);
        assert_eq!((text_content(&shown.html).as_str(), shown.plain), (text, None));
    }
}

#[test]
fn highlighting_continues_over_line_ends() {
    let shown = highlight_within("/* one\ntwo */ let\n", Some("rust"), &no_time_limit());
    assert!(shown.html.contains("<span class=\"t-com\">two */</span>"), "{}", shown.html);
}

#[test]
fn every_class_has_a_style() {
    let css = crate::assets::STYLES.as_str();
    for class in token::classes() {
        assert!(css.contains(&format!(".{class} {{")), "{class} has no style");
    }
}

#[test]
fn every_language_has_a_grammar_and_unique_names() {
    let mut names = BTreeSet::new();
    for language in every_language() {
        assert!(language.id == "text" || language.syntax().is_some(), "{}", language.id);
        for name in language.aliases.iter().chain([&language.id]) {
            assert!(names.insert(name.to_lowercase()), "{name} means two languages");
            assert_eq!(find(name), Some(language));
            assert_eq!(find(&name.to_uppercase()), Some(language));
        }
        assert!(language.id.len() <= 40, "the column has 40 characters");
        assert!(language.id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()));
    }
    let labels: Vec<_> = languages().iter().map(|l| l.label.to_lowercase()).collect();
    assert!(labels.is_sorted(), "{labels:?}");
    assert_eq!(find("no such language"), None);
}

#[test]
fn detect_finds_languages_by_file_name_and_first_line() {
    for (file, id) in [
        ("main.rs", "rust"),
        ("A.PY", "python"),
        ("/tmp/x/Makefile", "makefile"),
        ("c:\\a.CS", "csharp"),
        (".bashrc", "shell"),
        ("x.tar.js", "javascript"),
        ("notes.txt", "text"),
        ("Dockerfile", "dockerfile"),
        ("Cargo.toml", "toml"),
        ("a.tsx", "typescript"),
    ] {
        assert_eq!(detect(Some(file), "").map(|l| l.id), Some(id), "{file}");
    }
    for (text, id) in [
        ("#!/bin/sh\n", "shell"),
        ("#!/usr/bin/env python3.12\n", "python"),
        ("#!/usr/bin/env -S PATH=x node --harmony\n", "javascript"),
        ("<?php\n", "php"),
        ("<!DOCTYPE html>\n", "html"),
        ("\u{feff}<?xml version=\"1.0\"?>\n", "xml"),
        ("diff --git a/x b/x\n", "diff"),
    ] {
        assert_eq!(detect(None, text).map(|l| l.id), Some(id), "{text}");
    }
    for (file, text) in [
        (None, ""),
        (Some("README"), "hello"),
        (Some("x.zzz"), "#!/bin/zzz"),
        (Some(".."), "\n#!/bin/sh"),
    ] {
        assert_eq!(detect(file, text), None, "{file:?} {text:?}");
    }
    assert_eq!(
        detect(Some("x.rs"), "#!/bin/sh\n").map(|l| l.id),
        Some("rust"),
        "the name knows best"
    );
}

#[test]
fn text_over_a_limit_is_not_highlighted() {
    let code = "let x = 1;\n";
    let plain = |text: &str, limits: Limits| {
        let shown = highlight_within(text, Some("rust"), &limits);
        assert_eq!(text_content(&shown.html), text);
        (shown.plain, shown.html.contains("t-kwd"))
    };
    assert_eq!(plain(code, no_time_limit()), (None, true));
    let small = Limits { coloured_bytes: code.len(), ..no_time_limit() };
    assert_eq!(plain(code, small.clone()), (None, true));
    assert_eq!(plain(&code.repeat(2), small), (Some(Plain::TooLarge), false));
    let narrow = Limits { coloured_line: 20, ..no_time_limit() };
    let long = format!("{}\n{code}", "é".repeat(21));
    assert_eq!(plain(&long, narrow.clone()), (Some(Plain::LongLines), true), "only that line");
    assert_eq!(plain("let x = \"a long line\";", narrow.clone()), (Some(Plain::LongLines), false));
    assert_eq!(plain(&format!("{}\n{code}", "é".repeat(20)), narrow), (None, true));
    let hasty = Limits { budget: Duration::ZERO, ..no_time_limit() };
    assert_eq!(plain(code, hasty), (Some(Plain::TooSlow), false));
    let sparing = Limits { coloured_html: 100, ..no_time_limit() };
    assert_eq!(plain(&code.repeat(5), sparing), (Some(Plain::TooSlow), true));
}

#[test]
fn text_of_empty_lines_is_truncated_or_one_block() {
    let text = "\n".repeat(100_000);
    let shown = highlight(&text, None);
    assert!(shown.truncated && shown.lines == 100_000);
    assert_eq!(shown.html.matches("class=\"l\"").count(), 20_000);
    let whole = highlight_whole(&text, None, Colours::Wanted).unwrap();
    assert_eq!(text_content(&whole.html), text);
    assert!(!whole.truncated);
}

#[test]
fn h3_characters_that_reorder_text_are_marked() {
    let shown = highlight("if admin \u{202e}{ \u{2066}", Some("c"));
    assert!(shown.reorders);
    assert!(shown.html.contains("data-u=\"U+202E\""), "{}", shown.html);
    assert!(!highlight("مرحبا שלום", None).reorders, "languages that run the other way are fine");
}

#[test]
fn e40_html_of_any_text_is_bounded() {
    let bounded = |text: &str, language| {
        let shown = highlight_within(text, Some(language), &no_time_limit());
        assert!(shown.html.len() < (4 << 20) + 200_000, "{}", shown.html.len());
        assert!(text.replace('\0', "\u{fffd}").starts_with(&text_content(&shown.html)));
        shown
    };
    for text in ["\u{202e}", "\u{202e}\n", "<", "&\n", "\r", "\n"] {
        let text = text.repeat((1 << 20) / text.len());
        assert!(bounded(&text, "text").truncated, "{:?}", text.chars().next());
    }
    // A text that is highlighted, and one that fits.
    let marked = "\u{202e}\n".repeat(65_000);
    assert!(bounded(&marked, "rust").truncated);
    assert!(!bounded(&"x".repeat(1 << 20), "text").truncated);
    let fits = "\u{202e}".repeat(80_000);
    assert!(!bounded(&fits, "text").truncated);
    assert!(highlight_whole(&fits, None, Colours::Wanted).is_some());
    for large in ["\u{202e}".repeat(90_000), "\u{202e}\n".repeat(90_000)] {
        assert!(highlight_whole(&large, None, Colours::Wanted).is_none());
    }
}
