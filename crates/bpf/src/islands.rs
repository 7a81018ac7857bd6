//! Jumps farther than an offset of 16 bits reach: by steps.
//!
//! ```text
//!     if r1 == 0 goto A             if r1 == 0 goto I
//!     ... 50000 instructions        ... 24000 instructions
//!                                   goto N             <- unless the one before ends by a jump
//!                             I:    goto A
//!                             N:    ... 26000 instructions
//!  A: ...                        A: ...
//! ```
//!
//! A group of islands lies between two items of the function; each of them leads on to one label,
//! or to another island. Islands make jumps around them longer, so this is repeated until every
//! jump reaches its target. A group is put at three quarters of the reach, which leaves it room to
//! grow. No island is further than a jump from what leads to it, and each is nearer to the label.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use crate::code::Code;
use crate::insn::Insn;
use crate::item::{Item, Items};
use crate::label::{AssembleError, Label};
use crate::opcode::{class, jump};

/// How often everything may be laid out. Twenty suffice for a million instructions.
const ROUNDS: usize = 100;

/// Where a jump leads at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Route {
    /// To its label.
    Label,
    /// To an island.
    Island(usize),
}

/// A jump that leads on.
#[derive(Debug)]
struct Island {
    /// The item before which it lies.
    before: usize,
    label: Label,
    route: Route,
}

/// The items with the islands between them.
#[derive(Debug)]
pub(crate) struct Islands<'a> {
    items: &'a Items,
    /// How far a jump reaches.
    limit: i32,
    /// The way of each item, if it is a jump.
    routes: Vec<Route>,
    islands: Vec<Island>,
    /// The islands that lie before an item.
    groups: BTreeMap<usize, Vec<usize>>,
    /// The islands that lead to a label.
    of_label: HashMap<Label, Vec<usize>>,
}

/// Where everything lies, in instructions.
#[derive(Debug)]
struct Layout {
    items: Vec<i32>,
    islands: Vec<i32>,
    end: i32,
}

/// A jump: an item, or an island.
#[derive(Clone, Copy, Debug)]
enum Source {
    Item(usize),
    Island(usize),
}

impl<'a> Islands<'a> {
    pub(crate) fn new(items: &'a Items, limit: i32) -> Self {
        let routes = vec![Route::Label; items.list.len()];
        Self { items, limit, routes, islands: Vec::new(), groups: BTreeMap::new(), of_label: HashMap::new() }
    }

    /// Adds islands until every jump reaches where it leads.
    pub(crate) fn with_islands(mut self) -> Result<Self, AssembleError> {
        let mut last_far = 0;
        for _ in 0..ROUNDS {
            let layout = self.layout();
            let jumps = self.items.list.iter().enumerate();
            let jumps = jumps.filter(|(_, item)| matches!(item, Item::Jump(..)));
            let jumps = jumps.map(|(number, _)| Source::Item(number));
            let sources: Vec<Source> = jumps.chain((0..self.islands.len()).map(Source::Island)).collect();
            let mut complete = true;
            for source in sources {
                if !self.reaches(&layout, source) {
                    complete = false;
                    last_far = self.item(source);
                    self.detour(&layout, source)?;
                }
            }
            if complete {
                self.prune();
                return Ok(self);
            }
        }
        Err(AssembleError::TooFar(last_far))
    }

    /// The item that a jump is, or that an island lies before.
    fn item(&self, source: Source) -> usize {
        match source {
            Source::Item(item) => item,
            Source::Island(island) => self.islands[island].before,
        }
    }

    /// Whether the item before a group runs into it, so that a jump around it is needed.
    fn run_into(&self, before: usize) -> bool {
        self.items.list[before - 1].falls_through()
    }

    fn layout(&self) -> Layout {
        let mut layout = Layout { items: Vec::new(), islands: vec![0; self.islands.len()], end: 0 };
        for (number, item) in self.items.list.iter().enumerate() {
            if let Some(group) = self.groups.get(&number) {
                layout.end += i32::from(self.run_into(number));
                for &island in group {
                    layout.islands[island] = layout.end;
                    layout.end += 1;
                }
            }
            layout.items.push(layout.end);
            layout.end += item.size();
        }
        layout
    }

