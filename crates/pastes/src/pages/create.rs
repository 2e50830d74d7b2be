//! The page on which pastes are made.

use std::borrow::Cow;

use maud::{Markup, html};

use super::layout::{Page, Place};
use super::model::{CreateForm, Field};
use super::parts;
use crate::highlight::{self, language};

/// The create form, empty or as it was typed.
pub fn create(form: &CreateForm) -> Markup {
    let main = html! {
        h1.visually-hidden { "New paste" }
        @if let Some(error) = &form.error {
            p.alert #form-error role="alert" { strong { "Not saved. " } (error.message) }
        }
        form.create method="post" action="/" enctype="multipart/form-data" {
            input type="hidden" name="page" value="1";
            (editor(form))
            (options(form))
            div.save {
                button.primary type="submit" aria-keyshortcuts="Control+Enter" { "Save" }
                p.hint #limit {
                    "Up to " (parts::size(form.max_size)) "."
                    span.script-only { " " kbd { "Ctrl" } " + " kbd { "Enter" } " saves." }
                }
            }
        }
        (terminal(&form.base_url))
    };
    Page::new("New paste", main).at(Place::New).wide().render()
}

fn editor(form: &CreateForm) -> Markup {
    let describes = describes(form, Field::Content);
    html! {
        div.editor {
            label for="content" { "Text" }
            // Parsers drop a line end right after the tag: without this one, a text that begins
            // with an empty line would lose it each time the form comes back.
            textarea #content name="content" rows="18" spellcheck="false"
                autofocus[form.error.as_ref().is_none_or(|e| e.field == Some(Field::Content))]
                autocapitalize="off" autocomplete="off" wrap="off"
                data-limit=(form.max_size)
                aria-invalid=[describes.map(|_| "true")]
                aria-describedby={ "limit" @if let Some(id) = describes { " " (id) } }
                placeholder="Paste or type here" { "\n" (form.typed.content) }
            div.file {
                label for="file" { "Or a file" }
                input #file type="file" name="file";
            }
        }
    }
}

fn options(form: &CreateForm) -> Markup {
    let typed = &form.typed;
    let chosen = highlight::find(&typed.language).map(|l| l.id);
    let (lang, expires, alias) = (
        describes(form, Field::Language),
        describes(form, Field::Expires),
        describes(form, Field::Alias),
    );
    html! {
        fieldset.options {
            legend.visually-hidden { "Options" }
            div.field {
                label for="lang" { "Language" }
                select #lang name="lang" aria-invalid=[lang.map(|_| "true")]
                    aria-describedby=[lang] {
                    option value="" selected[chosen.is_none()] { "Detect" }
                    @let plain = language::plain();
                    option value=(plain.id) selected[chosen == Some(plain.id)] { (plain.label) }
                    @for language in highlight::languages() {
                        option value=(language.id) selected[chosen == Some(language.id)] {
                            (language.label)
                        }
                    }
                }
            }
            div.field {
                label for="expires" { "Ends after" }
                select #expires name="expires" aria-invalid=[expires.map(|_| "true")]
                    aria-describedby=[expires] {
                    @for choice in &form.expiries {
                        option value=(choice.value) selected[choice.value == typed.expires] {
                            (choice.label)
                        }
                    }
                }
            }
            div.field {
                label for="alias" { "Name in the link " span.aside { "(optional)" } }
                input #alias type="text" name="alias" value=(typed.alias) maxlength="32"
                    pattern="[A-Za-z0-9_\\-]{1,32}" title="Letters, digits, - and _, at most 32"
                    spellcheck="false" autocapitalize="off" autocomplete="off"
                    autofocus[alias.is_some()]
                    aria-invalid=[alias.map(|_| "true")] aria-describedby=[alias];
            }
            div.field.checks {
                label.check {
                    input #burn type="checkbox" name="burn" value="1" checked[typed.burn];
                    span { "Gone after reading " span.aside { "(the first reader is the last)" } }
                }
                // Asked, not assumed: it ties a person's pastes together.
                label.check {
                    input #remember type="checkbox" name="remember" value="1"
                        checked[typed.remember];
                    span { "List it under Mine " span.aside { "(with a cookie)" } }
                }
            }
        }
    }
}

/// The id of the message, for the field that it is about.
fn describes(form: &CreateForm, field: Field) -> Option<&'static str> {
    form.error.as_ref().filter(|e| e.field == Some(field)).map(|_| "form-error")
}

fn terminal(base_url: &str) -> Markup {
    html! {
        section.terminal aria-labelledby="terminal-title" {
            h2 #terminal-title { "From a terminal" }
            pre tabindex="0" role="region" aria-labelledby="terminal-title" {
                code {
                    "curl --data-binary @notes.txt " (base_url) "/\n"
                    "make 2>&1 | curl --data-binary @- '" (base_url) "/?expires=1h&lang=text'"
                }
            }
        }
    }
}

/// Undoes what browsers do to a text box: every line end arrives as CR LF.
pub fn unix_lines(text: &str) -> Cow<'_, str> {
    if text.contains("\r\n") { text.replace("\r\n", "\n").into() } else { text.into() }
}
