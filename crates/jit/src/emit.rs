//! Encodes machine code: the few x86-64 instructions that compiled handlers use.
//!
//! A process may have tens of thousands of handlers, each compiled for its site, so instructions
//! are encoded directly without an intermediate form. Tests decode them with an independent
//! decoder.
//!
//! There are two streams. The hot one is the normal path; it ends where the displaced instruction
//! begins. The cold one is the rest. [`Emitter::finish`] joins them to one block: descriptors of
//! restartable sequences, cold, hot.

/// A place in the code, bound now or later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Label(usize);

/// A stream of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Cold = 0,
    Hot = 1,
}

/// The length of a restartable sequence's descriptor.
pub(crate) const DESCRIPTOR: usize = 32;

/// A restartable sequence: start, end of the last instruction, abort target.
#[derive(Clone, Copy, Debug)]
struct Sequence {
    start: Label,
    end: Label,
    abort: Label,
}

/// A 4-byte field for the distance from its end to a target.
#[derive(Clone, Copy, Debug)]
struct Distance {
    stream: Stream,
    at: usize,
    to: Target,
}

/// The target of a distance.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    Label(Label),
    Descriptor(usize),
}

/// Bytes that hold the site's address, as offsets of little-endian fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteField {
    /// All 64 bits.
    Word(u32),
    /// The low and high 32 bits in two places.
    Halves(u32, u32),
}

impl SiteField {
    /// The same field in code that contains this code at offset `start`.
    #[must_use]
    pub fn behind(self, start: u32) -> SiteField {
        match self {
            SiteField::Word(at) => SiteField::Word(start + at),
            SiteField::Halves(low, high) => SiteField::Halves(start + low, start + high),
        }
    }

    /// The offsets from its first byte to its last.
    pub fn range(self) -> std::ops::Range<u32> {
        match self {
            SiteField::Word(at) => at..at + 8,
            SiteField::Halves(low, high) => low.min(high)..low.max(high) + 4,
        }
    }

    /// Adds `by` to the address that the field holds in `bytes`.
    ///
    /// # Panics
    /// If the field is outside of `bytes`.
    pub fn add(self, by: u64, bytes: &mut [u8]) {
        let field = |at: u32, length: usize| at as usize..at as usize + length;
        match self {
            SiteField::Word(at) => {
                let word = &mut bytes[field(at, 8)];
                let address = word.iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte));
                word.copy_from_slice(&address.wrapping_add(by).to_le_bytes());
            }
            SiteField::Halves(low, high) => {
                let half = |at, bytes: &[u8]| {
                    bytes[field(at, 4)].iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte))
                };
                let address = (half(high, bytes) << 32 | half(low, bytes)).wrapping_add(by).to_le_bytes();
                bytes[field(low, 4)].copy_from_slice(&address[..4]);
                bytes[field(high, 4)].copy_from_slice(&address[4..]);
            }
        }
    }
}

/// A field and the stream that contains it.
#[derive(Clone, Copy, Debug)]
struct InStream(Stream, SiteField);

/// How to end a detour into another stream.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aside {
    before: Stream,
    over: Option<Label>,
}

/// Code being written.
#[derive(Debug)]
pub(crate) struct Emitter {
    streams: [Vec<u8>; 2],
    current: Stream,
    labels: Vec<Option<(Stream, usize)>>,
    distances: Vec<Distance>,
    sequences: Vec<Sequence>,
    site_fields: Vec<InStream>,
    /// Whether the site's address also occurs outside of `site_fields`.
    pub(crate) is_fixed: bool,
}

/// Complete code, except for its address.
#[derive(Debug)]
pub(crate) struct Finished {
    /// The bytes.
    pub(crate) bytes: Vec<u8>,
    /// Offsets of 8-byte words to which the address must be added.
    pub(crate) addresses: Vec<u32>,
    /// Where the site's address is, if it is only in such fields.
    pub(crate) site_fields: Option<Vec<SiteField>>,
    /// The offsets of the streams.
    starts: [usize; 2],
    labels: Vec<Option<(Stream, usize)>>,
}

impl Finished {
    /// The offset of a label.
    pub(crate) fn offset(&self, label: Label) -> u32 {
        let (stream, at) = self.labels[label.0].expect("every label that is used is bound");
        (self.starts[stream as usize] + at) as u32
    }
}

impl Emitter {
    /// An emitter without code.
    pub(crate) fn new() -> Emitter {
        Emitter {
            streams: [Vec::with_capacity(256), Vec::with_capacity(256)],
            current: Stream::Hot,
            labels: Vec::with_capacity(32),
            distances: Vec::with_capacity(32),
            sequences: Vec::new(),
            site_fields: Vec::new(),
            is_fixed: false,
        }
    }

