//! A stopped thread's floating-point and SSE registers, as the processor's FXSAVE stores them.
//!
//! The upper halves of AVX registers are not included, and nothing here writes the registers.

use libc::user_fpregs_struct;

/// The FPU and SSE registers, also of 32-bit threads.
///
/// A 64-bit kernel stores the addresses of the FPU's last instruction and operand, but not their
/// segments.
#[derive(Clone, Copy)]
pub struct FloatRegisters {
    raw: user_fpregs_struct,
}

impl FloatRegisters {
    /// Wraps ptrace's structure.
    pub(crate) fn from_raw(raw: user_fpregs_struct) -> FloatRegisters {
        FloatRegisters { raw }
    }

    /// The FPU's control word.
    pub fn control(&self) -> u16 {
        self.raw.cwd
    }

    /// The FPU's status word.
    pub fn status(&self) -> u16 {
        self.raw.swd
    }

    /// The FPU's tag word: two bits for each physical register, 0 valid, 1 zero, 2 special, 3
    /// empty. FXSAVE stores only whether a register is empty; the rest is computed from the
    /// register's contents, as the processor does.
    pub fn tags(&self) -> u16 {
        let top = usize::from(self.status() >> 11) & 7;
        (0..8).fold(0, |tags, physical: usize| {
            let empty = self.raw.ftw & 1 << physical == 0;
            let tag = if empty { 3 } else { tag(self.stack(physical.wrapping_sub(top) & 7)) };
            tags | tag << (2 * physical)
        })
    }

    /// The address of the last FPU instruction.
    pub fn instruction(&self) -> u64 {
        self.raw.rip
    }

    /// The address of the last FPU instruction's operand.
    pub fn operand(&self) -> u64 {
        self.raw.rdp
    }

    /// The FPU's register `number`, 0 to 7, counted from the top of its stack: 80 bits.
    pub fn stack(&self, number: usize) -> u128 {
        bits(&self.raw.st_space, number) & ((1 << 80) - 1)
    }

    /// The SSE register `number`, 0 to 15: 128 bits.
    pub fn vector(&self, number: usize) -> u128 {
        bits(&self.raw.xmm_space, number)
    }

    /// The control and status register of SSE.
    pub fn mxcsr(&self) -> u32 {
        self.raw.mxcsr
    }
}

/// The 128 bits at an index of an area; 0 outside of it.
fn bits(area: &[u32], number: usize) -> u128 {
    let parts = area.chunks_exact(4).nth(number).unwrap_or(&[]);
    parts.iter().rev().fold(0, |bits, &part| bits << 32 | u128::from(part))
}

/// The tag of a register that is not empty and holds these 80 bits.
fn tag(value: u128) -> u16 {
    let exponent = (value >> 64) as u16 & 0x7fff;
    let significand = value as u64;
    match (exponent, significand) {
        (0, 0) => 1,
        (0 | 0x7fff, _) => 2,
        // The integer bit is clear: no number that the processor produces.
        _ if significand >> 63 == 0 => 2,
        _ => 0,
    }
}

impl std::fmt::Debug for FloatRegisters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "FloatRegisters {{ control: {:#x}, status: {:#x}, mxcsr: {:#x} }}",
            self.control(),
            self.status(),
            self.mxcsr()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The image that FXSAVE writes after `load`, and the 28 bytes of FNSTENV, whose tag word the
    /// processor has computed.
    macro_rules! after {
        ($($load:literal),* ; $($operand:tt)*) => {{
            #[repr(C, align(16))]
            struct Image([u8; 512]);
            let mut image = Image([0; 512]);
            let mut environment = [0_u32; 7];
            // SAFETY: the FPU's stack is emptied before and after, so that the code around it finds
            // it as it must be; the instructions write 512 aligned bytes and 28 bytes, which are
            // there.
            unsafe {
                std::arch::asm!(
                    "fninit",
                    $($load,)*
                    "fxsave64 [{image}]",
                    "fnstenv [{environment}]",
                    "fninit",
                    image = in(reg) &raw mut image,
                    environment = in(reg) &raw mut environment,
                    $($operand)*
                    out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                    out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                );
            }
            // SAFETY: the structure is the 512 bytes that FXSAVE writes; any bytes are a value of
            // it.
            let raw = unsafe { std::mem::transmute::<Image, user_fpregs_struct>(image) };
            (FloatRegisters::from_raw(raw), environment[2] as u16)
        }};
    }

    #[test]
    fn the_tag_word_is_the_processors_own() {
        let (empty, tags) = after!(;);
        assert_eq!((empty.tags(), tags), (0xffff, 0xffff));
        let (some, tags) = after!("fldpi", "fldz", "fld1";);
        assert_eq!(some.tags(), tags);
        assert_ne!(tags, 0xffff);
        // An infinity, a denormal, and a NaN.
        let (infinity, small, none) = (f64::INFINITY, 1_u64, f64::NAN);
        let tiny = [small, 0];
        let (special, tags) = after!(
            "fld qword ptr [{infinity}]", "fld tbyte ptr [{tiny}]", "fld qword ptr [{none}]";
            infinity = in(reg) &raw const infinity, tiny = in(reg) &raw const tiny, none = in(reg) &raw const none,
        );
        assert_eq!(special.tags(), tags);
    }

    #[test]
    fn registers_are_counted_from_the_top() {
        let (registers, _) = after!("fldz", "fld1";);
        // 1.0: exponent 0x3fff, significand 1.
        assert_eq!(registers.stack(0), 0x3fff_8000_0000_0000_0000);
        assert_eq!(registers.stack(1), 0);
        assert_eq!(registers.status() >> 11 & 7, 6);
        assert_eq!(registers.control(), 0x37f);
    }
}
