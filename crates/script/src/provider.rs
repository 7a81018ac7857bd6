//! The providers of probes, as one table: names, what a probe offers to its action, what it needs.

/// A provider of probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Provider {
    /// Before all other probes.
    Begin,
    /// After all other probes.
    End,
    /// A signal to dprobes itself.
    Own,
    /// A time, on one processor.
    Interval,
    /// A time, on each processor.
    Profile,
    /// An event of the processor.
    Hardware,
    /// An event that the kernel counts.
    Software,
    /// A function of the kernel.
    Kprobe,
    /// The return of a function of the kernel.
    Kretprobe,
    /// A function of the kernel, with the types of its arguments.
    Fentry,
    /// Its return.
    Fexit,
    /// A tracepoint of the kernel.
    Tracepoint,
    /// A tracepoint with the arguments as the kernel passes them.
    Rawtracepoint,
    /// A function, line or offset of a program or library.
    Uprobe,
    /// The return of a function of a program or library.
    Uretprobe,
    /// A probe that a program's author placed.
    Usdt,
    /// Accesses to memory.
    Watchpoint,
    /// Accesses to memory; the process is not stopped to set it.
    Asyncwatchpoint,
    /// An iterator over objects of the kernel.
    Iter,
    /// A test of a script.
    Test,
    /// A measurement of a script.
    Bench,
}

/// A set of providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Providers(u32);

impl Providers {
    /// All.
    pub const ALL: Providers = Providers(u32::MAX);
    /// Those that fire at a function's entry and know its arguments in order.
    pub const ARGUMENTS: Providers =
        Providers::of(&[Provider::Kprobe, Provider::Uprobe, Provider::Usdt, Provider::Rawtracepoint]);
    /// Those whose arguments have names.
    pub const NAMED_ARGUMENTS: Providers = Providers::of(&[
        Provider::Fentry,
        Provider::Fexit,
        Provider::Tracepoint,
        Provider::Rawtracepoint,
        Provider::Uprobe,
    ]);
    /// Those that fire at a function's return.
    pub const RETURNS: Providers =
        Providers::of(&[Provider::Kretprobe, Provider::Fexit, Provider::Uretprobe]);
    /// Those that fire in a function.
    pub const FUNCTIONS: Providers = Providers::of(&[
        Provider::Kprobe,
        Provider::Kretprobe,
        Provider::Fentry,
        Provider::Fexit,
        Provider::Uprobe,
        Provider::Uretprobe,
    ]);
    /// Those that fire at a function's entry, and where its result can be decided.
    pub const OVERRIDDEN: Providers = Providers::of(&[Provider::Kprobe, Provider::Uprobe]);
    /// Those that interrupt code at one instruction, so that registers have a meaning.
    pub const REGISTERS: Providers = Providers::of(&[
        Provider::Kprobe,
        Provider::Kretprobe,
        Provider::Uprobe,
        Provider::Uretprobe,
        Provider::Usdt,
        Provider::Watchpoint,
        Provider::Asyncwatchpoint,
        Provider::Profile,
        Provider::Hardware,
        Provider::Software,
    ]);
    /// Those that fire in a process.
    pub const USER: Providers = Providers::of(&[Provider::Uprobe, Provider::Uretprobe, Provider::Usdt]);
    /// Those at whose hits the core of the process can be dumped.
    pub const DUMPED: Providers = Providers::of(&[
        Provider::Uprobe,
        Provider::Uretprobe,
        Provider::Usdt,
        Provider::Watchpoint,
        Provider::Asyncwatchpoint,
    ]);
    /// Those that fire while a process or the kernel runs on its behalf.
    pub const TRACED: Providers = Providers::of(&[
        Provider::Kprobe,
        Provider::Kretprobe,
        Provider::Uprobe,
        Provider::Uretprobe,
        Provider::Usdt,
        Provider::Profile,
        Provider::Tracepoint,
        Provider::Rawtracepoint,
        Provider::Fentry,
        Provider::Fexit,
        Provider::Hardware,
        Provider::Software,
        Provider::Watchpoint,
        Provider::Asyncwatchpoint,
    ]);
    /// Those that only the kernel serves: its own code and events.
    pub const KERNEL: Providers = Providers::of(&[
        Provider::Kprobe,
        Provider::Kretprobe,
        Provider::Fentry,
        Provider::Fexit,
        Provider::Tracepoint,
        Provider::Rawtracepoint,
        Provider::Profile,
        Provider::Hardware,
        Provider::Software,
        Provider::Watchpoint,
        Provider::Asyncwatchpoint,
    ]);
    /// Memory watches.
    pub const WATCHES: Providers = Providers::of(&[Provider::Watchpoint, Provider::Asyncwatchpoint]);

