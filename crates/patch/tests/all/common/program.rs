//! Real programs as test worlds.

use std::collections::BTreeMap;
use std::fs;

use dprobes_patch::displace;
use dprobes_patch::tactic::{Plan, Purpose, Site};
use iced_x86::{Decoder, DecoderOptions};
use object::{Object, ObjectSection, ObjectSymbol, SymbolKind};

use super::world::{Layout, World};

/// The addresses of the instructions of 64-bit code at `address`, decoded linearly to the end, or
/// to the first invalid one.
pub fn instructions(bytes: &[u8], address: u64) -> Vec<u64> {
    let decoder = &mut Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
    decoder.into_iter().take_while(|it| !it.is_invalid()).map(|it| it.ip()).collect()
}

/// A program's code as if loaded in `layout`: its instructions, and its function entries. `None` if
/// the file does not exist; then tests with it are skipped.
pub fn load(path: &str, layout: impl Fn(usize) -> Layout) -> Option<(World, Vec<u64>)> {
    let Ok(file) = fs::read(path) else {
        testing::skipped("real programs", path);
        return None;
    };
    let file = object::File::parse(&*file).expect("a program that runs is an ELF file");
    let text = file.section_by_name(".text").expect("it has code");
    let bytes = text.data().expect("it is in the file").to_vec();
    let layout = layout(bytes.len());
    let address = layout.address;
    let mut starts = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let found = instructions(&bytes[at..], address + at as u64);
        at = found.last().map_or(at, |last| (last - address) as usize);
        let length = displace(&bytes[at..], address + at as u64).map_or(1, |displaced| displaced.length());
        starts.extend(found);
        at += length;
    }
    let within = |symbol: &u64| (text.address()..text.address() + text.size()).contains(symbol);
    let mut entries: Vec<u64> = file
        .symbols()
        .chain(file.dynamic_symbols())
        .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.is_definition())
        .map(|symbol| symbol.address())
        .filter(within)
        .map(|symbol| symbol - text.address() + address)
        .collect();
    entries.sort_unstable();
    entries.dedup();
    Some((World::new(layout, bytes, starts, 30_000), entries))
}

/// The number of moved neighbours, and the number of sites by tactic or by reason.
pub fn tally(plan: &Plan) -> (usize, BTreeMap<String, usize>) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut neighbours = 0;
    for jump in &plan.jumps {
        match jump.purpose {
            Purpose::Site => *counts.entry(format!("{:?}", jump.tactic)).or_default() += 1,
            Purpose::Neighbour => neighbours += 1,
        }
    }
    for (_, reason) in plan.traps.iter().chain(&plan.refused) {
        *counts.entry(format!("{reason:?}")).or_default() += 1;
    }
    (neighbours, counts)
}

/// The instructions that can be displaced.
pub fn displaceable(world: &World, addresses: &[u64]) -> Vec<Site> {
    let can = |address: &&u64| {
        let rest = &world.original[(**address - world.address) as usize..];
        displace(&rest[..rest.len().min(15)], **address).is_ok_and(|displaced| !displaced.enters_kernel())
    };
    addresses.iter().filter(can).map(|address| world.site(*address)).collect()
}
