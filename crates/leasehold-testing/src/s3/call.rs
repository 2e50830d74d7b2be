//! Reads the operation and the keys from the plain request.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

use hyper::Method;
use hyper::http::request::Parts;

use super::log::Outcome;
use super::rule::Tamper;

/// The operation of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Op {
    /// Stores an object.
    Put,
    /// Reads an object, or a part of it.
    Get,
    /// Reads size and time of an object.
    Head,
    /// Removes one object.
    Delete,
    /// Removes up to 1000 objects (`DeleteObjects`).
    DeleteMany,
    /// Lists objects. Its key in the log is the prefix.
    List,
    /// Any step of a multipart upload. This server refuses them, and the log shows the attempt.
    Multipart,
    /// Everything else.
    Other,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// One request. The store finds it in the request's extensions.
#[derive(Debug)]
pub(super) struct Call {
    pub op: Op,
    pub keys: Vec<String>,
    /// The outcome to log once the request has been applied.
    pub outcome: Outcome,
    pub tamper: Tamper,
    logged: AtomicBool,
}

impl Call {
    pub(super) fn read(head: &Parts, body: &[u8]) -> Self {
        let (op, key) = operation(head);
        let keys = match op {
            Op::DeleteMany => keys_in(&String::from_utf8_lossy(body)),
            _ => vec![key],
        };
        let (outcome, tamper) = (Outcome::Done, Tamper::default());
        Self { op, keys, outcome, tamper, logged: AtomicBool::new(false) }
    }

    /// Marks that the store has logged this call.
    pub(super) fn set_logged(&self) {
        self.logged.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_logged(&self) -> bool {
        self.logged.load(Ordering::Relaxed)
    }
}

fn operation(head: &Parts) -> (Op, String) {
    let path = head.uri.path().trim_start_matches('/');
    let (_bucket, key) = path.split_once('/').unwrap_or((path, ""));
    let key = decoded(key);
    let query = head.uri.query().unwrap_or_default();
    let has = |name: &str| query.split('&').any(|pair| pair.split('=').next() == Some(name));
    let op = match head.method {
        _ if has("uploads") || has("uploadId") => Op::Multipart,
        Method::PUT if !key.is_empty() => Op::Put,
        Method::GET if !key.is_empty() => Op::Get,
        Method::HEAD if !key.is_empty() => Op::Head,
        Method::DELETE if !key.is_empty() => Op::Delete,
        Method::POST if has("delete") => Op::DeleteMany,
        Method::GET if has("list-type") || has("prefix") => Op::List,
        _ => Op::Other,
    };
    let key = match op {
        Op::List => {
            let prefix = query.split('&').find_map(|pair| pair.strip_prefix("prefix="));
            decoded(&prefix.unwrap_or_default().replace('+', " "))
        }
        _ => key,
    };
    (op, key)
}

/// Decodes percent escapes. Bytes that are no UTF-8 become replacement characters: our keys are text.
fn decoded(text: &str) -> String {
    percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Returns the keys in the body of a `DeleteObjects`.
fn keys_in(xml: &str) -> Vec<String> {
    let after_each = xml.split("<Key>").skip(1);
    after_each
        .filter_map(|rest| rest.split_once("</Key>"))
        .map(|(key, _)| {
            let key = key.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"");
            key.replace("&apos;", "'").replace("&amp;", "&")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    fn read(method: Method, uri: &str, body: &str) -> (Op, Vec<String>) {
        let (head, ()) = Request::builder().method(method).uri(uri).body(()).unwrap().into_parts();
        let call = Call::read(&head, body.as_bytes());
        (call.op, call.keys)
    }

    #[test]
    fn requests_are_classified_by_method_and_query() {
        let one = |op, key: &str| (op, vec![key.to_owned()]);
        assert_eq!(read(Method::PUT, "/b/blobs/a%2Bb%20c", ""), one(Op::Put, "blobs/a+b c"));
        assert_eq!(read(Method::PUT, "/b/k?partNumber=1&uploadId=x", ""), one(Op::Multipart, "k"));
        assert_eq!(read(Method::POST, "/b/k?uploads", ""), one(Op::Multipart, "k"));
        assert_eq!(
            read(Method::GET, "/b?list-type=2&prefix=blobs%2F", ""),
            one(Op::List, "blobs/")
        );
        assert_eq!(read(Method::DELETE, "/b/k", ""), one(Op::Delete, "k"));
        assert_eq!(read(Method::HEAD, "/b", ""), one(Op::Other, ""));
        assert_eq!(read(Method::GET, "/b/50%", ""), one(Op::Get, "50%"));
    }

    #[test]
    fn keys_of_a_batch_are_parsed_from_its_body() {
        let body =
            "<Delete><Object><Key>a&amp;b</Key></Object><Object><Key>c</Key></Object></Delete>";
        assert_eq!(
            read(Method::POST, "/b?delete", body),
            (Op::DeleteMany, vec!["a&b".into(), "c".into()])
        );
    }
}
