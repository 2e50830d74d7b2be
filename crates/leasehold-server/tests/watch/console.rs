//! The console over HTTP: who may see it, what it shows, and what an operator may change.

use reqwest::header::{ACCEPT, COOKIE, HOST, ORIGIN, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode};
use serde_json::Value;

use crate::clock::age;
use crate::support::{Place, ready};
use crate::tower::{Tower, in_time};

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
async fn the_overview_is_the_same_for_people_and_programs() {
    let tower = Tower::start().await;
    let empty: Value = tower.get("/console/api/overview").await.json().await.unwrap();
    assert_eq!((&empty["v"], &empty["health"]["state"]), (&1.into(), &"unknown".into()));
    assert!(tower.get("/console").await.text().await.unwrap().contains("Nobody measures."));
    tower.place.job("mail", "send").await;
    tower.place.done("mail", "send").await;
    tower.sql("select leasehold.register_worker('w/1', 'smith', 'forge', 7, '0.1', array['mail'], '{}', 4, 1, false)").await;
    tower.a_minute_passes().await;
    let overview: Value = tower.get("/console/api/overview?range=3h").await.json().await.unwrap();
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
    let page = tower.get("/console").await.text().await.unwrap();
    for words in ["All is well.", "mail", "smith", "forge", "No mirror is at work here."] {
        assert!(page.contains(words), "{words:?} is not in:\n{page}");
    }
    assert!(!page.contains("style=") && !page.contains("<script>"), "nothing is inline");
}

#[tokio::test]
async fn a_sample_of_minutes_ago_says_nothing_about_now() {
    let tower = Tower::start().await;
    tower.place.job("mail", "send").await;
    tower.a_minute_passes().await;
    let state = async || -> (String, String) {
        let overview: Value = tower.get("/console/api/overview").await.json().await.unwrap();
        let word = |name: &str| overview["health"][name].as_str().unwrap().to_owned();
        (word("state"), word("sentence"))
    };
    assert_eq!(state().await.0, "well");
    age(&tower.place.client, "4 minutes").await;
    let (word, sentence) = state().await;
    assert_eq!(word, "unknown");
    assert!(sentence.starts_with("Nobody has measured since"), "{sentence}");
    // An alarm that is up stays up, with a note of how old the sample is.
    tower.sql("insert into leasehold.alarm (rule, subject, value, threshold, summary) values ('expired_jobs', 'mail', 1, 0, 'one')").await;
    let page = tower.get("/console").await.text().await.unwrap();
    assert!(
        page.contains("One alarm is up.") && page.contains("Nobody has measured since"),
        "{page}"
    );
}

#[tokio::test]
async fn h10_answers_are_guarded_and_nothing_is_kept() {
    let tower = Tower::start().await;
    for path in ["/console", "/console/api/overview", "/metrics", "/console/login", "/nowhere"] {
        let answer = tower.get(path).await;
        let header = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
        assert!(header("content-security-policy").starts_with("default-src 'none'"), "{path}");
        assert_eq!(header("x-content-type-options"), "nosniff", "{path}");
        assert_eq!(header("cache-control"), "no-store", "{path}");
    }
}

#[tokio::test]
async fn i8_whoever_looks_does_not_touch_the_tables_that_work_goes_through() {
    let tower = Tower::start().await;
    tower.place.job("mail", "send").await;
    tower.place.dead("mail", "send", "rejected").await;
    tower.a_minute_passes().await;
    // A session that reads one of these tables would wait for the lock, and so would every session
    // behind it.
    tower
        .sql(
            "begin; lock table leasehold.job, leasehold.lease, leasehold.dead_job, leasehold.history \
             in access exclusive mode",
        )
        .await;
    for path in ["/console", "/console?range=24h", "/console/api/overview", "/metrics"] {
        let text = match path {
            "/metrics" => tower.metrics().await,
            _ => {
                let answer = tower.get(path).await;
                assert_eq!(answer.status(), 200, "{path}");
                answer.text().await.unwrap()
            }
        };
        assert!(text.contains("mail") && !text.contains("did not answer"), "{path}: {text}");
    }
    tower.sql("rollback").await;
}

