//! What the processor and the kernel must have for code that is put into a process.

use std::sync::OnceLock;

/// The instructions that such code uses, and that not every x86-64 processor or kernel has: what is missing here, by its name.
/// `None`: nothing is.
pub fn missing_instructions() -> Option<&'static str> {
    // Asked once: in a virtual machine the processor's answer takes long.
    static KNOWN: OnceLock<Option<&'static str>> = OnceLock::new();
    *KNOWN.get_or_init(missing)
}

fn missing() -> Option<&'static str> {
    /// The auxiliary vector's second word of capabilities (arch/x86/include/uapi/asm/hwcap2.h), and the bit by which the kernel
    /// says that processes may read and write the bases of fs and gs.
    const AT_HWCAP2: libc::c_ulong = 26;
    const FSGSBASE: libc::c_ulong = 1 << 1;
    /// The bit of leaf 7, in ecx.
    const RDPID: u32 = 1 << 22;
    // SAFETY: a plain question.
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
