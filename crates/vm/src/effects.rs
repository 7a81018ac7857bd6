//! What an instruction does besides its work on the stack: where execution continues, and what it
//! accesses.
//!
//! Every row of [`crate::TABLE`] has both. They are upper bounds: an instruction does nothing that
//! its row does not say, whatever its operand and the stack. The tests in `effect_properties` check
//! the interpreter against them.

/// Where execution continues after an instruction that raises no exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ControlFlow {
    /// To the next instruction.
    None,
    /// At its operand's target.
    Jump,
    /// At its operand's target or at the next instruction.
    Branch,
    /// At its operand's target, and after the return at the next instruction.
    Call,
    /// After the call that it returns from.
    Return,
    /// Nowhere: the run ends.
    End,
    /// At the next instruction; after a later exception at its operand's target.
    Handler,
}

impl ControlFlow {
    /// Whether execution can reach the next instruction, directly or by returning from a call.
    pub const fn falls_through(self) -> bool {
        match self {
            ControlFlow::None | ControlFlow::Branch | ControlFlow::Call | ControlFlow::Handler => true,
            ControlFlow::Jump | ControlFlow::Return | ControlFlow::End => false,
        }
    }
}

/// A set of effects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Effects(u32);

macro_rules! effects {
    ($($bit:literal $name:ident $doc:literal;)*) => {
        impl Effects {
            $(#[doc = $doc] pub const $name: Effects = Effects(1 << $bit);)*

            /// Every effect, with its name.
            pub const ALL: &[(&'static str, Effects)] = &[$((stringify!($name), Effects::$name),)*];
        }
    };
}

effects! {
    0 RAISES "Can raise an exception other than those of a cut-off operand and of `insmax`.";
    1 READS_MEMORY "Reads memory of the process.";
    2 WRITES_MEMORY "Writes memory of the process.";
    3 VERIFIES_MEMORY "Asks whether memory of the process can be accessed.";
    4 READS_REGISTERS "Reads a register of the thread, or of its processor.";
    5 WRITES_REGISTERS "Sets a register of the thread.";
    6 READS_LOCALS "Reads local variables.";
    7 WRITES_LOCALS "Sets a local variable.";
    8 COUNTS_LOCALS "Increments or decrements a local variable, and nothing else.";
    9 READS_GLOBALS "Reads global variables.";
    10 WRITES_GLOBALS "Sets a global variable.";
    11 COUNTS_GLOBALS "Increments or decrements a global variable, and nothing else.";
    12 LOGS "Adds to the log.";
    13 CUTS_LOG "Moves the log pointer to any place.";
    14 SETS_CODES "Sets the record's major or minor code.";
    15 REMOVES "Removes the probe.";
    16 CALLS_FACILITY "Calls a debug facility when the run has ended.";
    17 CALLS_PLUGINS "Calls plugins, which may take from the stack, put on it, and log.";
    18 NAMES_SLOTS "Reads or sets elements of the stack, or its top, by their places: it can see what was popped.";
    19 USES_STACK_TRACE "Uses the stack trace buffer, or sets what traces show.";
    20 USES_HEAP "Uses the heap.";
    21 USES_PORTS "Reads or writes an input or output port.";
    22 USES_FRAME "Reads or writes the frame.";
    23 USES_MAPS "Reads or changes maps.";
    24 ACTS "Sends a signal, or has the function return: only the tracer can.";
}

impl Effects {
    /// No effect.
    pub const NONE: Effects = Effects(0);

    /// Any access to the process's memory, including checks whether it can be accessed.
    pub const ACCESSES_MEMORY: Effects =
        Effects::READS_MEMORY.and(Effects::WRITES_MEMORY).and(Effects::VERIFIES_MEMORY);

    /// Reads or sets local variables, other than by counting.
    pub const SEES_LOCALS: Effects = Effects::READS_LOCALS.and(Effects::WRITES_LOCALS);

    /// The union of both sets.
    pub const fn and(self, others: Effects) -> Effects {
        Effects(self.0 | others.0)
    }

    /// The intersection of both sets.
    pub const fn intersection(self, others: Effects) -> Effects {
        Effects(self.0 & others.0)
    }

    /// Whether all of the others are in this set.
    pub const fn contains(self, others: Effects) -> bool {
        self.0 & others.0 == others.0
    }

    /// Whether any of the others is in this set.
    pub const fn intersects(self, others: Effects) -> bool {
        self.0 & others.0 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Group, Op, Operand, TABLE};

    #[test]
    fn an_effect_is_one_bit() {
        for (place, (name, effect)) in Effects::ALL.iter().enumerate() {
            assert_eq!(effect.0, 1 << place, "{name}");
        }
    }

    #[test]
    fn sets_are_joined_and_compared() {
        let both = Effects::LOGS.and(Effects::RAISES);
        assert!(both.contains(Effects::LOGS) && both.contains(both) && both.contains(Effects::NONE));
        assert!(!Effects::LOGS.contains(both) && Effects::LOGS.intersects(both));
        assert!(!both.intersects(Effects::NONE) && !both.intersects(Effects::REMOVES));
    }

    #[test]
    fn what_has_a_target_goes_there_and_nothing_else_does() {
        for row in TABLE {
            let goes = matches!(
                row.transfer,
                ControlFlow::Jump | ControlFlow::Branch | ControlFlow::Call | ControlFlow::Handler
            );
            assert_eq!(goes, matches!(row.operand, Operand::Label | Operand::Proc), "{}", row.name);
            assert_eq!(row.transfer == ControlFlow::Call, row.operand == Operand::Proc, "{}", row.name);
        }
    }

    #[test]
    fn only_the_execution_group_and_sx_transfer_control() {
        for row in TABLE.iter().filter(|row| row.transfer != ControlFlow::None) {
            assert!(row.group == Group::Execution || row.op == Op::Sx, "{}", row.name);
        }
        let last = TABLE.iter().filter(|row| !row.transfer.falls_through()).map(|row| row.op);
        let ends = [Op::Jmp, Op::Ret, Op::Abort, Op::Remove, Op::Exit, Op::ExitTo];
        assert!(last.eq(ends));
    }

    /// The source forms of the instructions with an effect.
    fn with(effects: Effects) -> Vec<&'static str> {
        TABLE.iter().filter(|row| row.effects.intersects(effects)).map(|row| row.name).collect()
    }

    #[test]
    fn each_effect_is_that_of_the_instructions_the_manual_names() {
        let memory = ["push mem, u8", "push mem, u16", "push mem, u32", "push mem, u64"];
        let frame = ["read fr", "read str", "stack"];
        assert_eq!(with(Effects::READS_MEMORY), [&["log str", "log mrf"][..], &memory, &frame].concat());
        let memory = ["pop mem, u8", "pop mem, u16", "pop mem, u32", "pop mem, u64"];
        assert_eq!(with(Effects::WRITES_MEMORY), memory);
        assert_eq!(with(Effects::VERIFIES_MEMORY), ["vfyr", "vfyrw"]);
        assert_eq!(with(Effects::READS_REGISTERS), ["push r", "push u", "stack"]);
        assert_eq!(with(Effects::WRITES_REGISTERS), ["pop r", "pop u"]);
        assert_eq!(with(Effects::READS_LOCALS), ["push lv", "push lv", "trace lv", "log lv"]);
        assert_eq!(with(Effects::WRITES_LOCALS), ["pop lv", "pop lv", "move lv", "move lv"]);
        assert_eq!(with(Effects::COUNTS_LOCALS), ["inc lv", "inc lv", "dec lv", "dec lv"]);
        assert_eq!(with(Effects::READS_GLOBALS), ["push gv", "push gv", "trace gv", "log gv"]);
        assert_eq!(with(Effects::WRITES_GLOBALS), ["pop gv", "pop gv", "move gv", "move gv"]);
        assert_eq!(with(Effects::COUNTS_GLOBALS), ["inc gv", "inc gv", "dec gv", "dec gv"]);
        assert_eq!(
            with(Effects::LOGS),
            [
                "log str", "log mrf", "log b", "log w", "log d", "log", "log", "log lv", "log gv", "log fr",
                "log text"
            ]
        );
        assert_eq!(with(Effects::CUTS_LOG), ["pop lp"]);
        assert_eq!(with(Effects::SETS_CODES), ["setmin", "setmin", "setmaj", "setmaj"]);
        assert_eq!(with(Effects::REMOVES), ["remove"]);
        assert_eq!(with(Effects::CALLS_FACILITY), ["exit"]);
        assert_eq!(with(Effects::CALLS_PLUGINS), ["callk"]);
        let slots = [
            "trace pv",
            "push sbp",
            "pop sbp",
            "push tsp",
            "pop tsp",
            "push sbp",
            "pop sbp",
            "push tsp",
            "pop tsp",
            "copy sbp",
            "copy tsp",
            "restore sbp",
            "restore tsp",
            "copy sbp",
            "copy tsp",
        ];
        assert_eq!(with(Effects::NAMES_SLOTS), slots);
    }

    #[test]
    fn each_group_has_its_effects() {
        let all = |group: Group| TABLE.iter().filter(move |row| row.group == group);
        assert!(all(Group::Tracing).all(|row| row.effects.contains(Effects::USES_STACK_TRACE)));
        assert!(all(Group::Port).all(|row| row.effects.contains(Effects::USES_PORTS)));
        let heap = all(Group::Heap).filter(|row| row.op != Op::PushWid);
        assert!(
            heap.clone().count() == 10 && heap.clone().all(|row| row.effects.contains(Effects::USES_HEAP))
        );
        assert!(all(Group::Frame).all(|row| row.effects.contains(Effects::USES_FRAME)));
        assert!(all(Group::Map).all(|row| row.effects.contains(Effects::USES_MAPS)));
        let elsewhere = TABLE.iter().filter(|row| {
            let used = Effects::USES_STACK_TRACE.and(Effects::USES_PORTS).and(Effects::USES_HEAP);
            row.effects.intersects(used)
        });
        let groups = [Group::Tracing, Group::Port, Group::Heap];
        assert!(elsewhere.into_iter().all(|row| groups.contains(&row.group)));
    }

    #[test]
    fn what_only_computes_has_no_effect() {
        let pure = [
            Op::Nop,
            Op::Push,
            Op::Add,
            Op::Sub,
            Op::Mul,
            Op::Neg,
            Op::And,
            Op::Or,
            Op::Xor,
            Op::Rol,
            Op::RolImm,
            Op::Ror,
            Op::RorImm,
            Op::Shl,
            Op::ShlImm,
            Op::Shr,
            Op::ShrImm,
            Op::Xchg,
            Op::Dup,
            Op::DupImm,
            Op::Ros,
            Op::PushPid,
            Op::PushProcid,
            Op::Ux,
            Op::PushX,
            Op::PushLp,
            Op::PushPlp,
            Op::SaveSbp,
            Op::SaveTsp,
            Op::PushWid,
            Op::Abort,
            Op::Exit,
            Op::Eq,
            Op::Slt,
            Op::Ult,
            Op::Quo,
            Op::Rem,
            Op::Squo,
            Op::Srem,
            Op::Sar,
            Op::PushMinor,
        ];
        for row in TABLE {
            assert_eq!(row.effects == Effects::NONE, pure.contains(&row.op), "{}", row.name);
        }
    }
}
