//! Builds the agent's own code: compiles the module `inside` with only the interpreter, links it to
//! one block that runs at any address (`blob.ld`), and writes to `OUT_DIR`:
//!
//! | file | what it holds |
//! |---|---|
//! | `agent.bin` | the bytes, as linked for address 0 |
//! | `agent.rs` | an `Image` of them: entry points, fault table, relocations |
//!
//! It needs only rustc and a C compiler as linker, as every Rust program does. It always optimizes,
//! whatever the rest of the workspace does.

use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use iced_x86::{Decoder, DecoderOptions, InstructionInfoFactory};
use object::elf::{self, R_X86_64_RELATIVE};
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The greatest size of the image: it is mapped into each probed process.
const LIMIT: usize = 128 << 10;

fn main() -> Result<()> {
    println!("cargo::rustc-check-cfg=cfg(image, all_vectors)");
    let (system, processor) = (variable("CARGO_CFG_TARGET_OS")?, variable("CARGO_CFG_TARGET_ARCH")?);
    if (&*system, &*processor) != ("linux", "x86_64") {
        return Err(format!("dprobes is for Linux on x86-64, not for {system} on {processor}").into());
    }
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(variable("OUT_DIR")?);
    for source in ["src", "../maps/src", "../vm/src", "../layout/src", "../unwind/src", "blob.ld", "build.rs"]
    {
        println!("cargo::rerun-if-changed={}", here.join(source).display());
    }
    for name in ["RUSTC_LINKER", "CC"] {
        println!("cargo::rerun-if-env-changed={name}");
    }
    // Each with those before it, and with the directory where the compiler finds what those use.
    let mut before = vec!["-L".to_owned(), format!("dependency={}", out.display())];
    for name in ["maps", "vm", "layout", "unwind"] {
        let library = out.join(format!("lib{name}.rlib"));
        let options: Vec<&str> = before.iter().map(String::as_str).collect();
        compile(&here.join(format!("../{name}/src/lib.rs")), name, "rlib", &library, &options)?;
        before.extend(["--extern".to_owned(), format!("{name}={}", library.display())]);
    }
    let archive = out.join("libagent.a");
    let linked = out.join("agent.elf");
    let build = |more: &[&str]| -> Result<bool> {
        let options = ["-Clto=fat", "--cfg", "image"];
        let options: Vec<&str> =
            before.iter().map(String::as_str).chain(options).chain(more.iter().copied()).collect();
        compile(&here.join("src/lib.rs"), "dprobes_agent", "staticlib", &archive, &options)?;
        link(&archive, &here.join("blob.ld"), &linked)?;
        uses_few_vectors(&linked)
    };
    // Another compiler may use more vector registers than the entry for maps saves by default.
    if !build(&[])? {
        build(&["--cfg", "all_vectors"])?;
    }
    write_image(&linked, &out)
}

fn variable(name: &str) -> Result<String> {
    env::var(name).map_err(|_| format!("cargo has not set {name}").into())
}

/// Compiles one crate for the agent: no floating point, no vector registers beyond SSE2, no
/// unwinding.
fn compile(source: &Path, name: &str, kind: &str, output: &Path, more: &[&str]) -> Result<()> {
    let mut rustc = Command::new(variable("RUSTC")?);
    rustc
        .args([
            "--edition=2024",
            "--crate-name",
            name,
            "--crate-type",
            kind,
            "--target",
            &variable("TARGET")?,
        ])
        .args(["-Copt-level=3", "-Cpanic=abort", "-Crelocation-model=pic", "-Ccode-model=small"])
        .args(["-Ctarget-cpu=x86-64", "-Ccodegen-units=1", "-Cdebuginfo=0", "-Coverflow-checks=off"])
        .args([
            "-Cdebug-assertions=off",
            "-Cforce-unwind-tables=no",
            "-Cembed-bitcode=yes",
            "--cap-lints=allow",
        ])
        .args(more)
        .arg("-o")
        .args([output, source]);
    run(rustc)
}

/// Links the archive to one block.
fn link(archive: &Path, script: &Path, output: &Path) -> Result<()> {
    let linker = env::var("RUSTC_LINKER").or_else(|_| env::var("CC")).unwrap_or_else(|_| "cc".to_owned());
    let mut cc = Command::new(linker);
    cc.args(["-nostdlib", "-nostartfiles", "-static-pie"])
        .args(["-Wl,--gc-sections", "-Wl,--build-id=none", "-Wl,-z,norelro", "-Wl,-z,noexecstack"])
        .args([
            "-Wl,-e,dprobes_resume",
            "-Wl,-u,dprobes_wait",
            "-Wl,-u,dprobes_map",
            "-Wl,-u,dprobes_give_up",
            "-Wl,--no-undefined",
        ])
        .arg(format!("-Wl,-T,{}", script.display()))
        .arg("-o")
        .args([output, archive]);
    run(cc)
}

fn run(mut command: Command) -> Result<()> {
    let output = command.output().map_err(|cause| format!("{command:?}: {cause}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{command:?}: {}\n{said}", output.status).into());
    }
    Ok(())
}

