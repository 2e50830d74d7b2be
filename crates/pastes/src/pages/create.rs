//! The page with the form that creates pastes.

use std::borrow::Cow;

use maud::{Markup, html};

use super::layout::{Nav, Page};
use super::model::{CreateForm, Field};
use super::parts;
use crate::highlight::{self, language};

/// Renders the create form, empty or as the user filled it in.
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
        (terminal(&form.base_url, form.private))
    };
    Page::new("New paste", main).at(Nav::New).wide().render()
}

fn editor(form: &CreateForm) -> Markup {
    let describes = describes(form, Field::Content);
    html! {
        div.editor {
            label for="content" { "Text" }
            // Parsers drop a line end right after the tag: without this one, a text that begins
            // with an empty line would lose it each time the form is shown again.
            textarea #content name="content" rows="18" spellcheck="false"
                autofocus[form.error.as_ref().is_none_or(|e| e.field == Some(Field::Content))]
                autocapitalize="off" autocomplete="off" wrap="off"
                data-limit=(form.max_size)
                aria-invalid=[describes.map(|_| "true")]
                aria-describedby={ "limit" @if let Some(id) = describes { " " (id) } }
                placeholder="Paste or type here" { "\n" (form.typed.content) }
            div.file {
                label for="file" { "Or upload a file" }
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
                    option value="" selected[chosen.is_none()] { "Auto-detect" }
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
                label for="expires" { "Expires in" }
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
                label for="alias" { "Custom link " span.aside { "(optional)" } }
                input #alias type="text" name="alias" value=(typed.alias) minlength="3" maxlength="32"
                    pattern="[A-Za-z0-9_\\-]{3,32}" title="3 to 32 letters, digits, - and _"
                    spellcheck="false" autocapitalize="off" autocomplete="off"
                    autofocus[alias.is_some()]
                    aria-invalid=[alias.map(|_| "true")] aria-describedby=[alias];
            }
            @if form.private {
                @let token = describes(form, Field::Token);
                div.field {
                    label for="create-token" { "Create token" }
                    // A password field, so that the browser may store it and does not show it.
                    input #create-token type="password" name="create_token" required
                        maxlength="128" autocomplete="current-password"
                        autofocus[token.is_some()]
                        aria-invalid=[token.map(|_| "true")] aria-describedby=[token];
                }
            }
            div.field.checks {
                label.check {
                    input #burn type="checkbox" name="burn" value="1" checked[typed.burn];
                    span { "Burn after reading " span.aside { "(only the first reader sees it)" } }
                }
                // Off by default: it links a user's pastes to each other.
                label.check {
                    input #remember type="checkbox" name="remember" value="1"
                        checked[typed.remember];
                    span { "List under My pastes " span.aside { "(sets a cookie)" } }
                }
            }
        }
    }
}

/// Returns the id of the error message if it is about this field.
fn describes(form: &CreateForm, field: Field) -> Option<&'static str> {
    form.error.as_ref().filter(|e| e.field == Some(field)).map(|_| "form-error")
}

fn terminal(base_url: &str, private: bool) -> Markup {
    html! {
        section.terminal aria-labelledby="terminal-title" {
            h2 #terminal-title { "From a terminal" }
            pre tabindex="0" role="region" aria-labelledby="terminal-title" {
                code {
                    @let token = if private { "-H \"X-Create-Token: $TOKEN\" " } else { "" };
                    "curl " (token) "--data-binary @notes.txt " (base_url) "/\n"
                    "make 2>&1 | curl " (token) "--data-binary @- '" (base_url) "/?expires=1h&lang=text'"
                }
            }
        }
    }
}

/// Converts CR LF to LF: browsers send CR LF for every line end of a text box.
pub fn unix_lines(text: &str) -> Cow<'_, str> {
    if text.contains("\r\n") { text.replace("\r\n", "\n").into() } else { text.into() }
}
