//! The registers of S/390 and zSeries: the manual's appendix B.

use super::family::{CURRENT, GENERAL, READ_ONLY, RegisterRange, USER};

pub(super) const FAMILIES: &[RegisterRange] = &[
    RegisterRange::new(0x00, READ_ONLY, &["pswmask", "pswaddr"]),
    RegisterRange::new(0x03, USER, &["fpc"]),
    RegisterRange::new(
        0x10,
        GENERAL,
        &[
            "gpr0", "gpr1", "gpr2", "gpr3", "gpr4", "gpr5", "gpr6", "gpr7", "gpr8", "gpr9", "gpr10", "gpr11",
            "gpr12", "gpr13", "gpr14", "gpr15",
        ],
    ),
    RegisterRange::new(
        0x20,
        READ_ONLY,
        &[
            "acr0", "acr1", "acr2", "acr3", "acr4", "acr5", "acr6", "acr7", "acr8", "acr9", "acr10", "acr11",
            "acr12", "acr13", "acr14", "acr15",
        ],
    ),
    RegisterRange::new(
        0x30,
        USER,
        &[
            "fpr0", "fpr1", "fpr2", "fpr3", "fpr4", "fpr5", "fpr6", "fpr7", "fpr8", "fpr9", "fpr10", "fpr11",
            "fpr12", "fpr13", "fpr14", "fpr15",
        ],
    ),
    RegisterRange::new(
        0x40,
        CURRENT,
        &[
            "cr_0", "cr_1", "cr_2", "cr_3", "cr_4", "cr_5", "cr_6", "cr_7", "cr_8", "cr_9", "cr_10", "cr_11",
            "cr_12", "cr_13", "cr_14", "cr_15",
        ],
    ),
];
