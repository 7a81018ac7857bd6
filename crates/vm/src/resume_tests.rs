//! Tests that a run can be stopped anywhere and resumed, as compiled code does, with the same
//! result.

use std::cell::{Cell, RefCell};

use proptest::collection::vec;
use proptest::prelude::*;

use crate::flow::Flow;
use crate::hit::RunContext;
use crate::machine::Machine;
use crate::properties::{instruction, start};
use crate::{Call, Element, Exception, PartialRun, STACK_WORDS, State, resume, run};

/// Pseudo-exception that leaves the main loop at the instruction before which a run is to be
/// stopped. No program can raise it: codes that the interpreter raises have a zero upper half, and
/// `rx` does not use this path.
pub(crate) const STOPPED: Exception = Exception { code: u64::MAX, parm1: 0, parm2: 0 };

/// An owned copy of the state of an unfinished run.
#[derive(Debug, Default)]
struct UnfinishedRun {
    offset: usize,
    top: usize,
    elements: Vec<Element>,
    calls: Vec<Call>,
    calls_made: u32,
    jumps: u32,
    instructions: u32,
    log: Vec<u8>,
    complete: usize,
    major: Option<u32>,
    minor: Option<u32>,
    /// Whether the run has no state beyond the fields above: no exception, handler, heap, trace or
    /// stack base.
    plain: bool,
}

thread_local! {
    static LIMIT: Cell<Option<u64>> = const { Cell::new(None) };
    static PLACE: RefCell<Option<UnfinishedRun>> = const { RefCell::new(None) };
}

/// Whether the run is to be stopped after that many instructions.
pub(crate) fn is_due(count: u64) -> bool {
    LIMIT.get() == Some(count)
}

/// Stores the state of a run in `PLACE`.
pub(crate) fn capture<M: Machine, const WIDE: bool>(
    flow: &mut Flow<'_, '_, WIDE>,
    hit: &mut RunContext<'_, '_, M, WIDE>,
) {
    let depth = flow.depth();
    let frames = &flow.frames[..=depth];
    let is_plain = |frame: &crate::frame::Frame| {
        let ranges = [&frame.elements, &frame.locals, &frame.globals];
        frame.handler().is_none() && frame.base == 0 && ranges.iter().all(|range| range.count == 0)
    };
    // Traces do not show the outermost level: leftovers of earlier runs there do not matter, except
    // for the handler.
    let plain = frames[0].handler().is_none() && frames[1..].iter().all(is_plain);
    let calls = frames[1..]
        .iter()
        .map(|frame| Call { callee: frame.callee as u32, back: frame.back as u32 })
        .collect();
    let element = |slot: usize| Element { slot: slot as u64, value: flow.stack.get(slot) };
    let (jumps, calls_made) = flow.taken();
    let place = UnfinishedRun {
        offset: flow.code.next(),
        top: flow.stack.slot(),
        elements: (0..STACK_WORDS).map(element).filter(|element| element.value != 0).collect(),
        calls,
        calls_made,
        jumps,
        instructions: flow.code.count as u32,
        log: hit.log.logged().to_vec(),
        complete: hit.log.complete_length(),
        major: hit.major,
        minor: hit.minor,
        plain: plain && flow.base() == 0 && !hit.has_used_aside(),
    };
    PLACE.set(Some(place));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

    #[test]
    fn a_run_that_is_stopped_anywhere_and_gone_on_with_ends_as_if_it_had_not_been(
        start in start(|word| {
            vec(instruction(word), 1..60).prop_map(|instructions| instructions.concat()).boxed()
        }),
        share in 0..100_u64,
    ) {
        let mut whole = State::new();
        let expected = start.run(&mut whole);
        let count = whole.steps * share / 100;
        let mut plain = true;
        let finish = start.run_by(&mut State::new(), |program, state, machine| {
            LIMIT.set(Some(count));
            let outcome = run(program, start.entry, state, machine);
            LIMIT.set(None);
            let Some(place) = PLACE.take() else { return outcome };
            plain = place.plain;
            let middle = PartialRun {
                offset: place.offset,
                top: place.top,
                elements: &place.elements,
                words: &[],
                texts: &[],
                frame: &[],
                calls: &place.calls,
                calls_made: place.calls_made,
                jumps: place.jumps,
                instructions: place.instructions,
                log: &place.log,
                complete: place.complete,
                major: place.major,
                minor: place.minor,
            };
            // Resumes in a state that another run has used.
            let mut other = State::new();
            let maps = crate::Maps::default();
            let apart = crate::Program { locals: &[], globals: &[], maps, ..*program };
            run(&apart, start.entry, &mut other, &mut machine.clone());
            *state = other;
            resume(program, &middle, state, machine)
        });
        prop_assume!(plain);
        prop_assert_eq!(finish, expected);
    }
}
