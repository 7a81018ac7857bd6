//! The target `otlp`: calls as spans, which are sent to a collector while they happen.
//!
//! ```text
//! tracer: record -> Queued -> thread: LiveSpans -> request -> [ 32 requests ] -> thread: Client
//! ```
//!
//! What makes spans waits for nobody: if the collector is slower, requests find no room, and the
//! records that they are made of are counted as lost. The threads begin with the first record:
//! until then the process may fork.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use convert::{Carried, LiveSpans};
use export::{Client, Signal, Url};
use trace::Record;
use trace::queue::Limits;
use trace::sink::{Queued, Sink};
use trace::store::{About, Fact, Loss};

/// The most requests that wait to be sent. Each has a megabyte at most, and a little more.
const MAX_REQUESTS: usize = 32;
/// How long the collector is waited for at the end.
const LAST: Duration = Duration::from_secs(6);
/// How often a pause between two attempts looks for the end.
const LOOK: Duration = Duration::from_millis(50);

/// Spans for a collector.
#[derive(Debug)]
pub(super) struct Spans {
    queued: Queued,
    shared: Arc<Shared>,
}

/// What the threads tell.
#[derive(Debug, Default)]
struct Shared {
    /// Records whose spans were not taken.
    lost: AtomicU64,
    /// Messages for the user.
    notes: Mutex<Vec<String>>,
    /// Whether no more requests come.
    is_ended: AtomicBool,
    sender: Mutex<Option<JoinHandle<()>>>,
}

impl Spans {
    /// Makes spans of a trace that begins, for a collector.
    ///
    /// # Errors
    /// No queue can be made.
    pub(super) fn open(url: &Url, about: About, limits: Limits) -> io::Result<Spans> {
        let shared = Arc::<Shared>::default();
        let making = Making::new(url.clone(), about, Arc::clone(&shared));
        Ok(Spans { queued: Queued::before(limits, |_| Ok(making))?, shared })
    }
}

impl Sink for Spans {
    fn fact(&mut self, fact: &Fact) -> io::Result<()> {
        self.queued.fact(fact)
    }

    fn keeps_facts(&self) -> bool {
        true
    }

    #[inline]
    fn record(&mut self, program: u32, record: &Record) -> io::Result<()> {
        self.queued.record(program, record)
    }

    fn is_ready(&mut self) -> bool {
        self.queued.is_ready()
    }

    fn set_lossless(&mut self, lossless: bool) {
        self.queued.set_lossless(lossless);
    }

    fn waits(&self) -> bool {
        self.queued.waits()
    }

    fn idle(&mut self) -> io::Result<()> {
        self.queued.idle()
    }

    fn refresh(&mut self, tell: &mut dyn FnMut(&str)) {
        std::mem::take(&mut *lock(&self.shared.notes)).iter().for_each(|note| tell(note));
    }

    fn finish(&mut self) -> io::Result<()> {
        self.queued.finish()
    }

    fn lost(&self) -> u64 {
        self.queued.lost()
    }
}

/// What makes spans, in the thread of the queue.
struct Making {
    spans: Option<LiveSpans<'static>>,
    shared: Arc<Shared>,
}

impl Making {
    fn new(url: Url, about: About, shared: Arc<Shared>) -> Making {
        let host = about.host.clone();
        let resource = move |name: &str, pid: u32| export::resource(&host, name, pid).to_string();
        let (mut requests, own) = (None, Arc::clone(&shared));
        let take = move |request: &[u8], carried: Carried| {
            let sender = match &requests {
                Some(sender) => sender,
                None => requests.insert(start(url.clone(), &own)?),
            };
            give(sender, request, carried, &own);
            Ok(())
        };
        Making { spans: Some(LiveSpans::new(about, resource, take)), shared }
    }
}

impl Sink for Making {
    fn fact(&mut self, fact: &Fact) -> io::Result<()> {
        self.spans.iter_mut().for_each(|spans| spans.fact(fact));
        Ok(())
    }

    fn record(&mut self, program: u32, record: &Record) -> io::Result<()> {
        self.spans.as_mut().map_or(Ok(()), |spans| spans.record(program, record))
    }

    /// Records that found no room in the queue, which does not know the time. When others were lost
    /// is told as gaps.
    fn loss(&mut self, loss: &Loss, _refused: u64) -> io::Result<()> {
        self.spans.iter_mut().filter(|_| loss.time == 0).for_each(LiveSpans::lost);
        Ok(())
    }

    fn idle(&mut self) -> io::Result<()> {
        self.spans.as_mut().map_or(Ok(()), LiveSpans::idle)
    }

    fn finish(&mut self) -> io::Result<()> {
        let Some(mut spans) = self.spans.take() else { return Ok(()) };
        let remarks = spans.finish();
        drop(spans);
        self.shared.is_ended.store(true, Ordering::Release);
        if let Some(sender) = lock(&self.shared.sender).take() {
            let _ = sender.join();
        }
        let notes = remarks?.into_iter().map(|remark| format!("note: otlp: {remark}"));
        lock(&self.shared.notes).extend(notes);
        Ok(())
    }

    fn lost(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }
}

/// Starts to send.
fn start(url: Url, shared: &Arc<Shared>) -> io::Result<SyncSender<(Vec<u8>, Carried)>> {
    let (sender, requests) = sync_channel(MAX_REQUESTS);
    let own = Arc::clone(shared);
    let send = move || send(&Client::new(url), &requests, &own);
    let thread = thread::Builder::new().name("spans".to_owned()).spawn(send)?;
    *lock(&shared.sender) = Some(thread);
    Ok(sender)
}

/// Hands a request to the thread that sends, if there is room.
fn give(sender: &SyncSender<(Vec<u8>, Carried)>, request: &[u8], carried: Carried, shared: &Shared) {
    if let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) =
        sender.try_send((request.to_vec(), carried))
        && shared.lost.fetch_add(carried.records, Ordering::Relaxed) == 0
    {
        let text =
            "warning: otlp: the collector is slower than the calls: spans are lost, and counted at the end";
        lock(&shared.notes).push(text.to_owned());
    }
}

/// Sends requests until no more come. Says when the collector begins not to take them, and when it
/// does again.
fn send(client: &Client, requests: &Receiver<(Vec<u8>, Carried)>, shared: &Shared) {
    let is_ended = || shared.is_ended.load(Ordering::Acquire);
    let (mut failed, mut end) = (0, None);
    let mut wait = |time: Duration| {
        let until = Instant::now() + time;
        while Instant::now() < until && !is_ended() {
            thread::sleep(LOOK);
        }
        !is_ended()
    };
    for (request, carried) in requests {
        if is_ended() && Instant::now() > *end.get_or_insert_with(|| Instant::now() + LAST) {
            shared.lost.fetch_add(carried.records, Ordering::Relaxed);
            continue;
        }
        let note = match client.send(Signal::Traces, &request, &mut wait) {
            Ok(()) if failed > 0 => {
                let text = format!("spans are taken again by {client}; {failed} of them were not");
                failed = 0;
                Some(text)
            }
            Ok(()) => None,
            Err(reason) => {
                let is_first = failed == 0;
                failed += carried.spans;
                shared.lost.fetch_add(carried.records, Ordering::Relaxed);
                is_first.then(|| format!("warning: spans are not taken by {client}: {reason}"))
            }
        };
        lock(&shared.notes).extend(note);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
