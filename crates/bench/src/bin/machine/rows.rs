//! What is measured: places, what is done at each hit, how the calls come, and the tracers.

/// How the calls of a measurement come.
#[derive(Clone, Copy)]
pub(crate) struct Pace {
    pub(crate) bursts: u64,
    /// Of each burst.
    pub(crate) calls: u64,
    /// Milliseconds after each burst.
    pub(crate) pause: u64,
    /// Whether a lost hit is a mistake: then the tracers have done different work.
    pub(crate) all: bool,
}

/// Counts: nothing is to be read, so there are no pauses.
const COUNT: Pace = Pace { bursts: 40, calls: 500, pause: 0, all: true };
/// Records, few enough for bpftrace's rings, and time to read them.
const PACED: Pace = Pace { bursts: 40, calls: 500, pause: 100, all: true };
/// As many records at once as no reader follows.
const AT_ONCE: Pace = Pace { bursts: 1, calls: 20_000, pause: 0, all: false };

impl Pace {
    pub(crate) fn hits(self) -> u64 {
        self.bursts * self.calls
    }
}

/// A place, as both tracers name it.
struct Place {
    name: &'static str,
    /// What the subject does.
    kind: &'static str,
    own: &'static str,
    other: &'static str,
    /// Two words, as arguments of `printf`.
    words: [&'static str; 2],
    /// The same in a program of dprobes, unless only scripts have such places.
    program: Option<&'static str>,
}

const PRIORITY: &str = "kprobe:__x64_sys_sched_get_priority_max";
const CALLED: &str = "uprobe:/bin/bursts:called";
const ENTERED: &str = "tracepoint:syscalls:sys_enter_sched_get_priority_max";
const REGISTERS: &str = "push r, rsi push r, rdi";

const PLACES: [Place; 4] = [
    Place {
        name: "uprobe",
        kind: "call",
        own: CALLED,
        other: CALLED,
        words: ["arg0", "arg1"],
        program: Some("name = \"/bin/bursts\"\\nmodtype = user\\noffset = called\\n{registers}"),
    },
    Place {
        name: "kprobe",
        kind: "priority",
        own: PRIORITY,
        other: PRIORITY,
        words: ["arg0", "arg1"],
        program: Some(
            "name = vmlinux\\nmodtype = kernel\\noffset = __x64_sys_sched_get_priority_max\\n{registers}",
        ),
    },
    Place {
        name: "fentry",
        kind: "priority",
        own: "fentry:__x64_sys_sched_get_priority_max",
        other: "kfunc:__x64_sys_sched_get_priority_max",
        words: ["args->regs->di", "args->regs->si"],
        program: None,
    },
    Place {
        name: "tracepoint",
        kind: "priority",
        own: ENTERED,
        other: ENTERED,
        words: ["args->policy", "args->__syscall_nr"],
        program: Some(
            "name = vmlinux\\nmodtype = kernel\\ntracepoint = syscalls:sys_enter_sched_get_priority_max\\n\
             push field, __syscall_nr push field, policy",
        ),
    },
];

/// What is probed, what is done at each hit, and how the calls come.
pub(crate) struct Row {
    pub(crate) name: String,
    /// What the subject does.
    pub(crate) kind: &'static str,
    pub(crate) pace: Pace,
    pub(crate) tracers: Vec<Tracer>,
}

/// A way to trace the subject.
pub(crate) struct Tracer {
    pub(crate) name: &'static str,
    /// The program that runs.
    pub(crate) program: &'static str,
    /// A line for the shell.
    pub(crate) command: String,
    /// What it writes once it traces.
    pub(crate) ready: &'static str,
    /// Lines for the shell that run when it has ended, and print the hits that it has counted or
    /// written.
    pub(crate) seen: &'static str,
}

impl Tracer {
    pub(crate) fn is_own(&self) -> bool {
        self.program == "dprobes"
    }
}

const COUNTED: &str = "sed -n 's/^@: //p' /tmp/said";
const PRINTED: &str = "grep -c '^hit ' /tmp/said || true";
const STORED: &str = "dprobes show /tmp/log.dpt | wc -l";

impl Place {
    /// A script at this place, run by dprobes and by bpftrace.
    fn scripts(&self, names: [&'static str; 2], action: &str, seen: &'static str) -> [Tracer; 2] {
        let script = |name, program, command: &str, begin, place| Tracer {
            name,
            program,
            command: format!("{command} '{begin} {{ printf(\"ready\\n\"); }} {place} {{ {action} }}'"),
            ready: "^ready",
            seen,
        };
        let [own, other] = names;
        [
            script(own, "dprobes", "dprobes trace", "begin", self.own),
            script(other, "bpftrace", "bpftrace -e", "BEGIN", self.other),
        ]
    }

    fn counted(&self) -> Row {
        let tracers = self.scripts(["dprobes", "bpftrace"], "@ = count();", COUNTED).into();
        Row { name: format!("{} count", self.name), kind: self.kind, pace: COUNT, tracers }
    }

    fn logged(&self, name: &str, pace: Pace) -> Row {
        let [one, two] = self.words;
        let action = format!("printf(\"hit %d %d\\n\", {one}, {two});");
        let printing = self.scripts(["dprobes printf", "bpftrace printf"], &action, PRINTED);
        let tracers = self.recorder().into_iter().chain(printing).collect();
        Row { name: format!("{} {name}", self.name), kind: self.kind, pace, tracers }
    }

    /// dprobes, which records two words into a store.
    fn recorder(&self) -> Option<Tracer> {
        let program = self.program?.replace("{registers}", REGISTERS);
        Some(Tracer {
            name: "dprobes log",
            program: "dprobes",
            command: format!(
                "{{ printf '{program} log 2\\nexit\\n' > /tmp/log.rpn; rm -f /tmp/log.dpt
                 dprobes attach /tmp/log.rpn -o /tmp/log.dpt; }}"
            ),
            ready: " armed in ",
            seen: STORED,
        })
    }
}

/// All rows.
pub(crate) fn rows() -> Vec<Row> {
    let counted = PLACES.iter().map(Place::counted);
    let paced = PLACES.iter().map(|place| place.logged("log", PACED));
    let at_once = PLACES.iter().take(2).map(|place| place.logged("log at once", AT_ONCE));
    counted.chain(paced).chain(at_once).collect()
}
