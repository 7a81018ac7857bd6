//! Plans which jumps sites would get, without changing any process.
//!
//! Apart from the code, a plan depends on the free memory within 2 GiB of it. That is taken from a
//! process that has the module mapped, or, for a file alone, from where the kernel would most
//! likely map it (`Surroundings::likely`).

use std::collections::BTreeMap;
use std::ops::Range;

use image::{Image, Unresolved};
use layout::PAGE;
use patch::tactic::{Code, Flow, Limits, Planner, Purpose, Site, Space as Around};
use process::Mapping;

use crate::counts::general;
use crate::doubt::{check_doubt, not_relocated};
use crate::jump::{self, proof};
use crate::mapping;
use crate::reason::{NotCovered, NotMapped};
use crate::resolve::mode;
use crate::site::LONGEST;
use crate::slots;

/// The range of a jump, in bytes.
const REACH: u64 = 1 << 31;
/// Bytes of the trampoline of a handler that only counts.
const TRAMPOLINE: u64 = 192;

/// An address space with the module mapped in it.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The load bias of the module.
    bias: u64,
    mappings: Vec<Mapping>,
    /// The start of the heap, also if there is none yet.
    heap: Option<u64>,
    shadow_stacks: bool,
    /// Whether the code has not been executed yet.
    fresh: bool,
    /// As text.
    description: String,
}

impl Surroundings {
    /// The address space of a process that has the module mapped with this load bias.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of_process(pid: i32, bias: u64) -> Result<Surroundings, process::ModuleError> {
        Ok(Surroundings {
            bias,
            mappings: process::maps(pid)?,
            heap: process::heap_start(pid),
            shadow_stacks: process::has_shadow_stack(pid),
            fresh: false,
            description: format!("the address space of process {pid}"),
        })
    }

    /// The most likely address space for a file. A program with fixed addresses has its heap
    /// directly after it and all libraries far away. A position-independent program is at
    /// 0x5555_5555_4000 with its heap after it. A library has others next to it, 16 MiB above and
    /// below, and otherwise 2 GiB free on either side.
    pub fn likely(image: &Image) -> Surroundings {
        let segments = image.segments();
        let start = segments.iter().map(|segment| segment.vaddr).min().unwrap_or(0) / PAGE * PAGE;
        let end = segments.iter().map(|segment| segment.vaddr.saturating_add(segment.mem_size)).max();
        let size = end.unwrap_or(start).saturating_sub(start).next_multiple_of(PAGE);
        let (program, library) = (0x5555_5555_4000, 0x7f55_5000_0000_u64);
        let is_program = image.soname().is_none() && (image.interpreter().is_some() || image.entry() != 0);
        let (base, description) = match (image.is_position_independent(), is_program) {
            (false, _) => (start, "a program at its own addresses, its heap right behind it"),
            (true, true) => (program, "a program at 0x555555554000, its heap right behind it"),
            (true, false) => (library, "a library at 0x7f5550000000 among others, 2 GiB free around them"),
        };
        let is_library = base == library;
        let mut mappings = vec![Mapping::anonymous(base, base.saturating_add(size), None)];
        let stack = 0x7ffd_0000_0000;
        mappings.push(Mapping::anonymous(stack, stack + (132 << 10), Some("[stack]")));
        let others = if is_library { library } else { 0x7f55_5000_0000 };
        mappings.push(Mapping::anonymous(others - (16 << 20), others - PAGE, None));
        let above = others.saturating_add(if is_library { size } else { 0 }) + PAGE;
        mappings.push(Mapping::anonymous(above, above + (16 << 20), None));
        mappings.sort_by_key(|mapping| mapping.start);
        Surroundings {
            bias: base.wrapping_sub(start),
            mappings,
            heap: (!is_library).then(|| base.saturating_add(size)),
            shadow_stacks: false,
            fresh: true,
            description: description.to_owned(),
        }
    }

    /// A description for messages.
    pub fn description(&self) -> &str {
        &self.description
    }
}

