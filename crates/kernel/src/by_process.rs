//! How often each process has hit each probe: a map of the kernel's with a bounded number of
//! entries, made at a process's first hit. Hits for which there is no entry are counted as such.
//!
//! ```text
//!     key = { probe, process }
//!     entry = map[key]
//!     if (!entry) { map[key] = { 0, thread's name }, unless it is there; entry = map[key] }
//!     if (entry) lock entry->hits += 1 else counts->unassigned += 1
//! ```

use bpf::{Atomic, Cond, Helper, Insn, Map as BpfMap, MapError, MapKind, MapSpec, Reg, Size};

use crate::compiler::Compiler;
use crate::filter::NAME;
use crate::layout::{Map, count};

/// Bytes of a key, and of a value: the hits, then a thread's name.
const KEY: u32 = 8;
const VALUE: u32 = 8 + NAME as u32;

/// Bytes of the program's stack that the code uses: a value, then a key.
pub(crate) const STACK: i16 = (KEY + VALUE) as i16;

/// `BPF_NOEXIST`: an entry is made only if there is none.
const ONLY_NEW: i32 = 1;

/// The hits of one process at one probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessHits {
    /// The number of the probe.
    pub probe: u32,
    /// The number of the process.
    pub pid: u32,
    /// The name of the thread that hit the probe first.
    pub name: Vec<u8>,
    /// The hits.
    pub hits: u64,
}

/// The map, with so many entries.
pub(crate) fn create(entries: u32) -> Result<BpfMap, MapError> {
    BpfMap::create(&MapSpec {
        kind: MapKind::Hash,
        name: "dp_by_process",
        key_size: KEY,
        value_size: VALUE,
        max_entries: entries.max(1),
        mappable: false,
        inner: None,
    })
}

/// What the map holds.
pub(crate) fn read(map: &BpfMap) -> Result<Vec<ProcessHits>, MapError> {
    let mut all = Vec::new();
    map.for_each(|key, value| {
        let number = |at: usize| key.get(at..).and_then(|rest| rest.first_chunk()).copied();
        let (Some(probe), Some(pid)) = (number(0), number(4)) else { return };
        let Some((hits, name)) = value.split_first_chunk() else { return };
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
        let (probe, pid) = (u32::from_ne_bytes(probe), u32::from_ne_bytes(pid));
        all.push(ProcessHits { probe, pid, name, hits: u64::from_ne_bytes(*hits) });
    })?;
    Ok(all)
}

/// Counts the hit for the process. `R8` is the probe; `place` is where the program's stack has
/// [`STACK`] bytes.
pub(crate) fn emit(c: &mut Compiler<'_>, place: i16) {
    let (found, counted) = (c.e.asm.label(), c.e.asm.label());
    let (value, key) = (place, place + VALUE as i16);
    c.e.call(Helper::GET_CURRENT_PID_TGID);
    c.e.alu(bpf::Alu::Rsh, Reg::R0, 32);
    c.e.store(Size::Word, Reg::R10, key, Reg::R8);
    c.e.store(Size::Word, Reg::R10, key + 4, Reg::R0);
    look_up(c, key);
    c.e.jump_if(Cond::Ne, Reg::R0, 0, found);
    c.e.store_imm(Size::Double, Reg::R10, value, 0);
    address(c, Reg::R1, value + 8);
    c.e.thread_name();
    c.e.asm.load_map(Reg::R1, Map::ByProcess as u32);
    address(c, Reg::R2, key);
    address(c, Reg::R3, value);
    c.e.mov(Reg::R4, ONLY_NEW);
    c.e.call(Helper::MAP_UPDATE_ELEM);
    look_up(c, key);
    c.e.jump_if(Cond::Ne, Reg::R0, 0, found);
    c.count(count::UNASSIGNED);
    c.e.asm.jump(counted);
    c.e.asm.bind(found);
    c.e.mov(Reg::R1, 1);
    c.e.asm.push(Insn::atomic(Atomic::Add, Size::Double, Reg::R0, 0, Reg::R1));
    c.e.asm.bind(counted);
}

/// `R0` = the address of the entry, or 0.
fn look_up(c: &mut Compiler<'_>, key: i16) {
    c.e.asm.load_map(Reg::R1, Map::ByProcess as u32);
    address(c, Reg::R2, key);
    c.e.call(Helper::MAP_LOOKUP_ELEM);
}

/// A register becomes the address of a place in the program's stack.
fn address(c: &mut Compiler<'_>, to: Reg, place: i16) {
    c.e.mov(to, Reg::R10);
    c.e.alu(bpf::Alu::Add, to, i32::from(place));
}
