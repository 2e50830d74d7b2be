//! Receives bodies: never more than the limit, never longer than allowed, never more at once than
//! fits into memory.
//!
//! # Invariants
//! - Bodies are counted while they arrive. `Content-Length` is only used to refuse a body early.
//! - Nothing is decompressed: a compressed body is refused, so that a small body cannot expand into a
//!   large one.

use std::error::Error;

use axum::body::Body;
use axum::http::{HeaderMap, header};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;

pub use crate::budget::{Budget, MemoryPermit, Share, hold_memory};

/// Why a body was not received.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("the body is larger than {limit} bytes")]
    TooLarge { limit: usize },
    /// It did not arrive in time.
    #[error("the body did not arrive in time")]
    TooSlow,
    /// The memory for bodies is used up.
    #[error("the memory for bodies is used up")]
    Busy,
    #[error("the body is compressed")]
    Compressed,
    #[error("the body ended early")]
    Broken,
}

/// A body and the memory that is reserved for it.
pub struct ReceivedBody {
    pub bytes: Bytes,
    pub permit: MemoryPermit,
}

impl Budget {
    /// Receives a body of at most `limit` bytes without counting it against a client: for small
    /// bodies.
    pub async fn read(
        &self,
        headers: &HeaderMap,
        body: Body,
        limit: usize,
    ) -> Result<ReceivedBody, BodyError> {
        self.of(None).read(headers, body, limit).await
    }
}

impl Share {
    /// Receives a body of at most `limit` bytes.
    pub async fn read(
        &self,
        headers: &HeaderMap,
        mut body: Body,
        limit: usize,
    ) -> Result<ReceivedBody, BodyError> {
        refuse_compressed(headers)?;
        let announced = headers
            .get(header::CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|announced| announced > limit as u64) {
            return Err(BodyError::TooLarge { limit });
        }
        let mut permit = MemoryPermit::default();
        let mut first = Bytes::new();
        let mut rest = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|error| broken(&error))?.into_data() else { continue };
            let size = first.len() + rest.len() + data.len();
            if size > limit {
                return Err(BodyError::TooLarge { limit });
            }
            self.grow(&mut permit, size)?;
            // Most bodies arrive in one piece and are never copied.
            if first.is_empty() && rest.is_empty() {
                first = data;
            } else {
                if rest.is_empty() {
                    rest.reserve(2 * size);
                    rest.extend_from_slice(&first);
                    first.clear();
                }
                rest.extend_from_slice(&data);
            }
        }
        let bytes = if rest.is_empty() { first } else { rest.freeze() };
        Ok(ReceivedBody { bytes, permit })
    }
}

fn refuse_compressed(headers: &HeaderMap) -> Result<(), BodyError> {
    match headers.get(header::CONTENT_ENCODING) {
        Some(value) if !value.as_bytes().eq_ignore_ascii_case(b"identity") => {
            Err(BodyError::Compressed)
        }
        _ => Ok(()),
    }
}

/// The error source that [`crate::server`] sets when a body does not arrive in time.
#[derive(Debug, thiserror::Error)]
#[error("the body did not arrive in time")]
pub struct BodyTimeout;

fn broken(error: &axum::Error) -> BodyError {
    let mut source: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = source {
        if error.is::<BodyTimeout>() {
            return BodyError::TooSlow;
        }
        source = error.source();
    }
    BodyError::Broken
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::PIECE;
    use axum::http::HeaderValue;

    fn pieces(sizes: &[usize]) -> Body {
        let pieces: Vec<Result<Bytes, std::io::Error>> = sizes
            .iter()
            .enumerate()
            .map(|(at, size)| Ok(Bytes::from(vec![b'a' + at as u8; *size])))
            .collect();
        Body::from_stream(futures_util::stream::iter(pieces))
    }

    #[tokio::test]
    async fn e21_body_up_to_the_limit_is_received_whole() {
        let budget = Budget::new(1 << 20);
        for sizes in [&[][..], &[1], &[10], &[4, 6], &[0, 3, 0, 3, 4]] {
            let received = budget.read(&HeaderMap::new(), pieces(sizes), 10).await.ok();
            let expected: Vec<u8> = sizes
                .iter()
                .enumerate()
                .flat_map(|(at, size)| vec![b'a' + at as u8; *size])
                .collect();
            assert_eq!(received.map(|body| body.bytes.to_vec()), Some(expected), "{sizes:?}");
        }
    }

    #[tokio::test]
    async fn e21_body_beyond_the_limit_is_refused() {
        let budget = Budget::new(1 << 20);
        for sizes in [&[11][..], &[5, 6], &[1, 1, 9]] {
            let refused = budget.read(&HeaderMap::new(), pieces(sizes), 10).await;
            assert!(matches!(refused, Err(BodyError::TooLarge { limit: 10 })), "{sizes:?}");
        }
    }

    #[tokio::test]
    async fn h11_all_bodies_together_stay_within_the_budget() {
        let budget = Budget::new(4 * PIECE);
        let headers = HeaderMap::new();
        let read = |size| budget.read(&headers, pieces(&[size]), 1 << 20);
        let first = read(3 * PIECE).await.ok();
        assert!(first.is_some());
        assert!(matches!(read(2 * PIECE).await, Err(BodyError::Busy)));
        drop(first);
        assert!(read(2 * PIECE).await.is_ok());
    }

    #[tokio::test]
    async fn h11_compressed_body_is_refused() {
        let gzip =
            HeaderMap::from_iter([(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"))]);
        let refused = Budget::new(1 << 20).read(&gzip, pieces(&[1]), 10).await;
        assert!(matches!(refused, Err(BodyError::Compressed)));
    }
}
