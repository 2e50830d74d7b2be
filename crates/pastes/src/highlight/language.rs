//! The languages that users can choose, and the detection of a paste's language.

use std::sync::LazyLock;

use syntect::parsing::{SyntaxReference, SyntaxSet, SyntaxSetBuilder};

use super::grammar;

/// A language that pastes can be shown in.
#[derive(Debug, PartialEq, Eq)]
pub struct Language {
    /// The id in the database and in URLs: `rust`.
    pub id: &'static str,
    /// The name that users see: `Rust`.
    pub label: &'static str,
    /// Other accepted names, among them file extensions.
    pub aliases: &'static [&'static str],
    /// The name of its grammar. `None`: no highlighting.
    grammar: Option<&'static str>,
}

impl Language {
    /// Returns its grammar and the set that the grammar belongs to.
    pub(super) fn syntax(&self) -> Option<(&'static SyntaxReference, &'static SyntaxSet)> {
        let name = self.grammar?;
        let among = |set: &'static SyntaxSet| Some((set.find_syntax_by_name(name)?, set));
        among(&OWN).or_else(|| among(&SYNTAXES))
    }
}

// Two sets: adding to the library's set would load all of its grammars, most of which are never used.
static SYNTAXES: LazyLock<SyntaxSet> = LazyLock::new(SyntaxSet::load_defaults_newlines);
static OWN: LazyLock<SyntaxSet> = LazyLock::new(|| {
    let mut builder = SyntaxSetBuilder::new();
    grammar::all().for_each(|syntax| builder.add(syntax));
    builder.build()
});

static PLAIN: Language =
    Language { id: "text", label: "Plain text", aliases: &["txt", "plain", "log"], grammar: None };

/// Returns the language without any rules.
pub fn plain() -> &'static Language {
    &PLAIN
}

macro_rules! languages {
    ($($id:literal $label:literal $grammar:literal [$($alias:literal)*])*) => {
        static LANGUAGES: &[Language] = &[$(Language {
            id: $id,
            label: $label,
            aliases: &[$($alias),*],
            grammar: Some($grammar),
        }),*];
    };
}

// Sorted by label: this is the order of the menu.
languages! {
    "batch" "Batch" "Batch File" ["bat" "cmd"]
    "c" "C" "C" ["h"]
    "csharp" "C#" "C#" ["cs" "c#" "csx"]
    "cpp" "C++" "C++" ["c++" "cc" "cxx" "hpp" "hh" "hxx"]
    "clojure" "Clojure" "Clojure" ["clj" "cljs" "edn"]
    "css" "CSS" "CSS" []
    "d" "D" "D" ["di"]
    "dart" "Dart" "Dart" []
    "diff" "Diff" "Diff" ["patch"]
    "dockerfile" "Dockerfile" "Dockerfile" ["docker" "containerfile"]
    "elixir" "Elixir" "Elixir" ["ex" "exs"]
    "erlang" "Erlang" "Erlang" ["erl" "hrl"]
    "go" "Go" "Go" ["golang"]
    "graphql" "GraphQL" "GraphQL" ["gql"]
    "dot" "Graphviz" "Graphviz (DOT)" ["gv" "graphviz"]
    "groovy" "Groovy" "Groovy" ["gradle"]
    "haskell" "Haskell" "Haskell" ["hs"]
    "hcl" "HCL (Terraform)" "HCL" ["tf" "terraform" "tfvars"]
    "html" "HTML" "HTML" ["htm" "xhtml"]
    "ini" "INI" "INI" ["cfg" "conf" "env" "editorconfig" "service" "desktop"]
    "java" "Java" "Java" []
    "properties" "Java properties" "Java Properties" []
    "javascript" "JavaScript" "JavaScript" ["js" "mjs" "cjs" "jsx" "node"]
    "json" "JSON" "JSON" ["jsonl" "ndjson"]
    "julia" "Julia" "Julia" ["jl"]
    "kotlin" "Kotlin" "Kotlin" ["kt" "kts"]
    "latex" "LaTeX" "LaTeX" ["tex" "ltx"]
    "lisp" "Lisp" "Lisp" ["el" "scm" "scheme" "cl" "lsp"]
    "lua" "Lua" "Lua" []
    "makefile" "Makefile" "Makefile" ["make" "mk" "mak"]
    "markdown" "Markdown" "Markdown" ["md"]
    "matlab" "MATLAB" "MATLAB" ["octave"]
    "nix" "Nix" "Nix" []
    "objc" "Objective-C" "Objective-C" ["m" "objective-c"]
    "ocaml" "OCaml" "OCaml" ["ml" "mli"]
    "pascal" "Pascal" "Pascal" ["pas" "dpr"]
    "perl" "Perl" "Perl" ["pl" "pm"]
    "php" "PHP" "PHP" ["phtml"]
    "powershell" "PowerShell" "PowerShell" ["ps1" "psm1" "pwsh"]
    "protobuf" "Protocol Buffers" "Protocol Buffers" ["proto"]
    "python" "Python" "Python" ["py" "py3" "pyi" "python3"]
    "r" "R" "R" []
    "regex" "Regular expression" "Regular Expression" ["re" "regexp"]
    "rst" "reStructuredText" "reStructuredText" ["rest"]
    "ruby" "Ruby" "Ruby" ["rb" "rake" "gemspec"]
    "rust" "Rust" "Rust" ["rs"]
    "scala" "Scala" "Scala" ["sbt"]
    "shell" "Shell" "Bourne Again Shell (bash)" ["sh" "bash" "zsh" "fish" "ksh" "console"]
    "sql" "SQL" "SQL" ["postgres" "postgresql" "psql" "mysql" "sqlite" "ddl"]
    "swift" "Swift" "Swift" []
    "tcl" "Tcl" "Tcl" []
    "toml" "TOML" "TOML" []
    "typescript" "TypeScript" "TypeScript" ["ts" "tsx" "mts" "cts" "deno"]
    "xml" "XML" "XML" ["svg" "xsd" "xslt" "rss" "plist"]
    "yaml" "YAML" "YAML" ["yml"]
    "zig" "Zig" "Zig" ["zon"]
}

