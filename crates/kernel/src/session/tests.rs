//! Attaching to files that are nothing but instructions.

use std::fs::File;

use bpf::{Assembler, Feature, Insn, Program, ProgramKind, ProgramSpec, Reg};
use nix::errno::Errno;

use super::{KernelSite, Site, Uprobes, attach_kernel, follow_children};
use crate::Processes;

/// A program that does nothing.
fn program(kind: ProgramKind) -> Program {
    let mut assembler = Assembler::new();
    assembler.push(Insn::mov(Reg::R0, 0));
    assembler.exit();
    let code = assembler.finish().expect("it is complete");
    Program::load(&ProgramSpec { kind, name: "nothing", code: &code, maps: &[] }).expect("it can be loaded")
}

fn can_run() -> Option<()> {
    (testing::is_root() && Feature::RingBuffer.is_available()).then_some(())
}

/// `nop`, `lock inc dword ptr [rax]`, and `nop`s: uprobes do not take the second.
const CODE: [u8; 8] = [0x90, 0xf0, 0xff, 0x00, 0x90, 0x90, 0x90, 0x90];

#[test]
fn what_uprobes_do_not_take_is_found_though_nobody_maps_the_file() {
    testing::need!("bpf: session", can_run(), "root and eBPF");
    let scratch = testing::Scratch::new();
    let path = scratch.path().join("code");
    std::fs::write(&path, CODE).expect("there is room");
    let file = File::open(&path).expect("it was written");
    let sites = [0, 1, 4, 5].map(|offset| Site { offset, counter: 0, cookie: offset });
    let parent = std::os::unix::process::parent_id();
    let own = std::process::id();
    let mut ways = Vec::new();
    for process in [None, Some(own), Some(parent)] {
        ways.extend([Uprobes::new(process), Uprobes::one_by_one(process)]);
    }
    for way in ways {
        let attached = way.attach(&program(way.kind(false)), &file, &sites);
        let refused: Vec<usize> = attached.refused.iter().map(|(place, _)| *place).collect();
        assert_eq!(refused, [1], "{way:?}: {:?}", attached.refused);
        // ENOTSUPP, which has no name outside the kernel.
        assert_eq!(attached.refused[0].1.errno(), Some(Errno::from_raw(524)), "{way:?}");
        assert!(attached.is_anywhere());
    }
}

#[test]
fn a_file_too_short_has_no_such_place() {
    testing::need!("bpf: session", can_run(), "root and eBPF");
    let scratch = testing::Scratch::new();
    let path = scratch.path().join("code");
    std::fs::write(&path, CODE).expect("there is room");
    let file = File::open(&path).expect("it was written");
    let way = Uprobes::new(None);
    let sites = [Site { offset: 1 << 20, counter: 0, cookie: 0 }];
    let attached = way.attach(&program(way.kind(false)), &file, &sites);
    assert!(!attached.is_anywhere() && attached.refused.len() == 1, "{attached:?}");
    assert!(!way.attach(&program(way.kind(false)), &file, &[]).is_anywhere());
}

#[test]
fn a_kernel_without_kprobes_refuses_each_place() {
    testing::need!("bpf: session", can_run(), "root and eBPF");
    if Feature::Kprobe.is_available() {
        return testing::skipped("optional: no kprobes", "a kernel without kprobes");
    }
    let site = KernelSite { address: 0xffff_ffff_8100_0000, on_return: false, cookie: 0 };
    let attached = attach_kernel(&program(ProgramKind::Kprobe), &[site, site]);
    assert_eq!(attached.refused.len(), 2);
    assert!(!attached.is_anywhere());
}

/// A shell starts a child that starts another; threads are no processes of their own.
#[test]
fn the_processes_that_a_process_forks_are_followed() {
    testing::need!("bpf: session", can_run(), "root and eBPF");
    let processes = Processes::create(64).expect("a map");
    let link = match follow_children(&processes) {
        Ok(link) => link,
        Err(reason) => return testing::skipped("bpf: session", &reason),
    };
    let run = |text: &str| {
        let mut shell = std::process::Command::new("/bin/sh");
        let shell = shell.args(["-c", text]).stdin(std::process::Stdio::piped());
        shell.stdout(std::process::Stdio::piped()).spawn().expect("a shell")
    };
    let text = "read line; (echo first; exit 0); /bin/sh -c '(echo second; exit 0); exit 0'; echo end";
    let (mut followed, mut other) = (run(text), run(text));
    processes.add(followed.id()).expect("there is room");
    for shell in [&mut followed, &mut other] {
        drop(shell.stdin.take());
    }
    other.wait().expect("it ends");
    let output = followed.wait_with_output().expect("it ends");
    assert_eq!(output.stdout, b"first\nsecond\nend\n");
    std::thread::spawn(|| ()).join().expect("a thread");
    drop(link);
    let all = processes.list().expect("the map");
    // The shell itself, its child, the other shell, and its child.
    assert_eq!(all.len(), 4, "{all:?}");
    processes.remove(all[0]).expect("the map");
    processes.set(&[7]).expect("there is room");
    assert_eq!(processes.list(), Ok(vec![7]));
}
