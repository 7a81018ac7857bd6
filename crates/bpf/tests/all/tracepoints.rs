//! Tracepoints: this process changes a thread's name, which passes one.

use bpf::{Assembler, Atomic, AttachError, Errno, Insn, ProgramKind, RawTracepoint, Reg, Size, Tracepoint};

use crate::support::{Words, end, load, only_this_thread, permitted, without_children};

/// A program that adds 1 to word 1 for this thread. Tracepoints fire for all.
fn counts_this_thread() -> Assembler {
    let mut assembler = Assembler::new();
    let other = only_this_thread(&mut assembler);
    assembler.load_map_value(Reg::R1, 0, 8);
    assembler.push(Insn::mov(Reg::R2, 1));
    assembler.push(Insn::atomic(Atomic::Add, Size::Double, Reg::R1, 0, Reg::R2));
    assembler.bind(other);
    end(&mut assembler);
    assembler
}

/// Gives this thread a name.
fn rename() {
    // SAFETY: the name ends by zero and is shorter than 16 bytes.
    let result = unsafe { libc::prctl(libc::PR_SET_NAME, c"renamed".as_ptr()) };
    assert_eq!(result, 0);
}

#[test]
fn tracepoints_are_attached_by_name_and_by_number() {
    let test = "tracepoints_are_attached_by_name_and_by_number";
    if !permitted(test) {
        return;
    }
    raw();
    // The file system of tracing is mounted for one thread only, if it is not mounted at all.
    let found = std::thread::spawn(|| {
        let found = Tracepoint::find("task", "task_rename");
        if found.is_err() {
            mount_here().and_then(|()| Tracepoint::find("task", "task_rename"))
        } else {
            found
        }
    });
    let found = found.join().expect("the thread does not panic");
    let point = testing::need!(&format!("optional: {test}"), found.ok(), "the file system of tracing");
    numbered(point);
}

fn raw() {
    let words = Words::new();
    let program = load(ProgramKind::RawTracepoint, counts_this_thread(), &[&words.map]);
    let missing = RawTracepoint { name: "no_such_tracepoint" }.attach(&program, 0).err();
    assert_eq!(missing, Some(AttachError::Link(Errno::ENOENT)));
    let _links_end = without_children();
    let link = RawTracepoint { name: "task_rename" }.attach(&program, 0);
    let link = link.expect("every kernel has this tracepoint");
    rename();
    rename();
    assert_eq!(words.get(1), 2);
    drop(link);
    rename();
    assert_eq!(words.get(1), 2);
}

fn numbered(point: Tracepoint) {
    let words = Words::new();
    let program = load(ProgramKind::Tracepoint, counts_this_thread(), &[&words.map]);
    let _links_end = without_children();
    let link = point.attach(&program, 0).expect("the tracepoint is there");
    rename();
    assert_eq!(words.get(1), 1);
    drop(link);
    rename();
    assert_eq!(words.get(1), 1);
}

/// Mounts the file system of tracing in a namespace of this thread's own.
fn mount_here() -> Result<(), Errno> {
    let target = c"/sys/kernel/tracing".as_ptr();
    let (none, kind) = (std::ptr::null(), c"tracefs".as_ptr());
    // SAFETY: the calls read strings that end by zero, and change this thread's namespace only: it
    // is new, and made private first.
    unsafe {
        Errno::result(libc::unshare(libc::CLONE_NEWNS))?;
        let private = libc::MS_REC | libc::MS_PRIVATE;
        Errno::result(libc::mount(none, c"/".as_ptr(), none, private, std::ptr::null()))?;
        Errno::result(libc::mount(kind, target, kind, 0, std::ptr::null())).map(drop)
    }
}
