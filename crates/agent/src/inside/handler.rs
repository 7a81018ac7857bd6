//! Completes a run that compiled code has left, in the interpreter, and makes its record.
//!
//! In: the context that the thread has claimed, where compiled code has written how far the run is
//! (`layout::Resume`). Out: a record in the context's ring (`ring`), committed, or tentative: then
//! with the address of its state, by which the trampoline commits it behind the displaced
//! instruction.

use core::slice::from_raw_parts;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use maps::{MapInfo, Maps};
use unwind::Memos;
use vm::{End, Outcome, PartialRun, ProbepointInfo, Program, State, Word};

use super::hidden::Hidden;
use super::machine::Thread;
use super::ring::Ring;
use super::{kernel, settings};
use layout::{
    Context, ExtraHeader, FRAME, FRAME_SIZE, HandlerInfo, Header, MEMOS, MORE, ProbeEnd, RESUME,
    RESUME_ELEMENTS, RESUME_TEXTS, RESUME_WORDS, Resume, SAVED, STATE, Saved, UNSET, flag, record_size,
    state, status,
};

/// Resumes the run in a context to its end and makes its record. Returns the address of the
/// record's state if it is tentative, else of a dummy word. Called by the entry code on the
/// context's stack.
///
/// # Safety
/// This thread has claimed the context; it, the handler's description and everything they refer to
/// are as the tracer has set them up, and stay so until this returns.
pub(super) unsafe extern "C" fn run(context: *mut Context, handler: *const HandlerInfo) -> u64 {
    let region = context.cast::<u8>();
    // SAFETY: these parts of a context do not overlap; only the thread that has claimed it uses
    // them, and the tracer does not write them meanwhile. All bytes are valid values of their
    // types, except in the interpreter's working memory, which was zeroed and then written only by
    // the interpreter.
    let (resume, frame, saved, state, memos, registers) = unsafe {
        (
            &*region.add(RESUME as usize).cast::<Resume>(),
            from_raw_parts(region.add(FRAME as usize), FRAME_SIZE as usize),
            &*region.add(SAVED as usize).cast::<Saved>(),
            &mut *region.add(STATE as usize).cast::<State>(),
            &mut *region.add(MEMOS as usize).cast::<Memos>(),
            &mut (*context).registers,
        )
    };
    // SAFETY: the tracer has set it up.
    let handler = unsafe { &*handler };
    let rsp = registers.general[4];
    let mut thread = Thread {
        registers,
        vectors: &saved.vectors,
        hidden: Hidden::at(handler.hidden),
        float: None,
        over: probe_end(handler),
        // SAFETY: the tracer has put that many words there.
        clock: layout::ClockWords(unsafe { words(handler.tables, handler.table_words) }),
        // SAFETY: as above.
        maps: unsafe { maps_of(handler) },
        memos,
        threads: (handler.threads as usize).checked_sub(1),
        // SAFETY: the context is this thread's.
        tid: unsafe { (*context).holder.load(Ordering::Relaxed) },
    };
    // SAFETY: the description refers to mapped memory.
    let outcome = unsafe { interpret(handler, resume, frame, state, &mut thread) };
    // SAFETY: as above; its registers are not used any more.
    let context = unsafe { &*context };
    let tid = context.holder.load(Ordering::Relaxed);
    let record = Record { handler, outcome, number: resume.number, time: resume.time, tid, rsp };
    // SAFETY: as above.
    let made = unsafe { record.make(context, state) };
    made.unwrap_or_else(|| (&raw const settings::identity().dummy_state) as u64)
}

/// The maps of a handler.
///
/// # Safety
/// The description refers to mapped memory.
pub(super) unsafe fn maps_of<'a>(handler: &HandlerInfo) -> Maps<'a> {
    let infos = match handler.map_count {
        0 => &[][..],
        // SAFETY: the tracer has put that many descriptions there, aligned to 8; nobody writes
        // them.
        count => unsafe { from_raw_parts(handler.maps as usize as *const MapInfo, count as usize) },
    };
    // SAFETY: as this function demands.
    let tables = unsafe { words(handler.tables, handler.table_words) };
    Maps { infos, words: tables.get(layout::CLOCK_WORDS..).unwrap_or(&[]) }
}

/// Words of shared memory at an address.
///
/// # Safety
/// The tracer has put that many words there, aligned to 8, and they stay there.
pub(super) unsafe fn words<'a>(address: u32, count: u32) -> &'a [AtomicU64] {
    match count {
        0 => &[],
        // SAFETY: as this function demands.
        count => unsafe { from_raw_parts(address as usize as *const AtomicU64, count as usize) },
    }
}

