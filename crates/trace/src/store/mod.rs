//! The trace store: a file with records and the facts that are needed to read them later.
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
//! A file is a sequence of blocks: a header of 64 bytes with a checksum of its own, and a payload
//! of at most 1 MiB.
//!
//! ```text
//! facts | facts | records | records | facts | records | ... | index | end
//! ```
//!
//! `block` has the layout of the header, `encode` that of records, `facts` that of the rest,
//! `index` that of the last two blocks, which exist only after a clean end; docs/records.md
//! describes them all. A block of records can be decoded alone, because it contains the points and
//! threads to which its records refer. So a reader can skip blocks, and a lost block affects no
//! other.
//!
//! # Guarantees
//!
//! * Records are in the order in which they were given to [`Store::record`]. The engine sorts by
//!   time only what it has read at once; a record may be older than one before it by at most
//!   [`Info::disorder`].
//! * All that was written can be read, however the writer ended. If it was killed, what it kept is
//!   lost: at most a block, and no more than about a second's records.
//! * A file may be cut off, overwritten in part, or forged. The reader never panics. Its memory
//!   does not grow with the file, and its time grows at most twice as fast as the file. It reports
//!   what it cannot read, with the offset, and continues after it. Lost records leave a gap in the
//!   numbers ([`Entry::number`]).
//! * A later version of the format that only adds facts is read without them; any other is refused
//!   by its version number.

mod batch_builder;
mod block;
mod bytes;
mod damage;
mod decode;
mod encode;
mod facts;
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

pub use batch_builder::{BLOCK_TIMEOUT, MAX_DATA, MAX_NAME};
pub(crate) use batch_builder::{Batch, BatchBuilder};
pub use block::{MARK, VERSION, is_store};
pub use damage::{Damage, Error};
pub use facts::{
    About, Counts, Fact, Gap, Loss, Module, Note, Probe, Program, Site, Source, Template, Thread, Variables,
};
pub use filter::Filter;
pub use info::Info;
pub use lookup::{Lookup, point_name};
pub use reader::{Entry, Item, Reader};
pub(crate) use writer::BlockWriter;
pub use writer::Store;
