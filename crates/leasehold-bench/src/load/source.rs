//! Where requests come from. Their bytes are built before the run; a request costs one copy.

use std::net::SocketAddr;

use rand::rngs::SmallRng;
use rand::{RngExt, SeedableRng};

/// Makes requests.
pub trait Source: Send {
    /// Writes the next request into the buffer, which is empty.
    fn next(&mut self, request: &mut Vec<u8>);
}

/// A GET request.
pub fn get(address: SocketAddr, path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nAccept: */*\r\n\r\n").into_bytes()
}

/// Reads of a set of paths, at random.
pub struct Reads {
    requests: Vec<Vec<u8>>,
    random: SmallRng,
}

impl Reads {
    pub fn new(address: SocketAddr, paths: impl IntoIterator<Item = String>) -> Self {
        let requests = paths.into_iter().map(|path| get(address, &path)).collect();
        Self { requests, random: SmallRng::seed_from_u64(1) }
    }
}

impl Source for Reads {
    fn next(&mut self, request: &mut Vec<u8>) {
        if let Some(bytes) =
            self.requests.get(self.random.random_range(0..self.requests.len().max(1)))
        {
            request.extend_from_slice(bytes);
        }
    }
}

/// What surrounds a paste in the body of the request that creates it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// The paste is the body.
    Raw,
    /// `multipart/form-data` with the paste as one field.
    Multipart {
        field: &'static str,
        file_name: Option<&'static str>,
        /// Other fields, sent before it.
        before: &'static [(&'static str, &'static str)],
    },
}

const BOUNDARY: &str = "leasehold-0123456789abcdef";

/// Requests that create pastes: each of the same size, no two the same.
pub struct Creates {
    head: Vec<u8>,
    tail: Vec<u8>,
    /// Text to cut pastes from.
    text: Vec<u8>,
    size: usize,
    number: u64,
    random: SmallRng,
}

impl Creates {
    /// `salt` makes the pastes of two runs differ.
    pub fn new(address: SocketAddr, path: &str, body: &Body, size: usize, salt: u64) -> Self {
        let (before, tail, content_type) = surround(body);
        let length = before.len() + size + tail.len();
        let mut head = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nAccept: */*\r\n\
             Content-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n"
        )
        .into_bytes();
        head.extend_from_slice(before.as_bytes());
        let mut random = SmallRng::seed_from_u64(salt);
        let letters = b"abcdefghijklmnopqrstuvwxyz      ";
        let text = (0..size + 65_536)
            .map(|at| match at % 64 {
                63 => b'\n',
                _ => letters.get(random.random_range(0..letters.len())).copied().unwrap_or(b' '),
            })
            .collect();
        Self { head, tail: tail.into_bytes(), text, size, number: 0, random }
    }
}

impl Source for Creates {
    fn next(&mut self, request: &mut Vec<u8>) {
        request.extend_from_slice(&self.head);
        // The number makes every paste unique, even where two are cut from the same offset.
        let number = format!("{:020} ", self.number);
        self.number += 1;
        let number = number.as_bytes().get(..self.size.min(21)).unwrap_or_default();
        request.extend_from_slice(number);
        let rest = self.size - number.len();
        let from = self.random.random_range(0..65_536);
        request.extend_from_slice(self.text.get(from..from + rest).unwrap_or_default());
        request.extend_from_slice(&self.tail);
    }
}

fn surround(body: &Body) -> (String, String, String) {
    match body {
        Body::Raw => (String::new(), String::new(), "text/plain; charset=utf-8".to_owned()),
        Body::Multipart { field, file_name, before } => {
            let mut text = String::new();
            for (name, value) in *before {
                text.push_str(&format!(
                    "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
                ));
            }
            let file = file_name.map_or(String::new(), |name| {
                format!("; filename=\"{name}\"\r\nContent-Type: text/plain")
            });
            text.push_str(&format!(
                "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{field}\"{file}\r\n\r\n"
            ));
            let end = format!("\r\n--{BOUNDARY}--\r\n");
            (text, end, format!("multipart/form-data; boundary={BOUNDARY}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 80))
    }

    fn made(source: &mut dyn Source) -> (String, String) {
        let mut request = Vec::new();
        source.next(&mut request);
        let text = String::from_utf8(request).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    #[test]
    fn pastes_differ_and_have_the_given_size() {
        let mut source = Creates::new(address(), "/", &Body::Raw, 1024, 7);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..10_000 {
            let (head, body) = made(&mut source);
            assert!(head.contains("Content-Length: 1024"), "{head}");
            assert_eq!(body.len(), 1024);
            assert!(seen.insert(body));
        }
        let (_, other) = made(&mut Creates::new(address(), "/", &Body::Raw, 1024, 8));
        assert!(!seen.contains(&other), "another run sends other pastes");
    }

    #[test]
    fn form_sends_its_exact_content_length() {
        let form = Body::Multipart {
            field: "file",
            file_name: Some("p.txt"),
            before: &[("expiration", "24hour")],
        };
        let (head, body) = made(&mut Creates::new(address(), "/upload", &form, 100, 1));
        assert!(head.starts_with("POST /upload HTTP/1.1\r\n"), "{head}");
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}\n{body}");
        assert!(body.contains("name=\"expiration\"\r\n\r\n24hour\r\n"), "{body}");
        assert!(body.contains("name=\"file\"; filename=\"p.txt\"\r\n"), "{body}");
        assert!(body.ends_with(&format!("\r\n--{BOUNDARY}--\r\n")), "{body}");
    }
}
