//! The kernel's uprobes: counted by a perf event, or logged in a trace buffer.

use super::tracer::{Attached, Seen, TracedFunction, Tracer};
use crate::cleanup::Guard;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::fd::FromRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

const TRACEFS: &str = "/sys/kernel/tracing";
/// The prefix of our events and instances; the bench's process id follows.
const NAME: &str = "dprobes_bench_";

/// Mounts tracefs for this process and its children if needed, and removes leftovers of killed
/// benches. Call it before the first thread is started.
///
/// # Errors
/// If the kernel has no tracefs, or access is denied.
pub fn prepare() -> io::Result<()> {
    if !Path::new(TRACEFS).join("uprobe_events").exists() {
        // In a mount namespace of our own, so that other mounts do not change.
        unshare(CloneFlags::CLONE_NEWNS)?;
        let nothing = None::<&str>;
        mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing)?;
        mount(Some("tracefs"), TRACEFS, Some("tracefs"), MsFlags::empty(), nothing)?;
    }
    let alive = |name: &str| {
        let pid = name.strip_prefix(NAME);
        pid.is_none_or(|pid| Path::new("/proc").join(pid).exists())
    };
    for entry in std::fs::read_dir(Path::new(TRACEFS).join("instances"))?.flatten() {
        if !alive(&entry.file_name().to_string_lossy()) {
            let _ = std::fs::remove_dir(entry.path());
        }
    }
    for line in std::fs::read_to_string(Path::new(TRACEFS).join("uprobe_events"))?.lines() {
        let event =
            line.split(' ').next().and_then(|event| event.split_once(':')).map_or("", |(_, event)| event);
        if !alive(event.split('/').next().unwrap_or("")) {
            let _ = append(&Path::new(TRACEFS).join("uprobe_events"), &format!("-:{event}\n"));
        }
    }
    Ok(())
}

fn append(file: &Path, line: &str) -> io::Result<()> {
    let explain = |error| io::Error::other(format!("{}: {error}", file.display()));
    let mut opened = std::fs::OpenOptions::new().append(true).open(file).map_err(explain)?;
    opened.write_all(line.as_bytes()).map_err(explain)
}

/// Defines a uprobe; returns its group, and the guard that removes it.
fn define(place: &TracedFunction) -> io::Result<(String, Guard)> {
    let group = format!("{NAME}{}", std::process::id());
    let events = Path::new(TRACEFS).join("uprobe_events");
    let TracedFunction { program, offset, .. } = place;
    append(&events, &format!("p:{group}/hit {}:{offset:#x} a=%di:s64 b=%si:s64\n", program.display()))?;
    let guard = Guard::write(events, format!("-:{group}/hit\n"));
    Ok((group, guard))
}

/// A perf event that counts a uprobe's hits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted;

/// The first 64 bytes of the kernel's `perf_event_attr` (PERF_ATTR_SIZE_VER0).
#[repr(C)]
#[derive(Default)]
struct PerfEvent {
    kind: u32,
    size: u32,
    config: u64,
    period: u64,
    sample_kind: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    address: u64,
}

/// PERF_TYPE_TRACEPOINT.
const TRACEPOINT: u32 = 2;
/// `inherit`: count threads that the process creates, too.
const INHERIT: u64 = 1 << 1;

struct Counter {
    event: File,
    // Dropped after the event, which uses it.
    _probe: Guard,
}

impl Tracer for Counted {
    fn attach(&self, place: &TracedFunction) -> io::Result<Box<dyn Attached>> {
        let (group, probe) = define(place)?;
        let id = std::fs::read_to_string(Path::new(TRACEFS).join("events").join(group).join("hit/id"))?;
        let config = id.trim().parse().map_err(io::Error::other)?;
        let size = size_of::<PerfEvent>() as u32;
        let attributes = PerfEvent { kind: TRACEPOINT, size, config, flags: INHERIT, ..PerfEvent::default() };
        // SAFETY: attributes is a live perf_event_attr of the stated size; the kernel copies it.
        let descriptor = unsafe {
            libc::syscall(libc::SYS_perf_event_open, &raw const attributes, place.pid as i32, -1, -1, 0)
        };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and owned by nobody else.
        let event = unsafe { File::from_raw_fd(descriptor as i32) };
        Ok(Box::new(Counter { event, _probe: probe }))
    }
}

