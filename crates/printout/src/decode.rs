//! Values of the language from the bytes of an event, a key or a map.
//!
//! ```text
//! integers, bool, enums, pointers, ksym   a word
//! float, double   their bits in a word
//! string, bytes   in events and values: length, bytes, zeros to a multiple of 8
//!                 in keys and tuples: bytes, zeros up to max_strlen; the last part of a key ends
//!                 with the key
//! tuple           the members, as in keys
//! ustack          number of the stack; pid, and its form in the upper half
//! kstack          the same, with 0 for the pid
//! usym            address; pid
//! inet            family, 16 bytes        mac         6 bytes, padded
//! timestamp       number of the constant with the format, and the clock in the upper half;
//!                 nanoseconds
//! cgroup path     number of the constant with the filter, number of the cgroup
//! username, comm  the number of the user, or of the process
//! array, struct   as in C, padded
//! ```

use std::net::{Ipv4Addr, Ipv6Addr};

use script::{Aggregate, Compiled, Opaque, Tag, Type};

use crate::clock;
use crate::cursor::Cursor;
use crate::datum::Datum;
use crate::error::Wrong;
use crate::layout::{self, until_nul};
use crate::number::{enumerator, integer};
use crate::symbols::{self, StackMode};
use crate::world::{Clock, World};

/// Where a value lies, which decides the form of its strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueStorage {
    /// An argument of an event, or the value of a map.
    Alone,
    /// A part of a key or of a tuple.
    Part,
}

/// What is needed to decode values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoder<'a> {
    pub(crate) script: &'a Compiled,
    pub(crate) stacks: StackMode,
}

impl Decoder<'_> {
    /// The next value of a type.
    pub(crate) fn value(
        &self,
        ty: &Type,
        place: ValueStorage,
        bytes: &mut Cursor<'_>,
        world: &mut dyn World,
    ) -> Result<Datum, Wrong> {
        match ty {
            Type::Void => Ok(Datum::Null),
            // What no debug information describes is a number.
            Type::Unknown => Ok(Datum::Signed(bytes.word()?.cast_signed())),
            Type::Bool => Ok(Datum::Bool(bytes.word()? != 0)),
            Type::Integer(kind) => Ok(integer(bytes.word()?, *kind)),
            Type::Named(Tag::Enum, name) => Ok(enumerator(name, bytes.word()?, self.script)),
            Type::Pointer(_) => Ok(Datum::address(bytes.word()?)),
            Type::Float(size) => Ok(layout::float(*size, bytes.word()?)),
            Type::Text => {
                let mut text = until_nul(self.string(place, bytes)?).to_vec();
                // As in bpftrace, a string that fills its room is taken to be cut.
                if text.len() >= self.script.settings.max_strlen {
                    text.extend_from_slice(self.script.settings.trailer.as_bytes());
                }
                Ok(Datum::Text(text))
            }
            Type::Bytes => {
                let bytes = self.string(place, bytes)?;
                // A part of a key does not say where its bytes end.
                let end = match place {
                    ValueStorage::Alone => bytes.len(),
                    ValueStorage::Part => {
                        bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1)
                    }
                };
                Ok(Datum::Bytes(bytes[..end].to_vec()))
            }
            Type::Tuple(members) => {
                let members =
                    members.iter().map(|member| self.value(member, ValueStorage::Part, bytes, world));
                Ok(Datum::Tuple(members.collect::<Result<_, _>>()?))
            }
            Type::Array(..) | Type::Named(..) => {
                let size = layout::size(ty, self.script)?;
                layout::value(ty, bytes.take_padded(size)?, self.script)
            }
            Type::Opaque(kind) => self.opaque(*kind, bytes, world),
            // What an aggregate that is read as a number amounts to.
            Type::Aggregate(Aggregate::Count) => Ok(Datum::Unsigned(bytes.word()?)),
            Type::Aggregate(Aggregate::Avg | Aggregate::Max | Aggregate::Min | Aggregate::Sum) => {
                Ok(Datum::Signed(bytes.word()?.cast_signed()))
            }
            Type::Aggregate(_) | Type::Foreign(..) => Err(Wrong::NoValue),
        }
    }

    /// A whole key: a tuple if it has several parts.
    pub(crate) fn key(&self, ty: &Type, bytes: &[u8], world: &mut dyn World) -> Result<Datum, Wrong> {
        self.value(ty, ValueStorage::Part, &mut Cursor::new(bytes), world)
    }

    fn string<'b>(&self, place: ValueStorage, bytes: &mut Cursor<'b>) -> Result<&'b [u8], Wrong> {
        match place {
            ValueStorage::Alone => {
                let length = bytes.word()?;
                bytes.take_padded(length)
            }
            ValueStorage::Part => {
                let room = crate::cursor::padded(self.script.settings.max_strlen as u64);
                bytes.take(room.min(bytes.left() as u64))
            }
        }
    }

    /// The form of a stack by its number.
    fn mode(&self, number: u64) -> Result<StackMode, Wrong> {
        Ok(match number {
            // What the call does not state, the setting does.
            0 => self.stacks,
            1 => StackMode::Perf,
            2 => StackMode::Raw,
            other => return Err(Wrong::NoMode(other)),
        })
    }

    fn opaque(&self, kind: Opaque, bytes: &mut Cursor<'_>, world: &mut dyn World) -> Result<Datum, Wrong> {
        Ok(Datum::Text(match kind {
            Opaque::KernelStack => {
                let (number, form) = (bytes.word()?, bytes.word()?);
                symbols::kernel_stack(number, self.mode(form >> 32)?, world)
            }
            Opaque::UserStack => {
                let (number, process) = (bytes.word()?, bytes.word()?);
                let mode = self.mode(process >> 32)?;
                symbols::user_stack(number, process as u32, mode, world)
            }
            Opaque::KernelSymbol => symbols::kernel_symbol(bytes.word()?, world),
            Opaque::UserSymbol => {
                let (address, pid) = (bytes.word()?, bytes.word()?);
                symbols::user_symbol(address, pid as u32, world)
            }
            Opaque::Inet => {
                let family = bytes.word()?;
                inet(family, bytes.take(16)?).into()
            }
            Opaque::Mac => mac(bytes.take(8)?).into(),
            Opaque::Timestamp => {
                let (format, time) = (bytes.word()?, bytes.word()?);
                let clock = format >> 32;
                let clock = Clock::from_number(clock).ok_or(Wrong::NoMode(clock))?;
                let format = self.constant(format & u64::from(u32::MAX))?;
                clock::event_time(format, world.time_of(clock, time), &world.zone())
            }
            Opaque::CgroupPath => {
                let (filter, number) = (bytes.word()?, bytes.word()?);
                world.cgroup(number, self.constant(filter)?).into()
            }
            Opaque::User => world.user(bytes.word()? as u32).into(),
            Opaque::Process => world.process(bytes.word()? as u32),
        }))
    }

    /// A literal of the script.
    fn constant(&self, number: u64) -> Result<&[u8], Wrong> {
        let found = usize::try_from(number).ok().and_then(|index| self.script.constants.get(index));
        found.map(Vec::as_slice).ok_or(Wrong::NoConstant(number))
    }
}

