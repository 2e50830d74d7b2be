//! One keep-alive connection: sends a request and reads its response before the next request.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::answer::{Answer, Shape};

const CONNECT: Duration = Duration::from_secs(5);
/// A server that takes longer counts as failed.
const ANSWER: Duration = Duration::from_secs(30);

pub struct Connection {
    address: SocketAddr,
    stream: Option<TcpStream>,
    buffer: BytesMut,
}

impl Connection {
    /// Connects when the first request is sent.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, stream: None, buffer: BytesMut::with_capacity(64 * 1024) }
    }

    /// Like [`Self::send`], with a timeout: for runs without one.
    pub async fn send_in_time(&mut self, request: &[u8], expect: u16) -> Result<()> {
        tokio::time::timeout(ANSWER, self.send(request, expect))
            .await
            .with_context(|| format!("no response within {} s", ANSWER.as_secs()))?
    }

    /// Sends a request and checks the status of the response.
    pub async fn send(&mut self, request: &[u8], expect: u16) -> Result<()> {
        let shape = self.exchange(request).await?;
        if shape.status != expect {
            let answer = shape.answer(&self.buffer)?;
            let said = String::from_utf8_lossy(&answer.body).chars().take(200).collect::<String>();
            anyhow::bail!("the answer is {} instead of {expect}: {said}", answer.status);
        }
        self.take(shape);
        Ok(())
    }

    /// Sends a request and returns the response, of any status. Has its own timeout.
    pub async fn ask(&mut self, request: &[u8]) -> Result<Answer> {
        let shape = tokio::time::timeout(ANSWER, self.exchange(request))
            .await
            .with_context(|| format!("no response within {} s", ANSWER.as_secs()))??;
        let answer = shape.answer(&self.buffer)?;
        self.take(shape);
        Ok(answer)
    }

    /// Drops the connection after a failure: bytes left in it belong to no later request.
    async fn exchange(&mut self, request: &[u8]) -> Result<Shape> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => {
                self.buffer.clear();
                let connecting = TcpStream::connect(self.address);
                let stream = tokio::time::timeout(CONNECT, connecting)
                    .await
                    .with_context(|| format!("no connection to {} in time", self.address))?
                    .with_context(|| format!("no connection to {}", self.address))?;
                stream.set_nodelay(true)?;
                stream
            }
        };
        stream.write_all(request).await.context("the server does not take requests")?;
        acknowledge_at_once(&stream);
        loop {
            let read = stream.read_buf(&mut self.buffer).await.context("no answer")?;
            ensure!(read > 0, "the server closed the connection instead of answering");
            if let Some(shape) = Shape::of(&self.buffer)? {
                if !shape.close {
                    self.stream = Some(stream);
                }
                return Ok(shape);
            }
        }
    }

    fn take(&mut self, shape: Shape) {
        self.buffer.advance(shape.end);
    }
}

/// A server that sends headers and body apart, with Nagle's algorithm on, would wait 40 ms for an
/// acknowledgement that the kernel delays. The benchmark measures servers, not that delay. The kernel
/// resets this setting, so it is set for each response.
fn acknowledge_at_once(stream: &TcpStream) {
    #[cfg(target_os = "linux")]
    let _ = stream.set_quickack(true);
    #[cfg(not(target_os = "linux"))]
    let _ = stream;
}
