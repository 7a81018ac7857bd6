//! Which calls return to the address after them: the result, asked while code is followed.
//!
//! In: what `callees` has found of each called function. Out: whether a call to it returns, is
//! unknown, or does not. Functions of other modules are assumed to follow the ABI, except for those
//! known never to return ([`NEVER_RETURN`]).

use std::collections::{HashMap, HashSet};

/// Functions of other modules that never return.
const NEVER_RETURN: &[&str] = &[
    "abort",
    "exit",
    "_exit",
    "_Exit",
    "quick_exit",
    "__stack_chk_fail",
    "__fortify_fail",
    "__chk_fail",
    "__assert_fail",
    "__assert_perror_fail",
    "__assert",
    "longjmp",
    "_longjmp",
    "siglongjmp",
    "__longjmp_chk",
    "pthread_exit",
    "thrd_exit",
    "_Unwind_Resume",
    "__cxa_throw",
    "__cxa_rethrow",
    "__cxa_bad_cast",
    "__cxa_bad_typeid",
    "__cxa_throw_bad_array_new_length",
    "__cxa_pure_virtual",
    "__cxa_call_unexpected",
    "__cxa_call_terminate",
    "_ZSt9terminatev",
    "__libc_start_main",
    "err",
    "errx",
    "verr",
    "verrx",
    "_ZSt17__throw_bad_allocv",
    "_ZSt20__throw_length_errorPKc",
    "_ZSt19__throw_logic_errorPKc",
    "_ZSt20__throw_out_of_rangePKc",
    "_ZSt24__throw_out_of_range_fmtPKcz",
    "_ZSt16__throw_bad_castv",
    "_ZSt25__throw_bad_function_callv",
    "_ZSt20__throw_system_errori",
    "_ZSt21__throw_runtime_errorPKc",
    "_ZSt28__throw_bad_array_new_lengthv",
    "_ZSt24__throw_invalid_argumentPKc",
];

/// Which calls return.
#[derive(Debug, Default)]
pub(super) struct Returns {
    pub(super) comes_back: HashMap<u64, bool>,
    /// The functions that may or may not return, but do not move their return address.
    pub(super) unknown: HashSet<u64>,
    /// Whether those are assumed to return.
    pub(super) is_lenient: bool,
    /// Whether any function moves its return address: then an indirect call may call it.
    pub(super) moved: bool,
}

impl Returns {
    /// Whether a direct call to an address returns.
    pub(super) fn call_returns(&self, target: u64) -> bool {
        self.comes_back.get(&target).copied().unwrap_or(false) || self.is_lenient && self.is_unknown(target)
    }

    /// Whether it is unknown if a function returns.
    pub(super) fn is_unknown(&self, target: u64) -> bool {
        self.unknown.contains(&target)
    }

    /// Whether an indirect call returns.
    pub(super) fn indirect_call_returns(&self) -> bool {
        !self.moved
    }
}

/// Whether a function of another module never returns.
pub(super) fn never_returns(name: &str) -> bool {
    NEVER_RETURN.contains(&name)
}
