//! Plans for the code of real programs.

use crate::common::program::{displaceable, load, tally};
use crate::common::random::Random;
use crate::common::world::{Expected, Layout, World};
use dprobes_patch::tactic::{Purpose, Site};

const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

/// Plans, checks, removes and checks again; returns how many of the sites have a jump.
fn try_out(world: &mut World, name: &str, sites: &[Site]) -> usize {
    let plan = world.plan(sites);
    let jumps = plan.jumps.iter().filter(|jump| jump.purpose == Purpose::Site).count();
    let (neighbours, counts) = tally(&plan);
    let mappings = world.planner.mappings();
    eprintln!("{name}: {jumps} of {}, {neighbours} neighbours, {mappings} mappings, {counts:?}", sites.len());
    world.check();
    let addresses: Vec<u64> = sites.iter().map(|site| site.address).collect();
    world.remove(&addresses);
    world.check_pristine();
    world.planner.drain_unused();
    world.forget_pages();
    jumps
}

/// At least this many of a thousand.
#[track_caller]
fn assert_most(jumps: usize, sites: usize, least: usize) {
    assert!(jumps * 1000 >= sites * least, "{jumps} of {sites}");
}

#[test]
fn function_entries() {
    type Case = (&'static str, fn(usize) -> Layout, usize);
    let cases: [Case; 5] = [
        (LIBC, Layout::library, 999),
        (LIBC, Layout::highest, 990),
        (LIBC, Layout::fixed, 990),
        ("/usr/bin/redis-server", Layout::library, 999),
        ("/usr/bin/python3", Layout::fixed, 990),
    ];
    for (path, layout, least) in cases {
        let Some((mut world, entries)) = load(path, layout) else { continue };
        let sites = displaceable(&world, &entries);
        let jumps = try_out(&mut world, path, &sites);
        assert_most(jumps, sites.len(), least);
    }
}

#[test]
fn every_instruction_in_random_batches() {
    for (layout, least) in
        [(Layout::library as fn(usize) -> Layout, 999), (Layout::highest, 990), (Layout::fixed, 990)]
    {
        let Some((mut world, _)) = load(LIBC, layout) else { return };
        let mut sites = displaceable(&world, &world.instructions);
        let mut random = Random::new(1);
        for at in (1..sites.len()).rev() {
            sites.swap(at, random.below(at as u64 + 1) as usize);
        }
        // Without optimization, only part of them.
        let batches = if cfg!(debug_assertions) { 1 } else { usize::MAX };
        let (mut jumps, mut count) = (0, 0);
        for batch in sites.chunks(10_000).take(batches) {
            jumps += try_out(&mut world, LIBC, batch);
            count += batch.len();
        }
        assert_most(jumps, count, least);
    }
}

#[test]
fn every_instruction_of_functions_at_once() {
    for (layout, least) in
        [(Layout::library as fn(usize) -> Layout, 999), (Layout::highest, 990), (Layout::fixed, 970)]
    {
        let Some((mut world, _)) = load(LIBC, layout) else { return };
        let sites = displaceable(&world, &world.instructions);
        let batches = if cfg!(debug_assertions) { 2 } else { usize::MAX };
        let (mut jumps, mut count) = (0, 0);
        for batch in sites.chunks(10_000).take(batches) {
            jumps += try_out(&mut world, LIBC, batch);
            count += batch.len();
        }
        assert_most(jumps, count, least);
    }
}

/// Sites come and go in the code of a real program, while others stay.
#[test]
fn some_come_and_others_go() {
    let Some((mut world, _)) = load(LIBC, Layout::library) else { return };
    let all = displaceable(&world, &world.instructions);
    let mut random = Random::new(7);
    let part = &all[..if cfg!(debug_assertions) { 4000 } else { 40_000 }];
    for _ in 0..12 {
        let rarity = 1 + random.below(6);
        let sites: Vec<Site> = part.iter().copied().filter(|_| random.below(rarity) == 0).collect();
        world.plan(&sites);
        world.check();
        let gone: Vec<u64> = world.sites.keys().copied().filter(|_| random.below(3) > 0).collect();
        world.remove(&gone);
        world.check();
    }
    let by_jump = world.sites.values().filter(|expected| **expected == Expected::Jump).count();
    assert_most(by_jump, world.sites.len(), 990);
    let rest: Vec<u64> = world.sites.keys().copied().collect();
    world.remove(&rest);
    world.check_pristine();
}
