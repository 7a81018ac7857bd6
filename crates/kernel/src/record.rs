//! The format of records in the rings.
//!
//! ```text
//!   0  8  cookie                      72  4  major code, -1 if the handler set none
//!   8  8  time: CLOCK_BOOTTIME        76  4  minor code, likewise
//!  16  8  instruction pointer         80  4  how the run ended
//!  24  8  stack pointer               84  4  the number of exit's facility
//!  32  4  process                     88  8  the exception's code
//!  36  4  thread                      96  8  its first parameter
//!  40  4  user                       104  8  its second parameter
//!  44  4  processor                  112  4  bytes of the log that follows
//!  48 16  the thread's name          116  4  bytes of stack traces behind it
//!  64  4  cs                         120  8  the address accessed, at a breakpoint
//!  68  4  ss
//! ```

use vm::{End, Exception};

pub(crate) const COOKIE: i16 = 0;
pub(crate) const TIME: i16 = 8;
pub(crate) const IP: i16 = 16;
pub(crate) const SP: i16 = 24;
pub(crate) const TGID: i16 = 32;
pub(crate) const TID: i16 = 36;
pub(crate) const UID: i16 = 40;
pub(crate) const CPU: i16 = 44;
pub(crate) const COMM: i16 = 48;
pub(crate) const CS: i16 = 64;
pub(crate) const SS: i16 = 68;
pub(crate) const MAJOR: i16 = 72;
pub(crate) const MINOR: i16 = 76;
pub(crate) const END: i16 = 80;
pub(crate) const FACILITY: i16 = 84;
pub(crate) const CODE: i16 = 88;
pub(crate) const PARM1: i16 = 96;
pub(crate) const PARM2: i16 = 104;
pub(crate) const LOG: i16 = 112;
pub(crate) const TRACE: i16 = 116;
pub(crate) const ADDRESS: i16 = 120;

/// Bytes before the log.
pub(crate) const HEADER: usize = 128;

/// The facility that writes a core dump.
pub(crate) const CORE_DUMP: u32 = 3;
/// In the number of the facility: the probe may not write a core dump any more.
pub(crate) const OVER_LIMIT: u32 = 0x100;

/// The numbers of the ways in which a run ends. 0 stands for none yet.
pub(crate) mod end {
    pub(crate) const EXIT: i32 = 1;
    pub(crate) const EXIT_TO: i32 = 2;
    pub(crate) const ABORT: i32 = 3;
    pub(crate) const REMOVE: i32 = 4;
    pub(crate) const EXCEPTION: i32 = 5;
}

/// A record of a run. It has this many fields since it is all that a program tells of a hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRecord<'a> {
    /// The number of the probe: the lower half of the [`crate::cookie`].
    pub probe: u32,
    /// The number of the site: its upper half.
    pub site: u32,
    /// Nanoseconds of `CLOCK_BOOTTIME`.
    pub time: u64,
    /// The processor.
    pub cpu: u32,
    /// The process, as the initial namespace numbers it.
    pub tgid: u32,
    /// The thread, likewise.
    pub tid: u32,
    /// The user.
    pub uid: u32,
    /// The thread's name, up to its first zero byte.
    pub comm: &'a [u8],
    /// The instruction pointer: the probed instruction's address.
    pub ip: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The code segment.
    pub cs: u32,
    /// The stack segment.
    pub ss: u32,
    /// The address accessed, at a breakpoint; otherwise 0.
    pub address: u64,
    /// The major code, if the handler set one.
    pub major: Option<u32>,
    /// The minor code, if the handler set one.
    pub minor: Option<u32>,
    /// How the run ended.
    pub end: End,
    /// Whether it ended by an exit to a core dump that the probe may not write any more.
    pub over_limit: bool,
    /// The log.
    pub log: &'a [u8],
    /// The stack traces ([`vm::State::trace`]), to be recorded with major and minor code 0; empty
    /// if the handler wrote none.
    pub trace: &'a [u8],
}

impl<'a> RawRecord<'a> {
    /// The time of a record; `None` if it is too short to be one.
    pub(crate) fn time(bytes: &[u8]) -> Option<u64> {
        let field = bytes.get(..HEADER)?.get(TIME as usize..)?.first_chunk()?;
        Some(u64::from_le_bytes(*field))
    }

    /// Reads a record; `None` if it is none that a program writes.
    pub fn parse(bytes: &'a [u8]) -> Option<RawRecord<'a>> {
        let (head, body) = bytes.split_at_checked(HEADER)?;
        let u32_at = |place: i16| {
            let place = place as usize;
            head.get(place..place + 4).and_then(|it| it.try_into().ok()).map_or(0, u32::from_le_bytes)
        };
        let u64_at = |place: i16| u64::from(u32_at(place)) | u64::from(u32_at(place + 4)) << 32;
        let (log, rest) = body.split_at_checked(u32_at(LOG) as usize)?;
        let trace = rest.get(..u32_at(TRACE) as usize)?;
        let comm = &head[COMM as usize..][..16];
        let comm = &comm[..comm.iter().position(|&byte| byte == 0).unwrap_or(16)];
        let set = |number: u32| Some(number).filter(|&number| number != u32::MAX);
        Some(RawRecord {
            probe: u32_at(COOKIE),
            site: u32_at(COOKIE + 4),
            time: u64_at(TIME),
            cpu: u32_at(CPU),
            tgid: u32_at(TGID),
            tid: u32_at(TID),
            uid: u32_at(UID),
            comm,
            ip: u64_at(IP),
            sp: u64_at(SP),
            cs: u32_at(CS),
            ss: u32_at(SS),
            address: u64_at(ADDRESS),
            major: set(u32_at(MAJOR)),
            minor: set(u32_at(MINOR)),
            end: match u32_at(END) as i32 {
                end::EXIT => End::Exit,
                end::EXIT_TO => End::ExitTo(u32_at(FACILITY) as u8),
                end::ABORT => End::Abort,
                end::REMOVE => End::Remove,
                end::EXCEPTION => End::Exception(Exception {
                    code: u64_at(CODE),
                    parm1: u64_at(PARM1),
                    parm2: u64_at(PARM2),
                }),
                _ => return None,
            },
            over_limit: u32_at(FACILITY) & OVER_LIMIT != 0,
            log,
            trace,
        })
    }
}
