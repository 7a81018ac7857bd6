//! The exporters: first bound to their addresses, when nothing was probed yet, then started.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use crate::exchange::{Answerer, exchange};
use crate::http::Server;
use crate::model::Snapshot;
use crate::otlp::{Client, Pusher};
use crate::prometheus;
use crate::target::Target;

/// How long the tracer may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Exporters that have their addresses, and wait.
#[derive(Debug)]
pub struct Bound {
    listeners: Vec<TcpListener>,
    clients: Vec<Client>,
}

/// Exporters that work, until they are dropped.
#[derive(Debug)]
pub struct Exporters {
    _servers: Vec<Server>,
    pushers: Vec<Pusher>,
}

impl Bound {
    /// Binds exporters to their addresses.
    ///
    /// # Errors
    /// One cannot be had; the text names it.
    pub fn new(targets: &[Target]) -> Result<Bound, String> {
        let (mut listeners, mut clients) = (Vec::new(), Vec::new());
        for target in targets {
            match target {
                Target::Prometheus(address) => {
                    let listener = TcpListener::bind(address);
                    listeners.push(listener.map_err(|error| format!("--export {target}: {error}"))?);
                }
                Target::Otlp(url) => clients.push(Client::new(url.clone())),
            }
        }
        Ok(Bound { listeners, clients })
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.listeners.is_empty() && self.clients.is_empty()
    }

    /// Where each gives, or sends, what it has: a line for each.
    pub fn announcements(&self) -> Vec<String> {
        let pages = self.listeners.iter().filter_map(|listener| listener.local_addr().ok());
        let pages = pages.map(|address| format!("metrics are at http://{address}/metrics"));
        pages.chain(self.clients.iter().map(|client| format!("metrics are sent to {client}"))).collect()
    }

    /// Starts them. What is sent is sent each time `every` has passed; `tell` tells the user of
    /// trouble. `wake` interrupts the sleep of the thread that is to answer.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn start(
        self,
        every: Duration,
        tell: fn(&str),
        wake: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<(Exporters, Answerer)> {
        let (asker, answerer) = exchange(wake);
        let server = |listener| {
            let asker = asker.clone();
            Server::start(listener, move || asker.ask(ANSWER).map(|snapshot| prometheus::text(&snapshot)))
        };
        let servers = self.listeners.into_iter().map(server).collect::<io::Result<_>>()?;
        let pusher = |client| Pusher::start(client, every, asker.clone(), tell);
        let pushers = self.clients.into_iter().map(pusher).collect::<io::Result<_>>()?;
        Ok((Exporters { _servers: servers, pushers }, answerer))
    }
}

impl Exporters {
    /// Whether the last values are wanted at the end.
    pub fn want_last(&self) -> bool {
        !self.pushers.is_empty()
    }

    /// Ends them, with the last values. Nothing is traced any more: it takes some seconds if a
    /// collector does not answer.
    pub fn end(self, last: Snapshot) {
        let last = Arc::new(last);
        self.pushers.into_iter().for_each(|pusher| pusher.end(Arc::clone(&last)));
    }
}
