//! The bytes that come out, as a listing, and the words of every refusal; a change to either is read in review.

use std::fmt::Write;

use dprobes_patch::{Argument, Lent, Mode, Place, Registers, SLOT_CAPACITY, Slot, displace, displace_in};
use iced_x86::{Decoder, DecoderOptions, Formatter, IntelFormatter};

const SITE: u64 = 0x40_1000;
const SLOT: u64 = 0x50_2000;

/// The slot's instructions one a line, with the place that a thread there is at; data at the end as data.
fn listing(mode: Mode, slot: &Slot) -> String {
    let mut out = String::new();
    let mut formatter = IntelFormatter::new();
    formatter.options_mut().set_rip_relative_addresses(true);
    let mut decoder = Decoder::with_ip(mode.bits(), &slot.bytes, slot.address, DecoderOptions::NONE);
    let mut offset = 0;
    while offset < slot.bytes.len() {
        let place = slot.place(offset);
        let instruction = decoder.decode();
        // Behind the last place known to the slot there is its last jump, or data.
        let is_data = mode == Mode::Bits64 && place == Place::Inside && slot.bytes.len() - offset == 8;
        let (length, text) = if is_data {
            let mut value = [0; 8];
            value.copy_from_slice(&slot.bytes[offset..]);
            (8, format!("dq {:#x}", u64::from_le_bytes(value)))
        } else {
            let mut text = String::new();
            formatter.format(&instruction, &mut text);
            (instruction.len(), text)
        };
        let bytes: Vec<_> =
            slot.bytes[offset..offset + length].iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(out, "  {:<32} {text:<32} {place:x?}", bytes.join(" ")).expect("a string takes any text");
        offset += length;
    }
    out
}

fn describe(mode: Mode, bytes: &[u8]) -> String {
    match displace_in(mode, bytes, SITE) {
        Err(refusal) => format!("{bytes:02x?}\n  refused: {refusal}\n"),
        Ok(displaced) => {
            let slot = displaced.slot(SLOT).expect("the slot is near");
            assert!(slot.bytes.len() <= SLOT_CAPACITY);
            format!(
                "{}  ({}{}; slot {:#x}..={:#x})\n{}",
                displaced.text(),
                if displaced.is_emulated() { "emulated" } else { "slot" },
                if displaced.may_fault() { ", may fault" } else { "" },
                displaced.reach().start(),
                displaced.reach().end(),
                listing(mode, &slot)
            )
        }
    }
}

fn table(rows: &[&[u8]]) -> String {
    table_in(Mode::Bits64, rows)
}

fn table_in(mode: Mode, rows: &[&[u8]]) -> String {
    rows.iter().map(|bytes| describe(mode, bytes)).collect::<Vec<_>>().join("\n")
}

#[test]
fn copied() {
    insta::assert_snapshot!(table(&[
        &[0x48, 0x89, 0xe5],                                  // mov rbp,rsp
        &[0x48, 0x8b, 0x05, 0xf0, 0x0f, 0, 0],                // mov rax,[rip+0xff0]
        &[0x67, 0x8b, 0x05, 0xf0, 0x0f, 0, 0],                // mov eax,[eip+0xff0]
        &[0x48, 0xc7, 0x05, 0, 0xf0, 0xff, 0xff, 1, 0, 0, 0], // mov qword [rip-0x1000],1
        &[0x62, 0xf1, 0x7c, 0x48, 0x28, 0x05, 0x40, 0, 0, 0], // vmovaps zmm0,[rip+0x40]
        &[0xff, 0x25, 0x10, 0, 0, 0],                         // jmp [rip+0x10]
        &[0x66, 0xc3],                                        // ret, with a prefix
        &[0xf3, 0x48, 0xa5],                                  // rep movsq
        &[0xf3, 0x90],                                        // pause
        &[0x9d],                                              // popfq
        &[0x5c],                                              // pop rsp
        &[0x48, 0xf7, 0xf1],                                  // div rcx
        &[0x0f, 0x0b],                                        // ud2
        &[0xf4],                                              // hlt
        &[0x0f, 0x01, 0xd5],                                  // xend
        &[0x0f, 0x1a, 0x05, 1, 0, 0, 0],                      // a nop kept for the future, relative to rip
        &[0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8],                // mov rax,imm64
        &[0x8d, 0x05, 0xff, 0xff, 0xff, 0x7f],                // lea at the end of its reach
    ]));
}

#[test]
fn rewritten() {
    insta::assert_snapshot!(table(&[
        &[0x0f, 0x05],                // syscall
        &[0x48, 0x0f, 0x05],          // syscall, with a prefix that says nothing
        &[0xc7, 0xf8, 0x10, 0, 0, 0], // xbegin
    ]));
}

