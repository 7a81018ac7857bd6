//! Attaching to files that are nothing but instructions.

use std::fs::File;

use bpf::{Assembler, Feature, Insn, Program, ProgramKind, ProgramSpec, Reg};
use nix::errno::Errno;

use super::{KernelSite, Site, Uprobes, attach_kernel};

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
    let sites = [0, 1, 4, 5].map(|offset| Site { offset, cookie: offset });
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
    let sites = [Site { offset: 1 << 20, cookie: 0 }];
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
