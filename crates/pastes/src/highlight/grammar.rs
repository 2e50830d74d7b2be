//! Our own grammars, for languages that the library lacks.
//!
//! Most of these languages differ in their words more than in their structure: comments, strings,
//! numbers, names. One template with their words filled in is short, and its rules look at most one
//! word ahead, so that its running time does not explode on hostile text.

use std::fmt::Write;

use syntect::parsing::SyntaxDefinition;

/// The words that fill the template.
struct Words {
    name: &'static str,
    /// Regular expression for the start of a line comment.
    comment: &'static str,
    block_comments: bool,
    strings: &'static [Text],
    keywords: &'static str,
    constants: &'static str,
}

/// A kind of string.
#[derive(Clone, Copy)]
enum Text {
    /// `"…"` on one line, with escapes.
    Double,
    /// `'…'` on one line, with escapes.
    Single,
    /// `` `…` `` over lines, with `${…}`.
    Back,
    /// `"""…"""` over lines.
    Triple,
}

use Text::{Back, Double, Single, Triple};

const TABLE: &[Words] = &[
    Words {
        name: "Dart",
        comment: "//",
        block_comments: true,
        strings: &[Triple, Double, Single],
        keywords: "abstract as assert async await base break case catch class const continue covariant \
            default deferred do dynamic else enum export extends extension external factory final \
            finally for get hide if implements import in interface is late library mixin new on \
            operator part required rethrow return sealed set show static super switch sync this \
            throw try typedef var void when while with yield",
        constants: "true false null",
    },
    Words {
        name: "Elixir",
        comment: "#",
        block_comments: false,
        strings: &[Triple, Double, Single],
        keywords: "after alias and case catch cond def defdelegate defexception defguard defimpl \
            defmacro defmodule defp defprotocol defstruct do else end fn for if import in not or \
            quote raise receive require rescue try unless unquote use when with",
        constants: "true false nil",
    },
    Words {
        name: "GraphQL",
        comment: "#",
        block_comments: false,
        strings: &[Triple, Double],
        keywords: "directive enum extend fragment implements input interface mutation on query \
            repeatable scalar schema subscription type union",
        constants: "true false null",
    },
    Words {
        name: "HCL",
        comment: "(?:#|//)",
        block_comments: true,
        strings: &[Double],
        keywords: "check data dynamic else endfor endif for if import in locals module moved output \
            provider removed resource terraform variable",
        constants: "true false null",
    },
    Words {
        name: "Julia",
        comment: "#",
        block_comments: false,
        strings: &[Triple, Double],
        keywords: "abstract baremodule begin break catch const continue do else elseif end export \
            finally for function global if import in isa let local macro module mutable primitive \
            quote return struct try type using where while",
        constants: "true false nothing missing",
    },
    Words {
        name: "Kotlin",
        comment: "//",
        block_comments: true,
        strings: &[Triple, Double, Single],
        keywords: "abstract actual annotation as break by catch class companion const constructor \
            continue crossinline data do else enum expect external final finally for fun get if \
            import in infix init inline inner interface internal is lateinit noinline object open \
            operator out override package private protected public reified return sealed set super \
            suspend tailrec this throw try typealias val value var vararg when where while",
        constants: "true false null",
    },
    Words {
        name: "Nix",
        comment: "#",
        block_comments: true,
        strings: &[Double],
        keywords: "assert else if import in inherit let or rec then with",
        constants: "true false null",
    },
    Words {
        name: "PowerShell",
        comment: "#",
        block_comments: false,
        strings: &[Double, Single],
        keywords: "begin break catch class continue data do dynamicparam else elseif end enum exit \
            filter finally for foreach from function hidden if in param process return static \
            switch throw trap try until using while",
        constants: "",
    },
    Words {
        name: "Protocol Buffers",
        comment: "//",
        block_comments: true,
        strings: &[Double, Single],
        keywords: "bool bytes double edition enum extend extensions fixed32 fixed64 float group import \
            int32 int64 map message oneof option optional package public repeated required \
            reserved returns rpc service sfixed32 sfixed64 sint32 sint64 stream string syntax to \
            uint32 uint64 weak",
        constants: "true false",
    },
    Words {
        name: "Swift",
        comment: "//",
        block_comments: true,
        strings: &[Triple, Double],
        keywords: "actor any as associatedtype async await break case catch class continue default \
            defer deinit do dynamic else enum extension fallthrough fileprivate final for func \
            guard if import in indirect init inout internal is isolated lazy let mutating \
            nonisolated open operator override precedencegroup private protocol public repeat \
            required rethrows return self Self some static struct subscript super switch throw \
            throws try typealias unowned var weak where while",
        constants: "true false nil",
    },
    Words {
        name: "TypeScript",
        comment: "//",
        block_comments: true,
        strings: &[Back, Double, Single],
        keywords: "abstract any as asserts async await bigint boolean break case catch class const \
            continue debugger declare default delete do else enum export extends finally for from \
            function get if implements import in infer instanceof interface is keyof let module \
            namespace never new number object of override private protected public readonly \
            require return satisfies set static string super switch symbol this throw try type \
            typeof unique unknown using var void while with yield",
        constants: "true false null undefined NaN Infinity",
    },
    Words {
        name: "Zig",
        comment: "//",
        block_comments: false,
        strings: &[Double, Single],
        keywords: "addrspace align allowzero and anyframe anytype asm async await break callconv catch \
            comptime const continue defer else enum errdefer error export extern fn for if inline \
            noalias noinline nosuspend opaque or orelse packed pub resume return struct suspend \
            switch test threadlocal try union unreachable usingnamespace var volatile while",
        constants: "true false null undefined",
    },
];

