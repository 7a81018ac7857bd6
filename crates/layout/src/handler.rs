//! What the agent needs to know about a handler, and where compiled code calls the agent.

/// What the interpreter needs to know about a handler. The tracer writes one for each probepoint,
/// below [`LOW_END`](crate::LOW_END), where all its addresses point too. It has this many
/// fields since it is one record, which the tracer writes and the agent reads in place.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandlerInfo {
    /// The probepoint's offset in its module, as stack traces show it.
    pub point: u64,
    /// The address of the bytecode.
    pub code: u32,
    /// Bytes of bytecode.
    pub code_length: u32,
    /// The offset of the handler's first instruction in the bytecode.
    pub entry: u32,
    /// How many jumps a run may take.
    pub jmpmax: u32,
    /// How many instructions a run may execute.
    pub insmax: u32,
    /// How many bytes a run may log. 0: it makes no record.
    pub logmax: u32,
    /// The most bytes of stack traces of a run.
    pub excpt_log: u32,
    /// Bytes of the run's heap.
    pub heap: u32,
    /// The mask of the exceptions that are raised.
    pub mask: u32,
    /// 1 if every exception leaves a stack trace, else 0.
    pub autostacktrace: u32,
    /// The address of the local variables, 8 bytes each.
    pub locals: u32,
    /// How many local variables there are.
    pub local_count: u32,
    /// The address of the global variables, 8 bytes each.
    pub globals: u32,
    /// How many global variables there are.
    pub global_count: u32,
    /// The address of the module's name.
    pub module: u32,
    /// Bytes of the module's name.
    pub module_length: u32,
    /// The program's number (`id =`).
    pub id: u32,
    /// The program's major code, for records whose handler sets none.
    pub major: u32,
    /// The probe's minor code, for records whose handler sets none.
    pub minor: u32,
    /// The state that its records get: [`state::COMMITTED`](crate::state::COMMITTED) or
    /// [`state::TENTATIVE`](crate::state::TENTATIVE).
    pub record: u32,
    /// 1: the handler waits when the ring is full; 0: it drops the record.
    pub lossless: u32,
    /// The address of the counter of dropped records: 8 bytes, incremented with a lock.
    pub dropped: u32,
    /// The address of the probe's `Over`. 0: none, the probe never ends by itself.
    pub over: u32,
    /// The address of the table of what handlers cannot access ([`crate::hidden`]). 0: the program
    /// accesses no memory.
    pub hidden: u32,
    /// The address of the descriptions of its maps ([`maps::MapInfo`]).
    pub maps: u32,
    /// How many maps there are.
    pub map_count: u32,
    /// The address of the memory of its maps, which begins with a [`Clock`](crate::Clock).
    pub tables: u32,
    /// Words of that memory.
    pub table_words: u32,
    /// The index of the map of threads above 0: 0: there is none. Its keys are threads' ids, its
    /// values names of 16 bytes, then the user and the group.
    pub threads: u32,
    /// The address of its constants ([`vm::Constants`]).
    pub constants: u32,
    /// Bytes of its constants.
    pub constants_length: u32,
}

/// The addresses of the agent's functions that compiled code calls, below
/// [`LOW_END`](crate::LOW_END).
///
/// They follow the calling convention of `extern "C"`. They switch to the context's own stack
/// ([`CONTEXT_SIZE`](crate::CONTEXT_SIZE) from its start, growing down), and save and restore what
/// they use of xmm0 to xmm15, and the direction flag: compiled code may be called with it set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    /// `resume(context: *mut Context, handler: *const HandlerInfo) -> u64`: finishes the run in the
    /// context's [`Resume`](crate::Resume) with the registers in
    /// [`Context::registers`](crate::Context::registers), and makes its records with their stack
    /// traces. The context stays claimed. Returns the address of the record if it is TENTATIVE,
    /// else that of `Identity::nothing`.
    pub resume: u32,
    /// `wait(context: *mut Context, bytes: u64) -> u64`: returns 1 when that many bytes of the
    /// context's ring are free, with [`Context::seen_tail`](crate::Context::seen_tail) set; 0 when
    /// they never will be, since the reader is gone. Called only with `--lossless`.
    pub wait: u32,
    /// `map(context: *mut Context, handler: *const HandlerInfo) -> u64`: carries out the context's
    /// [`MapCall`](crate::MapCall). The context stays claimed. Returns what the instruction pushes.
    pub map: u32,
}
