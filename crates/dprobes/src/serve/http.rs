//! As much of HTTP/1.1 as a page of our own needs: one request a connection, without a body.

use std::fmt::Write as _;
use std::io::{self, Read, Write};

/// Most bytes of a request.
const MAX_HEAD: usize = 8 << 10;
/// Most parameters of a request.
const MAX_PARAMETERS: usize = 32;

/// A request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// The path, before `?`, as it was sent.
    pub(super) path: String,
    /// The parameters, decoded.
    pub(super) parameters: Vec<(String, String)>,
}

impl Request {
    /// The value of a parameter; an empty one is none.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.parameters.iter().find(|(other, _)| other == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }
}

/// Why a request is not answered: a status, and a sentence for a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused(pub(super) &'static str, pub(super) String);

/// Reads a request.
///
/// # Errors
/// It is none that is answered here; or the peer is gone.
pub(super) fn read(from: &mut impl Read) -> io::Result<Result<Request, Refused>> {
    let mut head = Vec::new();
    let mut bytes = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > MAX_HEAD {
            return Ok(Err(Refused("431 Request Header Fields Too Large", "too long".to_owned())));
        }
        match from.read(&mut bytes)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => head.extend_from_slice(&bytes[..count]),
        }
    }
    Ok(parse(&head))
}

/// Parses the first line of a request; the others say nothing that is needed here.
fn parse(head: &[u8]) -> Result<Request, Refused> {
    let wrong = || Refused("400 Bad Request", "this is no request of HTTP/1".to_owned());
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = std::str::from_utf8(line).map_err(|_| wrong())?;
    let mut words = line.split(' ');
    let (Some(method), Some(target), Some(version), None) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        return Err(wrong());
    };
    if !version.starts_with("HTTP/1.") || !target.starts_with('/') {
        return Err(wrong());
    }
    if method != "GET" {
        return Err(Refused("405 Method Not Allowed", "only GET is answered".to_owned()));
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let pairs = query.split('&').filter(|pair| !pair.is_empty()).take(MAX_PARAMETERS);
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((decoded(name)?, decoded(value)?))
    };
    let parameters = pairs.map(pair).collect::<Option<_>>().ok_or_else(wrong)?;
    Ok(Request { path: path.to_owned(), parameters })
}

/// A text with `%20` and `+` for a blank.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                (digit()? << 4 | digit()?) as u8
            }
            other => other,
        });
    }
    String::from_utf8(bytes).ok()
}

/// Writes an answer, and nothing that a browser would keep or load elsewhere.
///
/// # Errors
/// The peer is gone.
pub(super) fn answer(
    to: &mut impl Write,
    status: &str,
    kind: &str,
    policy: &str,
    body: &[u8],
) -> io::Result<()> {
    let mut head = String::new();
    // Writing to a string cannot fail.
    let _ = write!(
        head,
        "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\n\
         Content-Security-Policy: {policy}\r\nX-Content-Type-Options: nosniff\r\n\
         Referrer-Policy: no-referrer\r\nCache-Control: no-store\r\n\
         Cross-Origin-Resource-Policy: same-origin\r\nConnection: close\r\n\r\n",
        body.len()
    );
    to.write_all(head.as_bytes())?;
    to.write_all(body)?;
    to.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Result<Request, Refused> {
        read(&mut text.as_bytes()).expect("it is whole")
    }

    #[test]
    fn a_request_has_a_path_and_parameters() {
        let request = asked("GET /data?probe=a.out%3Af&text=x+y%26&empty=&key=7 HTTP/1.1\r\nHost: x\r\n\r\n");
        let request = request.expect("a request");
        assert_eq!(request.path, "/data");
        assert_eq!(request.get("probe"), Some("a.out:f"));
        assert_eq!(
            (request.get("text"), request.get("empty"), request.get("none")),
            (Some("x y&"), None, None)
        );
    }

    #[test]
    fn what_is_not_answered_is_refused() {
        let status = |text: &str| asked(text).map_err(|refused| refused.0);
        for (text, expected) in [
            ("POST / HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            ("GET http://x/ HTTP/1.1\r\n\r\n", "400 Bad Request"),
            ("GET / HTTP/2\r\n\r\n", "400 Bad Request"),
            ("GET /  HTTP/1.1\r\n\r\n", "400 Bad Request"),
            ("GET /?a=%g0 HTTP/1.1\r\n\r\n", "400 Bad Request"),
            ("GET /?a=%ff HTTP/1.1\r\n\r\n", "400 Bad Request"),
            ("\r\n\r\n", "400 Bad Request"),
        ] {
            assert_eq!(status(text), Err(expected), "{text}");
        }
        let long = format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(20_000));
        assert_eq!(status(&long), Err("431 Request Header Fields Too Large"));
        assert!(read(&mut &b"GET / HT"[..]).is_err(), "the peer is gone");
    }

    #[test]
    fn any_bytes_are_refused_or_a_request() {
        let mut state = 1_u64;
        for _ in 0..20_000 {
            let mut next = || {
                // Knuth's linear congruential generator; its upper half is used.
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as usize
            };
            let parts: [&[u8]; 10] =
                [b"GET ", b" ", b"/", b"?", b"a=", b"%4", b"%", b" HTTP/1.1", b"\r\n\r\n", b"\xff"];
            let mut bytes: Vec<u8> =
                (0..next() % 12).flat_map(|_| parts[next() % parts.len()].to_vec()).collect();
            bytes.extend_from_slice(b"\r\n\r\n");
            if let Ok(Ok(request)) = read(&mut &bytes[..]) {
                assert!(request.path.starts_with('/'), "{bytes:?}");
            }
        }
    }
}