    const fn of(all: &[Provider]) -> Providers {
        let mut bits = 0;
        let mut index = 0;
        while index < all.len() {
            bits |= 1 << all[index] as u32;
            index += 1;
        }
        Providers(bits)
    }

    /// Whether it contains a provider.
    pub fn has(self, provider: Provider) -> bool {
        self.0 >> (provider as u32) & 1 == 1
    }

    /// Its names, separated by commas.
    pub fn names(self) -> String {
        if self == Providers::ALL {
            return "all".into();
        }
        let all = TABLE.iter().filter(|row| self.has(row.provider)).map(|row| row.names[0]);
        all.collect::<Vec<_>>().join(", ")
    }
}

/// A row of the table.
#[derive(Debug)]
pub struct Row {
    /// The provider.
    pub provider: Provider,
    /// Its names: the full one first, then the short one and older ones.
    pub names: &'static [&'static str],
    /// The forms of its attach points.
    pub forms: &'static [&'static str],
    /// Which of our engines can serve it; `Err` says what it needs that none has.
    pub served: Result<&'static str, &'static str>,
}

const fn row(
    provider: Provider,
    names: &'static [&'static str],
    forms: &'static [&'static str],
    served: Result<&'static str, &'static str>,
) -> Row {
    Row { provider, names, forms, served }
}

const KERNEL: Result<&str, &str> = Ok("the kernel (eBPF)");
const PERF: Result<&str, &str> = Ok("the kernel (perf events)");
const PROCESS: Result<&str, &str> = Ok("any engine");
const OURS: Result<&str, &str> = Ok("dprobes itself");
const ITERATORS: Result<&str, &str> = Err("eBPF iterators, which dprobes does not load");
const MODES: Result<&str, &str> = Err("a mode of the bpftrace command that dprobes does not have");

/// All providers.
pub static TABLE: &[Row] = &[
    row(Provider::Begin, &["begin", "BEGIN"], &["begin"], OURS),
    row(Provider::End, &["end", "END"], &["end"], OURS),
    row(Provider::Own, &["self"], &["self:signal:NAME"], OURS),
    row(
        Provider::Interval,
        &["interval", "i"],
        &[
            "interval:DURATION",
            "interval:us:COUNT",
            "interval:ms:COUNT",
            "interval:s:COUNT",
            "interval:hz:RATE",
        ],
        OURS,
    ),
    row(
        Provider::Profile,
        &["profile", "p"],
        &["profile:DURATION", "profile:us:COUNT", "profile:ms:COUNT", "profile:s:COUNT", "profile:hz:RATE"],
        PERF,
    ),
    row(Provider::Hardware, &["hardware", "h"], &["hardware:EVENT", "hardware:EVENT:COUNT"], PERF),
    row(Provider::Software, &["software", "s"], &["software:EVENT", "software:EVENT:COUNT"], PERF),
    row(
        Provider::Kprobe,
        &["kprobe", "k"],
        &["kprobe:FUNCTION", "kprobe:MODULE:FUNCTION", "kprobe:FUNCTION+OFFSET"],
        KERNEL,
    ),
    row(
        Provider::Kretprobe,
        &["kretprobe", "kr"],
        &["kretprobe:FUNCTION", "kretprobe:MODULE:FUNCTION"],
        KERNEL,
    ),
    row(Provider::Fentry, &["fentry", "f", "kfunc"], &["fentry:FUNCTION", "fentry:MODULE:FUNCTION"], KERNEL),
    row(Provider::Fexit, &["fexit", "fr", "kretfunc"], &["fexit:FUNCTION", "fexit:MODULE:FUNCTION"], KERNEL),
    row(Provider::Tracepoint, &["tracepoint", "t"], &["tracepoint:SUBSYSTEM:EVENT"], KERNEL),
    row(
        Provider::Rawtracepoint,
        &["rawtracepoint", "rt"],
        &["rawtracepoint:EVENT", "rawtracepoint:MODULE:EVENT"],
        KERNEL,
    ),
    row(
        Provider::Uprobe,
        &["uprobe", "u"],
        &[
            "uprobe:BINARY:FUNCTION",
            "uprobe:BINARY:FUNCTION+OFFSET",
            "uprobe:BINARY:OFFSET",
            "uprobe:BINARY:cpp:FUNCTION",
            "uprobe:BINARY:FUNCTION:entry",
            "uprobe:BINARY:FUNCTION:return",
            "uprobe:BINARY:FILE.c:LINE",
            "pid$target:MODULE:FUNCTION:entry",
            "pidNUMBER:MODULE:FUNCTION:return",
        ],
        PROCESS,
    ),
    row(
        Provider::Uretprobe,
        &["uretprobe", "ur"],
        &["uretprobe:BINARY:FUNCTION", "uretprobe:BINARY:cpp:FUNCTION"],
        PROCESS,
    ),
    row(Provider::Usdt, &["usdt", "U"], &["usdt:BINARY:NAME", "usdt:BINARY:PROVIDER:NAME"], PROCESS),
    row(
        Provider::Watchpoint,
        &["watchpoint", "w"],
        &[
            "watchpoint:ADDRESS:LENGTH:MODE",
            "watchpoint:VARIABLE:LENGTH:MODE",
            "watchpoint:FUNCTION+argN:LENGTH:MODE",
        ],
        PERF,
    ),
    row(
        Provider::Asyncwatchpoint,
        &["asyncwatchpoint", "aw"],
        &["asyncwatchpoint:ADDRESS:LENGTH:MODE", "asyncwatchpoint:FUNCTION+argN:LENGTH:MODE"],
        PERF,
    ),
    row(Provider::Iter, &["iter", "it"], &["iter:OBJECTS", "iter:OBJECTS:PIN"], ITERATORS),
    row(Provider::Test, &["test"], &["test:NAME"], MODES),
    row(Provider::Bench, &["bench"], &["bench:NAME"], MODES),
];

