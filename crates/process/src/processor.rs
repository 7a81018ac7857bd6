//! Which instructions of the code that is put into processes this processor and kernel lack.

use std::sync::OnceLock;

/// The name of an instruction that such code uses and that this machine lacks (not every x86-64
/// processor or kernel has them). `None`: all are there.
pub fn missing_instructions() -> Option<&'static str> {
    // Computed once: in a virtual machine `cpuid` is slow.
    static KNOWN: OnceLock<Option<&'static str>> = OnceLock::new();
    *KNOWN.get_or_init(missing)
}

fn missing() -> Option<&'static str> {
    /// The type of the auxiliary vector's second word of capabilities
    /// (arch/x86/include/uapi/asm/hwcap2.h), and the bit that says that processes may read and
    /// write the bases of fs and gs.
    const AT_HWCAP2: libc::c_ulong = 26;
    const FSGSBASE: libc::c_ulong = 1 << 1;
    /// In ecx of `cpuid` leaf 7.
    const RDPID: u32 = 1 << 22;
    // SAFETY: the call only reads the auxiliary vector.
    if unsafe { libc::getauxval(AT_HWCAP2) } & FSGSBASE == 0 {
        return Some("rdfsbase");
    }
    let rdpid =
        std::arch::x86_64::__cpuid(0).eax >= 7 && std::arch::x86_64::__cpuid_count(7, 0).ecx & RDPID != 0;
    (!rdpid).then_some("rdpid")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_kernels_list_says_the_same() {
        let list = std::fs::read_to_string("/proc/cpuinfo").expect("the processors");
        let has = |name: &str| list.split_ascii_whitespace().any(|flag| flag == name);
        assert_eq!(super::missing_instructions().is_none(), has("rdpid") && has("fsgsbase"));
    }
}