impl Attached for Counter {
    fn stop(mut self: Box<Self>) -> io::Result<Seen> {
        let mut count = [0; 8];
        self.event.read_exact(&mut count)?;
        Ok(Seen { hits: u64::from_ne_bytes(count), ..Seen::default() })
    }
}

/// A uprobe that logs its arguments in a trace buffer, which is copied to a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Logged;

struct Buffer {
    instance: PathBuf,
    ended: Arc<AtomicBool>,
    reader: JoinHandle<io::Result<()>>,
    output: PathBuf,
    // In the order in which they must be dropped.
    _buffer: Guard,
    _event: Guard,
}

impl Tracer for Logged {
    fn attach(&self, place: &TracedFunction) -> io::Result<Box<dyn Attached>> {
        let (name, event) = define(place)?;
        let instance = Path::new(TRACEFS).join("instances").join(&name);
        std::fs::create_dir(&instance)?;
        let buffer = Guard::remove_object(instance.clone());
        append(&instance.join("buffer_size_kb"), "16384\n")?;
        append(&instance.join("set_event_pid"), &format!("{}\n", place.pid))?;
        append(&instance.join("options/event-fork"), "1\n")?;
        append(&instance.join("events").join(&name).join("hit/enable"), "1\n")?;
        let ended = Arc::new(AtomicBool::new(false));
        let output = place.directory.join("uprobe.records");
        let mut file = BufWriter::with_capacity(1 << 20, File::create(&output)?);
        let mut pipe = std::fs::OpenOptions::new();
        std::os::unix::fs::OpenOptionsExt::custom_flags(&mut pipe, libc::O_NONBLOCK);
        let mut pipe = pipe.read(true).open(instance.join("trace_pipe"))?;
        let finished = ended.clone();
        let reader = std::thread::spawn(move || {
            let mut bytes = vec![0; 1 << 16];
            loop {
                let last = finished.load(Ordering::Acquire);
                match pipe.read(&mut bytes) {
                    Ok(count) if count > 0 => file.write_all(&bytes[..count])?,
                    Ok(_) if last => return file.flush(),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock && last => return file.flush(),
                    Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
                    _ => std::thread::sleep(Duration::from_micros(200)),
                }
            }
        });
        Ok(Box::new(Buffer { instance, ended, reader, output, _buffer: buffer, _event: event }))
    }
}

impl Attached for Buffer {
    fn stop(self: Box<Self>) -> io::Result<Seen> {
        append(&self.instance.join("events/enable"), "0\n")?;
        self.ended.store(true, Ordering::Release);
        self.reader.join().map_err(|_| io::Error::other("the reader panicked"))??;
        let mut lost = 0;
        for entry in std::fs::read_dir(self.instance.join("per_cpu"))?.flatten() {
            let stats = std::fs::read_to_string(entry.path().join("stats"))?;
            let numbers = stats.lines().filter_map(|line| line.split_once(": "));
            let wanted =
                numbers.filter(|(name, _)| matches!(*name, "overrun" | "commit overrun" | "dropped events"));
            lost += wanted.filter_map(|(_, number)| number.trim().parse::<u64>().ok()).sum::<u64>();
        }
        let mut records = 0;
        for line in BufReader::with_capacity(1 << 20, File::open(&self.output)?).split(b'\n') {
            records += u64::from(line?.windows(6).any(|window| window == b" hit: "));
        }
        std::fs::remove_file(&self.output)?;
        Ok(Seen { hits: records + lost, records: Some(records), lost, ..Seen::default() })
    }
}
