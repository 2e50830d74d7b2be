//! `leasehold paste`: pastes a file or standard input and prints a link.
//!
//! # Invariants
//! - Standard output has the link and nothing else.
//! - Every paste is sent with its own key, and sent again with it if the response is lost: that makes no
//!   second paste.

use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args as ClapArgs, Subcommand};
use reqwest::{Client, Response, StatusCode};
use serde::Serialize;

use super::address;
use super::common::Common;
use super::prompt::ask_secret;
use crate::exit::{Code, Failure};
use crate::text::one_line;

#[derive(ClapArgs, Debug)]
#[command(after_help = HELP, args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// File to paste; - reads standard input
    #[arg(value_name = "FILE|-", default_value = "-")]
    file: String,
    /// Expire the paste after this time: 10m, 1d, 2 weeks. Default: set by the service
    #[arg(long, value_name = "TIME")]
    expires: Option<String>,
    /// Let the paste be read only once, after the reader confirms
    #[arg(long)]
    burn: bool,
    /// Highlight the paste in this language, such as rust. Default: detected
    #[arg(long, value_name = "LANGUAGE")]
    lang: Option<String>,
    /// End the link with this name instead of a random code
    #[arg(long, value_name = "NAME")]
    alias: Option<String>,
    #[command(flatten)]
    service: Service,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Delete a paste
    Delete {
        /// Code of the paste, or its whole link
        code: String,
        /// Authenticate with this delete token, or the owner's token. Default: ask for it. Put it into the
        /// environment: every user of the machine can read a command line
        #[arg(long, env = "LEASEHOLD_PASTE_TOKEN", hide_env_values = true)]
        token: Option<String>,
        #[command(flatten)]
        service: Service,
    },
}

#[derive(ClapArgs, Debug)]
struct Service {
    /// Use this paste service. Default: that of `leasehold dev`, while it runs
    #[arg(long, env = "LEASEHOLD_URL", value_name = "URL")]
    url: Option<String>,
    /// Assign the paste to this owner, who can list and delete it
    #[arg(
        long,
        env = "LEASEHOLD_OWNER_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN",
        hide = true
    )]
    owner_token: Option<String>,
    /// Authenticate to a private service with this token. Put it into the environment: every user of the
    /// machine can read a command line
    #[arg(
        long,
        env = "LEASEHOLD_PASTES_CREATE_TOKEN",
        hide_env_values = true,
        value_name = "TOKEN"
    )]
    create_token: Option<String>,
}

const HELP: &str = "\
Examples:
  make 2>&1 | leasehold paste --expires 1d
  leasehold paste src/main.rs --url https://paste.example.org
  leasehold paste delete aB3xYz
  leasehold paste delete aB3xYz < token.txt";

/// The longest input to read: services accept far less, and a wrong file must not fill memory.
const LONGEST: u64 = 64 << 20;
const TRIES: usize = 3;

#[derive(Serialize)]
struct CreatedPaste {
    url: String,
    code: String,
    expires_at: Option<String>,
    delete_token: Option<String>,
}

pub async fn run(args: Args, common: &Common) -> Result<ExitCode, Failure> {
    match args.command {
        Some(Command::Delete { code, token, service }) => {
            delete(&code, ask_secret(token, "Delete token: ")?, &service, common).await
        }
        None => paste(args, common).await,
    }
}

async fn paste(args: Args, common: &Common) -> Result<ExitCode, Failure> {
    let out = common.out();
    let base = args.service.base()?;
    let content = bytes::Bytes::from(read(&args.file)?);
    let mut query: Vec<(&str, &str)> = Vec::new();
    for (name, value) in [("expires", &args.expires), ("lang", &args.lang), ("alias", &args.alias)]
    {
        query.extend(value.as_deref().map(|value| (name, value)));
    }
    if args.burn {
        query.push(("burn", "1"));
    }
    let mut url = reqwest::Url::parse(&base).map_err(|_| bad_url(&base))?;
    match url.path_segments_mut() {
        // The file name implies the language.
        Ok(mut path) if args.lang.is_none() && args.file != "-" => {
            path.pop_if_empty().push(file_name(&args.file));
        }
        Ok(mut path) => {
            path.pop_if_empty().push("");
        }
        Err(()) => return Err(bad_url(&base)),
    }
    if !query.is_empty() {
        url.query_pairs_mut().extend_pairs(query);
    }
    let key = format!("cli-{}", uuid::Uuid::now_v7().simple());
    let client = client(common.timeout())?;
    let response = send(|| {
        let mut request =
            client.put(url.clone()).header("idempotency-key", &key).body(content.clone());
        if let Some(owner) = &args.service.owner_token {
            request = request.bearer_auth(owner);
        }
        if let Some(token) = &args.service.create_token {
            request = request.header("x-create-token", token);
        }
        request
    })
    .await
    .map_err(|failure| {
        failure.hint(format!("check that a service runs at {base}, or name one: --url"))
    })?;
    let response = expect(response, StatusCode::CREATED).await?;
    let header = |name: &str| {
        response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    };
    let (expires_at, delete_token) = (header("x-expires-at"), header("x-delete-token"));
    let url = response.text().await.map_err(lost)?.trim().to_owned();
    let code = url.rsplit('/').next().unwrap_or_default().to_owned();
    let answer = CreatedPaste { url, code, expires_at, delete_token };
    out.one("paste", &answer, |answer| answer.url.clone())?;
    if let (true, Some(token)) = (out.is_table(), &answer.delete_token) {
        let code = one_line(&answer.code, 40);
        let token = one_line(token, 140);
        out.note(format!("delete token: {token}"));
        out.note(format!(
            "to delete the paste: leasehold paste delete {code}, which asks for the token"
        ));
    }
    Ok(ExitCode::SUCCESS)
}