/// The result of planning jumps for sites.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// The number of planned sites.
    pub sites: usize,
    /// Sites that get a jump, by the name of the tactic.
    pub jumps: BTreeMap<&'static str, usize>,
    /// Sites that are trapped, by reason.
    pub traps: BTreeMap<String, usize>,
    /// Sites that cannot be probed, by reason.
    pub refused: BTreeMap<String, usize>,
    /// Instructions without a probe that are moved.
    pub neighbours: usize,
    /// Mappings needed for landing pads.
    pub mappings: usize,
    /// What is proven of the module's control flow. Moving other instructions relies on it.
    pub flow: FlowSummary,
}

/// What is proven of a module's control flow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowSummary {
    /// Instructions that are proven to be reached.
    pub proven: usize,
    /// Jump tables that were read.
    pub tables: usize,
    /// Unresolved indirect jumps: address in the file's numbering, function, and reason.
    pub skipped: Vec<(u64, String, Unresolved)>,
    /// Why nothing is proven, if so.
    pub problem: Option<String>,
}

impl Coverage {
    /// The number of sites that get a jump.
    pub fn jumped(&self) -> usize {
        self.jumps.values().sum()
    }
}

/// Plans jumps for instructions of a module, given by their addresses in the file's own numbering.
/// No process is changed.
///
/// The result is for probes that only count. A probe whose record must wait for its instruction is
/// trapped where the instruction branches and can fault.
///
/// # Errors
/// The code cannot be read, or cannot contain jumps.
pub fn coverage(image: &Image, surroundings: &Surroundings, vaddrs: &[u64]) -> Result<Coverage, NotCovered> {
    let mut coverage = Coverage { sites: vaddrs.len(), flow: summary(image), ..Coverage::default() };
    let mut count = |list: fn(&mut Coverage) -> &mut BTreeMap<String, usize>, reason: String| {
        *list(&mut coverage).entry(reason).or_insert(0) += 1;
    };
    let Some(mode) = mode(image) else { return Err(NotCovered::OtherMachine) };
    let here = |range: &Range<u64>| {
        range.start.wrapping_add(surroundings.bias)..range.end.wrapping_add(surroundings.bias)
    };
    let critical: Vec<Range<u64>> = image.restartable_sequences().iter().map(here).collect();
    let mut kept = critical.clone();
    kept.extend(image.relocated_code().iter().map(here));
    kept.sort_by_key(|range| range.start);
    let segments: Vec<Range<u64>> = image
        .segments()
        .iter()
        .filter(|segment| segment.executable && segment.file_size > 0)
        .map(|segment| segment.vaddr..segment.vaddr.saturating_add(segment.file_size))
        .collect();
    let mut stacks = jump::Stacks::of(image);
    let mut sites: Vec<Vec<Site>> = vec![Vec::new(); segments.len()];
    for &vaddr in vaddrs {
        let segment = segments.iter().position(|segment| segment.contains(&vaddr));
        let bytes = (1..=LONGEST).rev().find_map(|length| image.text(vaddr, length));
        let (Some(segment), Some(bytes)) = (segment, bytes) else {
            count(|it| &mut it.refused, "it is not in the module's code".to_owned());
            continue;
        };
        if let Err(reason) = check_doubt(image, vaddr) {
            count(|it| &mut it.refused, general(&reason.to_string()));
            continue;
        }
        let address = vaddr.wrapping_add(surroundings.bias);
        let displaced = match patch::displace_in(mode, &bytes, address) {
            Ok(displaced) => displaced,
            Err(refusal) => {
                count(|it| &mut it.refused, general(&refusal.to_string()));
                continue;
            }
        };
        if let Err(reason) = not_relocated(image, vaddr, &displaced) {
            count(|it| &mut it.refused, general(&reason.to_string()));
            continue;
        }
        if critical.iter().any(|range| range.contains(&address)) {
            count(|it| &mut it.refused, "it is in a restartable sequence".to_owned());
            continue;
        }
        let reason = jump::unsuitable(&displaced).map(|reason| general(&reason.to_string()));
        let reason = reason.or_else(|| stacks.objection(image, vaddr).map(|reason| reason.to_string()));
        let jump = reason.is_none();
        reason.into_iter().for_each(|reason| count(|it| &mut it.traps, reason));
        sites[segment].push(Site { address, length: displaced.length(), jump });
    }
    let mut mappings = surroundings.mappings.clone();
    let low = jump::low_memory(&mappings, surroundings.heap);
    if low.is_none() {
        return Err(NotCovered::NoneLow);
    }
    mappings.extend(low.into_iter().flatten().map(|range| Mapping::anonymous(range.start, range.end, None)));
    mappings.sort_by_key(|mapping| mapping.start);
    let limits = Limits {
        mappings: mapping::mappings_for_pads(mappings.len()),
        shadow_stacks: surroundings.shadow_stacks,
        few_addresses: false,
    };
    let mut planner = Planner::new(limits);
    for (segment, sites) in segments.iter().zip(&sites).filter(|(_, sites)| !sites.is_empty()) {
        let bytes = image.text(segment.start, (segment.end - segment.start) as usize);
        let bytes = bytes.ok_or(NotCovered::UnreadableCode)?;
        plan(
            &mut planner,
            image,
            surroundings,
            &mut mappings,
            &bytes,
            segment.start,
            &kept,
            sites,
            &mut coverage,
        )?;
    }
    coverage.mappings = planner.mappings();
    Ok(coverage)
}