/// Grammars that do not fit the template.
const FILES: &[&str] = &[
    include_str!("../../assets/grammars/dockerfile.sublime-syntax"),
    include_str!("../../assets/grammars/ini.sublime-syntax"),
    include_str!("../../assets/grammars/toml.sublime-syntax"),
];

/// Returns all grammars. Leaves out one that cannot be parsed; a test would fail.
pub fn all() -> impl Iterator<Item = SyntaxDefinition> {
    let filled = TABLE.iter().map(fill);
    filled
        .chain(FILES.iter().map(|file| (*file).to_owned()))
        .filter_map(|text| SyntaxDefinition::load_from_str(&text, true, None).ok())
}

fn fill(words: &Words) -> String {
    let mut yaml =
        format!("%YAML 1.2\n---\nname: {}\nscope: source.own\ncontexts:\n  main:\n", words.name);
    let mut rule = |regex: &str, then: &str| {
        // Writing to a string cannot fail.
        let _ = write!(yaml, "    - match: '{}'\n      {then}\n", regex.replace('\'', "''"));
    };
    rule(&format!("{}.*$", words.comment), "scope: comment.line");
    if words.block_comments {
        rule("/\\*", "push: [{meta_scope: comment.block}, {match: '\\*/', pop: true}]");
    }
    for text in words.strings {
        let (open, close, inside) = match text {
            Double => ("\"", "\"|$\\n?", ""),
            Single => ("'", "''|$\\n?", ""),
            Back => ("`", "`", ", {match: '\\$\\{[^}\\n]*\\}', scope: constant.other.placeholder}"),
            Triple => ("\"\"\"", "\"\"\"", ""),
        };
        rule(
            open,
            &format!(
                "push: [{{meta_scope: string.quoted}}, \
                 {{match: '\\\\.', scope: constant.character.escape}}{inside}, \
                 {{match: '{close}', pop: true}}]"
            ),
        );
    }
    let any = |list: &str| list.split_whitespace().collect::<Vec<_>>().join("|");
    rule(&format!("\\b(?:{})\\b", any(words.keywords)), "scope: keyword.control");
    if !words.constants.is_empty() {
        rule(&format!("\\b(?:{})\\b", any(words.constants)), "scope: constant.language");
    }
    rule("[@#]\\w+", "scope: variable.annotation");
    rule("\\$\\w+", "scope: variable.parameter");
    rule("\\b[0-9][\\w.]*", "scope: constant.numeric");
    rule("\\b\\w+(?= ?\\()", "scope: variable.function");
    rule("\\b[A-Z]\\w*", "scope: support.type");
    // Match the whole word, so that its rest is not tried again.
    rule("\\w+", "scope: source.own");
    rule("[-+*/%=<>!&|^~?]+", "scope: keyword.operator");
    yaml
}
