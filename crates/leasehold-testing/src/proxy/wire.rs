//! PostgreSQL's framing: a type, a length, a body.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

/// The part of a message that rules read; the rest is forwarded in pieces.
pub(super) const HEAD_BYTES: usize = 64 * 1024;
/// A longer first message is an attack or not PostgreSQL.
const STARTUP_BYTES: u32 = 10_000;

const CANCEL: u32 = 80_877_102;
const TLS: u32 = 80_877_103;
const GSS: u32 = 80_877_104;

/// The start of a message, as received; `rest` more bytes follow.
pub(super) struct Head {
    pub tag: u8,
    /// Tag, length, and the body up to [`HEAD_BYTES`].
    pub bytes: Vec<u8>,
    pub rest: usize,
}

impl Head {
    pub(super) fn body(&self) -> &[u8] {
        &self.bytes[5..]
    }

    /// Returns the nth zero-terminated text of the body, counted from 0. Truncated or invalid UTF-8
    /// does no harm: rules search for a part of the text.
    pub(super) fn text(&self, skip_bytes: usize, nth: usize) -> String {
        let body = self.body().get(skip_bytes..).unwrap_or_default();
        let text = body.split(|byte| *byte == 0).nth(nth).unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    }
}

/// Reads the start of the next message. Returns `None` if the sender has ended.
pub(super) async fn read_head(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Head>> {
    let mut start = [0; 5];
    match from.read_exact(&mut start).await {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    };
    let length = u32::from_be_bytes([start[1], start[2], start[3], start[4]]) as usize;
    let body = length.checked_sub(4).ok_or(io::ErrorKind::InvalidData)?;
    let mut bytes = vec![0; 5 + body.min(HEAD_BYTES)];
    bytes[..5].copy_from_slice(&start);
    from.read_exact(&mut bytes[5..]).await?;
    Ok(Some(Head { tag: start[0], rest: body.saturating_sub(HEAD_BYTES), bytes }))
}

/// A client's first message, which has no type.
pub(super) enum Startup {
    /// Asks for encryption; the reply is one byte, and the client starts again.
    Encryption,
    /// Cancels a statement of another connection; there is no reply.
    Cancel(Vec<u8>),
    Session(Vec<u8>),
}

pub(super) async fn read_startup(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Startup> {
    let length = from.read_u32().await?;
    if !(8..=STARTUP_BYTES).contains(&length) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut bytes = vec![0; length as usize];
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    from.read_exact(&mut bytes[4..]).await?;
    Ok(match u32::from_be_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]) {
        TLS | GSS => Startup::Encryption,
        CANCEL => Startup::Cancel(bytes),
        _ => Startup::Session(bytes),
    })
}
