//! A collector for tests: answers requests one by one, as it is told, and keeps them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex};
use std::thread;

/// A collector.
#[derive(Debug)]
pub(crate) struct Collector {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Collector {
    /// It answers with these statuses (and fields), one for each request, then listens no longer.
    pub(crate) fn answering(statuses: &[&str]) -> Collector {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it listens");
        let statuses: Vec<String> = statuses.iter().map(|&status| status.to_owned()).collect();
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = Arc::clone(&requests);
        thread::spawn(move || {
            for status in statuses {
                let (mut stream, _) = listener.accept().expect("a request");
                let mut reader = BufReader::new(stream.try_clone().expect("a socket"));
                let (mut first, mut length) = (String::new(), 0);
                reader.read_line(&mut first).expect("a line");
                loop {
                    let mut line = String::new();
                    reader.read_line(&mut line).expect("a line");
                    if let Some(value) = line.strip_prefix("Content-Length: ") {
                        length = value.trim().parse().expect("a number");
                    }
                    if line == "\r\n" {
                        break;
                    }
                }
                let mut body = vec![0; length];
                reader.read_exact(&mut body).expect("a body");
                let body = String::from_utf8_lossy(&body);
                kept.lock().expect("no panic").push(format!("{} {body}", first.trim_end()));
                write!(stream, "HTTP/1.1 {status}\r\n\r\n{{}}").expect("it is read");
            }
        });
        Collector { address, requests }
    }

    /// Its address.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/base/", self.address)
    }

    /// The requests so far: the first line, and the body.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("no panic").clone()
    }
}
