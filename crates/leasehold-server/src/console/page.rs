//! The page around the panels. Nothing is inline, nothing comes from another host.

use maud::{DOCTYPE, Markup, html};

use super::assets::ASSETS;
use super::model::Overview;
use super::panels::{alarms, charts, health, mirrors, moment_of, queues, sweeps, workers};

/// The policy of every page here.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; \
    style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; \
    frame-ancestors 'none'; base-uri 'none'";

/// Everything that changes; the script asks for it again and again.
pub fn live(overview: &Overview) -> Markup {
    let now = overview.now;
    html! {
        (health::panel(&overview.health))
        (alarms::panel(&overview.alarms, now))
        (charts::panel(&overview.charts, overview.range))
        (queues::panel(&overview.queues))
        (workers::panel(&overview.workers, now))
        (sweeps::panel(&overview.sweeps, now))
        (mirrors::panel(&overview.mirrors, now))
        p.hint.sampled {
            @match overview.sampled_at {
                Some(at) => { "Measured " (moment_of(at, now)) ", once a minute." }
                None => "Not measured.",
            }
        }
    }
}

pub fn overview(overview: &Overview) -> Markup {
    let range = overview.range.word();
    frame(
        "Overview",
        &html! { div #live data-from={ "/console/live?range=" (range) } { (live(overview)) } },
    )
}

/// The database does not answer: the page says so, and the script goes on asking.
pub fn unreachable(why: &str, range: &str) -> Markup {
    frame(
        "Unreachable",
        &html! {
            div #live data-from={ "/console/live?range=" (range) } { (trouble(why)) }
        },
    )
}

pub fn trouble(why: &str) -> Markup {
    html! {
        section.health.alarmed aria-label="Health" {
            h1 { "The database does not answer." }
            p { (why) ". This page asks again by itself." }
        }
    }
}

pub fn login(wrong: bool) -> Markup {
    frame(
        "Log in",
        &html! {
            section.panel.login {
                h1 { "Log in" }
                @if wrong { p.alert role="alert" { "That is not the token." } }
                form method="post" action="/console/login" {
                    label for="token" { "Token" }
                    input #token type="password" name="token" required autocomplete="current-password" autofocus;
                    p.hint { "It stands in LEASEHOLD_CONSOLE_TOKEN where this was started." }
                    button.primary type="submit" { "Log in" }
                }
            }
        },
    )
}

pub fn message(title: &str, text: &str) -> Markup {
    frame(
        title,
        &html! { section.panel { h1 { (title) } p { (text) } p { a href="/console" { "To the overview" } } } },
    )
}

fn frame(title: &str, main: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                title { (title) " · leasehold" }
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="referrer" content="same-origin";
                meta name="robots" content="noindex, nofollow";
                meta name="color-scheme" content="light dark";
                // Before the stylesheet and not deferred, or a dark page would flash white.
                script src=(ASSETS.href("theme.js")) {}
                link rel="stylesheet" href=(ASSETS.href("console.css"));
                link rel="icon" type="image/svg+xml" href=(ASSETS.href("icon.svg"));
                script src=(ASSETS.href("console.js")) defer {}
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                header {
                    a.mark href="/console" { span.mark-sign aria-hidden="true" {} "leasehold" }
                    nav aria-label="Main" {
                        ul {
                            li { button.quiet #pulse type="button" hidden aria-live="polite" { span.dot aria-hidden="true" {} span.pulse-text { "live" } } }
                            li {
                                button.quiet #theme type="button" hidden {
                                    span.theme-sign aria-hidden="true" {}
                                    span.visually-hidden { "Theme" }
                                }
                            }
                        }
                    }
                }
                main.wide #main tabindex="-1" { (main) }
                footer {
                    p {
                        "Queues and charts are measured once a minute. "
                        a href="/console/api/overview" { "JSON" } " · " a href="/metrics" { "Metrics" }
                    }
                }
            }
        }
    }
}
