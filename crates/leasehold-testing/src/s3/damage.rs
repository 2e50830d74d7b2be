//! Damaged responses.

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG, HeaderValue};
use hyper::http::StatusCode;
use s3s::{Body, HttpResponse};

use super::gateway::Cut;
use super::rule::Fault;

/// Returns the same bytes with one changed in the middle. Empty input stays empty.
pub(super) fn flipped(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let middle = bytes.len() / 2;
    if let Some(byte) = bytes.get_mut(middle) {
        *byte ^= 0x01;
    }
    bytes
}

/// Returns the damaged response that the client gets instead of the right one.
pub(super) async fn damaged(answer: HttpResponse, fault: Fault) -> Result<HttpResponse, Cut> {
    let (mut head, body) = answer.into_parts();
    let bytes = body.collect().await.map_err(|_| Cut)?.to_bytes();
    let half = bytes.slice(..bytes.len() / 2);
    let body = match fault {
        Fault::FlipByte => Body::from(flipped(&bytes)),
        Fault::Shorten => {
            head.headers.insert(CONTENT_LENGTH, HeaderValue::from(half.len()));
            Body::from(half)
        }
        Fault::CutInside => {
            head.headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes.len()));
            let pieces = [Ok(Frame::data(half)), Err(Cut)];
            Body::http_body(StreamBody::new(stream::iter(pieces)))
        }
        _ => Body::from(bytes),
    };
    Ok(HttpResponse::from_parts(head, body))
}

/// Returns an error response in S3's format.
pub(super) fn refusal(status: u16) -> HttpResponse {
    let code = match status {
        403 => "AccessDenied",
        404 => "NoSuchKey",
        429 => "TooManyRequests",
        503 => "SlowDown",
        _ => "InternalError",
    };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    with_error(status, code)
}

/// Returns an error as the body of a 200, with the header that clients look for.
pub(super) fn pretence() -> HttpResponse {
    let mut answer = with_error(StatusCode::OK, "InternalError");
    let etag = HeaderValue::from_static("\"d41d8cd98f00b204e9800998ecf8427e\"");
    answer.headers_mut().insert(ETAG, etag);
    answer
}

fn with_error(status: StatusCode, code: &str) -> HttpResponse {
    let body = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <Error><Code>{code}</Code><Message>as the test wants it</Message></Error>"
    );
    let mut answer = HttpResponse::new(Body::from(Bytes::from(body)));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    answer
}