    /// Notes that a field of the current stream holds the site's address.
    pub(crate) fn note_site(&mut self, field: SiteField) {
        self.site_fields.push(InStream(self.current, field));
    }

    /// A new, unbound label.
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Binds a label to the current position.
    pub(crate) fn bind(&mut self, label: Label) {
        debug_assert!(self.labels[label.0].is_none(), "a label is one place");
        self.labels[label.0] = Some((self.current, self.here()));
    }

    /// A label for the current position.
    pub(crate) fn here_label(&mut self) -> Label {
        let label = self.label();
        self.bind(label);
        label
    }

    /// The length of the current stream.
    pub(crate) fn here(&self) -> usize {
        self.streams[self.current as usize].len()
    }

    /// The length of both streams.
    pub(crate) fn size(&self) -> usize {
        self.streams.iter().map(Vec::len).sum()
    }

    /// Switches to a stream and returns the previous one.
    pub(crate) fn switch(&mut self, stream: Stream) -> Stream {
        core::mem::replace(&mut self.current, stream)
    }

    /// Switches to a stream temporarily. If it is the current one, emits a jump over the detour.
    pub(crate) fn aside(&mut self, stream: Stream) -> Aside {
        let over = (stream == self.current).then(|| {
            let over = self.label();
            self.jump(over);
            over
        });
        Aside { before: self.switch(stream), over }
    }

    /// Returns from the detour.
    pub(crate) fn end_detour(&mut self, aside: Aside) {
        if let Some(over) = aside.over {
            self.bind(over);
        }
        self.switch(aside.before);
    }

    /// Appends a byte.
    pub(crate) fn byte(&mut self, byte: u8) {
        self.streams[self.current as usize].push(byte);
    }

    /// Appends bytes.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.streams[self.current as usize].extend_from_slice(bytes);
    }

    /// Adds a restartable sequence and returns its number.
    pub(crate) fn sequence(&mut self, start: Label, end: Label, abort: Label) -> usize {
        self.sequences.push(Sequence { start, end, abort });
        self.sequences.len() - 1
    }

    /// Removes the jump just emitted if it goes to `to`, which is bound here next.
    pub(crate) fn drop_jump(&mut self, to: Label) {
        let here = self.here();
        let stream = &mut self.streams[self.current as usize];
        if let Some(Distance { stream: in_stream, at, to: Target::Label(label) }) = self.distances.last()
            && *in_stream == self.current
            && *at + 4 == here
            && *label == to
            && stream[*at - 1] == 0xe9
            && !self.labels.contains(&Some((self.current, here)))
        {
            stream.truncate(at - 1);
            self.distances.pop();
        }
    }

    /// Appends a 4-byte field for the distance from its end to a target.
    pub(crate) fn distance(&mut self, to: Target) {
        self.distances.push(Distance { stream: self.current, at: self.here(), to });
        self.bytes(&[0; 4]);
    }

    /// Joins descriptors, cold code and hot code, and fills in all distances.
    pub(crate) fn finish(self) -> Finished {
        let Emitter { streams: [cold, hot], labels, distances, sequences, site_fields, is_fixed, .. } = self;
        let starts = [sequences.len() * DESCRIPTOR, sequences.len() * DESCRIPTOR + cold.len()];
        let placed = |InStream(stream, field): &InStream| field.behind(starts[*stream as usize] as u32);
        let site_fields = (!is_fixed).then(|| site_fields.iter().map(placed).collect());
        let mut bytes = vec![0; starts[0]];
        bytes.reserve_exact(cold.len() + hot.len());
        bytes.extend_from_slice(&cold);
        bytes.extend_from_slice(&hot);
        let mut finished = Finished { bytes, addresses: Vec::new(), site_fields, starts, labels };
        for Distance { stream, at, to } in distances {
            let at = starts[stream as usize] + at;
            let target = match to {
                Target::Label(label) => finished.offset(label) as usize,
                Target::Descriptor(number) => number * DESCRIPTOR,
            };
            let distance = target.wrapping_sub(at + 4) as i32;
            finished.bytes[at..at + 4].copy_from_slice(&distance.to_le_bytes());
        }
        for (number, sequence) in sequences.iter().enumerate() {
            // Version and flags are 0.
            let [start, end, abort] =
                [sequence.start, sequence.end, sequence.abort].map(|label| u64::from(finished.offset(label)));
            let at = number * DESCRIPTOR;
            for (field, value) in [(8, start), (16, end - start), (24, abort)] {
                finished.bytes[at + field..at + field + 8].copy_from_slice(&value.to_le_bytes());
            }
            finished.addresses.extend([at as u32 + 8, at as u32 + 24]);
        }
        finished
    }
}