    /// The label and the present way of a jump.
    fn way(&self, source: Source) -> (Label, Route) {
        match source {
            Source::Item(item) => {
                let label = self.items.list[item].label().expect("only jumps are asked for");
                (label, self.routes[item])
            }
            Source::Island(island) => (self.islands[island].label, self.islands[island].route),
        }
    }

    fn label_at(&self, layout: &Layout, label: Label) -> i32 {
        layout.items[self.items.item_of(label).expect("all labels were checked")]
    }

    /// The distance that the offset of a jump states.
    fn distance(&self, layout: &Layout, source: Source) -> i32 {
        let (label, route) = self.way(source);
        let to = match route {
            Route::Label => self.label_at(layout, label),
            Route::Island(island) => layout.islands[island],
        };
        to - at(layout, source) - 1
    }

    fn reaches(&self, layout: &Layout, source: Source) -> bool {
        self.distance(layout, source).abs() <= self.limit
    }

    /// Leads a jump over an island.
    fn detour(&mut self, layout: &Layout, source: Source) -> Result<(), AssembleError> {
        let (label, _) = self.way(source);
        let from = at(layout, source);
        let to = self.label_at(layout, label);
        let existing = self.existing(layout, label, from, to);
        let island = existing.or_else(|| self.add(layout, label, from, to));
        let island = island.ok_or(AssembleError::TooFar(self.item(source)))?;
        match source {
            Source::Item(item) => self.routes[item] = Route::Island(island),
            Source::Island(from) => self.islands[from].route = Route::Island(island),
        }
        Ok(())
    }

    /// The farthest island that leads to a label and can be reached on the way to it.
    fn existing(&self, layout: &Layout, label: Label, from: i32, to: i32) -> Option<usize> {
        let islands = self.of_label.get(&label)?.iter();
        // Those that were added in this round have no place yet: they are not in the layout.
        let placed = islands.filter_map(|&island| Some((island, *layout.islands.get(island)?)));
        let ahead = placed.map(|(island, at)| (island, (at - from) * (to - from).signum(), at));
        let near = ahead.filter(|&(_, ahead, at)| {
            ahead > 0 && (at - from - 1).abs() <= self.limit && (to - at).abs() < (to - from).abs()
        });
        near.max_by_key(|&(_, ahead, _)| ahead).map(|(island, ..)| island)
    }

    /// Adds an island on the way to a label, if there is a place that is nearer to it.
    fn add(&mut self, layout: &Layout, label: Label, from: i32, to: i32) -> Option<usize> {
        let direction = (to - from).signum();
        let wanted = from + direction * (self.limit - self.limit / 4);
        let least = from + direction * (self.limit / 2);
        let (low, high) = (wanted.min(least), wanted.max(least));
        let first = |position: i32| layout.items.partition_point(|&at| at < position);
        let function = self.items.function(first(from));
        let places = first(low).max(function.start + 1)..first(high + 1).min(function.end);
        let before = self.boundary(places, direction > 0)?;
        let group = self.groups.entry(before).or_default();
        let same = group.iter().find(|&&island| self.islands[island].label == label);
        if let Some(&island) = same {
            return Some(island);
        }
        group.push(self.islands.len());
        self.of_label.entry(label).or_default().push(self.islands.len());
        self.islands.push(Island { before, label, route: Route::Label });
        Some(self.islands.len() - 1)
    }

    /// The item of a range before which an island is best put: where others are, as long as they
    /// are few compared with the room to grow, or where code ends, so that nothing has to jump
    /// around them; the last one, or the first one, of these.
    fn boundary(&self, places: Range<usize>, last: bool) -> Option<usize> {
        if places.is_empty() {
            return None;
        }
        let few = self.limit as usize / 16;
        let mut groups = self.groups.range(places.clone());
        let room = |&(_, group): &(&usize, &Vec<usize>)| group.len() < few;
        let group = if last { groups.rfind(room) } else { groups.find(room) };
        let free = |&place: &usize| !self.groups.contains_key(&place);
        let end = |&place: &usize| free(&place) && !self.run_into(place);
        let choose = |fits: &dyn Fn(&usize) -> bool| {
            let mut places = places.clone();
            if last { places.rfind(fits) } else { places.find(fits) }
        };
        group.map(|(&place, _)| place).or_else(|| choose(&end)).or_else(|| choose(&free))
    }

