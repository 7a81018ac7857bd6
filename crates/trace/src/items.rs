//! The set of header items that a record has or shows.

use std::fmt;

/// A set of header items, with the flags of the record header (the paper, section 5).
/// [`Items::default`] is empty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Items(u32);

/// The name of no header item, or of one that only another architecture has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownItem(pub String);

impl fmt::Display for UnknownItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let items = "PROCNAME, PID, UID, SSESP, CSEIP, TSC, CPU and ALL";
        // The original had these two on s390 only.
        match self.0.to_ascii_uppercase().as_str() {
            "PSW" => write!(
                f,
                "PSW is the program status word of s390, which this machine does not have; use CSEIP for the address \
                 of the hit (items here: {items})"
            ),
            "UPSW" => write!(
                f,
                "UPSW is the user's program status word of s390, which this machine does not have; use CSEIP and \
                 SSESP for the user's registers (items here: {items})"
            ),
            _ => write!(f, "`{}` is not a header item; the items are {items}", self.0),
        }
    }
}

impl std::error::Error for UnknownItem {}

impl Items {
    /// The probe's major code.
    pub const MAJOR: Items = Items(0x0001);
    /// The probe's minor code.
    pub const MINOR: Items = Items(0x0002);
    /// The processor.
    pub const CPU: Items = Items(0x0004);
    /// The process id.
    pub const PID: Items = Items(0x0008);
    /// The user id.
    pub const UID: Items = Items(0x0010);
    /// The code segment.
    pub const CS: Items = Items(0x0020);
    /// The instruction pointer.
    pub const EIP: Items = Items(0x0040);
    /// The stack segment.
    pub const SS: Items = Items(0x0080);
    /// The stack pointer.
    pub const ESP: Items = Items(0x0100);
    /// The code segment and instruction pointer.
    pub const CSEIP: Items = Items::CS.with(Items::EIP);
    /// The stack segment and stack pointer.
    pub const SSESP: Items = Items::SS.with(Items::ESP);
    /// The time.
    pub const TSC: Items = Items(0x0200);
    /// The process name.
    pub const PROCNAME: Items = Items(0x0400);
    /// No item.
    pub const NONE: Items = Items(0);
    /// Every item.
    pub const ALL: Items = Items(0x07ff);

    /// The items shown by default: the codes, the processor and the process id.
    pub const DEFAULT: Items = Items(Items::MAJOR.0 | Items::MINOR.0 | Items::CPU.0 | Items::PID.0);

    /// The items of these header flags; none if a flag is unknown.
    pub const fn from_flags(flags: u32) -> Option<Items> {
        if flags & !Items::ALL.0 == 0 { Some(Items(flags)) } else { None }
    }

    /// The header's flags.
    pub const fn flags(self) -> u32 {
        self.0
    }

    /// Whether all of `items` are in the set.
    pub const fn contains(self, items: Items) -> bool {
        self.0 & items.0 == items.0
    }

    /// Both sets together.
    #[must_use]
    pub const fn with(self, items: Items) -> Items {
        Items(self.0 | items.0)
    }

    /// The items in both sets.
    #[must_use]
    pub const fn and(self, items: Items) -> Items {
        Items(self.0 & items.0)
    }

    /// This set without `items`.
    #[must_use]
    pub const fn without(self, items: Items) -> Items {
        Items(self.0 & !items.0)
    }

    /// Parses a list of item names, separated by commas or blanks, in upper or lower case. The
    /// result always includes the codes and the processor.
    ///
    /// # Errors
    /// A name is not a header item.
    pub fn parse(list: &str) -> Result<Items, UnknownItem> {
        let mut items = Items::MAJOR.with(Items::MINOR).with(Items::CPU);
        for name in list.split([',', ' ', '\t']).filter(|name| !name.is_empty()) {
            items = items.with(match name.to_ascii_uppercase().as_str() {
                "PROCNAME" => Items::PROCNAME,
                "PID" => Items::PID,
                "UID" => Items::UID,
                "SSESP" => Items::SSESP,
                "CSEIP" => Items::CSEIP,
                "TSC" => Items::TSC,
                "CPU" => Items::CPU,
                "ALL" => Items::ALL,
                _ => return Err(UnknownItem(name.to_owned())),
            });
        }
        Ok(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_items_in_either_case() {
        let items = Items::parse("pid, Tsc").expect("known");
        assert!(items.contains(Items::PID) && items.contains(Items::TSC) && items.contains(Items::CPU));
        assert!(!items.contains(Items::UID));
        assert_eq!(Items::parse("all"), Ok(Items::ALL));
        assert_eq!(Items::parse("pid,what"), Err(UnknownItem("what".to_owned())));
    }

    #[test]
    fn those_of_another_machine_are_refused_with_the_reason() {
        for (name, reason) in [("psw", "PSW is the program"), ("UPSW", "UPSW is the user's program")] {
            let error = Items::parse(name).expect_err("not on this machine").to_string();
            assert!(
                error.starts_with(reason) && error.contains("s390") && error.contains("CSEIP"),
                "{error}"
            );
        }
    }
}
