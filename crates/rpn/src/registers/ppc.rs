//! The registers of ppc and ppc64: the manual's appendix C.

use super::family::{GENERAL, READ_ONLY, RegisterRange, USER};

pub(super) const FAMILIES: &[RegisterRange] = &[
    RegisterRange::new(
        0x01,
        READ_ONLY,
        &["nip", "msr", "ctr", "lnk", "xer", "ccr", "mq", "dar", "dsisr", "fpc", "cpuid"],
    ),
    RegisterRange::new(
        0x10,
        GENERAL,
        &[
            "r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8", "r9", "r10", "r11", "r12", "r13", "r14",
            "r15", "r16", "r17", "r18", "r19", "r20", "r21", "r22", "r23", "r24", "r25", "r26", "r27", "r28",
            "r29", "r30", "r31",
        ],
    ),
    RegisterRange::new(
        0x30,
        USER,
        &[
            "fpr0", "fpr1", "fpr2", "fpr3", "fpr4", "fpr5", "fpr6", "fpr7", "fpr8", "fpr9", "fpr10", "fpr11",
            "fpr12", "fpr13", "fpr14", "fpr15", "fpr16", "fpr17", "fpr18", "fpr19", "fpr20", "fpr21",
            "fpr22", "fpr23", "fpr24", "fpr25", "fpr26", "fpr27", "fpr28", "fpr29", "fpr30", "fpr31",
        ],
    ),
];
