//! The terminal of `dprobes top`, in the front: shows the tracer's counts, and tells the tracer to
//! end.
//!
//! However the screen ends - by a key, the end of the tracer, a signal, a panic - the terminal is
//! restored: [`Screen`] does so when dropped.

use std::fs::File;
use std::io::{self, BufRead, BufReader, PipeReader, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Builder, JoinHandle};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event};
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{cursor, execute};

use super::draw::draw;
use super::feed::Snapshot;
use super::keys::{Mode, action};
use super::view::{Action, View};

/// Time between two updates of the screen.
const TICK: Duration = Duration::from_millis(50);
/// Most bytes of standard error kept.
const MAX_SAID: usize = 1 << 16;
/// Largest snapshot, in bytes.
const MAX_SNAPSHOT: u64 = 16 << 20;

/// The terminal in raw mode.
struct Screen {
    terminal: Terminal<CrosstermBackend<File>>,
}

impl Screen {
    fn open() -> io::Result<Screen> {
        let mut file = File::options().read(true).write(true).open("/dev/tty")?;
        enable_raw_mode()?;
        let begun = execute!(file, EnterAlternateScreen, cursor::Hide);
        match begun.and_then(|()| Terminal::new(CrosstermBackend::new(file))) {
            Ok(terminal) => Ok(Screen { terminal }),
            Err(error) => {
                restore();
                Err(error)
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Restores the terminal.
pub(super) fn restore() {
    let _ = disable_raw_mode();
    if let Ok(mut file) = File::options().write(true).open("/dev/tty") {
        let _ = execute!(file, LeaveAlternateScreen, cursor::Show);
    }
}

/// The state shared by the front's threads.
struct Shared {
    view: Mutex<View>,
    /// Standard error of the tracer and the command.
    said: Mutex<Vec<u8>>,
    ended: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shows the counts until the tracer has ended. The caller must then call the returned function.
pub(super) fn show(view: View, counts: PipeReader, said: PipeReader, tracer: i32) -> Box<dyn FnOnce()> {
    let shared = Arc::new(Shared {
        view: Mutex::new(view),
        said: Mutex::new(Vec::new()),
        ended: AtomicBool::new(false),
    });
    let own = Arc::clone(&shared);
    let taker = Builder::new().spawn(move || {
        snapshots(counts, |snapshot| {
            lock(&own.view).take(snapshot);
            true
        });
    });
    let own = Arc::clone(&shared);
    let listener = Builder::new().spawn(move || collect_stderr(said, &own));
    let own = Arc::clone(&shared);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        restore();
        before(panic);
    }));
    let begun = taker.and(listener).and_then(|listener| {
        let screen = Builder::new().spawn(move || {
            if let Err(error) = run(&own, tracer) {
                let text = format!("dprobes: error: the terminal: {error}\n");
                lock(&own.said).extend_from_slice(text.as_bytes());
                end(tracer);
            }
        });
        Ok((screen?, listener))
    });
    match begun {
        Ok((screen, listener)) => Box::new(move || finish(&shared, screen, listener)),
        Err(error) => {
            end(tracer);
            Box::new(move || {
                crate::messages::tell(&format!("error: a thread cannot be started: {error}"));
            })
        }
    }
}

/// Ends the screen, and prints the standard error collected meanwhile.
fn finish(shared: &Shared, screen: JoinHandle<()>, listener: JoinHandle<()>) {
    shared.ended.store(true, Ordering::Relaxed);
    // If the thread has panicked, the terminal is restored too.
    let _ = screen.join();
    // A command that lives on may hold the other end open.
    for _ in 0..20 {
        if listener.is_finished() {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    let _ = io::stderr().write_all(&lock(&shared.said));
}

/// Asks the tracer to end.
pub(super) fn end(tracer: i32) {
    // The process id is still valid: the tracer is a child that is reaped only after the screen has
    // ended.
    let _ = kill(Pid::from_raw(tracer), Signal::SIGINT);
}

/// Reads snapshots of counts, until `take` says no, or there are no more.
pub(super) fn snapshots(counts: PipeReader, mut take: impl FnMut(Snapshot) -> bool) {
    let mut counts = BufReader::new(counts);
    let mut line = Vec::new();
    loop {
        line.clear();
        match io::Read::take(&mut counts, MAX_SNAPSHOT).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                if let Ok(snapshot) = serde_json::from_slice(&line)
                    && !take(snapshot)
                {
                    return;
                }
            }
        }
    }
}

/// Collects standard error, keeping the last part.
fn collect_stderr(mut said: PipeReader, shared: &Shared) {
    let mut bytes = [0; 4096];
    while let Ok(count @ 1..) = io::Read::read(&mut said, &mut bytes) {
        let mut kept = lock(&shared.said);
        kept.extend_from_slice(&bytes[..count]);
        if kept.len() > MAX_SAID {
            let gone = kept.len() - MAX_SAID;
            kept.drain(..gone);
        }
    }
}

/// Draws and handles keys until the screen ends.
fn run(shared: &Shared, tracer: i32) -> io::Result<()> {
    let mut screen = Screen::open()?;
    while !shared.ended.load(Ordering::Relaxed) {
        {
            let view = lock(&shared.view);
            screen.terminal.draw(|frame| draw(frame, &view))?;
        }
        if !event::poll(TICK)? {
            continue;
        }
        if let Event::Key(key) = event::read()? {
            let mode = {
                let view = lock(&shared.view);
                match (view.help, view.typing) {
                    (true, _) => Mode::Help,
                    (_, true) => Mode::Typing,
                    _ => Mode::Commands,
                }
            };
            match action(key, mode) {
                Some(Action::Quit) => end(tracer),
                Some(wish) => lock(&shared.view).wish(wish),
                None => {}
            }
        }
    }
    Ok(())
}
