//! Runs a program while its instructions have jumps: it computes the same, and every instruction is
//! counted as often as it runs.

use std::collections::BTreeMap;

use crate::common::flow::{is_closed, targets};
use crate::common::program::instructions;
use crate::common::random::Random;
use dprobes_patch::tactic::{Code, Flow, Jump, Limits, Planner, Purpose, Removal, Site, Space, Write};
use dprobes_patch::{Continuation, displace};
use iced_x86::code_asm::*;

/// The addresses of the program, its trampolines, and free memory: two gigabytes on either side.
const PROGRAM: u64 = 0x12_3456_7000;
const TRAMPOLINES: u64 = 0x12_3556_7000;
const COUNTERS: u64 = TRAMPOLINES + 0x1_0000;
const ROOM: u64 = 256;
const PAGES: u64 = 0x2_0000;

/// A function of one number: loops and branches, calls, a stack frame, flags across instructions,
/// most of it in few bytes.
fn program() -> Vec<u8> {
    let mut assembler = CodeAssembler::new(64).expect("64 is a number of bits");
    let a = &mut assembler;
    let (mut again, mut odd, mut next, mut inner, mut deeper, mut out) = (
        a.create_label(),
        a.create_label(),
        a.create_label(),
        a.create_label(),
        a.create_label(),
        a.create_label(),
    );
    let mut build = || -> Result<(), iced_x86::IcedError> {
        a.push(rbp)?;
        a.mov(rbp, rsp)?;
        a.push(rbx)?;
        a.push(r12)?;
        a.mov(ebx, edi)?;
        a.xor(eax, eax)?;
        a.mov(r12d, 1)?;
        a.set_label(&mut again)?;
        a.test(bl, 1)?;
        a.jne(odd)?;
        a.push(rax)?;
        a.push(rbx)?;
        a.pop(rdi)?;
        a.call(inner)?;
        a.pop(rcx)?;
        a.add(rax, rcx)?;
        a.jmp(next)?;
        a.set_label(&mut odd)?;
        a.lea(rax, qword_ptr(rax + rax * 2 + 7))?;
        a.ror(rax, 5)?;
        a.stc()?;
        a.adc(rax, rbx)?;
        a.xchg(rax, r12)?;
        a.set_label(&mut next)?;
        a.dec(ebx)?;
        a.jne(again)?;
        a.xor(rax, r12)?;
        a.pop(r12)?;
        a.pop(rbx)?;
        a.leave()?;
        a.ret()?;
        a.set_label(&mut inner)?;
        a.mov(ecx, edi)?;
        a.and(ecx, 7)?;
        a.inc(ecx)?;
        a.cdq()?;
        a.set_label(&mut deeper)?;
        a.imul_2(rdx, rdi)?;
        a.add(rdx, rcx)?;
        a.mov(qword_ptr(rsp - 16), rdx)?;
        a.nop()?;
        a.add(rdx, qword_ptr(rsp - 16))?;
        a.loop_(deeper)?;
        a.xchg(rax, rdx)?;
        a.jrcxz(out)?;
        a.ud2()?;
        a.set_label(&mut out)?;
        a.bswap(rax)?;
        a.ret()?;
        Ok(())
    };
    build().expect("all labels are near");
    assembler.assemble(PROGRAM).expect("all labels are near")
}

/// Maps memory that is writable and executable, which the product never does.
fn map(start: u64, end: u64) {
    let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: the flags forbid that an existing mapping is replaced.
    let mapped = unsafe { libc::mmap(start as *mut _, (end - start) as usize, protection, flags, -1, 0) };
    assert_eq!(mapped as u64, start, "cannot map {start:#x}");
}

fn write(write: &Write) {
    // SAFETY: all writes go to memory that `map` has mapped, unknown to Rust.
    unsafe {
        std::ptr::copy_nonoverlapping(write.bytes.as_ptr(), write.address as *mut u8, write.bytes.len())
    }
}

fn run(number: u64) -> u64 {
    // SAFETY: the program above is at this address, and keeps the calling convention, whatever its
    // probes do.
    let function: extern "sysv64" fn(u64) -> u64 = unsafe { std::mem::transmute(PROGRAM as *const ()) };
    function(number)
}

struct Armed {
    planner: Planner,
    /// Whether pages can be mapped; if not, instructions are grouped.
    roomy: bool,
    bytes: Vec<u8>,
    instructions: Vec<u64>,
}

