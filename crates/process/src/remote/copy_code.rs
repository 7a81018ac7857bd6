//! The code by which a thread has its process copied (`copying`).
//!
//! ```text
//!   00: 0f 05             syscall               clone(CLONE_VM | CLONE_FILES): the helper
//!   02: 85 c0             test   %eax,%eax
//!   04: 74 19             je     1f
//!   06: 78 10             js     18
//!   08: 89 c7             mov    %eax,%edi      wait4(helper, NULL, __WALL, NULL)
//!   0a: 31 f6             xor    %esi,%esi
//!   0c: ba 00 00 00 40    mov    $0x40000000,%edx
//!   11: b8 3d 00 00 00    mov    $61,%eax
//!   16: 0f 05             syscall
//!   18: b8 0f 00 00 00    mov    $15,%eax       rt_sigreturn
//!   1d: 0f 05             syscall
//!   1f: b8 b4 01 00 00    mov    $436,%eax      helper: close_range(0, ~0, CLOSE_RANGE_UNSHARE)
//!   24: 31 ff             xor    %edi,%edi
//!   26: be ff ff ff ff    mov    $~0,%esi
//!   2b: ba 02 00 00 00    mov    $2,%edx
//!   30: 0f 05             syscall
//!   32: b8 38 00 00 00    mov    $56,%eax       clone(CLONE_FILES): the copy
//!   37: bf 00 04 00 00    mov    $0x400,%edi
//!   3c: 31 f6             xor    %esi,%esi
//!   3e: 31 d2             xor    %edx,%edx
//!   40: 0f 05             syscall
//!   42: f7 d8             neg    %eax
//!   44: 89 c7             mov    %eax,%edi
//!   46: b8 e7 00 00 00    mov    $231,%eax      exit_group(the error, if it failed)
//!   4b: 0f 05             syscall
//! ```

/// The code that the thread, the helper and the copy execute.
#[rustfmt::skip]
pub const COPY_CODE: [u8; 77] = [
    0x0f, 0x05, 0x85, 0xc0, 0x74, 0x19, 0x78, 0x10,
    0x89, 0xc7, 0x31, 0xf6, 0xba, 0, 0, 0, 0x40, 0xb8, 61, 0, 0, 0, 0x0f, 0x05,
    0xb8, 15, 0, 0, 0, 0x0f, 0x05,
    0xb8, 0xb4, 1, 0, 0, 0x31, 0xff, 0xbe, 0xff, 0xff, 0xff, 0xff, 0xba, 2, 0, 0, 0, 0x0f, 0x05,
    0xb8, 56, 0, 0, 0, 0xbf, 0, 4, 0, 0, 0x31, 0xf6, 0x31, 0xd2, 0x0f, 0x05,
    0xf7, 0xd8, 0x89, 0xc7, 0xb8, 231, 0, 0, 0, 0x0f, 0x05,
];
/// Where a thread is after creating the helper, and after waiting for it.
pub(super) const CREATED: u64 = 0x02;
pub(super) const WAITED: u64 = 0x18;
