//! `dprobes serve`: shows a trace store in a browser, also one that is still written.
//!
//! ```text
//! browser -- GET /?key=K         --> page: one file, no framework, nothing from elsewhere
//!         -- GET /data?key=K     --> JSON: what a report says; asked again each second
//!         -- GET /records?key=K  --> JSON: records, by filters, in pages
//! ```
//!
//! A trace may hold what a program was told, so it is not for everybody on the machine: the server
//! listens on the loopback address, and answers only those who know the key, which is in the
//! address that is printed. That also keeps out pages of other sites, which a browser lets ask.
//! What is in a trace is not trusted: it is sent as JSON, and the page shows it as text only.

mod answers;
mod cursor;
mod http;
mod kept;

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::Builder;
use std::time::Duration;

use trace::store::Reader;

use crate::arguments::Serve;
use crate::messages::tell;
use crate::{Failure, stdout};
use answers::Answers;
use http::Refused;

/// Most requests that are answered at a time.
const MAX_REQUESTS: usize = 16;
/// How long a peer may take to send a request, or to take a part of the answer.
const CLIENT_TIME_OUT: Duration = Duration::from_secs(10);

/// The page; its style and its script are put where `STYLE` and `SCRIPT` stand.
const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// Serves a store until it is interrupted.
pub(crate) fn serve(arguments: &Serve) -> Result<ExitCode, Failure> {
    let shown = printable::path(&arguments.file);
    // What is no store is told now, not in the browser.
    Reader::open(&arguments.file).map_err(|error| Failure::new(format!("{shown}: {error}")))?;
    let key = random().map_err(|error| Failure::new(format!("/dev/urandom: {error}")))?;
    let listener = TcpListener::bind(arguments.listen).map_err(|error| {
        Failure::new(format!("{}: {error}; --listen takes another address", arguments.listen))
    })?;
    let address = listener.local_addr().unwrap_or(arguments.listen);
    if !address.ip().is_loopback() {
        tell(&format!(
            "warning: {} can be reached from other machines: whoever sees the address with its key on its way sees the trace",
            address.ip()
        ));
    }
    stdout::show(&format!("http://{address}/?key={key}\n"))?;
    let server = Arc::new(Server { key, answers: Answers::new(arguments.file.clone()) });
    let busy = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Too many open files, for example: it passes.
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        let turn = Turn(Arc::clone(&busy));
        if turn.0.fetch_add(1, Ordering::Relaxed) >= MAX_REQUESTS {
            continue;
        }
        let server = Arc::clone(&server);
        let _ = Builder::new().spawn(move || {
            let _turn = turn;
            // A peer that goes away is no error.
            let _ = server.talk(&stream);
        });
    }
    Ok(ExitCode::SUCCESS)
}

/// A request that is being answered.
struct Turn(Arc<AtomicUsize>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What answers requests.
struct Server {
    key: String,
    answers: Answers,
}

impl Server {
    fn talk(&self, mut stream: &TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(CLIENT_TIME_OUT))?;
        stream.set_write_timeout(Some(CLIENT_TIME_OUT))?;
        let nonce = random()?;
        let policy = format!(
            "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; \
             img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        );
        let answered = http::read(&mut stream)?.and_then(|request| match request.get("key") {
            Some(key) if key == self.key => match request.path.as_str() {
                "/" => Ok(("text/html", page(&nonce).into_bytes())),
                "/data" => self.answers.data(&request).map(|json| ("application/json", json)),
                "/records" => self.answers.records(&request).map(|json| ("application/json", json)),
                _ => Err(Refused("404 Not Found", "no such page".to_owned())),
            },
            _ => Err(Refused(
                "403 Forbidden",
                "the address has a key, which `dprobes serve` has printed".to_owned(),
            )),
        });
        match answered {
            Ok((kind, body)) => http::answer(&mut stream, "200 OK", kind, &policy, &body),
            Err(Refused(status, why)) => {
                http::answer(&mut stream, status, "text/plain", &policy, format!("{why}\n").as_bytes())
            }
        }
    }
}

/// The page with its style and script, which only run with this nonce.
fn page(nonce: &str) -> String {
    PAGE.replace("NONCE", nonce).replace("/*STYLE*/", STYLE).replace("/*SCRIPT*/", SCRIPT)
}

/// 128 random bits, as digits.
fn random() -> io::Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let mut text = String::new();
    for byte in bytes {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_nothing_from_elsewhere() {
        let page = page("N");
        for never in ["http:", "https:", "@import", "url(", "innerHTML", "eval(", "/*STYLE*/", "/*SCRIPT*/"] {
            assert!(!page.contains(never), "{never}");
        }
        assert_eq!(page.matches("nonce=\"N\"").count(), 2);
    }
}
