//! What the agent has to know of a handler, and where compiled code calls it.

/// What the interpreter needs to know of a handler: written by the tracer, once for each probepoint, below [`LOW_END`](crate::LOW_END).
/// All addresses are below it too.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandlerInfo {
    /// The probepoint's offset in its module, as stack traces name it.
    pub point: u64,
    /// The address of the bytecode.
    pub code: u32,
    /// Bytes of bytecode.
    pub code_length: u32,
    /// The offset of the handler's first instruction in it.
    pub entry: u32,
    /// Jumps that a run may take.
    pub jmpmax: u32,
    /// Instructions that a run may execute.
    pub insmax: u32,
    /// Bytes that a run may log. 0: it makes no record.
    pub logmax: u32,
    /// Bytes of stack traces.
    pub excpt_log: u32,
    /// Bytes of heap.
    pub heap: u32,
    /// The exceptions that are raised.
    pub mask: u32,
    /// 1 where every exception leaves a stack trace, else 0.
    pub autostacktrace: u32,
    /// The address of the local variables, 8 bytes each.
    pub locals: u32,
    /// Local variables.
    pub local_count: u32,
    /// The address of the global variables, 8 bytes each.
    pub globals: u32,
    /// Global variables.
    pub global_count: u32,
    /// The address of the module's name.
    pub module: u32,
    /// Bytes of it.
    pub module_length: u32,
    /// The program's number (`id =`).
    pub id: u32,
    /// The program's major code: that of records where the handler sets none.
    pub major: u32,
    /// The probe's minor code, likewise.
    pub minor: u32,
    /// The state that its records get: [`state::COMMITTED`](crate::state::COMMITTED) or [`state::TENTATIVE`](crate::state::TENTATIVE).
    pub record: u32,
    /// 1 where a full ring is waited for, 0 where the record is dropped.
    pub lossless: u32,
    /// The address of the counter of dropped records: 8 bytes, counted with a locked increment.
    pub dropped: u32,
    /// The address of the probe's [`Over`](crate::Over). 0: there is none, and nothing ends it.
    pub over: u32,
    /// The address of the table of what handlers do not see ([`crate::hidden`]). 0: the program accesses no memory.
    pub hidden: u32,
}

/// The entries of the agent that compiled code calls, by their addresses below [`LOW_END`](crate::LOW_END).
///
/// Arguments and results are those of `extern "C"`, and so are the registers that are kept. The code there switches to
/// the context's own stack ([`CONTEXT_SIZE`](crate::CONTEXT_SIZE) from its start, down), saves and restores xmm0 to xmm15, and the flags as they
/// were: compiled code may be called with the direction flag set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    /// `resume(context: *mut Context, handler: *const HandlerInfo) -> u64`: goes on with the run in the context's [`Resume`](crate::Resume),
    /// on [`Context::registers`](crate::Context::registers), to its end, and makes its records. The context stays claimed. The result is the address
    /// of its record, if that is TENTATIVE, or that of [`Identity::nothing`](crate::Identity::nothing). Stack traces are part of the record.
    pub resume: u32,
    /// `wait(context: *mut Context, bytes: u64) -> u64`: returns 1 when that many bytes of the context's ring are free, with
    /// [`Context::seen_tail`](crate::Context::seen_tail) set; 0 when they will never be, since nobody reads. Only `--lossless` calls it.
    pub wait: u32,
}
