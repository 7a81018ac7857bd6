//! Tests of targets, as their recipients see them: a pseudo-terminal, and sockets of the test.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use dprobes_trace::queue::{Limits, Progress};
use dprobes_trace::sink::{Journal, KernelLog, Queued, Serial, Sink, View};
use dprobes_trace::store::{Probe, Program};
use dprobes_trace::template::Templates;
use dprobes_trace::{Form, Items, Record, raw};

fn record(minor: u32, data: &[u8]) -> Record {
    Record {
        major: 1,
        minor,
        cpu: 3,
        pid: 4711,
        tid: 4712,
        word: 8,
        data: data.to_vec(),
        ..Record::default()
    }
}

fn view(form: Form) -> View {
    View { items: Items::DEFAULT, form, ..View::default() }
}

/// A pseudo-terminal: the reader's end, and the path of the line.
fn terminal() -> (File, PathBuf) {
    // SAFETY: plain system calls; the file is ours alone, and the name is copied before another
    // call.
    unsafe {
        let master = libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY);
        assert!(master >= 0 && libc::grantpt(master) == 0 && libc::unlockpt(master) == 0);
        let mut name = [0; 64];
        assert_eq!(libc::ptsname_r(master, name.as_mut_ptr(), name.len()), 0);
        let name = std::ffi::CStr::from_ptr(name.as_ptr()).to_str().expect("text").to_owned();
        (File::from_raw_fd(master), PathBuf::from(name))
    }
}

/// Reads exactly `count` bytes.
fn read(from: &mut File, count: usize) -> Vec<u8> {
    let mut bytes = vec![0; count];
    from.read_exact(&mut bytes).expect("they come");
    bytes
}

fn serial(path: &Path) -> Queued {
    Queued::before(Limits::device(false), |progress| Serial::open(path, progress)).expect("a line")
}

#[test]
fn a_serial_line_has_raw_headers_and_bytes_as_they_are() {
    let (mut reader, path) = terminal();
    // Kept open: the kernel discards what a terminal without a user holds.
    let line = File::options().read(true).write(true).open(&path).expect("a line");
    let modes = || {
        // SAFETY: the call fills the structure.
        unsafe {
            let mut modes: libc::termios = std::mem::zeroed();
            assert_eq!(libc::tcgetattr(line.as_raw_fd(), &raw mut modes), 0);
            (modes.c_iflag, modes.c_oflag, modes.c_cflag, modes.c_lflag)
        }
    };
    let before = modes();
    let mut sink = serial(&path);
    assert_ne!(modes(), before, "output is processed, which changes bytes");
    sink.show(0, &view(Form::Formatted));
    let mut expected = Vec::new();
    for minor in 0..100 {
        // Every byte value, among them all that a terminal may take for a control character.
        let record = record(minor, &(0..=255).collect::<Vec<u8>>());
        sink.record(0, &record).expect("it is taken");
        raw::write(&record, Items::DEFAULT, &mut expected);
        expected.extend_from_slice(b"\r\n");
    }
    let length = expected.len();
    let reader = std::thread::spawn(move || (read(&mut reader, length), reader));
    sink.finish().expect("all is written");
    let (bytes, _reader) = reader.join().expect("it reads");
    assert!(bytes == expected);
    assert_eq!((sink.lost(), modes()), (0, before));
}

#[test]
fn a_serial_line_has_text_where_it_is_asked_for() {
    let (mut reader, path) = terminal();
    let mut sink = serial(&path);
    sink.show(0, &view(Form::Unformatted));
    sink.record(0, &record(2, b"\x00\x0fa")).expect("it is taken");
    let expected = "DProbes(1,2) cpu=3 pid=4711\r\nDProbes(1,2)  00 0f 61\r\n";
    assert_eq!(String::from_utf8(read(&mut reader, expected.len())).expect("text"), expected);
    sink.finish().expect("all is written");
}

#[test]
fn a_line_that_nobody_reads_loses_what_does_not_fit_and_is_given_up() {
    let (reader, path) = terminal();
    let mut sink = serial(&path);
    sink.show(0, &view(Form::Formatted));
    let begin = Instant::now();
    let taken =
        (0..100_000).filter(|&minor| sink.record(0, &record(minor, &[7; 100])).is_ok()).count() as u64;
    assert!(begin.elapsed() < Duration::from_secs(60), "records do not wait for it");
    assert!(taken < 100_000);
    let error = sink.finish().expect_err("it takes nothing");
    assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    assert!(begin.elapsed() < Duration::from_secs(60));
    // A few are in the terminal's buffer.
    assert!((99_000..100_000).contains(&sink.lost()), "{}", sink.lost());
    drop(reader);
}