impl Provider {
    /// The row of a provider.
    pub fn row(self) -> &'static Row {
        TABLE.iter().find(|row| row.provider == self).unwrap_or(&TABLE[0])
    }

    /// Its full name.
    pub fn name(self) -> &'static str {
        self.row().names[0]
    }

    /// The provider of a name, full, short or older.
    pub(crate) fn named(name: &str) -> Option<Provider> {
        TABLE.iter().find(|row| row.names.contains(&name)).map(|row| row.provider)
    }
}

/// An event that the processor or the kernel counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedEvent {
    /// Its name.
    pub name: &'static str,
    /// Another name of it, or none.
    pub(crate) alias: &'static str,
    /// Its number in the kernel: `PERF_COUNT_HW_...` or `PERF_COUNT_SW_...`.
    pub number: u64,
    /// After how many events a probe fires that does not state it: as in bpftrace.
    pub count: u64,
}

const fn counted(name: &'static str, alias: &'static str, number: u64, count: u64) -> CountedEvent {
    CountedEvent { name, alias, number, count }
}

/// The events of `hardware`.
pub(crate) const HARDWARE_EVENTS: &[CountedEvent] = &[
    counted("cpu-cycles", "cycles", 0, 1_000_000),
    counted("instructions", "", 1, 1_000_000),
    counted("cache-references", "", 2, 1_000_000),
    counted("cache-misses", "", 3, 1_000_000),
    counted("branch-instructions", "branches", 4, 100_000),
    counted("branch-misses", "", 5, 100_000),
    counted("bus-cycles", "", 6, 100_000),
    counted("frontend-stalls", "", 7, 1_000_000),
    counted("backend-stalls", "", 8, 1_000_000),
    counted("ref-cycles", "", 9, 1_000_000),
];

/// The events of `software`.
pub(crate) const SOFTWARE_EVENTS: &[CountedEvent] = &[
    counted("cpu-clock", "cpu", 0, 1_000_000),
    counted("task-clock", "", 1, 1_000_000),
    counted("page-faults", "faults", 2, 100),
    counted("context-switches", "cs", 3, 1000),
    counted("cpu-migrations", "", 4, 1),
    counted("minor-faults", "", 5, 100),
    counted("major-faults", "", 6, 1),
    counted("alignment-faults", "", 7, 1),
    counted("emulation-faults", "", 8, 1),
    counted("dummy", "", 9, 1),
    counted("bpf-output", "", 10, 1),
];

/// The events of a provider that has such events.
pub fn counted_events(provider: Provider) -> Option<&'static [CountedEvent]> {
    match provider {
        Provider::Hardware => Some(HARDWARE_EVENTS),
        Provider::Software => Some(SOFTWARE_EVENTS),
        _ => None,
    }
}

/// The event of a name, for a provider that has such events.
pub fn counted_event(provider: Provider, name: &str) -> Option<&'static CountedEvent> {
    counted_events(provider)?
        .iter()
        .find(|event| event.name == name || !event.alias.is_empty() && event.alias == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_provider_has_one_row_and_no_name_is_of_two() {
        let mut names: Vec<&str> = TABLE.iter().flat_map(|row| row.names.iter().copied()).collect();
        for row in TABLE {
            assert!(std::ptr::eq(row.provider.row(), row));
        }
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn a_set_tells_its_names() {
        assert_eq!(Providers::RETURNS.names(), "kretprobe, fexit, uretprobe");
        assert_eq!(Providers::ALL.names(), "all");
    }
}
