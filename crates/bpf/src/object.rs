//! Writes a program as an ELF file, for tools that read such files: `llvm-objdump -dr`.
//!
//! ```text
//! ELF header | code | relocations | licence | symbols | names | section headers
//! ```
//!
//! Maps are undefined symbols, to which relocations of the loads refer. The file is to be read, not
//! loaded: it says nothing of what the maps are.

use crate::code::{Code, names_map};
use crate::insn::Insn;
use crate::opcode::pseudo;

const HEADER: usize = 64;
const SYMBOL: usize = 24;
const RELOCATION: usize = 16;
const SECTION_HEADER: usize = 64;

/// The numbers of the sections.
mod section {
    pub(super) const CODE: u16 = 1;
    pub(super) const SYMBOLS: u32 = 4;
    pub(super) const NAMES: u32 = 5;
    pub(super) const COUNT: u16 = 6;
}

/// What the section header of a kind of section says.
#[derive(Default)]
struct Section {
    name: u32,
    kind: u32,
    flags: u64,
    contents: Vec<u8>,
    link: u32,
    info: u32,
    entry: u64,
}

/// Names, each with a zero after it.
struct Names(Vec<u8>);

impl Names {
    fn add(&mut self, name: &str) -> u32 {
        let offset = self.0.len() as u32;
        self.0.extend(name.bytes().filter(|&byte| byte != 0));
        self.0.push(0);
        offset
    }
}

/// A program as an ELF file. `maps` are the names of the maps by index, `section` is the name of
/// the code's section, such as `uprobe`, and `symbol` that of the program; its other functions are
/// called `symbol.1` and so on.
pub fn write_object(code: &Code, maps: &[&str], section: &str, symbol: &str) -> Vec<u8> {
    let mut names = Names(vec![0]);
    let (symbols, first_global) = symbols(code, maps, symbol, &mut names);
    let (instructions, relocations) = relocatable(code, maps.len(), first_global);
    let allocated_code = 2 | 4;
    let mut sections = [
        Section::default(),
        Section {
            name: names.add(section),
            kind: 1,
            flags: allocated_code,
            contents: instructions,
            ..Default::default()
        },
        Section {
            name: names.add(&format!(".rel{section}")),
            kind: 9,
            flags: 0x40,
            contents: relocations,
            link: section::SYMBOLS,
            info: section::CODE.into(),
            entry: RELOCATION as u64,
        },
        Section {
            name: names.add("license"),
            kind: 1,
            flags: 2,
            contents: b"Dual MIT/GPL\0".to_vec(),
            ..Default::default()
        },
        Section {
            name: names.add(".symtab"),
            kind: 2,
            flags: 0,
            contents: symbols,
            link: section::NAMES,
            info: first_global,
            entry: SYMBOL as u64,
        },
        Section { name: names.add(".strtab"), kind: 3, ..Default::default() },
    ];
    sections[section::NAMES as usize].contents = names.0;
    assemble(&sections)
}

/// The symbol table, and the number of its first global symbol, the program. Local ones come first.
fn symbols(code: &Code, maps: &[&str], symbol: &str, names: &mut Names) -> (Vec<u8>, u32) {
    const LOCAL_FUNCTION: u8 = 2;
    const GLOBAL_FUNCTION: u8 = 1 << 4 | 2;
    const GLOBAL: u8 = 1 << 4;
    let mut table = vec![0; SYMBOL];
    let mut add = |name: u32, info: u8, section: u16, value: u64, size: u64| {
        table.extend(name.to_le_bytes());
        table.extend([info, 0]);
        table.extend(section.to_le_bytes());
        table.extend(value.to_le_bytes());
        table.extend(size.to_le_bytes());
    };
    let starts = code.functions();
    let end = code.insns().len() as u32;
    let bytes = |number: usize| {
        let end = starts.get(number + 1).copied().unwrap_or(end);
        (u64::from(starts[number]) * 8, u64::from(end - starts[number]) * 8)
    };
    for number in 1..starts.len() {
        let (value, size) = bytes(number);
        add(names.add(&format!("{symbol}.{number}")), LOCAL_FUNCTION, section::CODE, value, size);
    }
    let (value, size) = bytes(0);
    add(names.add(symbol), GLOBAL_FUNCTION, section::CODE, value, size);
    for map in maps {
        add(names.add(map), GLOBAL, 0, 0, 0);
    }
    (table, starts.len() as u32)
}

/// The instructions, with loads of maps as compilers write them, and the relocations for these.
/// A map without a name stays as it is.
fn relocatable(code: &Code, maps: usize, program: u32) -> (Vec<u8>, Vec<u8>) {
    const R_BPF_64_64: u64 = 1;
    let mut instructions = Vec::with_capacity(code.insns().len() * 8);
    let mut relocations = Vec::new();
    let mut load = None;
    for (number, &insn) in code.insns().iter().enumerate() {
        let mut written = insn;
        if names_map(insn) && (insn.imm as usize) < maps {
            let symbol = u64::from(program) + 1 + insn.imm as u64;
            relocations.extend((number as u64 * 8).to_le_bytes());
            relocations.extend((symbol << 32 | R_BPF_64_64).to_le_bytes());
            // The distance from the symbol's address, which a map itself does not have.
            let offset = code.insns().get(number + 1).map_or(0, |second| second.imm);
            let offset = if insn.src() == pseudo::MAP_INDEX_VALUE { offset } else { 0 };
            written = Insn::raw(insn.code, insn.dst(), 0, 0, offset);
            load = Some(number + 1);
        } else if load == Some(number) {
            written.imm = 0;
        }
        instructions.extend(written.bytes());
    }
    (instructions, relocations)
}

/// The file.
fn assemble(sections: &[Section]) -> Vec<u8> {
    const RELOCATABLE: u16 = 1;
    const MACHINE_BPF: u16 = 247;
    let mut file = vec![0; HEADER];
    let mut headers = Vec::new();
    for section in sections {
        file.resize(file.len().next_multiple_of(8), 0);
        headers.extend([section.name, section.kind].iter().flat_map(|word| word.to_le_bytes()));
        let (offset, size) = (file.len() as u64, section.contents.len() as u64);
        headers.extend([section.flags, 0, offset, size].iter().flat_map(|word| word.to_le_bytes()));
        headers.extend([section.link, section.info].iter().flat_map(|word| word.to_le_bytes()));
        headers.extend([8, section.entry].iter().flat_map(|word: &u64| word.to_le_bytes()));
        file.extend(&section.contents);
    }
    file.resize(file.len().next_multiple_of(8), 0);
    let mut header = Vec::with_capacity(HEADER);
    // 64 bits, little-endian, version 1.
    header.extend([0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    header.extend([RELOCATABLE, MACHINE_BPF].iter().flat_map(|half| half.to_le_bytes()));
    header.extend(1_u32.to_le_bytes());
    // No entry and no program headers, then the section headers.
    header.extend([0, 0, file.len() as u64].iter().flat_map(|word| word.to_le_bytes()));
    header.extend(0_u32.to_le_bytes());
    let sizes = [HEADER as u16, 0, 0, SECTION_HEADER as u16, section::COUNT, section::NAMES as u16];
    header.extend(sizes.iter().flat_map(|half| half.to_le_bytes()));
    file[..HEADER].copy_from_slice(&header);
    file.extend(headers);
    file
}
