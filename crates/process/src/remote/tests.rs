use super::*;

fn registers(cs: u64) -> Registers {
    let mut registers = Registers::zeros();
    registers.set_cs(cs);
    registers
}

#[test]
fn a_call_of_32_bit_code_has_its_own_number_and_registers() {
    let mut narrow = registers(0x23);
    prepare(&mut narrow, libc::SYS_mmap, [1, 2, 3, 4, !0, 6]);
    assert_eq!(narrow.general()[..8], [192, 2, 3, 1, 0, 6, 4, 0xffff_ffff]);
    let mut wide = registers(0x33);
    prepare(&mut wide, libc::SYS_mmap, [1, 2, 3, 4, !0, 6]);
    assert_eq!((wide.rax(), wide.rdi(), wide.rsi(), wide.rdx()), (9, 1, 2, 3));
    assert_eq!((wide.r10(), wide.r8(), wide.general()[9]), (4, !0, 6));
}

#[test]
fn a_high_address_is_no_error() {
    let mut narrow = registers(0x23);
    for (rax, value) in [(0xf7f0_0000, 0xf7f0_0000), (0xffff_ffff_f7f0_0000, 0xf7f0_0000), (0xffff_fff4, -12)]
    {
        narrow.set_rax(rax);
        assert_eq!(result(&narrow), value);
    }
    narrow.set_orig_rax(0xffff_ffff);
    assert_eq!(narrow.call_number(), -1);
}