    /// Removes the islands to which nothing leads any more: the verifier refuses code that cannot
    /// be reached. Distances only become shorter by that.
    fn prune(&mut self) {
        let mut used = vec![false; self.islands.len()];
        let mut open: Vec<Route> = self.routes.clone();
        while let Some(route) = open.pop() {
            if let Route::Island(island) = route
                && !std::mem::replace(&mut used[island], true)
            {
                open.push(self.islands[island].route);
            }
        }
        for group in self.groups.values_mut() {
            group.retain(|&island| used[island]);
        }
        self.groups.retain(|_, group| !group.is_empty());
    }

    /// The program.
    pub(crate) fn encode(self) -> Result<Code, AssembleError> {
        let layout = self.layout();
        let mut insns: Vec<Insn> = Vec::with_capacity(layout.end as usize);
        for (number, &item) in self.items.list.iter().enumerate() {
            if let Some(group) = self.groups.get(&number) {
                if self.run_into(number) {
                    insns.push(self.leap(group.len() as i32, number)?);
                }
                for &island in group {
                    insns.push(self.leap(self.distance(&layout, Source::Island(island)), number)?);
                }
            }
            let here = layout.items[number];
            match item {
                Item::Plain(insn) => insns.push(insn),
                Item::Wide(halves) => insns.extend(halves),
                Item::Jump(mut insn, _) => {
                    let distance = self.distance(&layout, Source::Item(number));
                    insn.offset = i16::try_from(distance).map_err(|_| AssembleError::TooFar(number))?;
                    insns.push(insn);
                }
                Item::Call(mut insn, label) => {
                    insn.imm = self.label_at(&layout, label) - here - 1;
                    insns.push(insn);
                }
                Item::Address([mut first, second], label) => {
                    first.imm = self.label_at(&layout, label) - here - 1;
                    insns.extend([first, second]);
                }
            }
        }
        let functions = self.items.functions.iter().map(|&first| layout.items[first] as u32).collect();
        let begin = |first: usize| layout.items.get(first).map_or(layout.end, |place| *place) as u32;
        let sources = self.items.sources.iter().map(|&(first, source)| (begin(first), source)).collect();
        Ok(Code::new(insns, functions, sources))
    }

    /// An unconditional jump in a group before an item.
    fn leap(&self, distance: i32, item: usize) -> Result<Insn, AssembleError> {
        let offset = i16::try_from(distance).map_err(|_| AssembleError::TooFar(item))?;
        Ok(Insn::raw(class::JMP | jump::JA, 0, 0, offset, 0))
    }
}

