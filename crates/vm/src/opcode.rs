//! The instruction set: one table, which the interpreter, assembler, printer and compilers share.
//!
//! Opcodes are those of the original DProbes (0x00-0x98 and, for IA32, 0xb0-0xb6; see
//! `docs/language.md`), and 0xb7. From 0xc0 on are those that scripts are compiled to. Operands
//! follow the opcode, little-endian.
//!
//! A new instruction is a row here and its meaning in every engine. ARCHITECTURE.md lists the
//! places ("An instruction").

use crate::effects::{ControlFlow, Effects};

/// The kind of operand that follows an opcode: its bytecode form and its source form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// Nothing.
    None,
    /// One byte: a count, or an exit facility.
    U8,
    /// Two bytes: a count, or a major or minor code.
    U16,
    /// Two bytes: the index of a local variable, less than `vars`.
    Local,
    /// Two bytes: the index of a global variable, less than `gvars`.
    Global,
    /// Two bytes: a register's index ([`crate::Register`]), written as its name.
    Register,
    /// Two bytes: the index of a field's name in the program's list, written as that name.
    Field,
    /// One byte: a bit position, 1 to the word's bits.
    Bit,
    /// Two bytes, signed: an element's distance from a stack register; negative means before it.
    S16,
    /// A word: a value.
    Word,
    /// A word, signed: a label, as the distance from the byte after the operand.
    Label,
    /// A word, signed: a procedure, as the distance from the byte after the operand.
    Proc,
}

impl Operand {
    /// Bytes of the operand in the bytecode, where a word has `word` bytes.
    pub const fn size(self, word: usize) -> usize {
        match self {
            Operand::None => 0,
            Operand::U8 | Operand::Bit => 1,
            Operand::U16
            | Operand::S16
            | Operand::Local
            | Operand::Global
            | Operand::Register
            | Operand::Field => 2,
            Operand::Word | Operand::Label | Operand::Proc => word,
        }
    }
}

/// The instruction groups of the language manual.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// RPN execution.
    Execution,
    /// Logging.
    Logging,
    /// Local variables.
    Local,
    /// Global variables.
    Global,
    /// Arithmetic and logic.
    Arithmetic,
    /// Registers.
    Register,
    /// Data.
    Data,
    /// System variables.
    System,
    /// Address verification.
    Verification,
    /// Input and output ports.
    Port,
    /// Miscellaneous: segmented addresses, calls of plugins (`callk`).
    Miscellaneous,
    /// Exceptions.
    Exception,
    /// Stack tracing.
    Tracing,
    /// The interpreter's own registers.
    Internal,
    /// The heap (5.0).
    Heap,
    /// The frame of a run: bytes that it works in.
    Frame,
    /// Maps: tables that all runs share.
    Map,
}

/// The probes in which an instruction or a register can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Context {
    /// Probes of user programs and of the kernel.
    Both,
    /// Probes of the kernel and its modules only: user mode has no access. The assembler refuses it
    /// in a user probe; if executed there, it raises [`crate::Exception::INVALID_OPCODE`].
    Kernel,
}

/// A row of the instruction table.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The instruction.
    pub op: Op,
    /// Its source form, without the operand: `push lv`, `push mem, u8`, `jmp`.
    pub name: &'static str,
    /// The operand after the opcode.
    pub operand: Operand,
    /// Elements it pops; `None` if its operand or a stack element gives the number.
    pub pops: Option<u8>,
    /// Elements it pushes; `None` if its operand or a stack element gives the number.
    pub pushes: Option<u8>,
    /// Its group in the manual.
    pub group: Group,
    /// The probes in which it can be used.
    pub context: Context,
    /// Where execution continues after it.
    pub transfer: ControlFlow,
    /// Its other effects.
    pub effects: Effects,
}

macro_rules! count {
    (n) => {
        None
    };
    ($count:literal) => {
        Some($count)
    };
}

macro_rules! context {
    () => {
        Context::Both
    };
    ($context:ident) => {
        Context::$context
    };
}

macro_rules! transfer {
    () => {
        ControlFlow::None
    };
    ($transfer:ident) => {
        ControlFlow::$transfer
    };
}

