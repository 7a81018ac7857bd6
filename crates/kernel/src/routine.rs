//! The routines, by name: what many instructions need, or what loops.
//!
//! A step runs one, and stores which step comes next. [`crate::micro`] has what they do.

/// Declares the routines.
macro_rules! routines {
    ($($name:ident $doc:literal;)*) => {
        /// A routine.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub(crate) enum Micro {
            $(#[doc = $doc] $name,)*
        }

        impl Micro {
            const ALL: &[Micro] = &[$(Micro::$name,)*];
        }
    };
}

routines! {
    Raise "Raises the exception in `Code`, `Parm1` and `Parm2`.";
    Again "`rx`: raises the exception whose information is on top.";
    Dispatch "Notes the exception as the last one.";
    Unwind "Goes to the innermost exception handler: one level a round.";
    EndException "Ends the run with the exception.";
    EndInstructions "Ends the run that may execute no more instructions.";
    Fault "Finds the first of `B` bytes at `A` that cannot be read, and raises INVALID_ADDR.";
    Store "Stores `B` bytes of `C` at `A`.";
    LogFault "Logs the address `A` that cannot be read, and raises INVALID_ADDR.";
    Copies "Pushes `A` `B` times.";
    Elements "Logs `A` elements from the slot `B` on, with the token `C`.";
    ElementsMore "Logs some of them.";
    Variables "Logs `A` variables from the index `B` on, with the token `C`.";
    VariablesMore "Logs some of them.";
    Pointer "Sets the log pointer to `A`.";
    PointerMore "Clears some of the bytes that it adds.";
    Memory "Logs `B` bytes of memory at `A`.";
    MemoryMore "Reads some of them.";
    Text "Logs the string of at most `B` bytes at `A`.";
    TextMore "Reads some of it.";
    Trace "Writes a stack trace.";
    TraceFrame "Writes the head of a frame.";
    TraceRange "Writes the prefix of a range of a frame.";
    TraceWords "Writes a word of the range.";
    TraceCut "Sets the stack trace pointer to `A`.";
    TraceCutTrace "Passes the head of a trace.";
    TraceCutPart "Passes a part of a frame.";
    Allocate "Allocates a heap block of `A` bytes and pushes its handle.";
    AllocateMore "Clears some of its bytes.";
    Free "Frees the block with the number `D`.";
    FreeMore "Moves some of the bytes behind it.";
    FreeTable "Moves one of the rows behind its row.";
    Find "Finds the block with the handle `A`: then the routine `C` continues.";
    FindMore "Halves where it can be.";
    PushHeap "Pushes `E` values of `F` bytes from the offset `B` of the block `D` on.";
    PopHeap "Pops as many to there.";
    FrameText "Reads the string of at most `B` bytes at `A` to the frame at `C`.";
    FrameTextMore "Reads some of it.";
    FrameCompare "Compares `B` bytes of the frame at `A` with `D` bytes at `C`.";
    FrameFind "Finds the latter in the former.";
}

/// What the numbers of routines begin with: no bytecode is that long.
pub(crate) const FIRST: i32 = 1 << 30;

impl Micro {
    /// What [`Field::Next`] holds for it.
    pub(crate) const fn number(self) -> i32 {
        FIRST + self as i32
    }
}

/// A set of routines.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Uses(u64);

impl Uses {
    /// Adds one.
    pub(crate) fn add(&mut self, micro: Micro) {
        self.0 |= 1 << micro as u32;
    }

    /// Those in this set and not in the other.
    pub(crate) fn without(self, others: Uses) -> impl Iterator<Item = Micro> {
        let left = self.0 & !others.0;
        Micro::ALL.iter().copied().filter(move |&micro| left & 1 << micro as u32 != 0)
    }
}