/// A set of signals that lacks one.
const SET: u64 = 0xffff_ffff_ffff_ffef;

fn lent(argument: Argument) -> Slot {
    let displaced = displace(&[0x0f, 0x05], SITE).expect("a system call");
    displaced.lending(Lent { bytes: SET, argument }).slot(SLOT).expect("the slot is near")
}

#[test]
fn lending() {
    let arguments = [
        Argument::Address(0x41_2345),
        Argument::Sum { register: 3, displacement: 0x8f0 },
        Argument::Sum { register: 4, displacement: 8 },
        Argument::Sum { register: 13, displacement: -16 },
    ];
    let listings: Vec<String> =
        arguments.map(|argument| format!("{argument:x?}\n{}", listing(Mode::Bits64, &lent(argument)))).into();
    insta::assert_snapshot!(listings.concat());
}

#[test]
fn what_is_lent_is_never_seen() {
    for (argument, own) in
        [(Argument::Address(0x41_2345), 0x41_2345), (Argument::Sum { register: 3, displacement: -8 }, 0x6ff8)]
    {
        let slot = lent(argument);
        let mut registers = Registers::default();
        registers.gpr[3] = 0x7000;
        // On its way in and out rsi is the slot's, else the program's: it is shown as the program's everywhere.
        let mut shown = Vec::new();
        for offset in 0..slot.bytes.len() {
            registers.rip = SLOT + offset as u64;
            registers.gpr[6] = if [7, 9].contains(&offset) { 0xbad } else { own };
            let mut mended = registers;
            if slot.mend(&mut mended) {
                assert_eq!(mended.gpr[6], own, "{argument:?}, {offset}");
                shown.push((
                    offset,
                    mended.rip,
                    slot.place(offset).is_before(),
                    slot.place(offset).is_after(),
                ));
            }
        }
        let (before, after) = (SITE, SITE + 2);
        let rests = slot.bytes.len() - 8 - 5 - 10;
        let expected = [(0, before, true, false), (7, before, true, false), (9, after, false, true)];
        assert_eq!(shown[..3], expected);
        assert_eq!(shown[3..], [(rests, after, false, true), (rests + 10, after, false, true)]);
    }
}

