//! Measures planning time and the tactics used:
//! `cargo bench -p dprobes-patch --bench plan [-- FILE]`. With FILE, probes the entries of all its
//! functions.

#![allow(dead_code, unreachable_pub)]

/// Shared with the tests.
#[path = "../tests/all/common/flow.rs"]
mod flow;
/// Shared with the tests.
#[path = "../tests/all/common/program.rs"]
mod program;
#[path = "../tests/all/common/world.rs"]
mod world;

use std::time::{Duration, Instant};

use dprobes_patch::tactic::{Purpose, Site};
use program::{displaceable, load, tally};
use world::Layout;

const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

/// Plans and removes, each time in a new world, and prints medians.
fn measure(
    name: &str,
    path: &str,
    layout: fn(usize) -> Layout,
    choose: impl Fn(&world::World, &[u64]) -> Vec<Site>,
) {
    let (mut plans, mut removals, mut said) = (Vec::new(), Vec::new(), String::new());
    for _ in 0..5 {
        let Some((mut world, entries)) = load(path, layout) else { return };
        let sites = choose(&world, &entries);
        let (plan, time) = world.plan_only(&sites);
        plans.push(time);
        let jumps = plan.jumps.iter().filter(|jump| jump.purpose == Purpose::Site).count();
        let (neighbours, counts) = tally(&plan);
        said = format!(
            "{jumps} of {} by jump ({:.3}%), {neighbours} neighbours, {} mappings: {counts:?}",
            sites.len(),
            100.0 * jumps as f64 / sites.len() as f64,
            world.planner.mappings()
        );
        let addresses: Vec<u64> = sites.iter().map(|site| site.address).collect();
        let start = Instant::now();
        world.planner.remove(&addresses);
        removals.push(start.elapsed());
    }
    println!("{name}: plan {:?}, remove {:?}\n    {said}", median(plans), median(removals));
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn main() {
    let entries = |world: &world::World, entries: &[u64]| displaceable(world, entries);
    let all = |world: &world::World, _: &[u64]| displaceable(world, &world.instructions);
    let every = |world: &world::World, _: &[u64]| {
        let some: Vec<u64> = world.instructions.iter().copied().step_by(7).collect();
        displaceable(world, &some)
    };
    if let Some(file) = std::env::args().skip(1).find(|word| !word.starts_with('-')) {
        return measure(&file, &file, Layout::library, entries);
    }
    for (name, layout) in [
        ("random layout", Layout::library as fn(usize) -> Layout),
        ("highest layout", Layout::highest),
        ("fixed layout", Layout::fixed),
        ("crowded layout", Layout::crowded),
    ] {
        measure(&format!("libc, entries, {name}"), LIBC, layout, entries);
        measure(&format!("libc, every 7th instruction, {name}"), LIBC, layout, every);
        measure(&format!("libc, all instructions, {name}"), LIBC, layout, all);
    }
    measure("python3.11, entries, fixed layout", "/usr/bin/python3.11", Layout::fixed, entries);
    measure("python3.11, every 7th instruction, fixed layout", "/usr/bin/python3.11", Layout::fixed, every);
    measure("redis-server, entries", "/usr/bin/redis-server", Layout::library, entries);
}
