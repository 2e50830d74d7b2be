//! The page around the panels. It has no inline styles or scripts, and loads nothing from another host.

use leasehold_http::page::{Site, theme_item};
use maud::{Markup, html};

use super::assets::ASSETS;
use super::model::Overview;
use super::panels::{alarms, charts, health, mirrors, moment, queues, sweeps, workers};
use crate::housekeeping::Kept;

static SITE: Site = Site {
    name: "leasehold",
    home: "/console",
    assets: &ASSETS,
    style: "console.css",
    script: "console.js",
    listed: false,
};

/// The part of the page that changes; the script reloads it periodically.
pub fn live(overview: &Overview) -> Markup {
    let now = overview.now;
    html! {
        (health::panel(&overview.health))
        (alarms::panel(&overview.alarms, now))
        (charts::panel(&overview.charts, overview.range, overview.now))
        (queues::panel(&overview.queues))
        (workers::panel(&overview.workers, now))
        (sweeps::panel(&overview.sweeps, now))
        (mirrors::panel(&overview.mirrors, now))
        p.hint.sampled {
            @match overview.measured_at {
                Some(at) => { "Last sample " (moment(at, now)) ". One is taken per minute." }
                None => "No sample has been taken.",
            }
            @if overview.housekeeping == Kept::NotAllowed {
                " This process takes no samples: its role is not a member of leasehold_housekeeper."
            }
        }
    }
}

/// `logged_in`: by a token, so the page shows a log-out button.
pub fn overview(overview: &Overview, logged_in: bool) -> Markup {
    let range = overview.range.word();
    frame(
        "Overview",
        &html! {
            div #live data-from={ "/console/live?range=" (range) } { (live(overview)) }
            @if logged_in {
                form.logout method="post" action="/console/logout" {
                    button.quiet type="submit" { "Log out" }
                }
            }
        },
    )
}

/// The page while the database does not respond; the script retries.
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
            h1 { "The database does not respond." }
            p { (why) ". This page retries every few seconds." }
        }
    }
}

/// `wrong`: why the previous log-in failed.
pub fn login(wrong: Option<&str>) -> Markup {
    frame(
        "Log in",
        &html! {
            section.panel.login {
                h1 { "Log in" }
                @if let Some(why) = wrong { p.alert role="alert" { (why) } }
                form method="post" action="/console/login" {
                    label for="token" { "Token" }
                    input #token type="password" name="token" required autocomplete="current-password" autofocus;
                    p.hint { "LEASEHOLD_CONSOLE_TOKEN in the environment of the console." }
                    button.primary type="submit" { "Log in" }
                }
            }
        },
    )
}

pub fn message(title: &str, text: &str) -> Markup {
    frame(
        title,
        &html! { section.panel { h1 { (title) } p { (text) } p { a href="/console" { "Back to the overview" } } } },
    )
}

fn frame(title: &str, main: &Markup) -> Markup {
    let items = html! {
        li { button.quiet #pulse type="button" hidden aria-live="polite" { span.dot aria-hidden="true" {} span.pulse-text { "live" } } }
        (theme_item(false))
    };
    let body = html! {
        (SITE.header(&items))
        main.wide #main tabindex="-1" { (main) }
        footer {
            p {
                "Queues and charts show the last sample, taken once per minute. "
                a href="/console/api/overview" { "JSON" } " · " a href="/metrics" { "Metrics" }
            }
        }
    };
    SITE.page(title, &html! {}, &body)
}