#[test]
fn a_line_that_is_gone_fails_and_one_that_is_none_is_refused() {
    let (reader, path) = terminal();
    let mut sink = serial(&path);
    drop(reader);
    sink.record(0, &record(1, b"a")).expect("it is taken");
    let error = sink.finish().expect_err("nobody is there");
    assert_eq!((error.raw_os_error(), sink.lost()), (Some(libc::EIO), 1));
    let scratch = tempfile::NamedTempFile::new().expect("a file");
    let error = Serial::open(scratch.path(), Progress::default()).expect_err("it is a file");
    assert!(error.to_string().contains("not a terminal"), "{error}");
}

/// A socket that receives messages.
fn daemon(home: &Path) -> (UnixDatagram, PathBuf) {
    let path = home.join("socket");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("it has one");
    (socket, path)
}

fn message(socket: &UnixDatagram) -> Vec<u8> {
    let mut bytes = vec![0; 1 << 17];
    let length = socket.recv(&mut bytes).expect("a message comes");
    bytes.truncate(length);
    bytes
}

#[test]
fn a_log_daemon_has_a_message_for_each_line() {
    let home = tempfile::tempdir().expect("a directory");
    let (socket, path) = daemon(home.path());
    let open = |progress| KernelLog::open(Some(&path), progress);
    let mut sink = Queued::before(Limits::device(false), open).expect("there is one");
    sink.show(0, &view(Form::Formatted));
    // More than the socket takes at once, so that the sink must wait for the daemon.
    (0..500).for_each(|minor| sink.record(0, &record(minor, b"abc")).expect("it is taken"));
    sink.idle().expect("nothing is wrong");
    let head = format!("<14>dprobes[{}]: ", std::process::id());
    for minor in 0..500 {
        for line in [
            format!("DProbes(1,{minor}) cpu=3 pid=4711"),
            format!("DProbes(1,{minor})  0x00000000 : 616263                              : abc"),
        ] {
            assert_eq!(String::from_utf8(message(&socket)).expect("text"), format!("{head}{line}"));
        }
    }
    sink.finish().expect("all is sent");
    assert_eq!(sink.lost(), 0);
}

#[test]
fn a_daemon_that_begins_anew_is_found_again() {
    let home = tempfile::tempdir().expect("a directory");
    let (socket, path) = daemon(home.path());
    let mut sink = KernelLog::open(Some(&path), Progress::default()).expect("there is one");
    sink.record(0, &record(1, b"")).expect("it is sent");
    drop(socket);
    std::fs::remove_file(&path).expect("it is there");
    assert!(sink.record(0, &record(2, b"")).is_err());
    let (socket, _) = daemon(home.path());
    sink.record(0, &record(3, b"")).expect("it is sent");
    assert!(message(&socket).ends_with(b"DProbes(1,3) cpu=3 pid=4711"));
    assert_eq!(sink.lost(), 1);
}

#[test]
fn a_device_has_lines_with_their_priority() {
    let scratch = tempfile::NamedTempFile::new().expect("a file");
    let mut sink = KernelLog::open(Some(scratch.path()), Progress::default()).expect("there is one");
    (0..20).for_each(|minor| sink.record(0, &record(minor, b"")).expect("it is written"));
    let text = std::fs::read_to_string(scratch.path()).expect("text");
    let expected: String = (0..20).map(|minor| format!("<6>DProbes(1,{minor}) cpu=3 pid=4711\n")).collect();
    assert_eq!(text, expected);
}

/// The fields of a message, by journald's protocol.
fn fields(message: &[u8]) -> Vec<(String, Vec<u8>)> {
    let mut fields = Vec::new();
    let mut rest = message;
    while !rest.is_empty() {
        let end = rest.iter().position(|&byte| byte == b'\n' || byte == b'=').expect("a name ends");
        let (name, after) = (String::from_utf8(rest[..end].to_vec()).expect("text"), &rest[end + 1..]);
        let (value, after) = if rest[end] == b'=' {
            after.split_at(after.iter().position(|&byte| byte == b'\n').expect("a value ends"))
        } else {
            let (length, after) = after.split_first_chunk().expect("a length");
            after.split_at(u64::from_le_bytes(*length) as usize)
        };
        fields.push((name, value.to_vec()));
        rest = after.strip_prefix(b"\n").expect("a newline ends it");
    }
    fields
}

