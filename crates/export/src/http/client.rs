//! Sends one request and reads the answer.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use super::deadline::Timed;
use super::url::Url;

/// The most bytes of an answer.
const LONGEST: usize = 64 << 10;

/// A request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    /// The path, and a query, as they are sent.
    pub(crate) target: &'a str,
    /// What is said of it besides the host and the length of the body.
    pub(crate) fields: &'a [(&'a str, &'a str)],
    pub(crate) body: &'a [u8],
}

/// An answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    fields: Vec<(String, String)>,
    /// The body, as far as it is read.
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// What the head says under a name.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(field, _)| field.eq_ignore_ascii_case(name));
        found.map(|(_, value)| &**value)
    }

    fn is_chunked(&self) -> bool {
        self.field("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
    }

    /// How long to wait before the next request, if the server says so.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        self.field("retry-after")?.parse().ok().map(Duration::from_secs)
    }
}

/// Posts a body, all within a time. (Names are looked up by the C library, which has its own.)
///
/// # Errors
/// Nobody is there, or does not answer in time; `InvalidData`: what answers is no HTTP.
pub(crate) fn post(url: &Url, path: &str, kind: &str, body: &[u8], limit: Duration) -> io::Result<Answer> {
    let target = format!("{}{path}", url.base);
    let fields = [("Content-Type", kind)];
    send(url, &Request { method: "POST", target: &target, fields: &fields, body }, limit)
}

/// Sends a request to a server, all within a time.
///
/// # Errors
/// Those of [`post`].
pub(crate) fn send(url: &Url, request: &Request<'_>, limit: Duration) -> io::Result<Answer> {
    let end = Instant::now() + limit;
    let left = || end.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    let mut failure = io::Error::new(ErrorKind::NotFound, "the host has no address");
    for address in (&*url.host, url.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, left()) {
            Ok(stream) => return exchange(Timed::new(stream, left()), &url.authority, request),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn exchange(mut stream: Timed, host: &str, request: &Request<'_>) -> io::Result<Answer> {
    let Request { method, target, fields, body } = request;
    let fields: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: dprobes\r\n{fields}\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
    let mut bytes = Vec::new();
    let read = read_answer(&mut stream, &mut bytes, *method == "HEAD");
    // A server may answer before it has read all.
    match parse(&bytes) {
        Some(answer) => Ok(answer),
        None => {
            sent.and(read)?;
            if bytes.is_empty() {
                return Err(io::Error::new(
                    ErrorKind::UnexpectedEof,
                    "the connection was closed without an answer",
                ));
            }
            Err(io::Error::new(ErrorKind::InvalidData, "what answers is no HTTP server"))
        }
    }
}

/// Reads until the answer is whole, or there is no more: a server may keep the connection.
fn read_answer(stream: &mut impl Read, bytes: &mut Vec<u8>, is_head: bool) -> io::Result<()> {
    let mut part = [0; 4096];
    while bytes.len() < LONGEST && !is_whole(bytes, is_head) {
        match stream.read(&mut part) {
            Ok(0) => return Ok(()),
            Ok(count) => bytes.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether these bytes are known to be all of an answer.
fn is_whole(bytes: &[u8], is_head: bool) -> bool {
    let Some((answer, body)) = head(bytes) else { return false };
    let length = answer.field("content-length").and_then(|length| length.parse::<usize>().ok());
    let has_no_body = is_head || matches!(answer.status, 204 | 304);
    has_no_body
        || match answer.is_chunked() {
            true => body.ends_with(b"\r\n0\r\n\r\n") || body == b"0\r\n\r\n",
            false => length.is_some_and(|length| body.len() >= length),
        }
}

/// The answer in these bytes; `None` if its head is not all there, or malformed.
fn parse(bytes: &[u8]) -> Option<Answer> {
    let (answer, body) = head(bytes)?;
    let body = if answer.is_chunked() { joined(body) } else { body.to_vec() };
    Some(Answer { body, ..answer })
}

/// The head of an answer, and what follows it.
fn head(bytes: &[u8]) -> Option<(Answer, &[u8])> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&bytes[..end]);
    let mut lines = head.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let status = match (words.next()?, words.next()?) {
        ("HTTP/1.1" | "HTTP/1.0", status) if is_status(status) => status.parse().ok()?,
        _ => return None,
    };
    let fields = lines.filter_map(|line| line.split_once(':'));
    let fields = fields.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect();
    Some((Answer { status, fields, body: Vec::new() }, &bytes[end + 4..]))
}

/// Whether a word has the form of a status.
fn is_status(word: &str) -> bool {
    word.len() == 3 && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// The chunks of a body, as far as they are there.
fn joined(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&rest[..end]).ok().map(|line| line.split(';').next().unwrap_or(line));
        let size = size.and_then(|size| usize::from_str_radix(size.trim(), 16).ok());
        let Some(size) = size.filter(|size| *size > 0) else { break };
        let behind = &rest[end + 2..];
        let chunk = &behind[..size.min(behind.len())];
        body.extend_from_slice(chunk);
        rest = behind.get(chunk.len() + 2..).unwrap_or_default();
    }
    body
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn answers_are_read() {
        let read = |text: &str| parse(text.as_bytes()).map(|it| (it.status, it.retry_after(), it.body));
        assert_eq!(read("HTTP/1.1 200 OK\r\n\r\nbody"), Some((200, None, b"body".to_vec())));
        let later = "HTTP/1.0 503 No\r\nretry-after: 7\r\n\r\n";
        assert_eq!(read(later), Some((503, Some(Duration::from_secs(7)), Vec::new())));
        let chunks =
            "HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n";
        assert_eq!(read(chunks), Some((200, None, b"abc0123456789".to_vec())));
        for bad in ["", "HTTP/1.1 200 OK\r\n", "ICY 200 OK\r\n\r\n", "HTTP/1.1 +20 OK\r\n\r\n"] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn who_keeps_the_connection_is_not_waited_for() {
        let whole = |text: &str| is_whole(text.as_bytes(), false);
        assert!(whole("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab"));
        assert!(whole("HTTP/1.1 204 No\r\n\r\n"));
        assert!(whole("HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"));
        assert!(is_whole(b"HTTP/1.1 404 No\r\nContent-Length: 9\r\n\r\n", true));
        for part in [
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
            "HTTP/1.1 200 OK\r\n\r\nab",
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n",
            "HTTP/1.1 200\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n",
        ] {
            assert!(!whole(part), "{part:?}");
        }
    }

    proptest! {
        #[test]
        fn any_answer_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..100), chunked: bool) {
            let coding = if chunked { "Transfer-Encoding: chunked\r\n" } else { "" };
            let whole = [format!("HTTP/1.1 200 OK\r\n{coding}\r\n").as_bytes(), &bytes].concat();
            let answer = parse(&whole).expect("its head is right");
            prop_assert!(answer.body.len() <= bytes.len());
            parse(&bytes);
        }
    }
}
