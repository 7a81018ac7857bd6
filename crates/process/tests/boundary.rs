//! Where instructions start, compared with what `objdump -d` lists.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use common::{PLAIN, Scratch, have, libc, run};
use dprobes_process::{Image, Misplaced};

/// An instruction objdump lists: its length, and how it writes it.
type Listing = BTreeMap<u64, (u64, String)>;

/// What `objdump -d` lists, by address; `(bad)` is no instruction.
fn objdump(path: &Path) -> Listing {
    let text = run(Command::new("objdump").args(["-d", "-w", "--insn-width=16"]).arg(path));
    let mut listing = Listing::new();
    for line in text.lines() {
        let mut fields = line.splitn(3, '\t');
        let (Some(address), Some(bytes)) = (fields.next(), fields.next()) else { continue };
        let Ok(address) = u64::from_str_radix(address.trim().trim_end_matches(':'), 16) else { continue };
        let text = fields.next().unwrap_or_default().trim().to_owned();
        listing.insert(address, (bytes.split_whitespace().count() as u64, text));
    }
    listing
}

/// Both directions of disagreement between the listing and the image.
struct Comparison {
    checked: usize,
    /// objdump lists an instruction, we refuse.
    refused: Vec<(u64, String, Misplaced)>,
    /// objdump lists none, we accept: the address, and the instruction objdump sees around it.
    accepted: Vec<(u64, String)>,
}

fn compare(path: &Path) -> Comparison {
    let image = Image::open(path).unwrap();
    let listing = objdump(path);
    let mut found = Comparison { checked: listing.len(), refused: Vec::new(), accepted: Vec::new() };
    for (address, (length, text)) in &listing {
        if let Err(misplaced) = image.check_boundary(*address)
            && !text.contains("(bad)")
        {
            found.refused.push((*address, text.clone(), misplaced));
        }
        for inside in address + 1..address + length {
            match image.check_boundary(inside) {
                Ok(()) => found.accepted.push((inside, text.clone())),
                // It must name the instruction that objdump shows, where both see the same one.
                Err(Misplaced::InsideInstruction { before, after, .. }) => {
                    assert!(before < inside && inside < after, "{inside:#x} in {before:#x}..{after:#x}");
                }
                Err(_) => {}
            }
        }
    }
    found
}

/// objdump prints `fwait` and the instruction after it as one, and so it does with prefixes that stand before
/// another instruction's own; for the processor, and for us, `fwait` is an instruction.
fn is_wait(text: &str) -> bool {
    ["fstcw", "fstenv", "fstsw", "fclex", "finit", "fsave", "fwait"].iter().any(|name| text.contains(name))
}

fn expect_equal(name: &str, path: &Path) {
    let found = compare(path);
    let refused: Vec<_> =
        found.refused.iter().map(|(at, text, why)| format!("{at:#x} {text}: {why}")).collect();
    let accepted: Vec<_> = found.accepted.iter().filter(|(_, text)| !is_wait(text)).collect();
    assert!(found.checked > 20, "{name}: objdump listed {} instructions", found.checked);
    assert!(refused.is_empty(), "{name}: refused {} of {}: {refused:#?}", refused.len(), found.checked);
    assert!(accepted.is_empty(), "{name}: accepted inside instructions: {accepted:x?}");
}

#[test]
fn compiled_programs() {
    if !have("compiled_programs", &["gcc", "objdump", "strip"]) {
        return;
    }
    let scratch = Scratch::new("boundary-programs");
    for (name, options) in [
        ("pie", &["-O2", "-fPIE", "-pie"][..]),
        ("fixed", &["-O2", "-fno-PIE", "-no-pie"]),
        ("slow", &["-O0", "-g"]),
        ("shadow", &["-O2", "-fcf-protection=full"]),
        ("lazy", &["-O2", "-Wl,-z,lazy", "-fcf-protection=none"]),
        ("mixed", &["-O2", "-Wl,-z,noseparate-code"]),
        ("unwindless", &["-O2", "-fno-asynchronous-unwind-tables"]),
    ] {
        let program = scratch.compile("plain.c", PLAIN, name, options);
        expect_equal(name, &program);
        let stripped = scratch.strip(&program, &format!("{name}-stripped"), &[]);
        expect_equal(&format!("{name}, stripped"), &stripped);
    }
}

#[test]
fn a_static_program() {
    if !have("a_static_program", &["gcc", "objdump"]) {
        return;
    }
    let scratch = Scratch::new("boundary-static");
    for (name, options) in [("static", &["-O2", "-static"]), ("static-pie", &["-O2", "-static-pie"])] {
        let program = scratch.compile("plain.c", PLAIN, name, options);
        let found = compare(&program);
        report(name, &found);
        assert!(found.refused.len() * 10_000 <= found.checked, "{} refused", found.refused.len());
        assert!(found.accepted.iter().all(|(_, text)| is_wait(text)), "{:x?}", found.accepted);
    }
}

#[test]
fn the_c_library() {
    if !have("the_c_library", &["objdump"]) {
        return;
    }
    let found = compare(&libc());
    report("libc", &found);
    assert!(found.checked > 100_000);
    assert!(found.refused.is_empty(), "{} refused", found.refused.len());
    assert!(found.accepted.iter().all(|(_, text)| is_wait(text)), "{:x?}", found.accepted);
}

fn report(name: &str, found: &Comparison) {
    println!(
        "{name}: {} instructions, {} refused, {} accepted inside",
        found.checked,
        found.refused.len(),
        found.accepted.len()
    );
    for (at, text, why) in found.refused.iter().take(40) {
        println!("  refused {at:#x} {text}: {why}");
    }
    for (at, text) in found.accepted.iter().take(40) {
        println!("  accepted {at:#x} inside {text}");
    }
}