#[tokio::test]
async fn names_that_are_not_of_this_machine_get_nothing() {
    let tower = Tower::start().await;
    for path in ["/console", "/console/live", "/console/api/overview", "/metrics"] {
        let answer = client()
            .get(format!("{}{path}", tower.url))
            .header(HOST, "evil.example")
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), StatusCode::MISDIRECTED_REQUEST, "{path}");
    }
}

#[tokio::test]
async fn whoever_comes_through_a_proxy_needs_a_token() {
    let tower = Tower::start().await;
    for path in ["/", "/console", "/console/live", "/console/api/overview", "/metrics"] {
        // The proxy runs on this machine, so the peer's address is local: only the headers that it
        // adds reveal it.
        for name in ["X-Forwarded-For", "X-Forwarded-Host", "Forwarded", "X-Real-IP", "Via"] {
            let asked = client().get(format!("{}{path}", tower.url)).header(name, "203.0.113.9");
            let answer = asked.send().await.unwrap();
            assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{path} {name}");
            let text = answer.text().await.unwrap();
            assert!(text.contains("Set LEASEHOLD_CONSOLE_TOKEN"), "{text}");
        }
    }
}

#[tokio::test]
async fn with_a_token_every_address_asks_for_it() {
    let tower = Tower::with(
        Place::new().await,
        &[],
        &[("LEASEHOLD_CONSOLE_TOKEN", TOKEN.replace(' ', "-").as_str())],
    )
    .await;
    let token = TOKEN.replace(' ', "-");
    let at = |path: &str| format!("{}{path}", tower.url);
    for path in ["/console", "/console/live", "/console/api/overview", "/metrics"] {
        assert_eq!(tower.get(path).await.status(), StatusCode::UNAUTHORIZED, "{path}");
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
    let place = Place::new().await;
    let mut command = place.command(&["console", "--console", "127.0.0.1:0", "--no-housekeeping"]);
    let token = TOKEN.replace(' ', "-");
    command.env("LEASEHOLD_CONSOLE_TOKEN", &token).stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    let url = crate::tower::console_in(&ready(&mut child).await);
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
async fn an_alarm_is_acknowledged_by_our_own_form_and_by_no_other() {
    let tower = Tower::start().await;
    tower.sql("insert into leasehold.job (name, scheduled_at, expires_at) values ('late', now() - interval '1 minute', now()); select leasehold.expire_jobs()").await;
    tower.a_minute_passes().await;
    let id = tower.place.number("select id from leasehold.alarm").await;
    let place = format!("{}/console/alarms/{id}", tower.url);
    let post = async |act: &str, why: &str, origin: &str| {
        let form = [("act", act), ("why", why), ("for", "1h")];
        let ask =
            async || client().post(&place).header(ORIGIN, origin).form(&form).send().await.unwrap();
        in_time(ask).await.status()
    };
    assert_eq!(post("ack", "mine", "http://evil.example").await, StatusCode::FORBIDDEN);
    assert_eq!(post("ack", "mine", "null").await, StatusCode::FORBIDDEN);
    assert_eq!(post("ack", " ", &tower.url).await, StatusCode::BAD_REQUEST);
    assert_eq!(post("explode", "why", &tower.url).await, StatusCode::BAD_REQUEST);
    let state = "select state from leasehold.alarm_state";
    assert_eq!(tower.texts(state).await, ["open"]);
    assert_eq!(post("ack", "mine", &tower.url).await, StatusCode::SEE_OTHER);
    assert_eq!(tower.texts(state).await, ["acknowledged"]);
    assert_eq!(post("silence", "quiet", &tower.url).await, StatusCode::SEE_OTHER);
    assert_eq!(tower.texts(state).await, ["silenced"]);
    assert_eq!(
        tower
            // Distinct: a request that timed out is sent again.
            .texts("select distinct actor || ' ' || action || ' ' || detail from leasehold.audit")
            .await
            .len(),
        2
    );
    tower.sql("delete from leasehold.dead_job").await;
    tower.a_minute_passes().await;
    assert_eq!(post("ack", "late", &tower.url).await, StatusCode::CONFLICT);
}

#[tokio::test]
async fn what_people_wrote_is_shown_and_never_run() {
    let tower = Tower::start().await;
    let nasty = "<script>alert(1)</script>";
    tower.sql(&format!("insert into leasehold.job (queue, name, tag, scheduled_at, expires_at) values ('{nasty}', '{nasty}', '{nasty}', now() - interval '1 minute', now()); select leasehold.expire_jobs()")).await;
    tower.sql(&format!("select leasehold.register_worker('w/1', '{nasty}', 'h', 1, '0', array['{nasty}'], '{{}}', 1, 0, false)")).await;
    tower.a_minute_passes().await;
    let page = tower.get("/console").await.text().await.unwrap();
    assert!(page.contains("&lt;script&gt;alert(1)") && !page.contains("<script>alert"), "{page}");
}

#[tokio::test]
async fn i7_the_figures_that_are_shown_are_those_of_the_tables() {
    let tower = Tower::start().await;
    let place = &tower.place;
    // Jobs in every state, in two queues, different numbers of each.
    for (queue, ready, running, dead, done) in [("mail", 5, 2, 3, 4), ("hooks", 1, 3, 0, 2)] {
        for _ in 0..done {
            place.done(queue, "send").await;
        }
        for _ in 0..dead {
            place.dead(queue, "send", "rejected").await;
        }
        for _ in 0..running {
            place.running(queue, "send").await;
        }
        for _ in 0..ready {
            place.job(queue, "send").await;
        }
        tower.sql(&format!("insert into leasehold.job (queue, name, scheduled_at) values ('{queue}', 'later', now() + interval '1 hour')")).await;
        tower.sql(&format!("insert into leasehold.job (queue, name, scheduled_at, attempts) values ('{queue}', 'again', now() + interval '1 hour', 2)")).await;
        tower.sql(&format!("insert into leasehold.job (queue, name, scheduled_at, expires_at) values ('{queue}', 'late', now() - interval '1 minute', now())")).await;
    }
    tower.sql("select leasehold.expire_jobs()").await;
    tower.a_minute_passes().await;
    let overview: Value = tower.get("/console/api/overview").await.json().await.unwrap();
    let metrics = tower.metrics().await;
    for queue in overview["queues"].as_array().unwrap() {
        let name = queue["name"].as_str().unwrap();
        for (state, rows) in [
            ("ready", "leasehold.job where not held and scheduled_at <= now()"),
            ("running", "leasehold.job where held"),
            ("scheduled", "leasehold.job where not held and scheduled_at > now() and attempts = 0"),
            ("retrying", "leasehold.job where not held and scheduled_at > now() and attempts > 0"),
            ("dead", "leasehold.dead_job where cause <> 'expired'"),
            ("expired", "leasehold.dead_job where cause = 'expired'"),
        ] {
            let there =
                place.number(&format!("select count(*) from {rows} and queue = '{name}'")).await;
            assert_eq!(queue[state].as_f64(), Some(there as f64), "{name} {state} in the overview");
            let line =
                format!("leasehold_queue_jobs{{queue=\"{name}\",state=\"{state}\"}} {there}\n");
            assert!(metrics.contains(&line), "{line} is not in:\n{metrics}");
        }
        let done = place.number(&format!("select coalesce(sum(cardinality(job_ids)), 0)::bigint from leasehold.history where queue = '{name}'")).await;
        assert_eq!(queue["completed_last_minute"].as_f64(), Some(done as f64), "{name} completed");
    }
    assert_eq!(overview["queues"].as_array().unwrap().len(), 2);
}