#[test]
fn the_journal_has_fields() {
    let home = tempfile::tempdir().expect("a directory");
    std::fs::write(home.path().join("a.fmt"), "major=1 minor=2 desc=\"a name\" fmt=\"size=%2u name=%s\"")
        .expect("room");
    let templates = Templates::open(home.path()).expect("they are there");
    let (socket, path) = daemon(home.path());
    let open = |progress| Journal::open(Some(&path), progress);
    let mut sink = Queued::before(Limits::device(false), open).expect("there is one");
    let items = Items::ALL;
    let program = Program { module: "libc.so.6".to_owned(), items, ..Program::default() };
    sink.fact(&program.into()).expect("it is noted");
    sink.fact(&Probe { point: "malloc:entry".to_owned(), ..Probe::default() }.into()).expect("it is noted");
    sink.show(0, &View { templates: Some(templates), ..view(Form::Formatted) });
    let record = Record {
        name: "a b".to_owned(),
        eip: 0x1234,
        uid: 5,
        time: 1_700_000_000_123_456_789,
        ..record(2, b"\x05\x00a=\nb\0")
    };
    sink.record(0, &record).expect("it is taken");
    let message = message(&socket);
    let fields = fields(&message);
    let expected: &[(&str, &[u8])] = &[
        ("MESSAGE", b"DProbes(1,2) cpu=3 pid=4711: a name\nsize=5 name=a=.b"),
        ("MESSAGE_ID", b"6d1f8c2b5f0e4c0fa4d07e0b3c9a51d7"),
        ("PRIORITY", b"6"),
        ("SYSLOG_IDENTIFIER", b"dprobes"),
        ("DPROBES_EVENT_TYPE", b"65538"),
        ("DPROBES_MAJOR", b"1"),
        ("DPROBES_MINOR", b"2"),
        ("DPROBES_TID", b"4712"),
        ("DPROBES_CPU", b"3"),
        ("DPROBES_PID", b"4711"),
        ("DPROBES_UID", b"5"),
        ("DPROBES_TIME", b"1700000000123456"),
        ("DPROBES_IP", b"0x1234"),
        ("DPROBES_SP", b"0x0"),
        ("DPROBES_COMM", b"a b"),
        ("DPROBES_POINT", b"libc.so.6:malloc:entry"),
        ("DPROBES_DATA", b"\x05\x00a=\nb\0"),
        ("DPROBES_FIELD_SIZE", b"5"),
        ("DPROBES_FIELD_NAME", b"a=\nb"),
    ];
    let found: Vec<(&str, &[u8])> = fields.iter().map(|(name, value)| (name.as_str(), &**value)).collect();
    assert_eq!(found, expected);
    sink.finish().expect("all is sent");
}

#[test]
fn the_journal_has_the_fields_of_templates_as_they_are_now() {
    let home = tempfile::tempdir().expect("a directory");
    let file = home.path().join("a.fmt");
    std::fs::write(&file, "major=1 minor=2 desc=\"before\" fmt=\"size=%2u\"").expect("room");
    let templates = Templates::open(home.path()).expect("they are there");
    let (socket, path) = daemon(home.path());
    let mut sink = Journal::open(Some(&path), Progress::default()).expect("there is one");
    sink.show(0, &View { templates: Some(templates), ..view(Form::Formatted) });
    let mut now = || {
        sink.record(0, &record(2, b"\x05\x00\x07\x00")).expect("it is sent");
        let fields = fields(&message(&socket));
        sink.refresh(&mut |told| panic!("{told}"));
        let own = fields.into_iter().filter(|(name, _)| name.starts_with("DPROBES_FIELD_"));
        own.map(|(name, value)| format!("{name}={}", String::from_utf8_lossy(&value))).collect::<Vec<_>>()
    };
    assert_eq!(now(), ["DPROBES_FIELD_SIZE=5"]);
    std::fs::write(&file, "major=1 minor=2 desc=\"now\" fmt=\"low=%2u high=%2u\"").expect("room");
    std::thread::sleep(Duration::from_millis(1100));
    now();
    assert_eq!(now(), ["DPROBES_FIELD_LOW=5", "DPROBES_FIELD_HIGH=7"]);
}

#[test]
fn without_a_journal_there_is_a_reason() {
    let missing = Path::new("/nowhere/socket");
    let error = Journal::open(Some(missing), Progress::default()).expect_err("nobody is there");
    assert!(error.to_string().contains("journald's socket /nowhere/socket: "), "{error}");
}
