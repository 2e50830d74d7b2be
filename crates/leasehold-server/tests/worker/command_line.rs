//! Bad command lines: exit code 2, and a sentence that says what to do.

use crate::fixture::{SECRET, leasehold};

async fn refused(args: &[&str], secret: Option<&str>) -> String {
    let mut command = leasehold();
    command
        .arg("worker")
        .args(args)
        .env("LEASEHOLD_DATABASE_URL", "postgres://none@127.0.0.1:1/none");
    if let Some(secret) = secret {
        command.env("LEASEHOLD_HTTP_SECRET", secret);
    }
    let done = command.output().await.expect("it runs");
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(2), "{args:?}: {text}");
    text
}

#[tokio::test]
async fn i5_bad_worker_command_line_is_rejected_with_a_hint() {
    let q = ["--queue", "default=1"];
    let e = ["--exec", "a=true"];
    let table: &[(&[&str], &str)] = &[
        (&[e[0], e[1]], "--queue default=10"),
        (&[q[0], q[1]], "add --exec NAME=COMMAND"),
        (&["--queue", "a=0", e[0], e[1]], "slots are 1 to 100000"),
        (&["--queue", "a=x", e[0], e[1]], "slots are 1 to 100000"),
        (&["--queue", "A b=1", e[0], e[1]], "is not allowed"),
        (&["--queue", "a=1", "--queue", "a=2", e[0], e[1]], "given twice"),
        (
            &[q[0], q[1], "--exec", "true"],
            "--exec needs a name and what runs its jobs: --exec NAME=COMMAND",
        ),
        (&[q[0], q[1], "--exec", "a=sh -c 'open"], "quote is not closed"),
        (&[q[0], q[1], "--exec", "a=/nowhere/to/be/found"], "no program"),
        (&[q[0], q[1], "--exec", "a=no-such-program-anywhere"], "no program"),
        (&[q[0], q[1], e[0], e[1], "--http", "a=https://example.com/"], "mapped twice"),
        (&[q[0], q[1], e[0], e[1], "--poll", "2h"], "--poll is"),
        (&[q[0], q[1], e[0], e[1], "--grace", "soon"], "write 30s"),
        (
            &[q[0], q[1], "--http", "a=https://example.com/", "--http-timeout", "0s"],
            "--http-timeout is",
        ),
        (&[q[0], q[1], "--http", "https://example.com/?a=b"], "--http NAME=URL"),
    ];
    for (args, expected) in table {
        let text = refused(args, Some(SECRET)).await;
        assert!(text.contains(expected), "{args:?}: {text}");
    }
}

#[tokio::test]
async fn h7_worker_with_a_private_url_does_not_start() {
    for url in
        ["http://example.com/", "https://127.0.0.1/", "https://localhost/", "https://0x7f.1/"]
    {
        let text = refused(&["-q", "a", "--http", &format!("a={url}")], Some(SECRET)).await;
        assert!(text.contains("--http a: the URL"), "{url}: {text}");
    }
}

#[tokio::test]
async fn h12_rejected_command_line_prints_no_secret() {
    let args = ["-q", "a", "--http", "a=https://u:hunter2hunter2@example.com/?t=hunter2hunter2"];
    let text = refused(&args, Some(SECRET)).await;
    assert!(text.contains("leave it out") && !text.contains("hunter2"), "{text}");
    let args = ["-q", "a", "--http", "a=https://example.com/"];
    for secret in [None, Some(""), Some("hunter2hunter2!"), Some("whsec_hunter2hunter2")] {
        let text = refused(&args, secret).await;
        assert!(text.contains("LEASEHOLD_HTTP_SECRET") && !text.contains("hunter2"), "{text}");
    }
}

#[tokio::test]
async fn h24_worker_does_not_sign_for_two_servers_with_one_secret() {
    let args = [
        "-q",
        "a",
        "--http",
        "a=https://example.com/a",
        "--http",
        "mail.send=https://example.org/",
    ];
    let text = refused(&args, Some(SECRET)).await;
    assert!(text.contains("--http a and --http mail.send"), "{text}");
    assert!(text.contains("LEASEHOLD_HTTP_SECRET_MAIL_SEND") && !text.contains("Y2Fu"), "{text}");
}