/// Resumes the run.
///
/// # Safety
/// The description refers to mapped memory: bytecode and name are not written meanwhile, variables
/// only as atomic words.
unsafe fn interpret(
    handler: &HandlerInfo,
    resume: &Resume,
    frame: &[u8],
    state: &mut State,
    thread: &mut Thread<'_>,
) -> Outcome {
    let bytes = |address: u64, length: u32| match length {
        0 => &[][..],
        // SAFETY: the tracer, or compiled code, has put that many bytes there.
        length => unsafe { from_raw_parts(address as *const u8, length as usize) },
    };
    // SAFETY: the tracer has put that many words there.
    let (locals, globals) =
        unsafe { (words(handler.locals, handler.local_count), words(handler.globals, handler.global_count)) };
    let code = |number: u32| (number != UNSET).then_some(number);
    let program = Program {
        word: Word::W8,
        code: bytes(handler.code.into(), handler.code_length),
        jmpmax: handler.jmpmax,
        insmax: handler.insmax,
        logmax: handler.logmax as usize,
        mask: handler.mask as u16,
        locals,
        globals,
        excpt_log: handler.excpt_log as usize,
        autostacktrace: handler.autostacktrace != 0,
        heap: handler.heap as usize,
        // SAFETY: the description refers to mapped memory.
        maps: unsafe { maps_of(handler) },
        constants: vm::Constants(bytes(handler.constants.into(), handler.constants_length)),
        point: ProbepointInfo {
            module: bytes(handler.module.into(), handler.module_length),
            offset: handler.point,
            id: handler.id,
            major: handler.major,
            minor: handler.minor,
        },
    };
    let middle = PartialRun {
        offset: resume.offset as usize,
        top: resume.top as usize,
        elements: &resume.elements[..(resume.element_count as usize).min(RESUME_ELEMENTS)],
        words: &resume.words[..(resume.word_count as usize).min(RESUME_WORDS)],
        texts: &resume.texts[..(resume.text_count as usize).min(RESUME_TEXTS)],
        frame,
        calls: &resume.calls[..(resume.call_count as usize).min(resume.calls.len())],
        calls_made: resume.calls_made,
        jumps: resume.jumps,
        instructions: resume.instructions,
        log: bytes(resume.log, resume.log_length),
        complete: resume.complete as usize,
        major: code(resume.major),
        minor: code(resume.minor),
    };
    vm::resume(&program, &middle, state, thread)
}

/// The contents of a record, except those in the interpreter's working memory.
struct Record<'a> {
    handler: &'a HandlerInfo,
    outcome: Outcome,
    number: u32,
    time: u64,
    tid: u32,
    rsp: u64,
}

impl Record<'_> {
    /// Puts the record of a run into the ring, if it makes one and there is room. Returns the
    /// address of its state if that is tentative.
    ///
    /// # Safety
    /// This thread has claimed the context, and its ring is mapped.
    unsafe fn make(&self, context: &Context, state: &State) -> Option<u64> {
        let handler = self.handler;
        if self.outcome.end == End::Remove && self.is_removed() {
            return None;
        }
        // `logmax = 0`: nothing is logged at all.
        let log = (self.outcome.end != End::Abort && handler.logmax > 0).then(|| state.log());
        let trace = state.trace();
        if log.is_none() && trace.is_empty() {
            return None;
        }
        let data = log.unwrap_or(&[]);
        let codes = (self.outcome.major, self.outcome.minor);
        let more = (codes != (None, None) || !trace.is_empty()).then(|| ExtraHeader {
            major: codes.0.unwrap_or(handler.major),
            minor: codes.1.unwrap_or(handler.minor),
            traces: trace.len() as u64,
        });
        let size = record_size(data.len(), more.map(|_| trace.len())) as u64;
        // SAFETY: as above.
        let ring = unsafe { Ring::of(context) };
        let Some((place, head)) = ring.find_room(size, handler.lossless != 0) else {
            if log.is_some() {
                count(handler.dropped);
                ring.lose();
            }
            return None;
        };
        let no_log = if log.is_some() { 0 } else { flag::NO_LOG };
        let flags = if more.is_some() { flag::MORE | no_log } else { no_log };
        let header = Header {
            status: AtomicU32::new(status(handler.record, flags, data.len())),
            number: self.number,
            time: self.time,
            tid: self.tid,
            processor: kernel::processor(),
            rsp: self.rsp,
        };
        // SAFETY: there are `size` bytes at `place`, which the reader does not read before `head`
        // is beyond them; `place` is a multiple of 8.
        unsafe {
            place.cast::<Header>().write(header);
            let body = place.add(size_of::<Header>());
            body.copy_from_nonoverlapping(data.as_ptr(), data.len());
            if let Some(more) = more {
                let behind = body.add(data.len().next_multiple_of(8));
                behind.cast::<ExtraHeader>().write(more);
                behind.add(MORE).copy_from_nonoverlapping(trace.as_ptr(), trace.len());
            }
        }
        ring.publish(head);
        (handler.record == state::TENTATIVE).then_some(place as u64)
    }

    /// Notes that the handler has removed its probe; returns whether it was removed before.
    fn is_removed(&self) -> bool {
        probe_end(self.handler).is_some_and(|end| {
            let before = end.removed.swap(ProbeEnd::BY_HANDLER, Ordering::Relaxed);
            end.closed.store(1, Ordering::Relaxed);
            before != 0
        })
    }
}

/// The word that says whether the handler's probe is disabled.
fn probe_end(handler: &HandlerInfo) -> Option<&ProbeEnd> {
    // SAFETY: a nonzero address is that of words which the tracer has put there and which stay
    // there.
    unsafe { (handler.over as usize as *const ProbeEnd).as_ref() }
}

/// Increments a counter that processes share.
fn count(counter: u32) {
    let counter = counter as usize as *const AtomicU64;
    // SAFETY: a nonzero address is that of a counter which the tracer has put there.
    if let Some(counter) = unsafe { counter.as_ref() } {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}