/// Returns every language with rules, in the order of the menu. [`plain`] is not among them.
pub fn languages() -> &'static [Language] {
    LANGUAGES
}

/// Finds a language by id or alias, ignoring case.
pub fn find(name: &str) -> Option<&'static Language> {
    let name = name.trim();
    let is = |known: &str| known.eq_ignore_ascii_case(name);
    let named = |language: &&Language| is(language.id) || language.aliases.iter().any(|a| is(a));
    LANGUAGES.iter().find(named).or_else(|| Some(&PLAIN).filter(named))
}

/// Names of files without an extension, and their languages.
const FILES: &[(&str, &str)] = &[
    ("cargo.lock", "toml"),
    ("dockerfile", "dockerfile"),
    ("makefile", "makefile"),
    ("gnumakefile", "makefile"),
    ("rakefile", "ruby"),
    ("gemfile", "ruby"),
    ("vagrantfile", "ruby"),
    (".env", "ini"),
    (".gitconfig", "ini"),
    (".bashrc", "shell"),
    (".zshrc", "shell"),
    (".profile", "shell"),
    ("pkgbuild", "shell"),
];

/// Beginnings of texts that reveal the language; the first match wins.
const BEGINNINGS: &[(&str, &str)] = &[
    ("<?php", "php"),
    ("<?xml", "xml"),
    ("<!doctype html", "html"),
    ("<html", "html"),
    ("<svg", "xml"),
    ("diff --git ", "diff"),
    ("--- a/", "diff"),
    ("%yaml", "yaml"),
    ("\\documentclass", "latex"),
];

/// Guesses the language from the file name, then from the first line. Guesses only what is nearly
/// certain: wrong colours are worse than none.
pub fn detect(file_name: Option<&str>, text: &str) -> Option<&'static Language> {
    file_name.and_then(by_file_name).or_else(|| by_first_line(text))
}

fn by_file_name(name: &str) -> Option<&'static Language> {
    let name = name.rsplit(['/', '\\']).next()?.to_ascii_lowercase();
    if let Some((_, id)) = FILES.iter().find(|(file, _)| *file == name) {
        return find(id);
    }
    let (_, extension) = name.rsplit_once('.')?;
    find(extension)
}

fn by_first_line(text: &str) -> Option<&'static Language> {
    let line = text.trim_start_matches('\u{feff}').lines().next()?;
    let line: String = line.chars().take(200).collect::<String>().to_ascii_lowercase();
    if let Some(command) = line.strip_prefix("#!") {
        return by_interpreter(command);
    }
    let (_, id) = BEGINNINGS.iter().find(|(beginning, _)| line.starts_with(beginning))?;
    find(id)
}

/// Finds the language of an interpreter: `/usr/bin/env -S python3.12 -u` is Python.
fn by_interpreter(command: &str) -> Option<&'static Language> {
    let mut words = command.split_whitespace().map(|word| word.rsplit('/').next().unwrap_or(word));
    let mut program = words.next()?;
    if program == "env" {
        program = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
    }
    find(program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'))
}
