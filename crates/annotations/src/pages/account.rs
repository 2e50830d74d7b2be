//! Accounts: sign up, log in and out, groups, deletion.

use leasehold_http::problems::sentence;
use maud::{Markup, html};

use super::layout;
use crate::model::{Group, Invitation, User};

/// What the page shows.
pub struct Account<'a> {
    pub user: Option<&'a User>,
    /// The groups of this page.
    pub groups: &'a [Group],
    /// The number of this page of groups, and of the last one.
    pub page: (usize, usize),
    /// Groups that have invited the user.
    pub invitations: &'a [Invitation],
    /// Users whose invitations are blocked.
    pub blocked: &'a [String],
    /// Users may create accounts for themselves.
    pub sign_up: bool,
    pub wrong: Option<String>,
}

pub fn account(account: &Account<'_>) -> Markup {
    let main = html! {
        h1 { @if account.user.is_some() { "Your account" } @else { "Sign up or log in" } }
        @if let Some(wrong) = &account.wrong { p.alert role="alert" { (sentence(wrong)) } }
        @match account.user {
            Some(user) => (own(user, account)),
            None => (enter(account.sign_up)),
        }
    };
    layout::page("Account", account.user, &main)
}

fn enter(sign_up: bool) -> Markup {
    html! {
        @if sign_up {
            form.panel method="post" action="/account/signup" {
                h2 { "Sign up" }
                p { label for="name" { "Name" }
                    input #name type="text" name="name" required minlength="2" maxlength="30"
                        pattern="[a-z0-9][a-z0-9_.\\-]{1,29}" autocomplete="username" spellcheck="false"
                        aria-describedby="name-hint";
                    span.hint #name-hint { "2 to 30 lower-case letters, digits, dots, dashes or underscores. Every reader sees it." } }
                p { label for="display_name" { "Display name (optional)" }
                    input #display_name type="text" name="display_name" maxlength="80" autocomplete="nickname"; }
                button.primary type="submit" { "Sign up" }
            }
        }
        form.panel method="post" action="/account/login" {
            h2 { "Log in" }
            p { label for="token" { "Token" }
                input #token type="text" name="token" required autocomplete="off" spellcheck="false"
                    aria-describedby="token-hint";
                span.hint #token-hint { "The service showed it once, when the account was created." } }
            button type="submit" { "Log in" }
        }
    }
}

/// A button for one action on a group or a user.
fn act(what: &str, (field, value): (&str, &str), words: &str, about: &str) -> Markup {
    html! {
        form.inline method="post" action={ "/account/" (what) } {
            input type="hidden" name=(field) value=(value);
            button type="submit" { (words) span.visually-hidden { " " (about) } }
        }
    }
}

/// The open invitations.
fn invitations(invitations: &[Invitation]) -> Markup {
    html! {
        @if !invitations.is_empty() {
            section.panel aria-labelledby="invitations-title" {
                h2 #invitations-title { "Invitations" }
                ul.groups {
                    @for invitation in invitations {
                        li {
                            strong { (invitation.group_name) } " from " (invitation.by)
                            div.acts {
                                (act("join", ("group", &invitation.group), "Join", &invitation.group_name))
                                (act("decline", ("group", &invitation.group), "Decline", &invitation.group_name))
                                (act("block", ("name", &invitation.by), &format!("Block {}", invitation.by), ""))
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Links to the other pages of groups.
fn further((page, last): (usize, usize)) -> Markup {
    html! {
        @if last > 1 {
            nav aria-label="Pages of groups" {
                @if page > 1 { a href={ "/account?page=" (page - 1) } { "Back" } " " }
                "Page " (page) " of " (last)
                @if page < last { " " a href={ "/account?page=" (page + 1) } { "Next" } }
            }
        }
    }
}

/// The users whose invitations are blocked.
fn blocked(names: &[String]) -> Markup {
    html! {
        @if !names.is_empty() {
            details.panel {
                summary { "Blocked users (" (names.len()) ")" }
                ul.groups {
                    @for name in names { li { (name) (act("unblock", ("name", name), "Unblock", name)) } }
                }
            }
        }
    }
}

fn own(user: &User, account: &Account<'_>) -> Markup {
    let groups = account.groups;
    html! {
        form.panel method="post" action="/account/logout" {
            p { "Logged in as " strong { (user.name) } "." }
            p.hint { "Logging out ends the session of this browser. Your token stays valid on other devices and in programs." }
            button type="submit" { "Log out" }
        }
        (invitations(account.invitations))
        section.panel aria-labelledby="groups-title" {
            h2 #groups-title { "Groups" }
            p.hint { "Only the members of a group see its notes." }
            ul.groups {
                @for group in groups {
                    li {
                        strong { (group.name) } " " code { (group.id) }
                        @if group.open { " " span.badge { "open" } }
                        (act("leave", ("group", &group.id), "Leave", &group.name))
                        @if group.own {
                            form.inline method="post" action="/account/members" {
                                input type="hidden" name="group" value=(group.id);
                                label.visually-hidden for={ "member-" (group.id) } { "Name of a user, for " (group.name) }
                                input #{ "member-" (group.id) } type="text" name="name" required maxlength="30"
                                    placeholder="User name" autocomplete="off";
                                button type="submit" { "Invite" span.visually-hidden { " to " (group.name) } }
                                button type="submit" formaction="/account/remove" {
                                    "Remove" span.visually-hidden { " from " (group.name) } }
                                button type="submit" formaction="/account/owner" {
                                    "Make owner" span.visually-hidden { " of " (group.name) } }
                            }
                        }
                    }
                }
            }
            (further(account.page))
            form.inline method="post" action="/account/groups" {
                label.visually-hidden for="group-name" { "Name of a new group" }
                input #group-name type="text" name="name" required maxlength="80" placeholder="Name of a new group" autocomplete="off";
                label.check { input type="checkbox" name="open" value="1"; " Open: every user who knows its id can join" }
                button type="submit" { "Create group" }
            }
            form.inline method="post" action="/account/join" {
                label.visually-hidden for="group-id" { "Id of an open group" }
                input #group-id type="text" name="group" required maxlength="22" placeholder="Id of an open group" autocomplete="off";
                button type="submit" { "Join" }
            }
        }
        (blocked(account.blocked))
        details.panel {
            summary { "Change your name, or delete your account" }
            form.inline method="post" action="/account/rename" {
                label.visually-hidden for="new-name" { "New name" }
                input #new-name type="text" name="name" required minlength="2" maxlength="30" placeholder="New name" autocomplete="off";
                button type="submit" { "Change name" }
            }
            form.inline method="post" action="/account/delete" {
                label.visually-hidden for="sure" { "Type your name to delete your account" }
                input #sure type="text" name="name" required maxlength="30" placeholder="Type your name" autocomplete="off";
                button.danger type="submit" { "Delete account and notes" }
            }
        }
    }
}

/// The only page that shows the token.
pub fn welcome(user: &User, token: &str) -> Markup {
    let main = html! {
        section.panel.created aria-labelledby="welcome" {
            h1 #welcome { "Welcome, " (user.name) }
            p { "This token logs you in on other devices and in programs. It is shown only now: copy it." }
            div.copyable {
                label.visually-hidden for="new-token" { "Your token" }
                input #new-token type="text" readonly value=(token) spellcheck="false" autocomplete="off";
            }
            p { a.button.primary href="/" { "Go to the text" } }
        }
    };
    layout::page("Welcome", Some(user), &main)
}
