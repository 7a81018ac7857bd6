//! The head of a request: what is asked for, or why it is not understood.
//!
//! ```text
//! GET /metrics?x=1 HTTP/1.1 CRLF      method, path (and a query, which means nothing), version
//! Host: db1:9464 CRLF                 fields, which are checked for their form
//! CRLF
//! ```

use std::io::{ErrorKind, Read};

/// The most bytes of a head.
const LONGEST: usize = 8 << 10;

/// What is answered if a request is not one that this server answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    Ok,
    BadRequest,
    NotFound,
    MethodNotAllowed,
    Timeout,
    TooLong,
    Unavailable,
    Version,
}

impl Status {
    /// Its number, and what it is called.
    pub(crate) fn line(self) -> &'static str {
        match self {
            Status::Ok => "200 OK",
            Status::BadRequest => "400 Bad Request",
            Status::NotFound => "404 Not Found",
            Status::MethodNotAllowed => "405 Method Not Allowed",
            Status::Timeout => "408 Request Timeout",
            Status::TooLong => "431 Request Header Fields Too Large",
            Status::Unavailable => "503 Service Unavailable",
            Status::Version => "505 HTTP Version Not Supported",
        }
    }
}

/// Reads the head of a request for one page. `None`: nobody asks for anything.
pub(crate) fn read(from: &mut impl Read) -> Option<Status> {
    let mut head = Vec::new();
    let mut bytes = [0; 1024];
    loop {
        match from.read(&mut bytes) {
            Ok(0) if head.is_empty() => return None,
            Ok(0) => return Some(Status::BadRequest),
            Ok(count) => head.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if error.kind() == ErrorKind::TimedOut => return Some(Status::Timeout),
            Err(_) => return None,
        }
        if let Some(end) = end(&head) {
            return Some(if end > LONGEST { Status::TooLong } else { status(&head[..end]) });
        }
        if head.len() > LONGEST {
            return Some(Status::TooLong);
        }
    }
}

/// Where the empty line behind the head begins.
fn end(head: &[u8]) -> Option<usize> {
    let mut lines = 0;
    while let Some(length) = head[lines..].iter().position(|byte| *byte == b'\n') {
        let line = &head[lines..lines + length];
        if lines > 0 && matches!(line, b"" | b"\r") {
            return Some(lines);
        }
        lines += length + 1;
    }
    None
}

/// What a head asks for.
fn status(head: &[u8]) -> Status {
    let mut lines = head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let words: Vec<&[u8]> = lines.next().unwrap_or_default().split(|byte| *byte == b' ').collect();
    let &[method, target, version] = &*words else { return Status::BadRequest };
    if !is_token(method) {
        return Status::BadRequest;
    }
    let fields: Vec<&[u8]> = lines.filter(|line| !line.is_empty()).collect();
    let name =
        |field: &&[u8]| field.iter().position(|byte| *byte == b':').map(|colon| field[..colon].to_vec());
    let names: Option<Vec<Vec<u8>>> = fields.iter().map(name).collect();
    let Some(names) = names.filter(|names| names.iter().all(|name| is_token(name))) else {
        return Status::BadRequest;
    };
    let hosts = names.iter().filter(|name| name.eq_ignore_ascii_case(b"host")).count();
    match (version, hosts) {
        (b"HTTP/1.1", 1) | (b"HTTP/1.0", 0 | 1) => {}
        (b"HTTP/1.1" | b"HTTP/1.0", _) => return Status::BadRequest,
        (other, _) if other.starts_with(b"HTTP/") => return Status::Version,
        _ => return Status::BadRequest,
    }
    match (method, path(target)) {
        (b"GET", b"/metrics") => Status::Ok,
        (_, b"/metrics") => Status::MethodNotAllowed,
        _ => Status::NotFound,
    }
}

/// The path of what is asked for, which may be a whole address.
fn path(target: &[u8]) -> &[u8] {
    let path = match target.strip_prefix(b"http://") {
        Some(rest) => &rest[rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len())..],
        None => target,
    };
    &path[..path.iter().position(|byte| *byte == b'?').unwrap_or(path.len())]
}

/// Whether it is a name as the protocol has them.
fn is_token(name: &[u8]) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !name.is_empty() && name.iter().all(is_part)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asked(text: &str) -> Option<Status> {
        read(&mut text.as_bytes())
    }

    #[test]
    fn one_page_is_answered() {
        assert_eq!(asked("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), Some(Status::Ok));
        assert_eq!(asked("GET /metrics?a=b HTTP/1.0\r\n\r\n"), Some(Status::Ok));
        assert_eq!(asked("GET http://a:1/metrics HTTP/1.1\r\nhost: a:1\r\nA: b\r\n\r\n"), Some(Status::Ok));
        assert_eq!(asked("GET /metrics HTTP/1.1\nHost: a\n\n"), Some(Status::Ok));
        assert_eq!(asked("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), Some(Status::NotFound));
        assert_eq!(asked("GET /metrics/../etc HTTP/1.0\r\n\r\n"), Some(Status::NotFound));
        assert_eq!(asked("POST /metrics HTTP/1.0\r\n\r\n"), Some(Status::MethodNotAllowed));
        assert_eq!(asked("GET /metrics HTTP/2.0\r\n\r\n"), Some(Status::Version));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        for bad in [
            "GET /metrics HTTP/1.1\r\n\r\n",
            "GET /metrics HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            "GET /metrics HTTP/1.0\r\nno field\r\n\r\n",
            "GET /metrics HTTP/1.0\r\nA : b\r\n\r\n",
            "GET  /metrics HTTP/1.0\r\n\r\n",
            "GET /metrics\r\n\r\n",
            "GET /metrics HTTP/1.0\r\n",
            "\x16\x03\x01\r\n\r\n",
        ] {
            assert_eq!(asked(bad), Some(Status::BadRequest), "{bad:?}");
        }
        assert_eq!(asked(""), None);
        let long = format!("GET /metrics HTTP/1.0\r\nA: {}\r\n\r\n", "x".repeat(LONGEST));
        assert_eq!(asked(&long), Some(Status::TooLong));
        assert_eq!(asked(&"x".repeat(1 << 20)), Some(Status::TooLong));
    }

    proptest! {
        #[test]
        fn any_bytes_have_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            read(&mut &*bytes);
            status(&bytes);
        }
    }
}
