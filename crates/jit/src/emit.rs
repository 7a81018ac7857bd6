//! Machine code as bytes: the few x86-64 instructions that compiled handlers are made of.
//!
//! A probed process may have tens of thousands of handlers, each compiled for its site: what an instruction becomes is
//! appended without any form in between. The tests decode all of it again with a decoder that is not ours.
//!
//! Code is written in two streams. The hot one is what runs when nothing unusual happens; it ends where the displaced
//! instruction begins. The cold one is all else. Both, and the descriptors of restartable sequences before them, become
//! one piece ([`Emitter::finish`]): descriptors, cold, hot.

/// A place in the code, bound or yet to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Label(usize);

/// A stream of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Cold = 0,
    Hot = 1,
}

/// Bytes of a restartable sequence's descriptor.
pub(crate) const DESCRIPTOR: usize = 32;

/// A restartable sequence: where it starts, where its last instruction ends, and where it aborts to.
#[derive(Clone, Copy, Debug)]
struct Sequence {
    start: Label,
    end: Label,
    abort: Label,
}

/// A field of 4 bytes that is to hold the distance from its end.
#[derive(Clone, Copy, Debug)]
struct Distance {
    stream: Stream,
    at: usize,
    to: Target,
}

/// What a distance is to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    Label(Label),
    Descriptor(usize),
}

/// Bytes that hold the site's address: offsets of little-endian fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiteField {
    /// All 64 bits.
    Word(u32),
    /// The lower 32 bits, and the upper ones elsewhere.
    Halves(u32, u32),
}

impl SiteField {
    /// The same field in code of which this is a part that begins at an offset.
    #[must_use]
    pub fn behind(self, start: u32) -> SiteField {
        match self {
            SiteField::Word(at) => SiteField::Word(start + at),
            SiteField::Halves(low, high) => SiteField::Halves(start + low, start + high),
        }
    }

    /// The bytes from its first to its last: offsets.
    pub fn range(self) -> std::ops::Range<u32> {
        match self {
            SiteField::Word(at) => at..at + 8,
            SiteField::Halves(low, high) => low.min(high)..low.max(high) + 4,
        }
    }

    /// Adds to the address that the field holds in these bytes.
    ///
    /// # Panics
    /// The field is not in them.
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

/// A field in the stream that it was written to.
#[derive(Clone, Copy, Debug)]
struct InStream(Stream, SiteField);

/// Where to go back to.
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
    /// Whether the site's address is anywhere else than in these fields.
    pub(crate) is_fixed: bool,
}

/// Code that is complete but for the address it will lie at.
#[derive(Debug)]
pub(crate) struct Finished {
    /// The bytes.
    pub(crate) bytes: Vec<u8>,
    /// The offsets of words of 8 bytes to which the address is to be added.
    pub(crate) addresses: Vec<u32>,
    /// Where the site's address is, if it is nowhere else.
    pub(crate) site_fields: Option<Vec<SiteField>>,
    /// Where the streams begin.
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
    /// No code.
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

    /// Notes that the field that ends here holds the site's address.
    pub(crate) fn note_site(&mut self, field: SiteField) {
        self.site_fields.push(InStream(self.current, field));
    }

    /// A label that is not bound yet.
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Binds a label to this place.
    pub(crate) fn bind(&mut self, label: Label) {
        debug_assert!(self.labels[label.0].is_none(), "a label is one place");
        self.labels[label.0] = Some((self.current, self.here()));
    }

    /// A label for this place.
    pub(crate) fn here_label(&mut self) -> Label {
        let label = self.label();
        self.bind(label);
        label
    }

    /// Bytes of the current stream.
    pub(crate) fn here(&self) -> usize {
        self.streams[self.current as usize].len()
    }

    /// Bytes of both streams.
    pub(crate) fn size(&self) -> usize {
        self.streams.iter().map(Vec::len).sum()
    }

    /// Goes on in a stream; gives the one before.
    pub(crate) fn switch(&mut self, stream: Stream) -> Stream {
        core::mem::replace(&mut self.current, stream)
    }

    /// Goes on in another stream for a while; where that is the current one, it is jumped over.
    pub(crate) fn aside(&mut self, stream: Stream) -> Aside {
        let over = (stream == self.current).then(|| {
            let over = self.label();
            self.jump(over);
            over
        });
        Aside { before: self.switch(stream), over }
    }

    /// Goes back.
    pub(crate) fn back(&mut self, aside: Aside) {
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

    /// A restartable sequence.
    pub(crate) fn sequence(&mut self, start: Label, end: Label, abort: Label) -> usize {
        self.sequences.push(Sequence { start, end, abort });
        self.sequences.len() - 1
    }

    /// Takes back a jump that was just written, if it goes to what is to be bound here.
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

    /// A field that is to hold the distance from its end.
    pub(crate) fn distance(&mut self, to: Target) {
        self.distances.push(Distance { stream: self.current, at: self.here(), to });
        self.bytes(&[0; 4]);
    }

    /// The whole: descriptors, cold code, hot code.
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
