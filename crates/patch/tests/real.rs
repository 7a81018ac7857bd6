//! Plans for the code of real programs.

mod common;

use std::time::Instant;

use common::program::{displaceable, load, tally};
use common::random::Random;
use common::world::Layout;
use dprobes_patch::displace;
use dprobes_patch::tactic::Purpose;

#[test]
fn function_entries() {
    for (path, fixed) in [
        ("/lib/x86_64-linux-gnu/libc.so.6", false),
        ("/usr/bin/redis-server", false),
        ("/usr/bin/python3.11", true),
    ] {
        let Some((mut world, entries)) = load(path, if fixed { Layout::fixed } else { Layout::library })
        else {
            continue;
        };
        let sites = displaceable(&world, &entries);
        let start = Instant::now();
        let plan = world.plan(&sites);
        let time = start.elapsed();
        world.check();
        let jumps = plan.jumps.iter().filter(|jump| jump.purpose == Purpose::Site).count();
        eprintln!(
            "{path}: {jumps} of {} entries by jump, {} mappings, {time:?}; neighbours {:?}",
            sites.len(),
            world.planner.mappings(),
            tally(&plan)
        );
        for (address, _) in plan.traps.iter().take(40) {
            let mut text = String::new();
            let mut at = *address;
            for _ in 0..4 {
                let rest = &world.original[(at - world.address) as usize..];
                let rest = &rest[..rest.len().min(15)];
                let Ok(displaced) = displace(rest, at) else { break };
                text += &format!(" | {:02x?} {}", displaced.original(), displaced.text());
                at += displaced.length() as u64;
            }
            eprintln!("{address:x}{text}");
        }
        assert!(jumps * 1000 >= sites.len() * 999);
        let addresses: Vec<u64> = sites.iter().map(|site| site.address).collect();
        world.remove(&addresses);
        world.check_pristine();
    }
}

#[test]
fn every_instruction_in_random_batches() {
    let Some((mut world, _)) = load("/lib/x86_64-linux-gnu/libc.so.6", Layout::library) else { return };
    let mut sites = displaceable(&world, &world.instructions);
    let mut random = Random::new(1);
    for at in (1..sites.len()).rev() {
        sites.swap(at, random.below(at as u64 + 1) as usize);
    }
    let mut all = 0;
    for batch in sites.chunks(20_000) {
        let plan = world.plan(batch);
        let jumps = plan.jumps.iter().filter(|jump| jump.purpose == Purpose::Site).count();
        eprintln!("{jumps} of {}, {} mappings, {:?}", batch.len(), world.planner.mappings(), tally(&plan));
        world.check();
        all += jumps;
        let addresses: Vec<u64> = batch.iter().map(|site| site.address).collect();
        world.remove(&addresses);
        world.check_pristine();
        world.planner.drain_unused();
        world.forget_pages();
    }
    assert!(all * 1000 >= sites.len() * 995, "{all} of {}", sites.len());
}

#[test]
fn every_instruction_of_functions_at_once() {
    let Some((mut world, _)) = load("/lib/x86_64-linux-gnu/libc.so.6", Layout::library) else { return };
    let sites = displaceable(&world, &world.instructions);
    let (mut all, mut count) = (0, 0);
    for batch in sites.chunks(10_000).step_by(5) {
        let plan = world.plan(batch);
        let jumps = plan.jumps.iter().filter(|jump| jump.purpose == Purpose::Site).count();
        eprintln!("{jumps} of {}, {} mappings, {:?}", batch.len(), world.planner.mappings(), tally(&plan));
        world.check();
        (all, count) = (all + jumps, count + batch.len());
        let addresses: Vec<u64> = batch.iter().map(|site| site.address).collect();
        world.remove(&addresses);
        world.check_pristine();
        world.planner.drain_unused();
        world.forget_pages();
    }
    assert!(all * 100 >= count * 99, "{all} of {count}");
}
