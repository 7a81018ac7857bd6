//! Checks the machine code of a site, read from this program.

#![cfg(all(target_arch = "x86_64", target_os = "linux", not(feature = "tested-sites")))]

use std::hint::black_box;

use hooks::{Verdict, declare_hook, hook};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction};

declare_hook! {
    /// The hook that is looked at.
    LOOKED_AT(a: u64, b: u64)
}

#[inline(never)]
fn with_a_site(a: u64, b: u64) -> u64 {
    hook!(LOOKED_AT, a, b);
    a ^ b
}

#[inline(never)]
fn without(a: u64, b: u64) -> u64 {
    a ^ b
}

/// The instructions executed without a taken jump, up to the return, except those that are skipped.
fn path(function: fn(u64, u64) -> u64) -> Vec<Instruction> {
    // SAFETY: at least 4 KiB of readable text begin here, since the test's text is larger.
    let code = unsafe { std::slice::from_raw_parts(function as *const u8, 4096) };
    let mut decoder = Decoder::with_ip(64, code, function as usize as u64, DecoderOptions::NONE);
    let mut path = Vec::new();
    loop {
        let instruction = decoder.decode();
        assert!(!instruction.is_invalid() && path.len() < 100, "{path:#?}");
        match instruction.flow_control() {
            FlowControl::UnconditionalBranch => {
                let target = instruction.near_branch_target();
                let place = (target - function as usize as u64) as usize;
                path.push(instruction);
                decoder.set_position(place).expect("within the function");
                decoder.set_ip(target);
            }
            FlowControl::Return => return path,
            _ => path.push(instruction),
        }
    }
}

fn is_nop(instruction: &Instruction) -> bool {
    matches!(instruction.code(), Code::Nop_rm32 | Code::Nop_rm16 | Code::Nop_rm64 | Code::Nopd | Code::Nopw)
}

/// The site among the instructions: the no-operation of 5 bytes, or the jump in its place.
fn site(path: &[Instruction]) -> &Instruction {
    let in_one_word = |it: &&Instruction| it.ip() % 8 <= 3 && it.len() == 5;
    let site = |it: &&Instruction| is_nop(it) || it.code() == Code::Jmp_rel32_64;
    path.iter().find(|it| in_one_word(it) && site(it)).expect("a site")
}

// A function with a dormant site executes only no-operations more than one without. Unoptimised
// code differs in other ways.
#[test]
#[cfg_attr(debug_assertions, ignore = "of an optimised build only: cargo test --release")]
fn a_dormant_site_is_one_no_operation() {
    assert_eq!(black_box(with_a_site)(3, 5), black_box(without)(3, 5));
    let with: Vec<Instruction> = path(with_a_site);
    let nops = with.iter().filter(|it| is_nop(it)).count();
    assert!((1..=2).contains(&nops), "{with:#?}");
    let rest: Vec<Code> = with.iter().filter(|it| !is_nop(it)).map(Instruction::code).collect();
    let plain: Vec<Code> = path(without).iter().map(Instruction::code).collect();
    assert_eq!(rest, plain, "no load, no test, no jump");
}

#[test]
fn the_site_is_a_jump_while_an_exit_is_armed() {
    // A separate site, since tests run in parallel.
    let read = || {
        let path = path(with_a_site);
        let site = site(&path);
        // SAFETY: the site's own 5 bytes of text.
        unsafe { std::ptr::read_volatile(site.ip() as *const [u8; 5]) }
    };
    let before = read();
    assert_eq!(before, [0x0f, 0x1f, 0x44, 0, 0]);
    let exit = LOOKED_AT.exit(|_, (a, b)| {
        assert_eq!((a, b), (3, 5));
        Verdict::Continue
    });
    let exit = exit.register().expect("free");
    assert_eq!(read(), before, "registered is not armed");
    exit.arm().expect("text can be written");
    let path = path(with_a_site);
    assert_eq!(path.iter().find(|it| it.code() == Code::Jmp_rel32_64).map(|it| it.len()), Some(5));
    assert_eq!(black_box(with_a_site)(3, 5), 6);
    exit.disarm().expect("registered");
    assert_eq!(read(), before);
    assert_eq!(exit.panics(), 0);
}
