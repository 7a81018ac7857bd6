//! Checks the machine code and the notes of probes, read from this program.

#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use std::hint::black_box;
use std::process::Command;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction};
use testing::{find_program, need, output};

usdt::provider! {
    /// The probes that are looked at.
    mod looked_at {
        /// Two arguments, which are in registers.
        fn two(a: u64, b: u64);
        fn nothing();
        fn every(a: i8, b: u8, c: i16, d: u16, e: i32, f: u32, g: i64, h: u64, i: bool, j: *const u8, k: &u32, l: usize);
        fn never(a: u32);
    }
}

#[inline(never)]
fn with_a_probe(a: u64, b: u64) -> u64 {
    looked_at::two(a, b);
    a ^ b
}

#[inline(never)]
fn without(a: u64, b: u64) -> u64 {
    a ^ b
}

#[inline(never)]
fn every(a: u64, text: &str, number: &u32) -> bool {
    let part = |shift: u32| (a >> shift) as u32;
    looked_at::every(
        part(1) as i8,
        part(2) as u8,
        part(3) as i16,
        part(4) as u16,
        part(5) as i32,
        part(6),
        a as i64,
        a,
        a == 7,
        text.as_ptr(),
        number,
        text.len(),
    );
    looked_at::nothing::enabled()
}

/// Nobody calls it.
#[allow(dead_code)]
pub fn dead(a: u32) {
    looked_at::never(a);
}

/// The instructions of a function without jumps, up to its return.
fn path(function: fn(u64, u64) -> u64) -> Vec<Instruction> {
    // SAFETY: at least 4 KiB of readable text begin here, since the test's text is larger.
    let code = unsafe { std::slice::from_raw_parts(function as *const u8, 4096) };
    let mut decoder = Decoder::with_ip(64, code, function as usize as u64, DecoderOptions::NONE);
    let mut path = Vec::new();
    loop {
        let instruction = decoder.decode();
        assert!(!instruction.is_invalid() && path.len() < 100, "{path:#?}");
        if instruction.flow_control() == FlowControl::Return {
            return path;
        }
        path.push(instruction);
    }
}

// Unoptimised code stores its arguments and calls what it converts them with.
#[test]
#[cfg_attr(debug_assertions, ignore = "of an optimised build only: cargo test --release")]
fn a_probe_is_one_no_operation() {
    assert_eq!(black_box(with_a_probe)(3, 5), black_box(without)(3, 5));
    let with = path(with_a_probe);
    assert_eq!(
        with.iter().filter(|it| it.code() == Code::Nopd).map(Instruction::len).collect::<Vec<_>>(),
        [1]
    );
    let rest: Vec<Code> = with.iter().filter(|it| it.code() != Code::Nopd).map(Instruction::code).collect();
    let plain: Vec<Code> = path(without).iter().map(Instruction::code).collect();
    assert_eq!(rest, plain, "no load, no test, no jump");
}

#[test]
fn readelf_shows_the_notes() {
    let readelf = need!("usdt", find_program("readelf"), "readelf");
    assert!(!black_box(every)(7, "text", &9) && !looked_at::two::enabled());
    looked_at::nothing();
    black_box(with_a_probe)(1, 2);
    let program = std::env::current_exe().expect("this program has a file");
    let text = output(Command::new(readelf).args(["-n", "--wide"]).arg(program));
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let about = |name: &str| -> Vec<(&str, &str)> {
        let is_it =
            |pair: &&[&str]| pair[0].ends_with("Provider: looked_at") && pair[1] == format!("Name: {name}");
        lines.windows(4).filter(|four| is_it(&&four[..2])).map(|four| (four[2], four[3])).collect()
    };
    let every = about("every");
    assert_eq!(every.len(), 1, "{text}");
    let sizes: Vec<&str> =
        every[0].1.split_whitespace().filter_map(|part| part.split_once('@')).map(|(size, _)| size).collect();
    assert_eq!(sizes.join(" "), "-1 1 -2 2 -4 4 -8 8 1 8 8 8");
    assert!(every[0].1.split_whitespace().skip(1).all(|part| part.contains("@%r")), "{}", every[0].1);
    // What is inlined elsewhere too is a probe there.
    let (two, nothing) = (about("two"), about("nothing"));
    assert!(!two.is_empty() && !nothing.is_empty(), "{text}");
    for (places, _) in [every, two, nothing].concat() {
        let numbers: Vec<&str> = places.split(", ").filter_map(|part| part.rsplit("0x").next()).collect();
        let is_somewhere = |digits: &&str| u64::from_str_radix(digits, 16).is_ok_and(|address| address > 0);
        assert!(numbers.len() == 3 && numbers.iter().all(is_somewhere), "{places}");
    }
}