/// Linux's numbers of families of addresses.
const AF_INET: u64 = 2;
const AF_INET6: u64 = 10;

/// An address of a network; of an unknown family: nothing.
fn inet(family: u64, bytes: &[u8]) -> String {
    let mut address = [0; 16];
    address.copy_from_slice(&bytes[..16]);
    match family {
        AF_INET => Ipv4Addr::from([address[0], address[1], address[2], address[3]]).to_string(),
        AF_INET6 => {
            let address = Ipv6Addr::from(address);
            // C's inet_ntop also writes ::1.2.3.4 so, which has no other meaning today.
            match address.segments() {
                [0, 0, 0, 0, 0, 0, high, low] if high != 0 => {
                    format!("::{}", Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)))
                }
                _ => address.to_string(),
            }
        }
        _ => String::new(),
    }
}

/// An address of a network card.
fn mac(bytes: &[u8]) -> String {
    let parts: Vec<String> = bytes.iter().take(6).map(|byte| format!("{byte:02X}")).collect();
    parts.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_inet_ntop_writes_them() {
        let of = |bytes: &[u8]| {
            let mut address = [0; 16];
            address[16 - bytes.len()..].copy_from_slice(bytes);
            inet(AF_INET6, &address)
        };
        assert_eq!(of(&[1]), "::1");
        assert_eq!(of(&[]), "::");
        assert_eq!(of(&[1, 2, 3, 4]), "::1.2.3.4");
        assert_eq!(of(&[0xff, 0xff, 1, 2, 3, 4]), "::ffff:1.2.3.4");
        assert_eq!(of(&[0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]), "fe80::1");
        assert_eq!(inet(AF_INET, &[127, 0, 0, 1, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9]), "127.0.0.1");
        assert_eq!(inet(7, &[0; 16]), "");
        assert_eq!(mac(&[5, 4, 0xab, 2, 1, 2, 9, 9]), "05:04:AB:02:01:02");
    }
}
