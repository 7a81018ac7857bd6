//! A trace in the Common Trace Format, version 1.8, for babeltrace2, Trace Compass and whatever else reads it.
//!
//! ```no_run
//! # use dprobes_trace::{Items, Record, ctf::Writer, store::About};
//! # fn main() -> std::io::Result<()> {
//! let mut writer = Writer::create("trace".as_ref(), &About { host: "here".to_owned(), ..About::default() })?;
//! writer.probe(0, 0, "libc.so.6:malloc:entry", Items::ALL);
//! writer.record(0, &Record { word: 8, data: b"what was logged".to_vec(), ..Record::default() })?;
//! writer.discarded(3);
//! writer.finish()?;
//! # Ok(())
//! # }
//! ```
//!
//! # What is written
//!
//! A directory: `metadata`, which describes the rest in text, and a file for each processor, `cpu_0` and so on. Such a file is a
//! sequence of packets, each of about 256 KiB or the records of about a second:
//!
//! ```text
//! magic             4    0xc1fc1fc1
//! uuid             16    the trace's own
//! stream_id         4    0: there is one kind of stream
//! timestamp_begin   8    the time of the first record
//! timestamp_end     8    the time of the last one
//! content_size      8    in bits, as CTF counts
//! packet_size       8    the same, with what fills it up to a multiple of 128 bytes
//! packet_seq_num    8    0, 1, 2, ... in each file
//! events_discarded  8    records that were lost so far, as far as this file tells them
//! cpu_id            4
//! records ...
//! ```
//!
//! and a record is
//!
//! ```text
//! id                2    the event class: which probe, and what it logs
//! timestamp         8    nanoseconds of the clock that `metadata` describes
//! context                the codes, the thread, and the header items that the program has
//! fields                 what was logged
//! ```
//!
//! All numbers are little-endian and begin at whole bytes. `class` has the context, `fields` what was logged: values with names and types
//! where there is a template for the record's codes, else all bytes, `data`.
//!
//! # What is promised
//!
//! * Every record is there with all its bytes. One that is not as its template says (a value could not be read, or the data ended) has
//!   them as `data`; bytes behind those that a template names are `rest`.
//! * Times never go back in a file. Records that come in another order are sorted in their packet. Those that come when a packet with
//!   later ones is written already go to another file of the same processor (`cpu_0_1`), so that readers, which merge files by time,
//!   show all in order. A record's time is changed only if it cannot be put at any place; how often is counted ([`Summary::adjusted`]).
//! * Whenever the writer is killed, its trace can be read: all packets that were written are there as a whole, and behind them at most an
//!   empty one (`stream`). What is in no packet yet is lost: less than 256 KiB for each processor, and no more than about a second's records
//!   if [`Writer::idle`] is called. What was described in `metadata` was so before the first record of its kind.
//! * The numbers of discarded records add up to those that were told ([`Writer::discarded`]), and those that could not be written.

mod class;
mod classes;
mod fields;
mod metadata;
mod packet;
mod stream;
mod streams;
mod writer;

pub use writer::{Summary, Writer};