macro_rules! instructions {
    ($(
        $code:literal $op:ident $name:literal $operand:ident $pops:tt $pushes:tt
        $group:ident $($context:ident)? $(-> $transfer:ident)? [$($effect:ident)*] $doc:literal;
    )*) => {
        /// An instruction of the language, by its opcode.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum Op {
            $(#[doc = $doc] $op = $code,)*
        }

        /// The instruction set, in the order of the opcodes.
        pub const TABLE: &[Row] = &[
            $(Row {
                op: Op::$op,
                name: $name,
                operand: Operand::$operand,
                pops: count!($pops),
                pushes: count!($pushes),
                group: Group::$group,
                context: context!($($context)?),
                transfer: transfer!($($transfer)?),
                effects: Effects::NONE$(.and(Effects::$effect))*,
            },)*
        ];

        impl Op {
            /// The instruction with this opcode, if any.
            #[inline(always)]
            pub const fn from_byte(byte: u8) -> Option<Op> {
                match byte {
                    $($code => Some(Op::$op),)*
                    _ => None,
                }
            }
        }
    };
}

// Opcode, name in code, name in the source, operand, elements popped and pushed (n: the operand or
// a stack element gives the number), group, `Kernel` if for kernel probes only, where execution
// continues if not at the next instruction, effects, description.
instructions! {
    0x00 Nop "nop" None 0 0 Execution [] "No operation.";
    0x01 Jmp "jmp" Label 0 0 Execution -> Jump [RAISES] "Jumps.";
    0x02 Jlt "jlt" Label 0 0 Execution -> Branch [RAISES] "Jumps if the top is negative. Pops nothing.";
    0x03 Jle "jle" Label 0 0 Execution -> Branch [RAISES] "Jumps if the top is negative or zero. Pops nothing.";
    0x04 Jgt "jgt" Label 0 0 Execution -> Branch [RAISES] "Jumps if the top is positive. Pops nothing.";
    0x05 Jge "jge" Label 0 0 Execution -> Branch [RAISES] "Jumps if the top is positive or zero. Pops nothing.";
    0x06 Jz "jz" Label 0 0 Execution -> Branch [RAISES] "Jumps if the top is zero. Pops nothing.";
    0x07 Jnz "jnz" Label 0 0 Execution -> Branch [RAISES] "Jumps if the top is not zero. Pops nothing.";
    0x08 Loop "loop" Label 0 0 Execution -> Branch [RAISES] "Decrements the top in place and jumps if it is not zero.";
    0x09 Call "call" Proc 0 0 Execution -> Call [RAISES] "Calls a procedure.";
    0x0a Ret "ret" None 0 0 Execution -> Return [RAISES] "Returns from a procedure.";
    0x0b Abort "abort" None 0 0 Execution -> End [] "Ends the handler and drops the log.";
    0x0c Remove "remove" None 0 0 Execution -> End [REMOVES] "Ends the handler, keeps the log, and removes the probe.";
    0x0d Exit "exit" None 0 0 Execution -> End [] "Ends the handler and keeps the log.";
    0x0e ExitTo "exit" U8 0 0 Execution -> End [RAISES CALLS_FACILITY] "Ends the handler, keeps the log, and calls a debug facility.";
    0x11 SetMinImm "setmin" U16 0 0 Logging [SETS_CODES] "Sets this record's minor code.";
    0x12 SetMin "setmin" None 1 0 Logging [SETS_CODES] "Pops this record's minor code.";
    0x13 SetMajImm "setmaj" U16 0 0 Logging [SETS_CODES] "Sets this record's major code.";
    0x14 SetMaj "setmaj" None 1 0 Logging [SETS_CODES] "Pops this record's major code.";
    0x15 LogStr "log str" None 2 0 Logging [RAISES READS_MEMORY LOGS] "Pops an address, then a length, and logs a string.";
    0x17 LogMrf "log mrf" None 2 0 Logging [RAISES READS_MEMORY LOGS] "Pops an address, then a length, and logs memory.";
    0x18 LogB "log b" U16 n 0 Logging [RAISES LOGS] "Pops that many elements and logs the lowest byte of each, top first.";
    0x19 LogW "log w" U16 n 0 Logging [RAISES LOGS] "Pops that many elements and logs the lowest 2 bytes of each, top first.";
    0x1a LogD "log d" U16 n 0 Logging [RAISES LOGS] "Pops that many elements and logs the lowest 4 bytes of each, top first.";
    0x1b LogImm "log" U16 n 0 Logging [RAISES LOGS] "Pops that many elements and logs them, top first.";
    0x1f PushGvImm "push gv" Global 0 1 Global [RAISES READS_GLOBALS] "Pushes a global variable.";
    0x20 PushGv "push gv" None 1 1 Global [RAISES READS_GLOBALS] "Pops an index and pushes that global variable.";
    0x21 PopGvImm "pop gv" Global 1 0 Global [RAISES WRITES_GLOBALS] "Pops a global variable's value.";
    0x22 PopGv "pop gv" None 2 0 Global [RAISES WRITES_GLOBALS] "Pops a value, then an index, and sets that global variable.";
    0x23 MoveGvImm "move gv" Global 0 0 Global [RAISES WRITES_GLOBALS] "Sets a global variable to the top.";
    0x24 MoveGv "move gv" None 1 0 Global [RAISES WRITES_GLOBALS] "Pops an index and sets that global variable to the top.";
    0x25 IncGvImm "inc gv" Global 0 0 Global [RAISES COUNTS_GLOBALS] "Increments a global variable.";
    0x26 IncGv "inc gv" None 1 0 Global [RAISES COUNTS_GLOBALS] "Pops an index and increments that global variable.";
    0x27 DecGvImm "dec gv" Global 0 0 Global [RAISES COUNTS_GLOBALS] "Decrements a global variable.";
    0x28 DecGv "dec gv" None 1 0 Global [RAISES COUNTS_GLOBALS] "Pops an index and decrements that global variable.";
    0x29 PushLvImm "push lv" Local 0 1 Local [RAISES READS_LOCALS] "Pushes a local variable.";
    0x2a PushLv "push lv" None 1 1 Local [RAISES READS_LOCALS] "Pops an index and pushes that local variable.";
    0x2b PopLvImm "pop lv" Local 1 0 Local [RAISES WRITES_LOCALS] "Pops a local variable's value.";
    0x2c PopLv "pop lv" None 2 0 Local [RAISES WRITES_LOCALS] "Pops a value, then an index, and sets that local variable.";
    0x2d MoveLvImm "move lv" Local 0 0 Local [RAISES WRITES_LOCALS] "Sets a local variable to the top.";
    0x2e MoveLv "move lv" None 1 0 Local [RAISES WRITES_LOCALS] "Pops an index and sets that local variable to the top.";
    0x2f IncLvImm "inc lv" Local 0 0 Local [RAISES COUNTS_LOCALS] "Increments a local variable.";
    0x30 IncLv "inc lv" None 1 0 Local [RAISES COUNTS_LOCALS] "Pops an index and increments that local variable.";
    0x31 DecLvImm "dec lv" Local 0 0 Local [RAISES COUNTS_LOCALS] "Decrements a local variable.";
    0x32 DecLv "dec lv" None 1 0 Local [RAISES COUNTS_LOCALS] "Pops an index and decrements that local variable.";
    0x33 Add "add" None 2 1 Arithmetic [] "Pops two values and pushes their sum.";
    0x34 Sub "sub" None 2 1 Arithmetic [] "Pops two values and pushes the first popped less the second.";
    0x35 Mul "mul" None 2 1 Arithmetic [] "Pops two values and pushes their product.";
    0x36 Neg "neg" None 1 1 Arithmetic [] "Pops a value and pushes its ones' complement.";
    0x37 And "and" None 2 1 Arithmetic [] "Pops two values and pushes their bitwise and.";
    0x38 Or "or" None 2 1 Arithmetic [] "Pops two values and pushes their bitwise or.";
    0x39 Xor "xor" None 2 1 Arithmetic [] "Pops two values and pushes their bitwise exclusive or.";
    0x3a RolImm "rol" U8 1 1 Arithmetic [] "Rotates the top left.";
    0x3b Rol "rol" None 2 1 Arithmetic [] "Pops a value, then a count, and pushes the value rotated left.";
    0x3c RorImm "ror" U8 1 1 Arithmetic [] "Rotates the top right.";
    0x3d Ror "ror" None 2 1 Arithmetic [] "Pops a value, then a count, and pushes the value rotated right.";
    0x3e ShlImm "shl" U8 1 1 Arithmetic [] "Shifts the top left.";
    0x3f Shl "shl" None 2 1 Arithmetic [] "Pops a value, then a count, and pushes the value shifted left.";
    0x40 ShrImm "shr" U8 1 1 Arithmetic [] "Shifts the top right, with zeros.";
    0x41 Shr "shr" None 2 1 Arithmetic [] "Pops a value, then a count, and pushes the value shifted right.";
    0x42 Xchg "xchg" None 2 2 Arithmetic [] "Exchanges the two top elements.";
    0x43 DupImm "dup" U8 1 n Arithmetic [] "Leaves the top and that many copies of it.";
    0x44 Dup "dup" None 2 n Arithmetic [] "Pops a value, then a count, and pushes the value count + 1 times.";
    0x45 Ros "ros" U8 n 0 Arithmetic [] "Drops that many elements.";
    0x46 PushR "push r" Register n n Register [RAISES READS_REGISTERS] "Pushes a register of the current context.";
    0x47 PopR "pop r" Register 1 0 Register [RAISES WRITES_REGISTERS] "Pops a register of the current context.";
    0x48 PushU "push u" Register n n Register [RAISES READS_REGISTERS] "Pushes a register of the user context.";
    0x49 PopU "pop u" Register 1 0 Register [RAISES WRITES_REGISTERS] "Pops a register of the user context.";
    0x4c Push "push" Word 0 1 Data [] "Pushes a value.";
    0x4d PushMem8 "push mem, u8" None 1 1 Data [RAISES READS_MEMORY] "Pops an address and pushes the byte there.";
    0x4e PushMem16 "push mem, u16" None 1 1 Data [RAISES READS_MEMORY] "Pops an address and pushes the 16 bits there.";
    0x4f PushMem32 "push mem, u32" None 1 1 Data [RAISES READS_MEMORY] "Pops an address and pushes the 32 bits there.";
    0x50 PushMem64 "push mem, u64" None 1 n Data [RAISES READS_MEMORY] "Pops an address and pushes the 64 bits there: one word, or two, low on top.";
    0x51 PopMem8 "pop mem, u8" None 2 0 Data [RAISES WRITES_MEMORY] "Pops a value, then an address, and stores a byte.";
    0x52 PopMem16 "pop mem, u16" None 2 0 Data [RAISES WRITES_MEMORY] "Pops a value, then an address, and stores 16 bits.";
    0x53 PopMem32 "pop mem, u32" None 2 0 Data [RAISES WRITES_MEMORY] "Pops a value, then an address, and stores 32 bits.";
    0x54 PopMem64 "pop mem, u64" None n 0 Data [RAISES WRITES_MEMORY] "Pops a value (one word, or two, low first), then an address, and stores 64 bits.";
    0x5d PushTask "push task" None 0 1 System Kernel [RAISES] "Pushes the address of the kernel's task structure.";
    0x5e PushPid "push pid" None 0 1 System [] "Pushes the process id.";
    0x5f PushProcid "push procid" None 0 1 System [] "Pushes the processor's number.";
    0x60 Vfyr "vfyr" None 1 1 Verification [VERIFIES_MEMORY] "Pops an address and pushes 0 if a byte there can be read, else 1.";
    0x61 Vfyrw "vfyrw" None 1 1 Verification [VERIFIES_MEMORY] "Pops an address and pushes 0 if a byte there can be read and written, else 1.";
    0x62 Div "div" None 2 2 Arithmetic [RAISES] "Pops a divisor, then a dividend; pushes the remainder, then the quotient. Unsigned.";
    0x63 Idiv "idiv" None 2 2 Arithmetic [RAISES] "Pops a divisor, then a dividend; pushes the remainder, then the quotient. Signed.";
    0x64 Pbl "pbl" None 2 1 Arithmetic [RAISES] "Pops a position, then a value; copies that bit to all higher bits.";
    0x65 Pbr "pbr" None 2 1 Arithmetic [RAISES] "Pops a position, then a value; copies that bit to all lower bits.";
    0x66 PblImm "pbl" Bit 1 1 Arithmetic [RAISES] "Copies a bit of the top to all higher bits.";
    0x67 PbrImm "pbr" Bit 1 1 Arithmetic [RAISES] "Copies a bit of the top to all lower bits.";
    0x68 Pzl "pzl" None 2 1 Arithmetic [RAISES] "Pops a position, then a value; clears the bits above it.";
    0x69 Pzr "pzr" None 2 1 Arithmetic [RAISES] "Pops a position, then a value; clears the bits below it.";
    0x6a PzlImm "pzl" Bit 1 1 Arithmetic [RAISES] "Clears the bits of the top above a position.";
    0x6b PzrImm "pzr" Bit 1 1 Arithmetic [RAISES] "Clears the bits of the top below a position.";
    0x6c Sx "sx" Label 0 0 Exception -> Handler [RAISES] "Sets this procedure's exception handler.";
    0x6d Ux "ux" None 0 0 Exception [] "Removes this procedure's exception handler.";
    0x6e Rx "rx" None 0 0 Exception [RAISES] "Raises the exception whose code, parameters 1 and 2 are on top. Pops nothing.";
    0x6f PushX "push x" None 0 3 Exception [] "Pushes the last exception's parameters 2 and 1, then its code; zeros if there was none.";
    0x70 PushLp "push lp" None 0 1 Internal [] "Pushes the log pointer: bytes logged.";
    0x71 PushPlp "push plp" None 0 1 Internal [] "Pushes the previous log pointer: bytes logged up to the last logging that succeeded.";
    0x72 PopLp "pop lp" None 1 0 Internal [RAISES CUTS_LOG] "Pops the log pointer. Bytes behind it are dropped; bytes that it adds are zeros.";
    0x73 LogSt "log st" None 0 0 Tracing [USES_STACK_TRACE] "Writes a stack trace into the stack trace buffer.";
    0x74 PurgeSt "purge st" None 0 0 Tracing [USES_STACK_TRACE] "Empties the stack trace buffer.";
    0x75 TraceLv "trace lv" None 2 0 Tracing [USES_STACK_TRACE READS_LOCALS] "Pops a count, then an index: the local variables that traces show of this call.";
    0x76 TraceGv "trace gv" None 2 0 Tracing [USES_STACK_TRACE READS_GLOBALS] "Pops a count, then an index: the global variables that traces show of this call.";
    0x77 TracePv "trace pv" None 2 0 Tracing [USES_STACK_TRACE NAMES_SLOTS] "Pops a count, then a slot: the elements of the stack that traces show of this call.";
    0x78 PushSbp "push sbp" None 1 1 Internal [NAMES_SLOTS] "Pops n and pushes the element n from the stack base.";
    0x79 PopSbp "pop sbp" None 2 0 Internal [NAMES_SLOTS] "Pops a value, then n, and sets the element n from the stack base.";
    0x7a PushTsp "push tsp" None 1 1 Internal [NAMES_SLOTS] "Pops n, then pushes the element n from the top.";
    0x7b PopTsp "pop tsp" None 2 0 Internal [NAMES_SLOTS] "Pops a value, then n; then sets the element n from the top.";
    0x7c PushSbpImm "push sbp" S16 0 1 Internal [NAMES_SLOTS] "Pushes the element n from the stack base.";
    0x7d PopSbpImm "pop sbp" S16 1 0 Internal [NAMES_SLOTS] "Pops a value and sets the element n from the stack base.";
    0x7e PushTspImm "push tsp" S16 0 1 Internal [NAMES_SLOTS] "Pushes the element n from the top, counted before the push.";
    0x7f PopTspImm "pop tsp" S16 1 0 Internal [NAMES_SLOTS] "Pops a value and sets the element n from the top, counted before the pop.";
    0x80 CopySbpImm "copy sbp" S16 0 0 Internal [NAMES_SLOTS] "Sets the element n from the stack base to the top.";
    0x81 CopyTspImm "copy tsp" S16 0 0 Internal [NAMES_SLOTS] "Sets the element n from the top to the top.";
    0x82 PushStp "push stp" None 0 1 Tracing [USES_STACK_TRACE] "Pushes the stack trace pointer: bytes in the stack trace buffer.";
    0x83 PopStp "pop stp" None 1 0 Tracing [USES_STACK_TRACE] "Pops the stack trace pointer. Traces that end behind it are dropped.";
    0x84 SaveSbp "save sbp" None 0 1 Internal [] "Pushes the stack base pointer: a slot.";
    0x85 RestoreSbp "restore sbp" None 1 0 Internal [NAMES_SLOTS] "Pops the stack base pointer.";
    0x86 SaveTsp "save tsp" None 0 1 Internal [] "Pushes the slot of the top, as it was before the push.";
    0x87 RestoreTsp "restore tsp" None 1 0 Internal [NAMES_SLOTS] "Pops a slot, which becomes the top.";
    0x88 CopySbp "copy sbp" None 1 0 Internal [NAMES_SLOTS] "Pops n and sets the element n from the stack base to the top.";
    0x89 CopyTsp "copy tsp" None 1 0 Internal [NAMES_SLOTS] "Pops n, then sets the element n from the top to the top.";
    0x8a Log "log" None n 0 Logging [RAISES LOGS] "Pops a count, then that many elements, and logs them after a prefix (token 7).";
    0x8b LogLv "log lv" None 2 0 Local [RAISES READS_LOCALS LOGS] "Pops a count, then an index, and logs local variables after a prefix (token 5).";
    0x8c LogGv "log gv" None 2 0 Global [RAISES READS_GLOBALS LOGS] "Pops a count, then an index, and logs global variables after a prefix (token 6).";
    0x8d Callk "callk" None 0 0 Miscellaneous [RAISES CALLS_PLUGINS] "Calls the plugins that have registered for it.";
    0x8e Malloc "malloc" None 1 1 Heap [RAISES USES_HEAP] "Pops a size in bytes and pushes the handle of a new heap block of zeros.";
    0x8f Free "free" None 1 0 Heap [RAISES USES_HEAP] "Pops the handle of a heap block and frees the block.";
    0x90 PushWid "push wid" None 0 1 Heap [] "Pushes the bits of a word, negative where it is little-endian.";
    0x91 PushH8 "pushh u8" U16 2 n Heap [RAISES USES_HEAP] "Pops an offset, then a handle, and pushes that many bytes from there on.";
    0x92 PushH16 "pushh u16" U16 2 n Heap [RAISES USES_HEAP] "Pops an offset, then a handle, and pushes that many times 16 bits from there on.";
    0x93 PushH32 "pushh u32" U16 2 n Heap [RAISES USES_HEAP] "Pops an offset, then a handle, and pushes that many times 32 bits from there on.";
    0x94 PushH64 "pushh u64" U16 2 n Heap [RAISES USES_HEAP] "Pops an offset, then a handle, and pushes that many times 64 bits from there on: one word each, or two, low on top.";
    0x95 PopH8 "poph u8" U16 n 0 Heap [RAISES USES_HEAP] "Pops an offset, a handle, then that many values, and stores bytes from there on.";
    0x96 PopH16 "poph u16" U16 n 0 Heap [RAISES USES_HEAP] "Pops an offset, a handle, then that many values, and stores 16 bits of each from there on.";
    0x97 PopH32 "poph u32" U16 n 0 Heap [RAISES USES_HEAP] "Pops an offset, a handle, then that many values, and stores 32 bits of each from there on.";
    0x98 PopH64 "poph u64" U16 n 0 Heap [RAISES USES_HEAP] "Pops an offset, a handle, then that many values (one word, or two, low first), and stores 64 bits of each from there on.";
    0xb0 Seg2lin "seg2lin" None 2 1 Miscellaneous [RAISES] "Pops an offset, then a selector, and pushes their linear address.";
    0xb1 PushIo8 "push io, u8" None 1 1 Port Kernel [RAISES USES_PORTS] "Pops a port and pushes the byte read from it.";
    0xb2 PushIo16 "push io, u16" None 1 1 Port Kernel [RAISES USES_PORTS] "Pops a port and pushes the 16 bits read from it.";
    0xb3 PushIo32 "push io, u32" None 1 1 Port Kernel [RAISES USES_PORTS] "Pops a port and pushes the 32 bits read from it.";
    0xb4 PopIo8 "pop io, u8" None 2 0 Port Kernel [RAISES USES_PORTS] "Pops a value, then a port, and writes a byte to it.";
    0xb5 PopIo16 "pop io, u16" None 2 0 Port Kernel [RAISES USES_PORTS] "Pops a value, then a port, and writes 16 bits to it.";
    0xb6 PopIo32 "pop io, u32" None 2 0 Port Kernel [RAISES USES_PORTS] "Pops a value, then a port, and writes 32 bits to it.";
    0xb7 PushField "push field" Field 0 1 System Kernel [RAISES] "Pushes a field of the tracepoint's record: a number, or the address of an array or a string.";
    0xc0 PushF "push fr" U16 0 1 Frame [RAISES USES_FRAME] "Pushes the word at an offset in the frame.";
    0xc1 PopF "pop fr" U16 1 0 Frame [RAISES USES_FRAME] "Pops a value and stores 8 bytes at an offset in the frame.";
    0xc2 PushF8 "push fr, u8" None 1 1 Frame [RAISES USES_FRAME] "Pops an offset and pushes the byte there in the frame.";
    0xc3 FillF "fill fr" None 2 0 Frame [RAISES USES_FRAME] "Pops an offset, then a count, and sets that many bytes of the frame to 0.";
    0xc4 MoveF "move fr" None 3 0 Frame [RAISES USES_FRAME] "Pops a destination, a source, then a count, and copies bytes within the frame.";
    0xc5 ReadF "read fr" None 3 1 Frame [RAISES USES_FRAME READS_MEMORY] "Pops an offset, an address, then a count, and copies memory to the frame; pushes 1, or 0 if it cannot be read, and then the bytes are zeros.";
    0xc6 StrF "read str" None 3 1 Frame [RAISES USES_FRAME READS_MEMORY] "Pops an offset, an address, then a count, and copies a string of at most that many bytes to the frame; pushes its length, or -1 if not one byte can be read.";
    0xc7 TextF "text fr" None 2 1 Frame [RAISES USES_FRAME] "Pops an offset, then a constant's number, and copies the constant to the frame; pushes its length, or -1 if there is no such constant.";
    0xc8 CompareF "compare fr" None 4 1 Frame [RAISES USES_FRAME] "Pops an offset and a length, then another offset and length, and pushes -1, 0 or 1 as the first bytes sort before, with or after the others.";
    0xc9 FindF "find fr" None 4 1 Frame [RAISES USES_FRAME] "Pops an offset and a length, then those of other bytes; pushes the place of those in the first ones, or -1.";
    0xca LogF "log fr" None 2 0 Frame [RAISES USES_FRAME LOGS] "Pops an offset, then a count, and logs those bytes of the frame without a prefix.";
    0xcb LogTextF "log text" None 2 0 Frame [RAISES USES_FRAME LOGS] "Pops an offset, then a length, and logs the length as 8 bytes, those bytes of the frame, and zeros up to a multiple of 8.";
    0xcc GlobF "glob fr" None 4 1 Frame [RAISES USES_FRAME] "Pops an offset and a length, then those of a pattern; pushes 1 if all of the first bytes match it, else 0. In a pattern, `*` is any bytes, `?` one, `[a-z]` one of these, `[!a-z]` one that is none of these.";
    0xd0 Eq "eq" None 2 1 Arithmetic [] "Pops two values and pushes 1 if they are equal, else 0.";
    0xd1 Slt "slt" None 2 1 Arithmetic [] "Pops two values and pushes 1 if the first popped is less than the second, else 0. Signed.";
    0xd2 Ult "ult" None 2 1 Arithmetic [] "Pops two values and pushes 1 if the first popped is less than the second, else 0. Unsigned.";
    0xd3 Quo "quo" None 2 1 Arithmetic [] "Pops a dividend, then a divisor, and pushes the quotient; 0 if the divisor is 0. Unsigned.";
    0xd4 Rem "rem" None 2 1 Arithmetic [] "Pops a dividend, then a divisor, and pushes the remainder; the dividend if the divisor is 0. Unsigned.";
    0xd5 Squo "squo" None 2 1 Arithmetic [] "Pops a dividend, then a divisor, and pushes the quotient; 0 if the divisor is 0. Signed.";
    0xd6 Srem "srem" None 2 1 Arithmetic [] "Pops a dividend, then a divisor, and pushes the remainder; the dividend if the divisor is 0. Signed.";
    0xd7 Sar "sar" None 2 1 Arithmetic [] "Pops a value, then a count, and pushes the value shifted right, with copies of its sign.";
    0xd8 PushTid "push tid" None 0 1 System [RAISES] "Pushes the thread's id.";
    0xd9 PushNsecs "push nsecs" U8 0 1 System [RAISES] "Pushes a time in nanoseconds: 0 monotonic, 1 since tracing began, 2 since boot, 3 since 1970.";
    0xda PushMinor "push minor" None 0 1 System [] "Pushes the probe's minor code.";
    0xdb PushRand "push rand" None 0 1 System [RAISES] "Pushes a random number of 32 bits.";
    0xdc PushIds "push ids" None 0 1 System [RAISES] "Pushes the thread's user id, and above its 32 bits the group id.";
    0xdd CommF "comm fr" None 1 1 Frame [RAISES USES_FRAME] "Pops an offset: 16 bytes there in the frame become the thread's name; pushes its length.";
    0xde PushParent "push parent" None 0 1 System [RAISES] "Pushes the id of the process's parent.";
    0xe0 Update "update" U16 3 0 Map [RAISES USES_FRAME USES_MAPS] "Pops a key's offset and length, then a value, and adds it to the map's entry.";
    0xe1 Fetch "fetch" U16 3 1 Map [RAISES USES_FRAME USES_MAPS] "Pops a key's offset and length, then an offset, and copies the map's entry there; pushes 1, or 0 if there is none, and then it is zeros.";
    0xe2 Store "store" U16 4 0 Map [RAISES USES_FRAME USES_MAPS] "Pops a key's offset and length, then those of a value, and sets the map's entry.";
    0xe3 Erase "erase" U16 2 1 Map [RAISES USES_FRAME USES_MAPS] "Pops a key's offset and length and removes the map's entry; pushes 1, or 0 if there was none.";
    0xe4 Load "load" U16 2 1 Map [RAISES USES_FRAME USES_MAPS] "Pops a key's offset and length and pushes the number of the map's entry, or 0.";
    0xe5 Put "put" U16 3 0 Map [RAISES USES_FRAME USES_MAPS] "Pops a key's offset and length, then a value, and sets the first word of the map's entry.";
    0xe6 Bump "bump" U16 3 1 Map [RAISES USES_FRAME USES_MAPS] "Pops a key's offset and length, then a number, adds it to the first word of the map's entry, and pushes what that was.";
    0xe7 Has "has" U16 2 1 Map [RAISES USES_FRAME USES_MAPS] "Pops a key's offset and length; pushes 1 if the map has an entry, else 0.";
    0xe8 Next "next" U16 3 1 Map [RAISES USES_FRAME USES_MAPS] "Pops a position, then offsets for a key and a value, and copies the map's next entry there; pushes the position to continue from, or 0 if there was no entry.";
    0xe9 Entries "entries" U16 0 1 Map [RAISES USES_MAPS] "Pushes the number of the map's entries.";
    0xea StackOf "stack" U16 1 1 Map [RAISES USES_MAPS READS_MEMORY READS_REGISTERS] "Pops a number of frames and pushes the number under which the map has the thread's stack of at most that many frames, or 0.";
    0xeb KStackOf "kstack" U16 1 1 Map [RAISES USES_MAPS] "Pops a number of frames and pushes the number under which the map has the kernel's stack of at most that many frames, or 0: outside of the kernel there is none.";
    0xec Depth "depth" U16 1 1 Map [RAISES USES_MAPS] "Pops a number and pushes how many frames the stack has that the map has under it; 0 if it has none.";
    0xf0 Signal "signal" U8 1 0 System [RAISES ACTS] "Pops a signal's number and sends it: 0 to the process, 1 to the thread.";
    0xf1 Override "override" None 1 0 System [RAISES ACTS] "Pops a value: at the end of the run the function returns it, at once. Only at a function's entry.";
}

/// For each opcode, its row's index in [`TABLE`] plus 1; 0 if it has no row.
const INDEX: [u8; 256] = {
    let mut index = [0; 256];
    let mut row = 0;
    while row < TABLE.len() {
        index[TABLE[row].op as usize] = row as u8 + 1;
        row += 1;
    }
    index
};

impl Op {
    /// The instruction's row.
    pub const fn row(self) -> &'static Row {
        &TABLE[INDEX[self as u8 as usize] as usize - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_opcodes_and_each_name_and_form_is_there_once() {
        assert!(TABLE.windows(2).all(|pair| (pair[0].op as u8) < pair[1].op as u8));
        for (place, row) in TABLE.iter().enumerate() {
            let takes = |row: &Row| row.operand != Operand::None;
            let same = |other: &&Row| other.name == row.name && takes(other) == takes(row);
            assert_eq!(TABLE.iter().filter(same).count(), 1, "{}", row.name);
            assert_eq!(Op::from_byte(row.op as u8), Some(row.op));
            assert_eq!(row.op.row().name, TABLE[place].name);
        }
    }
}