async fn delete(
    code: &str,
    token: String,
    service: &Service,
    common: &Common,
) -> Result<ExitCode, Failure> {
    let out = common.out();
    // A whole link names its service, too.
    let (base, code) = match code.rsplit_once('/') {
        Some((base, code)) => (base.trim_end_matches("/raw").to_owned(), code.to_owned()),
        None => (service.base()?, code.to_owned()),
    };
    if code.parse::<pastes::ShortCode>().is_err() {
        return Err(Failure::usage(format!("{code:?} is not the code of a paste")));
    }
    let url = format!("{}/api/v1/pastes/{code}", base.trim_end_matches('/'));
    let client = client(common.timeout())?;
    let response = send(|| client.delete(&url).bearer_auth(&token)).await?;
    match response.status() {
        StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => {
            Err(Failure::refused("the token does not belong to this paste"))
        }
        _ => {
            expect(response, StatusCode::NO_CONTENT).await?;
            let answer = serde_json::json!({ "code": code, "deleted": true });
            out.one("paste", &answer, |_| format!("paste {code} is deleted"))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

impl Service {
    /// Returns the URL of the service, without a slash at the end.
    fn base(&self) -> Result<String, Failure> {
        let left_by_dev = || {
            let dir = crate::private_server::default_dir(&address::environment)?;
            std::fs::read_to_string(crate::private_server::pastes_file(&dir)).ok()
        };
        let url = self.url.clone().or_else(left_by_dev).unwrap_or_else(|| {
            // The default address of `leasehold serve`.
            format!("http://{}", crate::serve::pastes::LISTEN)
        });
        let url = url.trim().trim_end_matches('/').to_owned();
        if url.starts_with("http://") || url.starts_with("https://") {
            return Ok(url);
        }
        Err(bad_url(&url))
    }
}

fn bad_url(url: &str) -> Failure {
    Failure::usage(format!("{url:?} is not the URL of a service"))
        .hint("write it as https://paste.example.org, with --url or in LEASEHOLD_URL")
}

fn client(timeout: Duration) -> Result<Client, Failure> {
    leasehold_http::tls::use_ring();
    Client::builder()
        .timeout(timeout)
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .map_err(Failure::failed)
}

/// Sends a request that is safe to repeat, until there is a response.
async fn send(request: impl Fn() -> reqwest::RequestBuilder) -> Result<Response, Failure> {
    let mut tries = 1;
    loop {
        match request().send().await {
            Ok(response) => return Ok(response),
            Err(error) if tries < TRIES && !error.is_builder() => {
                tries += 1;
                tokio::time::sleep(Duration::from_millis(200)).await;
                tracing::debug!(%error, "sending it again");
            }
            Err(error) => return Err(lost(error)),
        }
    }
}

fn lost(error: reqwest::Error) -> Failure {
    let code = if error.is_timeout() { Code::Timeout } else { Code::Unreachable };
    // Without the URL: it may hold a password.
    Failure::new(code, format!("the service did not respond: {}", error.without_url()))
}

async fn expect(response: Response, wanted: StatusCode) -> Result<Response, Failure> {
    let status = response.status();
    if status == wanted {
        return Ok(response);
    }
    let code = match status.as_u16() {
        400 | 413 | 415 | 422 => Code::Usage,
        404 | 410 => Code::NotFound,
        401 | 403 => Code::Refused,
        409 => Code::Conflict,
        408 | 429 | 500.. => Code::Failed,
        _ => Code::Failed,
    };
    let wait = response.headers().get("retry-after").and_then(|value| value.to_str().ok());
    let wait = wait.map(|seconds| format!("try again in {seconds} s"));
    let text = response.text().await.unwrap_or_default();
    let failure =
        Failure::new(code, format!("{}: {}", status.as_u16(), one_line(text.trim(), 400)));
    Err(match wait {
        Some(wait) => failure.hint(wait),
        None => failure,
    })
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn read(file: &str) -> Result<Vec<u8>, Failure> {
    let mut content = Vec::new();
    let taken = match file {
        "-" => std::io::stdin().lock().take(LONGEST + 1).read_to_end(&mut content),
        path => std::fs::File::open(path)
            .map_err(|error| Failure::not_found(format!("cannot read {path}: {error}")))?
            .take(LONGEST + 1)
            .read_to_end(&mut content),
    };
    taken.map_err(|error| Failure::failed(format!("cannot read {file}: {error}")))?;
    match content.len() as u64 {
        0 => Err(Failure::usage("the input is empty; nothing was pasted")),
        length if length > LONGEST => {
            Err(Failure::usage("the input is longer than 64 MiB, which no paste service accepts"))
        }
        _ => Ok(content),
    }
}