/// Whether the code uses no vector registers but xmm0 to xmm3, apart from the entries, which save and
/// restore others.
fn uses_few_vectors(linked: &Path) -> Result<bool> {
    let bytes = fs::read(linked)?;
    let file = ElfFile64::<Endianness>::parse(&*bytes)?;
    let section = file.section_by_name(".image").ok_or("the agent has no code")?;
    let code = section.uncompressed_data()?;
    let mut functions: Vec<(u64, bool)> = file
        .symbols()
        .filter(|symbol| symbol.is_definition())
        .filter_map(|symbol| Some((symbol.address(), symbol.name().ok()?)))
        .map(|(address, name)| (address, name.starts_with("dprobes_") || name.contains("inside5entry")))
        .collect();
    // Of two names of one place, that of an entry comes last.
    functions.sort_unstable();
    let end = file.symbols().find(|symbol| symbol.name() == Ok("dprobes_code_end"));
    let end = end.ok_or("the agent has no end of its code")?.address() as usize;
    let mut decoder = Decoder::with_ip(64, code.get(..end).ok_or("no code")?, 0, DecoderOptions::NONE);
    let mut factory = InstructionInfoFactory::new();
    while decoder.can_decode() {
        let instruction = decoder.decode();
        let next = functions.partition_point(|(address, _)| *address <= instruction.ip());
        if next.checked_sub(1).is_some_and(|place| functions[place].1) {
            continue;
        }
        let used = factory.info(&instruction).used_registers();
        if used.iter().any(|used| used.register().is_vector_register() && used.register().number() > 3) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Checks the linked file, and writes it as bytes and tables.
fn write_image(linked: &Path, out: &Path) -> Result<()> {
    let bytes = fs::read(linked)?;
    let file = ElfFile64::<Endianness>::parse(&*bytes)?;
    let image =
        file.section_by_name(".image").ok_or("the agent has no code")?.uncompressed_data()?.into_owned();
    if image.len() > LIMIT {
        return Err(format!("the agent has {} bytes; {LIMIT} are allowed", image.len()).into());
    }
    if file.section_by_name(".writable").is_some_and(|section| section.size() != 0) {
        return Err("the agent has writable data".into());
    }
    for header in file.elf_program_headers() {
        if header.p_type(Endianness::Little) == elf::PT_TLS {
            return Err("the agent has thread-local data".into());
        }
    }
    let mut text =
        String::from("Image {\n    bytes: include_bytes!(concat!(env!(\"OUT_DIR\"), \"/agent.bin\")),\n");
    text.push_str("    entries: &[\n");
    for symbol in file.symbols().filter(|symbol| symbol.is_global() && symbol.is_definition()) {
        let name = symbol.name()?;
        if let Some(name) = name.strip_prefix("dprobes_") {
            writeln!(text, "        ({name:?}, {:#x}),", symbol.address())?;
        }
    }
    let place = |name| {
        let found = file.symbols().find(|symbol| symbol.name() == Ok(name));
        found.map(|symbol| symbol.address()).ok_or_else(|| format!("the agent has no {name}"))
    };
    writeln!(text, "    ],\n    code: {:#x},", place("dprobes_code_end")?)?;
    writeln!(text, "    settings: {:#x},", place("dprobes_settings")?)?;
    text.push_str("    faults: &[\n");
    for (from, to) in faults(&file)? {
        writeln!(text, "        ({from:#x}, {to:#x}),")?;
    }
    text.push_str("    ],\n    relocations: &[\n");
    for (place, value) in relocations(&file, image.len() as u64)? {
        writeln!(text, "        ({place:#x}, {value:#x}),")?;
    }
    text.push_str("    ],\n}\n");
    fs::write(out.join("agent.bin"), image)?;
    fs::write(out.join("agent.rs"), text)?;
    Ok(())
}

/// Reads the fault table: pairs of distances, each from its own position.
fn faults(file: &ElfFile64<'_, Endianness>) -> Result<Vec<(u64, u64)>> {
    let section = file.section_by_name(".dprobes_faults").ok_or("the agent has no fault table")?;
    let mut table = Vec::new();
    for (number, entry) in section.uncompressed_data()?.chunks_exact(8).enumerate() {
        let at = section.address() + 8 * number as u64;
        let distance = |bytes: &[u8]| bytes.try_into().map(i32::from_le_bytes).map(i64::from);
        let from = at.wrapping_add_signed(distance(&entry[..4])?);
        let to = (at + 4).wrapping_add_signed(distance(&entry[4..])?);
        table.push((from, to));
    }
    table.sort_unstable();
    Ok(table)
}

/// The words to which the image's address is added, as offset and value. A linker makes no other
/// relocations in a program without libraries.
fn relocations(file: &ElfFile64<'_, Endianness>, size: u64) -> Result<Vec<(u64, u64)>> {
    /// The size of an `Elf64_Rela`: offset, symbol and type, addend.
    const ENTRY: usize = 24;
    let Some(section) = file.section_by_name(".rela.dyn") else { return Ok(Vec::new()) };
    let mut places = Vec::new();
    for entry in section.uncompressed_data()?.chunks_exact(ENTRY) {
        let word = |at: usize| entry[at..at + 8].try_into().map(u64::from_le_bytes);
        let (place, kind, value) = (word(0)?, word(8)?, word(16)?);
        if kind != u64::from(R_X86_64_RELATIVE.0) || place + 8 > size {
            return Err(format!("a relocation of type {kind:#x} at {place:#x} cannot be applied").into());
        }
        places.push((place, value));
    }
    Ok(places)
}
