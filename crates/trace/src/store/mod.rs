//! A trace on disk: records, and all that is needed to read them when the program is gone.
//!
//! ```no_run
//! # use dprobes_trace::{Record, store::*};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let path = std::path::Path::new("trace.dpt");
//! let mut store = Store::create(path, &About { host: "here".to_owned(), ..About::default() })?;
//! store.fact(&Program { number: 0, module: "libc.so.6".to_owned(), ..Program::default() }.into())?;
//! store.record(0, &Record { word: 8, data: b"what was logged".to_vec(), ..Record::default() })?;
//! store.finish()?;
//!
//! let mut reader = Reader::open(path)?;
//! println!("{} records of {}", reader.info().records, reader.info().about.host);
//! while let Some(item) = reader.next()? {
//!     match item {
//!         Item::Record(entry) => println!("{} {:?}", entry.number, entry.record),
//!         Item::Fact(fact) => println!("{fact:?}"),
//!         Item::Damage(damage) => eprintln!("{damage}"),
//!     }
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # The format
//!
//! A file is a sequence of blocks: a header of 64 bytes with a checksum of its own, and a payload of at most 1 MiB.
//!
//! ```text
//! facts | facts | records | records | facts | records | ... | index | end
//! ```
//!
//! `block` has the layout of the header, `encode` that of records, `facts` that of the rest, `index` that of the last two blocks, which
//! are there only after a clean end; docs/records.md describes them all. A block of records needs no other block: the points
//! and threads that its records have in common stand in it. So blocks can be passed over, and one that is lost takes no other
//! with it.
//!
//! # What is promised
//!
//! * Records stand in the order in which they were handed to [`Store::record`]. The engine hands out what it has read at a time in the
//!   order of time; a record may be older than one that was handed out before it, by no more than [`Info::disorder`].
//! * What was written is read, whatever happened to the writer; what was kept when it was killed, at most a block and no more than
//!   about a second's records, is not.
//! * A file may be anything: it was cut off, parts of it were overwritten, someone wrote it by hand. The reader never panics;
//!   its memory does not grow with the file, nor its time more than twice as fast; what it cannot read it names, with the
//!   offset, and it goes on behind it. Records that were lost leave a gap in the numbers ([`Entry::number`]).
//! * A later version of the format that only adds facts is read, without them; any other is refused by its number.

mod block;
mod bytes;
mod damage;
mod decode;
mod encode;
mod facts;
mod filling;
mod filter;
mod index;
mod info;
mod lookup;
mod reader;
mod scan;
#[cfg(test)]
mod tests;
mod threads;
mod writer;

pub use block::{MARK, VERSION, is_store};
pub use damage::{Damage, Error};
pub use facts::{
    About, Counts, Fact, Gap, Loss, Module, Note, Probe, Program, Site, Source, Template, Thread, Variables,
};
pub(crate) use filling::{Batch, Filling};
pub use filling::{MOST_DATA, MOST_NAME, PATIENCE};
pub use filter::Filter;
pub use info::Info;
pub use lookup::{Lookup, point_name};
pub use reader::{Entry, Item, Reader};
pub(crate) use writer::Blocks;
pub use writer::Store;