/// Where a jump lies.
fn at(layout: &Layout, source: Source) -> i32 {
    match source {
        Source::Item(item) => layout.items[item],
        Source::Island(island) => layout.islands[island],
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use crate::assembler::Assembler;
    use crate::code::Code;
    use crate::insn::{Cond, Insn, Reg};
    use crate::label::Label;
    use crate::opcode::{class, jump};

    /// What a random program consists of. Targets are places, by a fraction of the program.
    #[derive(Clone, Copy, Debug)]
    enum Part {
        Plain,
        Wide,
        Exit,
        Jump(f64),
        JumpIf(f64),
    }

    fn part() -> impl Strategy<Value = Part> {
        prop_oneof![
            12 => Just(Part::Plain),
            2 => Just(Part::Wide),
            1 => Just(Part::Exit),
            1 => (0.0..1.0).prop_map(Part::Jump),
            2 => (0.0..1.0).prop_map(Part::JumpIf),
        ]
    }

    /// A program whose plain instructions have different immediates: their places in the source.
    /// The targets are few, as those of a dispatcher are.
    fn assemble(parts: &[Part], targets: usize) -> Assembler {
        let mut assembler = Assembler::new();
        let labels: Vec<Label> = (0..targets).map(|_| assembler.label()).collect();
        let target = |place: f64| labels[(place * targets as f64) as usize];
        for (number, part) in parts.iter().enumerate() {
            let spacing = parts.len() / targets;
            if number % spacing == 0 && number / spacing < targets {
                assembler.bind(labels[number / spacing]);
            }
            assembler.source(Some(number as u32));
            match *part {
                Part::Plain => assembler.push(Insn::mov(Reg::R0, number as i32)),
                Part::Wide => assembler.load_imm(Reg::R1, 1 << 40 | number as u64),
                Part::Exit => assembler.exit(),
                Part::Jump(place) => assembler.jump(target(place)),
                Part::JumpIf(place) => assembler.jump_if64(Cond::Eq, Reg::R2, 0, target(place)),
            }
        }
        assembler.exit();
        assembler
    }

    /// The instructions that are executed, jumps left out, if conditions hold as these bits say.
    fn trace(code: &Code, mut bits: impl Iterator<Item = bool>) -> Vec<Insn> {
        let mut trace = Vec::new();
        let mut at = 0_usize;
        // Programs may jump in circles.
        for _ in 0..20_000 {
            if trace.len() >= 1000 {
                break;
            }
            let insn = code.insns()[at];
            let target = (at as i64 + 1 + i64::from(insn.offset)) as usize;
            at = match insn.code {
                code if code == class::JMP | jump::JA => target,
                code if code == class::JMP | jump::EXIT => break,
                code if code == class::JMP | Cond::Eq as u8 => match bits.next() {
                    Some(true) => target,
                    Some(false) => at + 1,
                    None => break,
                },
                _ => {
                    trace.push(insn);
                    at + 1 + usize::from(insn.is_load64())
                }
            };
        }
        trace
    }

    /// Whether control reaches every instruction, as the verifier demands.
    fn all_reached(code: &Code) -> bool {
        let mut reached = vec![false; code.insns().len()];
        let mut open = vec![0];
        while let Some(at) = open.pop() {
            if std::mem::replace(&mut reached[at], true) {
                continue;
            }
            let insn = code.insns()[at];
            if insn.is_load64() {
                reached[at + 1] = true;
                open.push(at + 2);
            } else if insn.code != class::JMP | jump::EXIT {
                let jumps = insn.code & 7 == class::JMP;
                open.extend(jumps.then_some((at as i64 + 1 + i64::from(insn.offset)) as usize));
                open.extend((insn.code != class::JMP | jump::JA).then_some(at + 1));
            }
        }
        reached.iter().all(|&reached| reached)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 50, ..ProptestConfig::default() })]

        #[test]
        fn islands_change_no_way(
            parts in prop::collection::vec(part(), 40..2000),
            targets in 1_usize..30,
            limit in 250_i32..600,
            bits in prop::collection::vec(any::<bool>(), 0..400),
        ) {
            let plain = assemble(&parts, targets).finish().expect("the program is complete");
            let steps = assemble(&parts, targets).finish_within(limit).expect("every target can be reached");
            let farthest = steps.insns().iter().map(|insn| i32::from(insn.offset).abs()).max();
            prop_assert!(farthest <= Some(limit), "{farthest:?}");
            prop_assert!(all_reached(&steps));
            let moves = Insn::mov(Reg::R0, 0).code;
            let plains = steps.insns().iter().enumerate().filter(|(_, insn)| insn.code == moves);
            for (number, insn) in plains {
                prop_assert_eq!(steps.source(number as u32), Some(insn.imm as u32));
            }
            prop_assert_eq!(trace(&plain, bits.iter().copied()), trace(&steps, bits.iter().copied()));
        }
    }

    #[test]
    fn an_island_lies_between_a_far_jump_and_its_target() {
        let mut assembler = Assembler::new();
        let (start, end) = (assembler.label(), assembler.label());
        assembler.bind(start);
        assembler.jump_if64(Cond::Eq, Reg::R2, 0, end);
        for number in 0..16 {
            assembler.push(Insn::mov(Reg::R0, number));
        }
        assembler.jump_if64(Cond::Eq, Reg::R3, 0, start);
        assembler.bind(end);
        assembler.exit();
        let code = assembler.finish_within(16).expect("the targets can be reached");
        insta::assert_snapshot!(code);
    }
}
