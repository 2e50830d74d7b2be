//! A receiver of jobs on loopback: it keeps what it gets, and its path selects the response.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// A request as it came in.
#[derive(Clone, Debug)]
pub struct Request {
    pub line: String,
    pub headers: HashMap<String, String>,
    pub body: Vec<u8>,
}

pub struct Receiver {
    pub origin: String,
    requests: Arc<Mutex<Vec<Request>>>,
    /// Bytes of an endless response that the worker took.
    pub taken: mpsc::UnboundedReceiver<usize>,
}

impl Receiver {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let origin = format!("http://{}", listener.local_addr().expect("bound"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (tell, taken) = mpsc::unbounded_channel();
        let (kept, own) = (Arc::clone(&requests), origin.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (kept, own, tell) = (Arc::clone(&kept), own.clone(), tell.clone());
                tokio::spawn(async move { serve(stream, &kept, &own, &tell).await });
            }
        });
        Self { origin, requests, taken }
    }

    /// `NAME=URL` for a path of this receiver.
    pub fn at(&self, name: &str, path: &str) -> String {
        format!("{name}={}{path}", self.origin)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().expect("no panic").clone()
    }
}

async fn serve(
    stream: TcpStream,
    kept: &Mutex<Vec<Request>>,
    origin: &str,
    tell: &mpsc::UnboundedSender<usize>,
) -> Option<()> {
    let mut stream = BufReader::new(stream);
    let request = read(&mut stream).await?;
    let path = request.line.split(' ').nth(1)?.to_owned();
    let signature = request.headers.get("webhook-signature").cloned().unwrap_or_default();
    kept.lock().expect("no panic").push(request);
    let mut words = path.trim_start_matches('/').split('/');
    let (kind, rest) = (words.next()?, words.next().unwrap_or_default());
    let plain = |status: &str, headers: &str, body: &str| {
        format!(
            "HTTP/1.1 {status} x\r\n{headers}content-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        )
    };
    let answer = match kind {
        "status" => plain(rest, "", "said the receiver"),
        "after" => plain(rest, "retry-after: 3600\r\n", ""),
        "redirect" => plain("307", &format!("location: {origin}/target\r\n"), ""),
        "echo" => {
            let secret = crate::fixture::SECRET;
            plain(
                "500",
                "",
                &format!("you sent {signature} made with {secret}\n\u{1b}[31mforged\0"),
            )
        }
        "hang" => std::future::pending().await,
        "drip" => {
            stream.write_all(b"HTTP/1.1 200 x\r\ncontent-length: 100000\r\n\r\n").await.ok()?;
            loop {
                stream.write_all(b".").await.ok()?;
                stream.flush().await.ok()?;
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        }
        "endless" => {
            stream.write_all(b"HTTP/1.1 200 x\r\n\r\n").await.ok()?;
            let mut taken = 0;
            while stream.write_all(&[b'.'; 8192]).await.is_ok() {
                taken += 8192;
            }
            return tell.send(taken).ok();
        }
        _ => plain("200", "", ""),
    };
    stream.write_all(answer.as_bytes()).await.ok()?;
    stream.flush().await.ok()
}

async fn read(stream: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    stream.read_line(&mut line).await.ok()?;
    let mut headers = HashMap::new();
    loop {
        let mut header = String::new();
        stream.read_line(&mut header).await.ok()?;
        match header.trim_end().split_once(": ") {
            Some((name, value)) => headers.insert(name.to_ascii_lowercase(), value.to_owned()),
            None => break,
        };
    }
    let mut body = vec![0; headers.get("content-length")?.parse().ok()?];
    stream.read_exact(&mut body).await.ok()?;
    Some(Request { line, headers, body })
}
