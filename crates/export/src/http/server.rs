//! A server for one page, in one thread: one request on a connection, one connection at a time.

use std::io::{self, Read, Write};
#[cfg(test)]
use std::net::SocketAddr;
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::socket::{Shutdown, shutdown};

use super::deadline::Timed;
use super::request::{self, Status};

/// How long a request and its answer may take.
const LIMIT: Duration = Duration::from_secs(10);

/// How long is read what is sent behind a request that is refused.
const LAST: Duration = Duration::from_secs(1);

/// How much is read of what is sent behind a request.
const REST: u64 = 64 << 10;

/// How long accepting rests after a failure, as when this process has too many files open.
const PAUSE: Duration = Duration::from_millis(100);

/// The type of the page.
const TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A running server, until it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    listener: Arc<TcpListener>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Begins to answer. `page` makes the page; `None` if there is none now.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn start(
        listener: TcpListener,
        page: impl Fn() -> Option<String> + Send + 'static,
    ) -> io::Result<Server> {
        let (listener, over) = (Arc::new(listener), Arc::new(AtomicBool::new(false)));
        let (accepting, ended) = (Arc::clone(&listener), Arc::clone(&over));
        let serve = move || {
            while !ended.load(Ordering::Acquire) {
                match accepting.accept() {
                    Ok((stream, _)) => answer(stream, &page),
                    Err(_) => thread::park_timeout(PAUSE),
                }
            }
        };
        let thread = thread::Builder::new().name("metrics".to_owned()).spawn(serve)?;
        Ok(Server { listener, over, thread: Some(thread) })
    }

    /// Where it listens.
    #[cfg(test)]
    fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        // Ends `accept`.
        let _ = shutdown(self.listener.as_raw_fd(), Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It is not waited for: a slow client may have it for a while.
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
    }
}

/// Answers one request. Whoever is gone gets no answer.
fn answer(stream: TcpStream, page: &impl Fn() -> Option<String>) {
    let mut stream = Timed::new(stream, LIMIT);
    let Some(asked) = request::read(&mut stream) else { return };
    let (status, body) = match asked {
        Status::Ok => match page() {
            Some(page) => (Status::Ok, page),
            None => (Status::Unavailable, "the tracer does not answer\n".to_owned()),
        },
        Status::NotFound => (Status::NotFound, "metrics are at /metrics\n".to_owned()),
        other => (other, String::new()),
    };
    let kind = if status == Status::Ok { TYPE } else { "text/plain; charset=utf-8" };
    let allow = if status == Status::MethodNotAllowed { "Allow: GET\r\n" } else { "" };
    let (line, length) = (status.line(), body.len());
    let head = format!(
        "HTTP/1.1 {line}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}Connection: close\r\n\r\n"
    );
    let sent = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
    // What was sent and not read would have the kernel break the connection before the answer is
    // read.
    if status != Status::Ok && sent.and_then(|()| stream.end_writing()).is_ok() {
        stream.shorten(LAST);
        let _ = io::copy(&mut stream.take(REST), &mut io::sink());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a server of this page answers to some bytes.
    fn answered(server: &Server, request: &str) -> String {
        let mut stream = TcpStream::connect(server.address().expect("it listens")).expect("it accepts");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        text
    }

    fn serve(page: impl Fn() -> Option<String> + Send + 'static) -> Server {
        Server::start(TcpListener::bind("127.0.0.1:0").expect("a free port"), page).expect("a thread")
    }

    #[test]
    fn a_page_has_its_length_and_type() {
        let server = serve(|| Some("\u{e4} 1\n".to_owned()));
        let shown = answered(&server, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        let expected = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
                        Content-Length: 5\r\nConnection: close\r\n\r\n\u{e4} 1\n";
        assert_eq!(shown, expected);
        let refused = answered(&server, "DELETE /metrics HTTP/1.0\r\n\r\n");
        assert!(refused.starts_with("HTTP/1.1 405 ") && refused.contains("\r\nAllow: GET\r\n"), "{refused}");
        assert!(answered(&server, "GET / HTTP/1.0\r\n\r\n").ends_with("metrics are at /metrics\n"));
        // A request of a megabyte gets its answer, if not all of it is read.
        assert!(
            answered(&server, &format!("GET /metrics HTTP/1.0\r\n{}\r\n\r\n", "a".repeat(60_000)))
                .starts_with("HTTP/1.1 431 ")
        );
    }

    #[test]
    fn without_a_page_it_says_so() {
        let server = serve(|| None);
        assert!(answered(&server, "GET /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 503 "));
    }

    #[test]
    fn who_says_nothing_and_goes_harms_nobody() {
        let server = serve(|| Some(String::new()));
        for _ in 0..3 {
            drop(TcpStream::connect(server.address().expect("it listens")).expect("it accepts"));
        }
        assert!(answered(&server, "GET /metrics HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200 "));
    }

    #[test]
    fn once_it_is_dropped_nobody_listens() {
        let server = serve(|| None);
        let address = server.address().expect("it listens");
        let waiting = Arc::downgrade(&server.listener);
        drop(server);
        // Its thread ends.
        while waiting.strong_count() > 0 {
            thread::yield_now();
        }
        assert!(TcpStream::connect(address).is_err());
    }
}