impl Armed {
    fn trampoline(&self, address: u64) -> u64 {
        TRAMPOLINES + (address - PROGRAM) * ROOM
    }

    fn counter(&self, address: u64) -> u64 {
        COUNTERS + (address - PROGRAM) * 8
    }

    /// ```text
    ///   lea rsp, [rsp-0x80] ; pushfq
    ///   inc qword [counter]
    ///   popfq ; lea rsp, [rsp+0x80]
    ///   <the displaced instruction>, jmp next
    /// ```
    fn write_trampoline(&self, jump: &Jump, counts: bool) -> u64 {
        let start = self.trampoline(jump.address);
        let mut bytes = Vec::new();
        if counts {
            bytes.extend_from_slice(&[0x48, 0x8d, 0x64, 0x24, 0x80, 0x9c, 0x48, 0xff, 0x05]);
            let distance = self.counter(jump.address).wrapping_sub(start + bytes.len() as u64 + 4) as u32;
            bytes.extend_from_slice(&distance.to_le_bytes());
            bytes.extend_from_slice(&[0x9d, 0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0]);
        }
        let mut next = jump.address;
        for (address, length) in [(jump.address, jump.length)].iter().chain(&jump.followers) {
            let rest = &self.bytes[(address - PROGRAM) as usize..];
            let displaced = displace(rest, *address).expect("all of the program can be displaced");
            let slot =
                displaced.slot_to(start + bytes.len() as u64, Continuation::Behind).expect("it is near");
            bytes.extend_from_slice(&slot.bytes);
            next = address + *length as u64;
        }
        let end = start + bytes.len() as u64;
        bytes.push(0xe9);
        bytes.extend_from_slice(&(next.wrapping_sub(end + 5) as u32).to_le_bytes());
        assert!(bytes.len() as u64 <= ROOM);
        write(&Write { address: start, bytes });
        start
    }

    /// False if any of them has no jump; then nothing was done, and the planner is unusable.
    fn arm(&mut self, addresses: &[u64]) -> bool {
        let targets = targets(&self.bytes, PROGRAM, &self.instructions);
        let function = PROGRAM..PROGRAM + self.bytes.len() as u64 - 16;
        let flow = Flow { functions: std::slice::from_ref(&function), targets: &targets };
        let code = Code {
            address: PROGRAM,
            bytes: &self.bytes,
            instructions: &self.instructions,
            entered: &[],
            padding: &[],
            kept: &[],
            flow: (!self.roomy).then_some(flow),
        };
        let free = [PROGRAM - 0x7000_0000..PROGRAM - 0x1_0000, TRAMPOLINES + PAGES..PROGRAM + 0x7000_0000];
        let free = if self.roomy { &free[..] } else { &[] };
        let space = Space { free, trampolines: TRAMPOLINES..COUNTERS };
        let site = |address: &u64| {
            let rest = &self.bytes[(address - PROGRAM) as usize..];
            let length = displace(rest, *address).expect("all of the program can be displaced").length();
            Site { address: *address, length, jump: true }
        };
        let sites: Vec<Site> = addresses.iter().map(site).collect();
        let plan = self.planner.plan(&code, &space, &sites);
        assert!(plan.refused.is_empty(), "{plan:?}");
        if !plan.traps.is_empty() {
            return false;
        }
        plan.map.iter().for_each(|range| map(range.start, range.end));
        plan.restore.iter().for_each(write);
        for jump in &plan.jumps {
            let trampoline = self.write_trampoline(jump, jump.purpose == Purpose::Site);
            jump.pad(trampoline).iter().for_each(write);
            jump.code(trampoline).expect("it is near").iter().for_each(write);
        }
        true
    }

    fn disarm(&mut self, addresses: &[u64]) -> Removal {
        let removal = self.planner.remove(addresses);
        removal.restore.iter().for_each(write);
        for address in &removal.kept {
            let length = self.site_length(*address);
            let start = self.trampoline(*address);
            let displaced =
                displace(&self.bytes[(address - PROGRAM) as usize..], *address).expect("it was before");
            let slot = displaced.slot(start).expect("it is near");
            assert_eq!(displaced.length(), length);
            write(&Write { address: start, bytes: slot.bytes });
        }
        removal
    }

    fn site_length(&self, address: u64) -> usize {
        displace(&self.bytes[(address - PROGRAM) as usize..], address)
            .map_or(0, |displaced| displaced.length())
    }

