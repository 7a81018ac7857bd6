//! Why a process has no memory for probes.

use super::Cause;

/// Why memory is not mapped in a process.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotMapped {
    /// The process has ended.
    #[error("the process is gone")]
    Gone,
    /// Its mappings cannot be read.
    #[error("{0}")]
    Mappings(Cause),
    /// One more mapping would be one too many.
    #[error(
        "the process has {there} of the {most} mappings that the kernel allows (vm.max_map_count), {own} of them for \
         probes; the rest is the program's"
    )]
    TooMany {
        /// The mappings that it has.
        there: usize,
        /// Those of them that are for probes.
        own: usize,
        /// How many the kernel allows.
        most: usize,
    },
    /// There is no free memory near the module.
    #[error("no free memory within 2 GiB of the module")]
    NoneNear,
    /// There is too little free memory near the module for trampolines.
    #[error("there is not enough free memory within 1 GiB of the module")]
    TooLittleNear,
    /// There is no free memory at low addresses.
    #[error("the process has no room below 2 GiB")]
    NoneLow,
    /// There is something else at the chosen address by now.
    #[error("the address chosen for the probes' memory was taken meanwhile")]
    Taken,
    /// The kernel refuses to map it.
    #[error("mapping memory for the probes: {0}")]
    Refused(Cause),
    /// The kernel refuses to map more memory for counters.
    #[error("mapping more memory for counters: {0}")]
    CountersRefused(Cause),
    /// The program has unmapped the counters.
    #[error("the memory of the counters is not mapped any more")]
    CountersGone,
    /// The process has ended while handler memory was being mapped.
    #[error("it is gone")]
    Ended,
    /// Handler memory cannot be mapped.
    #[error("{0}")]
    Handlers(Cause),
    /// The process cannot be made to call the kernel.
    #[error("the process has no system call instruction that can be used")]
    NoSystemCall,
    /// The process may not call the kernel.
    #[error(
        "the process is in a seccomp sandbox, in which mapping memory for the probes needs CAP_SYS_ADMIN"
    )]
    Sandbox,
    /// The tracer has no memory that it could share with the process.
    #[error("there is no memory to share with the process")]
    NoneShared,
    /// Compiled handlers need an instruction that the processor does not have.
    #[error("the processor has no `{0}`")]
    Processor(&'static str),
}
