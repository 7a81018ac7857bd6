//! Sends the metrics at intervals, in a thread, and once more at the end.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::attributes::{host, resource};
use super::client::{Client, Signal};
use super::metrics::request;
use super::resets::Resets;
use crate::exchange::Asker;
use crate::model::Snapshot;

/// How long the tracer may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Sends metrics until it is ended or dropped.
#[derive(Debug)]
pub(crate) struct Pusher {
    last: Option<SyncSender<Arc<Snapshot>>>,
    thread: Option<JoinHandle<()>>,
}

impl Pusher {
    /// Begins to send. `tell` tells the user of trouble.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn start(client: Client, every: Duration, asker: Asker, tell: fn(&str)) -> io::Result<Pusher> {
        let (last, ended) = sync_channel(1);
        let mut sending = Sending {
            resource: resource(&host(), "dprobes", std::process::id()),
            client,
            resets: Resets::default(),
            failed: 0,
            tell,
        };
        let push = move || sending.push(every, &asker, &ended);
        let thread = thread::Builder::new().name("otlp".to_owned()).spawn(push)?;
        Ok(Pusher { last: Some(last), thread: Some(thread) })
    }

    /// Sends the last values, once, and ends. It takes the time of two attempts at most.
    pub(crate) fn end(mut self, snapshot: Arc<Snapshot>) {
        if let Some(last) = self.last.take() {
            let _ = last.send(snapshot);
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread.
struct Sending {
    client: Client,
    resource: serde_json::Value,
    resets: Resets,
    /// How many snapshots in a row were not taken.
    failed: u64,
    tell: fn(&str),
}

impl Sending {
    fn push(&mut self, every: Duration, asker: &Asker, ended: &Receiver<Arc<Snapshot>>) {
        let mut next = Instant::now() + every;
        loop {
            match ended.recv_timeout(next.saturating_duration_since(Instant::now())) {
                Ok(last) => return self.send(&last, &mut |_| false),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            next = (next + every).max(Instant::now());
            let Some(snapshot) = asker.ask(ANSWER) else { continue };
            let mut last = None;
            self.send(&snapshot, &mut |time| match ended.recv_timeout(time) {
                Err(RecvTimeoutError::Timeout) => true,
                received => {
                    last = Some(received);
                    false
                }
            });
            match last {
                Some(Ok(last)) => return self.send(&last, &mut |_| false),
                Some(Err(_)) => return,
                None => {}
            }
        }
    }

    /// Sends a snapshot. Says when the collector begins not to take them, and when it does again.
    fn send(&mut self, snapshot: &Snapshot, wait: &mut dyn FnMut(Duration) -> bool) {
        let request = request(snapshot, &mut self.resets, &self.resource);
        match self.client.send(Signal::Metrics, &request, wait) {
            Ok(()) if self.failed > 0 => {
                let (client, failed) = (&self.client, self.failed);
                (self.tell)(&format!("metrics are taken again by {client}; {failed} times they were not"));
                self.failed = 0;
            }
            Ok(()) => {}
            Err(reason) => {
                if self.failed == 0 {
                    (self.tell)(&format!("warning: metrics are not taken by {}: {reason}", self.client));
                }
                self.failed += 1;
            }
        }
    }
}
