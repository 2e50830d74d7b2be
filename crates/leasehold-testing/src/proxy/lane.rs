//! One direction of a connection: forwards bytes as the rules in force allow.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::rules::Rules;
use super::session::Session;
use super::wire::{Head, read_head};

const PIECE_BYTES: usize = 16 * 1024;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    ToServer,
    ToClient,
}

pub(super) struct Lane<'a> {
    pub session: &'a Session,
    pub rules: &'a Rules,
    pub direction: Direction,
}

impl Lane<'_> {
    /// Returns the start of the next message. `None`: the sender has ended, and the other side may
    /// see that.
    pub(super) async fn next(
        &self,
        from: &mut (impl AsyncRead + Unpin),
    ) -> io::Result<Option<Head>> {
        let head = read_head(from).await;
        if !matches!(head, Ok(Some(_))) {
            // A blackhole also swallows the end of a connection.
            self.wait_for_passage().await;
        }
        head
    }

    /// Forwards one message of any length, holding only a piece of it in memory.
    pub(super) async fn pass_on(
        &self,
        head: &Head,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<()> {
        self.write(&head.bytes, to).await?;
        let mut left = head.rest;
        let mut piece = vec![0; PIECE_BYTES.min(left)];
        while left > 0 {
            let part = PIECE_BYTES.min(left);
            from.read_exact(&mut piece[..part]).await?;
            self.write(&piece[..part], to).await?;
            left -= part;
        }
        Ok(())
    }

    /// Writes as fast as the rules allow.
    pub(super) async fn write(
        &self,
        mut bytes: &[u8],
        to: &mut (impl AsyncWrite + Unpin),
    ) -> io::Result<()> {
        while !bytes.is_empty() {
            self.wait_for_passage().await;
            let limit = self.rules.throttle();
            // Twenty pieces per second, or one byte at a time.
            let part = limit.map_or(bytes.len(), |(_, speed)| (speed / 20).max(1) as usize);
            let part = part.min(bytes.len());
            to.write_all(&bytes[..part]).await?;
            to.flush().await?;
            bytes = &bytes[part..];
            if let Some((rule, speed)) = limit {
                self.rules.fire(rule);
                tokio::time::sleep(Duration::from_secs_f64(part as f64 / speed as f64)).await;
            }
        }
        Ok(())
    }

    /// Waits while a rule blocks this direction.
    pub(super) async fn wait_for_passage(&self) {
        loop {
            if let Some(rule) = self.session.swallowed(self.direction) {
                self.rules.until_removed(rule).await;
                self.session.let_pass(rule);
            } else if let Some(rule) = self.rules.blackhole() {
                self.rules.fire(rule);
                self.rules.until_removed(rule).await;
            } else {
                return;
            }
        }
    }
}