#[test]
fn emulated() {
    insta::assert_snapshot!(table(&[
        &[0x90],
        &[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
        &[0x0f, 0x1f, 0x05, 0, 0x10, 0, 0],       // nop [rip+0x1000]
        &[0xf3, 0x0f, 0x1e, 0xfa],                // endbr64
        &[0x53],                                  // push rbx
        &[0x41, 0x54],                            // push r12
        &[0x54],                                  // push rsp
        &[0xff, 0xf0],                            // push rax, the long way
        &[0x6a, 0xff],                            // push -1
        &[0x68, 0x78, 0x56, 0x34, 0x12],          // push imm32
        &[0xeb, 0x10],                            // jmp short
        &[0xe9, 0, 0x10, 0, 0],                   // jmp near
        &[0x74, 0xfe],                            // je to itself
        &[0x0f, 0x8f, 0, 1, 0, 0],                // jg near
        &[0xe2, 0xf0],                            // loop
        &[0x67, 0xe0, 0x10],                      // loopne on ecx
        &[0xe3, 0x10],                            // jrcxz
        &[0x67, 0xe3, 0x10],                      // jecxz
        &[0xff, 0xe0],                            // jmp rax
        &[0x3e, 0xff, 0xe0],                      // notrack jmp rax
        &[0xe8, 0, 1, 0, 0],                      // call near
        &[0x66, 0x66, 0x48, 0xe8, 0, 1, 0, 0],    // call as in thread-local storage's general model
        &[0x67, 0xe8, 0, 1, 0, 0],                // call as a linker pads it
        &[0x41, 0xff, 0xd3],                      // call r11
        &[0xff, 0xd4],                            // call rsp
        &[0xff, 0x54, 0x24, 0x08],                // call [rsp+8]
        &[0xff, 0x15, 0, 0x10, 0, 0],             // call [rip+0x1000]
        &[0x66, 0x48, 0xff, 0x15, 0, 0x10, 0, 0], // the same in thread-local storage's general model
        &[0x67, 0xff, 0x15, 0, 0x10, 0, 0],       // call [eip+0x1000]
        &[0x64, 0xff, 0x14, 0x25, 0x10, 0, 0, 0], // call fs:[0x10]
        &[0xf2, 0xff, 0x13],                      // bnd call [rbx]
        &[0xc3],                                  // ret
        &[0xf3, 0xc3],                            // rep ret
        &[0xc2, 0x10, 0],                         // ret 16
    ]));
}

#[test]
fn refused() {
    let far = displace(&[0xe9, 0, 0, 0, 0], SITE).and_then(|jump| jump.slot(SITE + (1 << 32)));
    let rows = table(&[
        &[0xcc],                   // int3
        &[0xf1],                   // int1
        &[0xcd, 0x80],             // int 0x80
        &[0xcd, 0x03],             // int 3, the long way
        &[0xce],                   // into
        &[0xff, 0x18],             // call far
        &[0x48, 0xff, 0x28],       // jmp far
        &[0xcb],                   // retf
        &[0xca, 8, 0],             // retf 8
        &[0xcf],                   // iret
        &[0x48, 0xcf],             // iretq
        &[0xf3, 0x0f, 0x01, 0xec], // uiret
        &[0x0f, 0x34],             // sysenter
        &[0x0f, 0x35],             // sysexit
        &[0x48, 0x0f, 0x07],       // sysretq
        &[0x0f, 0x01, 0xd7],       // enclu
        &[0x66, 0xe8, 0, 0, 0, 0], // call with an operand-size prefix
        &[0x66, 0xe9, 0, 0, 0, 0], // jmp with one
        &[0x66, 0x74, 0],          // je with one
        &[0x66, 0xe2, 0],          // loop with one
        &[0x66, 0xff, 0xd0],       // call rax with one
        &[0x66, 0xc7, 0xf8, 0, 0], // xbegin rel16
        &[0x8e, 0xd0],             // mov ss,eax
        &[0xd5, 0x00, 0x90],       // a prefix of a processor to come
        &[0xf0, 0x90],             // lock nop
        &[0x06],                   // push es, of 32-bit code
        &[],                       // nothing mapped
        &[0x48, 0x8b],             // cut off
        &[0x66; 15],               // prefixes without end
    ]);
    insta::assert_snapshot!(format!("{rows}\n{}\n", far.expect_err("4 GiB are too far")));
}

#[test]
fn of_32_bit_code() {
    insta::assert_snapshot!(table_in(
        Mode::Bits32,
        &[
            &[0x89, 0xe5],                      // mov ebp,esp
            &[0x8b, 0x05, 0xf0, 0x0f, 0, 0],    // mov eax,[0xff0]
            &[0x60],                            // pusha
            &[0x06],                            // push es
            &[0xc4, 0x0b],                      // les ecx,[ebx]
            &[0x62, 0x13],                      // bound edx,[ebx]
            &[0x40],                            // inc eax
            &[0x9d],                            // popfd
            &[0x66, 0xc3],                      // ret, with a prefix
            &[0xc7, 0xf8, 0x10, 0, 0, 0],       // xbegin
            &[0x53],                            // push ebx
            &[0x6a, 0xff],                      // push -1
            &[0xe9, 0, 0x10, 0, 0],             // jmp near
            &[0x74, 0xfe],                      // je to itself
            &[0xe2, 0xf0],                      // loop
            &[0x67, 0xe3, 0x10],                // jcxz
            &[0xff, 0xe0],                      // jmp eax
            &[0xe8, 0, 0, 0, 0],                // call next
            &[0xff, 0xd3],                      // call ebx
            &[0xff, 0x54, 0x24, 0x08],          // call [esp+8]
            &[0x65, 0xff, 0x15, 0x10, 0, 0, 0], // call gs:[0x10]
            &[0xc3],                            // ret
            &[0xc2, 0x10, 0],                   // ret 16
        ],
    ));
}

#[test]
fn refused_of_32_bit_code() {
    insta::assert_snapshot!(table_in(
        Mode::Bits32,
        &[
            &[0xcd, 0x80],                // int 0x80
            &[0xce],                      // into
            &[0x0f, 0x34],                // sysenter
            &[0x0f, 0x05],                // syscall
            &[0x9a, 0, 0, 0, 0, 0x33, 0], // call 0x33:0
            &[0xea, 0, 0, 0, 0, 0x33, 0], // jmp 0x33:0
            &[0xff, 0x18],                // call far [eax]
            &[0xcb],                      // retf
            &[0xcf],                      // iretd
            &[0x17],                      // pop ss
            &[0x8e, 0xd0],                // mov ss,eax
            &[0x66, 0xe8, 0, 0],          // call with an operand-size prefix
            &[0x66, 0xe9, 0, 0],          // jmp with one
            &[0x66, 0x74, 0],             // je with one
            &[0x66, 0xe2, 0],             // loop with one
            &[0x66, 0xff, 0xd0],          // call ax
            &[0x66, 0xc7, 0xf8, 0, 0],    // xbegin rel16
            &[0x0f, 0x04],                // nothing
            &[0x8b],                      // cut off
        ],
    ));
}
