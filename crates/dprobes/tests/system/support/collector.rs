//! A collector of OpenTelemetry: takes all requests, and keeps them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A collector.
pub(crate) struct Collector {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<(String, String)>>>,
}

impl Collector {
    /// Begins to listen. It does so until the test ends.
    pub(crate) fn start() -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let requests: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
        let kept = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if let Some(request) = take(&stream) {
                    kept.lock().expect("no panic").push(request);
                    let _ = (&stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}");
                }
            }
        });
        Collector { address, requests }
    }

    /// For `--export`.
    pub(crate) fn target(&self) -> String {
        format!("otlp:http://{}", self.address)
    }

    /// The requests so far: path and body.
    pub(crate) fn requests(&self) -> Vec<(String, String)> {
        self.requests.lock().expect("no panic").clone()
    }
}

/// Reads a request: path and body.
fn take(stream: &TcpStream) -> Option<(String, String)> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first).ok()?;
    let path = first.strip_prefix("POST ")?.split(' ').next()?.to_owned();
    let (mut length, mut is_json) = (0, false);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        match line.trim_end().split_once(": ") {
            Some(("Content-Length", value)) => length = value.parse().ok()?,
            Some(("Content-Type", value)) => is_json = value == "application/json",
            Some(_) => {}
            None => break,
        }
    }
    assert!(is_json, "{first}");
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((path, String::from_utf8(body).ok()?))
}
