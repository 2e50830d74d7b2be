//! The console over HTTP: who may see it, what it shows, and what an operator may change.

use reqwest::header::{ACCEPT, COOKIE, HOST, ORIGIN, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use serde_json::Value;

use crate::console_fixture::{ConsoleFixture, in_time};
use crate::fixture::{Fixture, ready};
use leasehold_testing::minutes::age;

const TOKEN: &str = "a token of these tests";

/// Sends a form as a browser does.
trait Posting {
    fn form(self, fields: &[(&str, &str)]) -> Self;
}

impl Posting for reqwest::RequestBuilder {
    fn form(self, fields: &[(&str, &str)]) -> Self {
        let encode = |text: &str| text.replace(' ', "+");
        let pairs: Vec<String> =
            fields.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
        let kind = "application/x-www-form-urlencoded";
        self.header(reqwest::header::CONTENT_TYPE, kind).body(pairs.join("&"))
    }
}

fn client() -> Client {
    leasehold_testing::http::builder().redirect(Policy::none()).build().unwrap()
}

#[tokio::test]
async fn overview_page_and_json_show_the_same() {
    let console = ConsoleFixture::start().await;
    let empty: Value = console.get("/console/api/overview").await.json().await.unwrap();
    assert_eq!((&empty["v"], &empty["health"]["state"]), (&1.into(), &"unknown".into()));
    assert!(
        console.get("/console").await.text().await.unwrap().contains("No worker takes samples.")
    );
    console.fixture.job("mail", "send").await;
    console.fixture.completed("mail", "send").await;
    console.sql("select leasehold_internal.register_worker('w/1', 'smith', 'forge', 7, '0.1', array['mail'], '{}', 4, 1, false)").await;
    console.a_minute_passes().await;
    let overview: Value = console.get("/console/api/overview?range=3h").await.json().await.unwrap();
    assert_eq!(overview["health"]["state"], "well");
    assert_eq!(overview["range"], "3h");
    let queue = &overview["queues"][0];
    assert_eq!(
        (&queue["name"], &queue["ready"], &queue["completed_last_minute"]),
        (&"mail".into(), &1.0.into(), &1.0.into())
    );
    let charts = overview["charts"].as_array().unwrap();
    let names: Vec<&str> = charts.iter().map(|chart| chart["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["queue_length", "jobs_completed", "rows_reindexed"]);
    let lengths = ["times", "values"].map(|part| charts[0][part].as_array().unwrap().len());
    assert!(lengths[0] > 0 && lengths[0] == lengths[1], "{lengths:?}");
    let page = console.get("/console").await.text().await.unwrap();
    for words in ["No active alarms", "mail", "smith", "forge", "No mirrors."] {
        assert!(page.contains(words), "{words:?} is not in:\n{page}");
    }
    assert!(!page.contains("style=") && !page.contains("<script>"), "nothing is inline");
}

#[tokio::test]
async fn health_is_unknown_when_the_last_sample_is_old() {
    let console = ConsoleFixture::start().await;
    console.fixture.job("mail", "send").await;
    console.a_minute_passes().await;
    let state = async || -> (String, String) {
        let overview: Value = console.get("/console/api/overview").await.json().await.unwrap();
        let word = |name: &str| overview["health"][name].as_str().unwrap().to_owned();
        (word("state"), word("sentence"))
    };
    assert_eq!(state().await.0, "well");
    age(&console.fixture.client, "4 minutes").await;
    let (word, sentence) = state().await;
    assert_eq!(word, "unknown");
    assert!(sentence.starts_with("No worker has taken a sample since"), "{sentence}");
    // An alarm that is up stays up, with a note of how old the sample is.
    console.sql("insert into leasehold_internal.alarm (rule, subject, value, threshold, summary) values ('expired_jobs', 'mail', 1, 0, 'one')").await;
    let page = console.get("/console").await.text().await.unwrap();
    assert!(
        page.contains("1 active alarm") && page.contains("No worker has taken a sample since"),
        "{page}"
    );
}

#[tokio::test]
async fn h10_responses_have_security_headers_and_are_not_cached() {
    let console = ConsoleFixture::start().await;
    for path in ["/console", "/console/api/overview", "/metrics", "/console/login", "/nowhere"] {
        let answer = console.get(path).await;
        let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
        assert!(header("content-security-policy").starts_with("default-src 'none'"), "{path}");
        assert_eq!(header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(header("cache-control"), "no-store", "{path}");
    }
}

#[tokio::test]
async fn i8_console_reads_none_of_the_job_tables() {
    let console = ConsoleFixture::start().await;
    console.fixture.job("mail", "send").await;
    console.fixture.dead("mail", "send", "rejected").await;
    console.a_minute_passes().await;
    // A session that reads one of these tables would wait for the lock, and so would every session
    // behind it.
    console
        .sql(
            "begin; lock table leasehold.job, leasehold_internal.lease, leasehold_internal.dead_job, leasehold_internal.history \
             in access exclusive mode",
        )
        .await;
    for path in ["/console", "/console?range=24h", "/console/api/overview", "/metrics"] {
        let text = match path {
            "/metrics" => console.metrics().await,
            _ => {
                let answer = console.get(path).await;
                assert_eq!(answer.status(), 200, "{path}");
                answer.text().await.unwrap()
            }
        };
        assert!(text.contains("mail") && !text.contains("did not respond"), "{path}: {text}");
    }
    console.sql("rollback").await;
}

#[tokio::test]
async fn console_rejects_foreign_host_names() {
    let console = ConsoleFixture::start().await;
    for path in ["/console", "/console/live", "/console/api/overview", "/metrics"] {
        let answer = client()
            .get(format!("{}{path}", console.url))
            .header(HOST, "evil.example")
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), StatusCode::MISDIRECTED_REQUEST, "{path}");
    }
}

#[tokio::test]
async fn console_without_a_token_rejects_proxies() {
    let console = ConsoleFixture::start().await;
    for path in ["/", "/console", "/console/live", "/console/api/overview", "/metrics"] {
        // The proxy runs on this machine, so the peer's address is local: only the headers that it
        // adds reveal it.
        for name in ["X-Forwarded-For", "X-Forwarded-Host", "Forwarded", "X-Real-IP", "Via"] {
            let asked = client().get(format!("{}{path}", console.url)).header(name, "203.0.113.9");
            let answer = asked.send().await.unwrap();
            assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{path} {name}");
            let text = answer.text().await.unwrap();
            assert!(text.contains("Set LEASEHOLD_CONSOLE_TOKEN"), "{text}");
        }
    }
}

#[tokio::test]
async fn console_with_a_token_requires_it_everywhere() {
    let console = ConsoleFixture::with(
        Fixture::new().await,
        &[],
        &[("LEASEHOLD_CONSOLE_TOKEN", TOKEN.replace(' ', "-").as_str())],
    )
    .await;
    let token = TOKEN.replace(' ', "-");
    let at = |path: &str| format!("{}{path}", console.url);
    for path in ["/console", "/console/live", "/console/api/overview", "/metrics"] {
        assert_eq!(console.get(path).await.status(), StatusCode::UNAUTHORIZED, "{path}");
        let shown = async || client().get(at(path)).bearer_auth(&token).send().await.unwrap();
        assert_eq!(in_time(shown).await.status(), StatusCode::OK, "{path}");
        let wrong = client().get(at(path)).bearer_auth("wrong").send().await.unwrap();
        assert_eq!(wrong.status(), StatusCode::UNAUTHORIZED, "{path}");
    }
    let posted = client()
        .post(at("/console/alarms/1"))
        .form(&[("act", "ack"), ("why", "x")])
        .send()
        .await
        .unwrap();
    assert_eq!(posted.status(), StatusCode::UNAUTHORIZED);
    // A browser is redirected to the log-in, and with the token from there to the page.
    let person = client().get(at("/console")).header(ACCEPT, "text/html").send().await.unwrap();
    assert_eq!(
        (person.status(), person.headers()["location"].to_str().unwrap()),
        (StatusCode::SEE_OTHER, "/console/login")
    );
    let wrong =
        client().post(at("/console/login")).form(&[("token", "wrong")]).send().await.unwrap();
    assert_eq!(wrong.status(), StatusCode::UNAUTHORIZED);
    let right =
        client().post(at("/console/login")).form(&[("token", &token)]).send().await.unwrap();
    assert_eq!(right.status(), StatusCode::SEE_OTHER);
    let cookie =
        right.headers()[SET_COOKIE].to_str().unwrap().split(';').next().unwrap().to_owned();
    let shown = async |cookie: &str| {
        let ask =
            async || client().get(at("/console")).header(COOKIE, cookie).send().await.unwrap();
        in_time(ask).await.status()
    };
    assert_eq!(shown(&cookie).await, StatusCode::OK);
    // Neither a made-up cookie, nor the token itself, nor the value under another name works.
    let (name, value) = cookie.split_once('=').unwrap();
    for wrong in [format!("{name}=x"), format!("{name}={token}"), format!("other={value}")] {
        assert_eq!(shown(&wrong).await, StatusCode::UNAUTHORIZED, "{wrong}");
    }
    // After the log-out the session is over, for a copy of its cookie too.
    let out = client().post(at("/console/logout")).header(COOKIE, &cookie).send().await.unwrap();
    assert_eq!(out.status(), StatusCode::SEE_OTHER);
    assert!(out.headers()[SET_COOKIE].to_str().unwrap().contains("Max-Age=0"));
    assert_eq!(shown(&cookie).await, StatusCode::UNAUTHORIZED);
    // Another site cannot log a user in, either.
    let elsewhere = client().post(at("/console/login")).header(ORIGIN, "http://evil.example");
    let elsewhere = elsewhere.form(&[("token", &token)]).send().await.unwrap();
    assert_eq!(elsewhere.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn h23_guessing_is_refused_and_logged() {
    let fixture = Fixture::new().await;
    let mut command = fixture.command(&["console", "--listen", "127.0.0.1:0", "--no-housekeeping"]);
    let token = TOKEN.replace(' ', "-");
    command.env("LEASEHOLD_CONSOLE_TOKEN", &token).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let url = crate::console_fixture::console_in(&ready(&mut child).await);
    let log = child.stderr.take().unwrap();
    let show = async |token: &str| {
        // A proxy in front: the console has no option to trust one, and advises none.
        let request = client().get(format!("{url}/metrics")).header("x-forwarded-for", "192.0.2.1");
        request.bearer_auth(token).send().await.unwrap()
    };
    for _ in 0..10 {
        assert_eq!(show("wrong").await.status(), StatusCode::UNAUTHORIZED);
    }
    for token in ["wrong", &token] {
        let refused = show(token).await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS, "{token}");
        let wait: u64 = refused.headers()["retry-after"].to_str().unwrap().parse().unwrap();
        assert!((1..=60).contains(&wait), "{wait}");
    }
    let login = client().post(format!("{url}/console/login")).form(&[("token", &token)]);
    assert_eq!(login.send().await.unwrap().status(), StatusCode::TOO_MANY_REQUESTS);
    child.start_kill().unwrap();
    let mut text = String::new();
    tokio::io::AsyncReadExt::read_to_string(&mut { log }, &mut text).await.unwrap();
    let warnings: Vec<&str> =
        text.lines().filter(|line| line.contains("wrong console token")).collect();
    assert_eq!(warnings.len(), 2, "one at the first and one at the limit: {text}");
    assert!(
        warnings.iter().all(|line| line.contains("WARN") && line.contains("127.0.0.1")),
        "{text}"
    );
    assert!(!text.contains("trusted-proxies") && !text.contains(&token), "{text}");
}

#[tokio::test]
async fn only_the_consoles_own_form_acknowledges_an_alarm() {
    let console = ConsoleFixture::start().await;
    console.sql("insert into leasehold.job (name, scheduled_at, expires_at) values ('late', now() - interval '1 minute', now()); select leasehold_internal.expire_jobs()").await;
    console.a_minute_passes().await;
    let id = console.fixture.count("select id from leasehold_internal.alarm").await;
    let fixture = format!("{}/console/alarms/{id}", console.url);
    let post = async |act: &str, why: &str, origin: &str| {
        let form = [("act", act), ("why", why), ("for", "1h")];
        let ask = async || {
            client().post(&fixture).header(ORIGIN, origin).form(&form).send().await.unwrap()
        };
        in_time(ask).await.status()
    };
    assert_eq!(post("ack", "mine", "http://evil.example").await, StatusCode::FORBIDDEN);
    assert_eq!(post("ack", "mine", "null").await, StatusCode::FORBIDDEN);
    assert_eq!(post("ack", " ", &console.url).await, StatusCode::BAD_REQUEST);
    assert_eq!(post("explode", "why", &console.url).await, StatusCode::BAD_REQUEST);
    let state = "select state from leasehold.alarms";
    assert_eq!(console.texts(state).await, ["open"]);
    assert_eq!(post("ack", "mine", &console.url).await, StatusCode::SEE_OTHER);
    assert_eq!(console.texts(state).await, ["acknowledged"]);
    assert_eq!(post("silence", "quiet", &console.url).await, StatusCode::SEE_OTHER);
    assert_eq!(console.texts(state).await, ["silenced"]);
    assert_eq!(
        console
            // Distinct: a request that timed out is sent again.
            .texts("select distinct actor || ' ' || action || ' ' || detail from leasehold.audit")
            .await
            .len(),
        2
    );
    console.sql("delete from leasehold_internal.dead_job").await;
    console.a_minute_passes().await;
    assert_eq!(post("ack", "late", &console.url).await, StatusCode::CONFLICT);
}

#[tokio::test]
async fn user_text_is_escaped_on_the_page() {
    let console = ConsoleFixture::start().await;
    let nasty = "<script>alert(1)</script>";
    console.sql(&format!("insert into leasehold.job (queue, name, tag, scheduled_at, expires_at) values ('{nasty}', '{nasty}', '{nasty}', now() - interval '1 minute', now()); select leasehold_internal.expire_jobs()")).await;
    console.sql(&format!("select leasehold_internal.register_worker('w/1', '{nasty}', 'h', 1, '0', array['{nasty}'], '{{}}', 1, 0, false)")).await;
    console.a_minute_passes().await;
    let page = console.get("/console").await.text().await.unwrap();
    assert!(page.contains("&lt;script&gt;alert(1)") && !page.contains("<script>alert"), "{page}");
}

#[tokio::test]
async fn i7_shown_figures_equal_those_of_the_tables() {
    let console = ConsoleFixture::start().await;
    let fixture = &console.fixture;
    // Jobs in every state, in two queues, different numbers of each.
    for (queue, ready, running, dead, done) in [("mail", 5, 2, 3, 4), ("hooks", 1, 3, 0, 2)] {
        for _ in 0..done {
            fixture.completed(queue, "send").await;
        }
        for _ in 0..dead {
            fixture.dead(queue, "send", "rejected").await;
        }
        for _ in 0..running {
            fixture.running(queue, "send").await;
        }
        for _ in 0..ready {
            fixture.job(queue, "send").await;
        }
        console.sql(&format!("insert into leasehold.job (queue, name, scheduled_at) values ('{queue}', 'later', now() + interval '1 hour')")).await;
        console.sql(&format!("insert into leasehold.job (queue, name, scheduled_at, attempts) values ('{queue}', 'again', now() + interval '1 hour', 2)")).await;
        console.sql(&format!("insert into leasehold.job (queue, name, scheduled_at, expires_at) values ('{queue}', 'late', now() - interval '1 minute', now())")).await;
    }
    console.sql("select leasehold_internal.expire_jobs()").await;
    console.a_minute_passes().await;
    let overview: Value = console.get("/console/api/overview").await.json().await.unwrap();
    let metrics = console.metrics().await;
    for queue in overview["queues"].as_array().unwrap() {
        let name = queue["name"].as_str().unwrap();
        for (state, rows) in [
            ("ready", "leasehold.job where not held and scheduled_at <= now()"),
            ("running", "leasehold.job where held"),
            ("scheduled", "leasehold.job where not held and scheduled_at > now() and attempts = 0"),
            ("retrying", "leasehold.job where not held and scheduled_at > now() and attempts > 0"),
            ("dead", "leasehold_internal.dead_job where cause <> 'expired'"),
            ("dead_expired", "leasehold_internal.dead_job where cause = 'expired'"),
        ] {
            let there =
                fixture.count(&format!("select count(*) from {rows} and queue = '{name}'")).await;
            assert_eq!(queue[state].as_f64(), Some(there as f64), "{name} {state} in the overview");
            let line = match state {
                "dead_expired" => {
                    format!("leasehold_queue_dead_expired_jobs{{queue=\"{name}\"}} {there}\n")
                }
                _ => {
                    format!("leasehold_queue_jobs{{queue=\"{name}\",state=\"{state}\"}} {there}\n")
                }
            };
            assert!(metrics.contains(&line), "{line} is not in:\n{metrics}");
        }
        let done = fixture.count(&format!("select coalesce(sum(cardinality(job_ids)), 0)::bigint from leasehold_internal.history where queue = '{name}'")).await;
        assert_eq!(queue["completed_last_minute"].as_f64(), Some(done as f64), "{name} completed");
    }
    assert_eq!(overview["queues"].as_array().unwrap().len(), 2);
}