#[expect(clippy::too_many_arguments, reason = "what a plan is made of")]
fn plan(
    planner: &mut Planner,
    image: &Image,
    surroundings: &Surroundings,
    mappings: &mut Vec<Mapping>,
    bytes: &[u8],
    vaddr: u64,
    kept: &[Range<u64>],
    sites: &[Site],
    coverage: &mut Coverage,
) -> Result<(), NotCovered> {
    let start = vaddr.wrapping_add(surroundings.bias);
    let end = start.saturating_add(bytes.len() as u64);
    let taken = mapping::taken_with(surroundings.heap, mappings);
    let size = (sites.len() as u64 * TRAMPOLINE).next_multiple_of(PAGE);
    let near = end.saturating_sub(REACH - PAGE)..=start.saturating_add(REACH - PAGE);
    let gaps = slots::gaps(&taken, size, start, &near);
    let base = jump::best_gap(&gaps, size, start).ok_or(NotMapped::NoneNear)?;
    mappings.push(Mapping::anonymous(base, base + size, None));
    mappings.sort_by_key(|mapping| mapping.start);
    let taken = mapping::taken_with(surroundings.heap, mappings);
    let free = jump::free_for_pads(&taken, &(start..end));
    let entered = patch::entered_anywhere(bytes, start);
    let known = proof::prove_code_near(image, surroundings.bias, bytes, start, sites, surroundings.fresh);
    let code = Code {
        address: start,
        bytes,
        instructions: &known.instructions,
        entered: &entered,
        padding: &known.padding,
        kept,
        flow: surroundings.fresh.then_some(Flow { functions: &known.functions, targets: &known.landings }),
    };
    let plan = planner.plan(&code, &Around { free: &free, trampolines: base..base + size }, sites);
    for jump in &plan.jumps {
        match jump.purpose {
            Purpose::Site => *coverage.jumps.entry(jump::name(jump.tactic)).or_insert(0) += 1,
            Purpose::Neighbour => coverage.neighbours += 1,
        }
    }
    for (address, reason) in &plan.traps {
        // Sites that were not to get a jump are counted already, with the reason.
        if sites.iter().any(|site| site.address == *address && site.jump) {
            *coverage.traps.entry(reason.to_string()).or_insert(0) += 1;
        }
    }
    for (_, reason) in &plan.refused {
        *coverage.refused.entry(reason.to_string()).or_insert(0) += 1;
    }
    Ok(())
}

/// What is proven of a module's control flow.
fn summary(image: &Image) -> FlowSummary {
    let flow = image.control_flow();
    let name = |vaddr: u64| image.function_at(vaddr).map_or_else(String::new, |it| it.name.clone());
    FlowSummary {
        proven: flow.count(),
        tables: flow.tables().len(),
        skipped: flow.unresolved().iter().map(|&(vaddr, why)| (vaddr, name(vaddr), why)).collect(),
        problem: flow.problem().map(|problem| problem.to_string()),
    }
}
