//! A packet that is being filled.

use super::metadata::MAGIC;

/// The size of the packet's header and context, before the records.
pub(super) const HEADER: usize = 4 + 16 + 4 + 6 * 8 + 4;

/// Packets begin and end at multiples of this, so that no header spans two memory pages and the
/// kernel copies it as a whole.
pub(super) const ALIGNMENT: usize = 128;

/// The content of a packet's header besides times and sizes.
#[derive(Clone, Copy, Debug)]
pub(super) struct About<'a> {
    pub(super) uuid: &'a [u8; 16],
    pub(super) number: u64,
    pub(super) discarded: u64,
    pub(super) cpu: u32,
}

impl About<'_> {
    /// The header of a packet with these times, `content` bytes, and `whole` bytes with padding.
    pub(super) fn header(&self, (begin, end): (u64, u64), content: u64, whole: u64) -> [u8; HEADER] {
        let numbers = [begin, end, content * 8, whole * 8, self.number, self.discarded];
        let parts = [&MAGIC.to_le_bytes()[..], self.uuid, &[0; 4]];
        let numbers = numbers.into_iter().flat_map(u64::to_le_bytes);
        let bytes = parts.concat().into_iter().chain(numbers).chain(self.cpu.to_le_bytes());
        let mut header = [0; HEADER];
        header.iter_mut().zip(bytes).for_each(|(place, byte)| *place = byte);
        header
    }
}

/// Encoded records, after room for the header.
#[derive(Debug)]
pub(super) struct Packet {
    bytes: Vec<u8>,
    /// The time of each record and its offset.
    starts: Vec<(u64, u32)>,
    /// Whether the records are sorted by time.
    is_sorted: bool,
    /// Scratch memory for sorting.
    sorted: Vec<u8>,
}

impl Packet {
    pub(super) fn new() -> Packet {
        Packet { bytes: vec![0; HEADER], starts: Vec::new(), is_sorted: true, sorted: Vec::new() }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn records(&self) -> u64 {
        self.starts.len() as u64
    }

    /// The least time of a record.
    pub(super) fn begin(&self) -> Option<u64> {
        self.starts.iter().map(|&(time, _)| time).min()
    }

    /// Appends a record. If `encode` fails, the packet is unchanged.
    pub(super) fn push<E>(
        &mut self,
        timestamp: u64,
        encode: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = self.bytes.len();
        encode(&mut self.bytes).inspect_err(|_| self.bytes.truncate(start))?;
        self.is_sorted &= self.starts.last().is_none_or(|&(last, _)| last <= timestamp);
        self.starts.push((timestamp, start as u32));
        Ok(())
    }

    /// Completes the packet. Returns its bytes and the time of its last record; without records,
    /// that is `at`.
    pub(super) fn close(&mut self, about: About<'_>, at: u64) -> (&[u8], u64) {
        self.sort();
        let begin = self.starts.first().map_or(at, |&(time, _)| time);
        let end = self.starts.last().map_or(at, |&(time, _)| time);
        let content = self.bytes.len();
        self.bytes.resize(content.next_multiple_of(ALIGNMENT), 0);
        let header = about.header((begin, end), content as u64, self.bytes.len() as u64);
        self.bytes[..HEADER].copy_from_slice(&header);
        (&self.bytes, end)
    }

    /// Sorts the records by time. The sort is stable.
    fn sort(&mut self) {
        if self.is_sorted {
            return;
        }
        let mut ranges: Vec<(u64, u32, u32)> = Vec::with_capacity(self.starts.len());
        let ends = self.starts.iter().skip(1).map(|&(_, start)| start).chain([self.bytes.len() as u32]);
        ranges.extend(self.starts.iter().zip(ends).map(|(&(time, start), end)| (time, start, end)));
        ranges.sort_by_key(|&(time, ..)| time);
        self.sorted.clear();
        self.sorted.resize(HEADER, 0);
        self.starts.clear();
        for (time, start, end) in ranges {
            self.starts.push((time, self.sorted.len() as u32));
            self.sorted.extend_from_slice(&self.bytes[start as usize..end as usize]);
        }
        std::mem::swap(&mut self.bytes, &mut self.sorted);
        self.is_sorted = true;
    }

    pub(super) fn clear(&mut self) {
        self.bytes.truncate(HEADER);
        self.starts.clear();
        self.is_sorted = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_as_it_is_described() {
        let mut packet = Packet::new();
        for (time, byte) in [(5, 1_u8), (3, 2), (5, 3)] {
            packet
                .push::<()>(time, |out| {
                    out.push(byte);
                    Ok(())
                })
                .expect("it is made");
        }
        assert_eq!(
            packet.push(9, |out| {
                out.push(7);
                Err(())
            }),
            Err(())
        );
        let about = About { uuid: &[0xee; 16], number: 2, discarded: 4, cpu: 1 };
        let (bytes, end) = packet.close(about, 77);
        let mut expected = vec![0xc1, 0x1f, 0xfc, 0xc1];
        expected.extend([0xee; 16]);
        expected.extend([0; 4]);
        for number in [3, 5, (76 + 3) * 8, 128 * 8, 2, 4_u64] {
            expected.extend(number.to_le_bytes());
        }
        expected.extend([1, 0, 0, 0]);
        // Sorted by time.
        expected.extend([2, 1, 3]);
        expected.resize(128, 0);
        assert_eq!((bytes, end), (&*expected, 5));
        packet.clear();
        assert_eq!((packet.records(), packet.close(about, 77).1), (0, 77));
    }
}