    /// Runs the program; returns its result and how often each instruction was counted.
    fn counted(&self, number: u64) -> (u64, BTreeMap<u64, u64>) {
        let zeros = vec![0; 8 * self.bytes.len()];
        write(&Write { address: COUNTERS, bytes: zeros });
        let result = run(number);
        // SAFETY: the counters are mapped, aligned, and nobody changes them now.
        let read = |address: &u64| unsafe { *(self.counter(*address) as *const u64) };
        (
            result,
            self.instructions
                .iter()
                .map(|address| (*address, read(address)))
                .filter(|(_, n)| *n > 0)
                .collect(),
        )
    }
}

#[test]
fn a_program_computes_the_same_and_is_counted() {
    let mut bytes = program();
    let length = bytes.len();
    bytes.extend_from_slice(&[0xcc; 16]);
    map(PROGRAM, PROGRAM + 0x1000);
    map(TRAMPOLINES, TRAMPOLINES + PAGES);
    write(&Write { address: PROGRAM, bytes: bytes.clone() });
    let starts = instructions(&bytes[..length], PROGRAM);
    assert!(starts.len() > 40 && length < 120, "{} instructions, {length} bytes", starts.len());
    let planner = || Planner::new(Limits { mappings: 1000, shadow_stacks: false, few_addresses: false });
    let mut armed =
        Armed { planner: planner(), roomy: true, bytes: bytes.clone(), instructions: starts.clone() };
    let expected: Vec<u64> = (1..40).map(run).collect();
    const NUMBER: u64 = 37;

    // One after the other.
    let mut alone = BTreeMap::new();
    for address in &starts {
        assert!(armed.arm(&[*address]));
        let (result, counts) = armed.counted(NUMBER);
        assert_eq!(result, expected[NUMBER as usize - 1], "{address:#x}");
        assert!(counts.keys().all(|counted| counted == address), "{address:#x}: {counts:x?}");
        alone.extend(counts);
        armed.disarm(&[*address]);
    }
    // All but `ud2` are executed: the first ones once, the loop as often as the number says.
    assert_eq!(alone.len(), starts.len() - 1);
    assert_eq!((alone[&starts[0]], alone[&starts[7]]), (1, NUMBER));

    // All at once.
    assert!(armed.arm(&starts));
    let (result, counts) = armed.counted(NUMBER);
    assert_eq!((result, &counts), (expected[NUMBER as usize - 1], &alone));
    armed.disarm(&starts);

    // Some are armed, and some disarmed.
    let mut random = Random::new(5);
    let mut present: Vec<u64> = Vec::new();
    for _ in 0..300 {
        let mut chosen: Vec<u64> = starts.iter().copied().filter(|_| random.below(6) == 0).collect();
        chosen.retain(|address| !present.contains(address));
        assert!(armed.arm(&chosen));
        present.extend(chosen);
        let gone: Vec<u64> = present.iter().copied().filter(|_| random.below(3) == 0).collect();
        armed.disarm(&gone);
        present.retain(|address| !gone.contains(address));
        let (result, counts) = armed.counted(NUMBER);
        let mut wanted = alone.clone();
        wanted.retain(|address, _| present.contains(address));
        assert_eq!((result, counts), (expected[NUMBER as usize - 1], wanted));
        let number = 1 + random.below(39);
        assert_eq!(run(number), expected[number as usize - 1]);
    }
    armed.disarm(&present);

    // Without pages to map, but with known control flow, several instructions share a jump.
    assert!(is_closed(&bytes[..length], PROGRAM));
    let mut grouped = 0;
    for address in &starts {
        (armed.planner, armed.roomy) = (planner(), false);
        if armed.arm(&[*address]) {
            let (result, counts) = armed.counted(NUMBER);
            assert_eq!(result, expected[NUMBER as usize - 1], "{address:#x}");
            assert_eq!(counts.get(address), alone.get(address), "{address:#x}");
            grouped += usize::from(armed.site_length(*address) < 5);
            armed.disarm(&[*address]);
        }
    }
    assert!(grouped >= 10, "{grouped} by a jump over several");
    // SAFETY: the program is mapped, and runs no more.
    let left = unsafe { std::slice::from_raw_parts(PROGRAM as *const u8, bytes.len()) };
    assert!(left == bytes, "every byte is back");
}
