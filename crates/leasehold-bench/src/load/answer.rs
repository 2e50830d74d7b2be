//! Parses HTTP/1.1 responses from a growing buffer. Pure.

use anyhow::{Context, Result, bail};

/// The limit of a response; no request of the benchmark returns more.
const MOST_BYTES: usize = 16 * 1024 * 1024;
const MOST_HEADERS: usize = 64 * 1024;

/// A complete response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// From the status line to the empty line.
    pub head: String,
    pub body: Vec<u8>,
}

impl Answer {
    /// Returns the value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// Where the parts of a response lie in the buffer; nothing is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub status: u16,
    /// The first byte after the headers.
    pub body: usize,
    /// The first byte after the response.
    pub end: usize,
    chunked: bool,
    /// The server closes this connection after the response.
    pub close: bool,
}

impl Shape {
    /// Looks for a complete response at the start of the buffer. Returns `None` if more bytes are
    /// needed.
    pub fn of(buffer: &[u8]) -> Result<Option<Self>> {
        let Some(body) = find(buffer, b"\r\n\r\n").map(|at| at + 4) else {
            if buffer.len() > MOST_HEADERS {
                bail!("{} bytes without an end of the headers", buffer.len());
            }
            return Ok(None);
        };
        let head = buffer.get(..body).unwrap_or_default();
        let status = status(head)?;
        let close = header(head, b"connection").is_some_and(|value| value == b"close");
        let chunked = header(head, b"transfer-encoding").is_some_and(|value| value == b"chunked");
        let end = if chunked {
            chunks(buffer, body, |_| ())?
        } else if matches!(status, 204 | 304) {
            Some(body)
        } else {
            let length = header(head, b"content-length").context("an answer without a length")?;
            let length: usize = std::str::from_utf8(length)?.parse()?;
            let end = body.checked_add(length).filter(|end| *end <= MOST_BYTES);
            let end = end.with_context(|| format!("an answer of {length} bytes"))?;
            (buffer.len() >= end).then_some(end)
        };
        if end.is_none() && buffer.len() > MOST_BYTES {
            bail!("an answer of more than {MOST_BYTES} bytes");
        }
        Ok(end.map(|end| Self { status, body, end, chunked, close }))
    }

    /// Copies the response out of the buffer.
    pub fn answer(&self, buffer: &[u8]) -> Result<Answer> {
        let head = buffer.get(..self.body).unwrap_or_default();
        let mut body = Vec::new();
        if self.chunked {
            chunks(buffer, self.body, |piece| body.extend_from_slice(piece))?;
        } else {
            body.extend_from_slice(buffer.get(self.body..self.end).unwrap_or_default());
        }
        Ok(Answer { status: self.status, head: String::from_utf8_lossy(head).into_owned(), body })
    }
}

/// Walks over the chunks from `at`. Returns where they end.
fn chunks(buffer: &[u8], mut at: usize, mut piece: impl FnMut(&[u8])) -> Result<Option<usize>> {
    loop {
        let rest = buffer.get(at..).unwrap_or_default();
        let Some(line) = find(rest, b"\r\n") else {
            return Ok(None);
        };
        let size = rest.get(..line).unwrap_or_default();
        let size = size.split(|byte| *byte == b';').next().unwrap_or_default();
        let size = usize::from_str_radix(std::str::from_utf8(size)?.trim(), 16)?;
        let start = at + line + 2;
        let end = start.checked_add(size).filter(|end| *end <= MOST_BYTES);
        let end = end.with_context(|| format!("a chunk of {size} bytes"))?;
        if buffer.len() < end + 2 {
            return Ok(None);
        }
        piece(buffer.get(start..end).unwrap_or_default());
        at = end + 2;
        if size == 0 {
            return Ok(Some(at));
        }
    }
}

/// `HTTP/1.1 200 OK` → 200.
fn status(head: &[u8]) -> Result<u16> {
    let digits = head.get(9..12).filter(|_| head.starts_with(b"HTTP/1."));
    let digits = digits.context("an answer that is not HTTP/1")?;
    Ok(std::str::from_utf8(digits)?.parse()?)
}

fn header<'a>(head: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    head.split(|byte| *byte == b'\n').skip(1).find_map(|line| {
        let (found, value) = line.split_at_checked(name.len())?;
        let value = value.strip_prefix(b":")?;
        found.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
    })
}

fn find(text: &[u8], words: &[u8]) -> Option<usize> {
    text.windows(words.len()).position(|window| window == words)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: &[u8] = b"HTTP/1.1 201 Created\r\ncontent-LENGTH: 5\r\nX-A: b\r\n\r\nhello";
    const CHUNKED: &[u8] =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n";

    /// Parses a response and checks that no prefix of it counts as complete.
    fn read(bytes: &[u8]) -> Answer {
        for end in 0..bytes.len() {
            assert_eq!(Shape::of(&bytes[..end]).unwrap(), None, "complete after {end} bytes");
        }
        let mut more = bytes.to_vec();
        more.extend_from_slice(b"HTTP/1.1 500 Next\r\n");
        let shape = Shape::of(&more).unwrap().unwrap();
        assert_eq!(shape.end, bytes.len(), "the next answer is left alone");
        shape.answer(&more).unwrap()
    }

    #[test]
    fn response_with_a_length_is_read_to_its_end() {
        let answer = read(PLAIN);
        assert_eq!((answer.status, answer.body.as_slice()), (201, b"hello".as_slice()));
        assert_eq!(answer.header("x-a"), Some("b"));
    }

    #[test]
    fn chunked_response_is_joined() {
        assert_eq!(read(CHUNKED).body, b"abc0123456789");
    }

    #[test]
    fn response_without_a_body_ends_with_its_headers() {
        assert_eq!(read(b"HTTP/1.1 204 No Content\r\n\r\n").body, b"");
    }

    #[test]
    fn responses_without_an_end_are_refused() {
        for bytes in [
            b"HTTP/1.1 200 OK\r\n\r\n".as_slice(),
            b"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
            b"SSH-2.0-OpenSSH\r\n\r\n",
        ] {
            assert!(Shape::of(bytes).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
        assert!(Shape::of(&vec![b'x'; MOST_HEADERS + 1]).is_err());
    }

    #[test]
    fn connection_close_is_honoured() {
        let closing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
        assert!(Shape::of(closing).unwrap().unwrap().close);
        assert!(!Shape::of(PLAIN).unwrap().unwrap().close);
    }
}
