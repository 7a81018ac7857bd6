//! Applies plans to bytes: every instruction leads where it must, whatever was planned and removed
//! before.

use crate::common::encodings::{Addresses, all};
use crate::common::random::Random;
use crate::common::world::{Expected, Layout, World};
use dprobes_patch::tactic::{Site, Tactic};
use dprobes_patch::{Mode, displace};

/// Instructions as compilers write them at the beginning and the end of functions, and elsewhere:
/// mostly short ones.
const COMMON: [&[u8]; 32] = [
    &[0x55],
    &[0x53],
    &[0x41, 0x57],
    &[0x41, 0x54],
    &[0x5b],
    &[0x5d],
    &[0x41, 0x5c],
    &[0x41, 0x5f],
    &[0xc3],
    &[0xc9],
    &[0x90],
    &[0x31, 0xc0],
    &[0x85, 0xc0],
    &[0x89, 0xf8],
    &[0x74, 0x10],
    &[0x75, 0xf0],
    &[0xeb, 0x20],
    &[0xff, 0xd0],
    &[0x48, 0x89, 0xe5],
    &[0x48, 0x89, 0xfb],
    &[0x48, 0x85, 0xc0],
    &[0x4c, 0x89, 0xe7],
    &[0x48, 0x83, 0xec, 0x18],
    &[0x48, 0x83, 0xc4, 0x18],
    &[0x8b, 0x04, 0x24],
    &[0x48, 0x8b, 0x45, 0xf8],
    &[0xe8, 0x10, 0x20, 0x00, 0x00],
    &[0x48, 0x8b, 0x44, 0x24, 0x08],
    &[0x0f, 0x84, 0x30, 0x00, 0x00, 0x00],
    &[0x48, 0x8d, 0x05, 0x10, 0x20, 0x30, 0x00],
    &[0x66, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
    &[0xc7, 0x44, 0x24, 0x10, 0, 0, 0, 0],
];

/// Code of `count` random instructions, all of which can be displaced.
fn random_code(random: &mut Random, count: usize, address: u64) -> (Vec<u8>, Vec<u64>) {
    let addresses =
        Addresses { mode: Mode::Bits64, site: address, data: address + 0x20_0000, target: address };
    thread_local! {
        static OTHERS: std::cell::RefCell<Vec<Vec<u8>>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    let others = OTHERS.with_borrow_mut(|others| {
        if others.is_empty() {
            others.extend(all(addresses).into_iter().map(|encoding| encoding.bytes));
            others.retain(|bytes| displace(bytes, address).is_ok());
        }
        others.clone()
    });
    let (mut bytes, mut starts) = (Vec::new(), Vec::new());
    while starts.len() < count {
        starts.push(address + bytes.len() as u64);
        match random.below(8) {
            0 => bytes.extend_from_slice(&others[random.below(others.len() as u64) as usize]),
            _ => bytes.extend_from_slice(COMMON[random.below(COMMON.len() as u64) as usize]),
        }
    }
    (bytes, starts)
}

fn random_world(random: &mut Random, count: usize, mappings: usize) -> World {
    let length = count * 15;
    let layout = match random.below(5) {
        2 => Layout::highest(length),
        0 => Layout::fixed(length),
        1 => Layout::crowded(length),
        _ => Layout::library(length),
    };
    let (bytes, starts) = random_code(random, count, layout.address);
    let mut world = World::new(layout, bytes, starts, mappings);
    // Direct jumps of random code lead anywhere; jumps into the middle of an instruction should be
    // rare.
    world.entered.retain(|_| random.below(16) == 0);
    if random.below(2) == 0 {
        let half = world.instructions[count / 2];
        let functions = vec![world.address..half, half..world.address + world.original.len() as u64];
        let targets = world.instructions.iter().copied().filter(|_| random.below(5) == 0).collect();
        world.flow = Some((functions, targets));
    }
    // Some no-operations are never executed, and nobody probes them.
    world.padding = padding(&world, random);
    world
}

/// Some runs of instructions that are claimed to be padding, and removed from the instructions.
fn padding(world: &World, random: &mut Random) -> Vec<std::ops::Range<u64>> {
    if random.below(2) == 0 {
        return Vec::new();
    }
    let ranges = world.instructions.iter().filter(|_| random.below(12) == 0);
    ranges.map(|address| *address..address + world.site(*address).length as u64).collect()
}

/// Some of the world's instructions: a few, many, neighbours, or all of a range.
fn choose(world: &World, random: &mut Random) -> Vec<Site> {
    let count = world.instructions.len() as u64;
    let from = random.below(count);
    let part = &world.instructions[from as usize..(from + 1 + random.below(count - from)) as usize];
    let rarity = [1, 1, 2, 3, 10][random.below(5) as usize];
    let mut sites: Vec<Site> = part.iter().map(|address| world.site(*address)).collect();
    sites.retain(|_| random.below(rarity) == 0);
    // Padding is hardly ever probed.
    let is_padding = |site: &Site| world.padding.iter().any(|padding| padding.contains(&site.address));
    let rarely = random.below(4) == 0;
    sites.retain(|site| rarely || !is_padding(site));
    for site in &mut sites {
        site.jump = random.below(20) != 0;
    }
    sites
}

#[test]
fn whatever_is_planned_and_removed() {
    let (mut jumps, mut traps, mut grouped, mut over, mut within, mut grown) = (0, 0, 0, 0, 0, 0);
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let mappings = [0, 3, 20, 60_000][random.below(4) as usize];
        let count = 10 + random.below(120) as usize;
        let mut world = random_world(&mut random, count, mappings);
        for _ in 0..6 {
            if random.below(4) == 0 {
                grown += usize::from(world.grow(0x1000_0000));
            }
            if random.below(3) > 0 {
                let mut sites = choose(&world, &mut random);
                // Sites that trap already: as asked, or for another reason.
                let trapped = |(address, expected): (&u64, &Expected)| {
                    (*expected == Expected::Trap).then(|| Site { jump: false, ..world.site(*address) })
                };
                sites.retain(|site| world.sites.get(&site.address) != Some(&Expected::Trap));
                sites.extend(world.sites.iter().filter_map(trapped));
                let plan = world.plan(&sites);
                grouped += plan.jumps.iter().filter(|jump| jump.tactic == Tactic::Grouped).count();
                let count = |tactic| plan.jumps.iter().filter(|jump| jump.tactic == tactic).count();
                over += count(Tactic::OverPadding);
                within += count(Tactic::InPadding);
                for site in &sites {
                    let listed = usize::from(plan.jumps.iter().any(|jump| jump.address == site.address))
                        + usize::from(plan.traps.iter().any(|(address, _)| *address == site.address))
                        + usize::from(plan.refused.iter().any(|(address, _)| *address == site.address));
                    assert_eq!(listed, 1, "seed {seed}: {site:x?} is in {listed} lists of {plan:#x?}");
                    let is_jump = plan.jumps.iter().any(|jump| jump.address == site.address);
                    assert!(site.jump || !is_jump, "seed {seed}: {site:x?} is to be trapped");
                }
            } else {
                let known: Vec<u64> = world.sites.keys().copied().collect();
                let gone: Vec<u64> = known.into_iter().filter(|_| random.below(2) == 0).collect();
                world.remove(&gone);
            }
            world.check();
            assert!(world.planner.mappings() <= mappings, "seed {seed}");
        }
        jumps += world.sites.values().filter(|expected| **expected == Expected::Jump).count();
        traps += world.sites.values().filter(|expected| **expected == Expected::Trap).count();
        let rest: Vec<u64> = world.sites.keys().copied().collect();
        world.remove(&rest);
        world.check();
        world.check_pristine();
        world.planner.drain_unused();
        assert_eq!(world.planner.mappings(), 0, "seed {seed}");
    }
    eprintln!(
        "{jumps} jumps, {traps} traps at the end; {grouped} jumps over several instructions, {over} over padding and {within} in padding on the way"
    );
    assert!(jumps > 3000 && traps > 500 && grouped > 50 && over > 20 && within > 20 && grown > 100);
}
