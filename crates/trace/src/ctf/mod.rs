//! Writes a trace in the Common Trace Format (CTF), version 1.8, which babeltrace2, Trace Compass
//! and others read.
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
//! # Output
//!
//! A directory with `metadata`, a text that describes the rest, and a file for each processor,
//! `cpu_0` and so on. Such a file is a sequence of packets, each of about 256 KiB or with the
//! records of about a second:
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
//! A record is
//!
//! ```text
//! id                2    the event class: which probe, and what it logs
//! timestamp         8    nanoseconds of the clock that `metadata` describes
//! context                the codes, the thread, and the header items that the program has
//! fields                 what was logged
//! ```
//!
//! All numbers are little-endian and byte-aligned. `class` has the context, `fields` the logged
//! data: values with names and types if there is a template for the record's codes, else all bytes
//! as `data`.
//!
//! # Guarantees
//!
//! * Every record has all its bytes. A record that does not match its template (a value could not
//!   be read, or the data ended) has them as `data`; bytes after the template's fields are `rest`.
//! * Times never decrease in a file. Records of a packet are sorted. A record that is older than a
//!   packet that is already written goes to another file of the same processor (`cpu_0_1`); readers
//!   merge files by time. A record's time is changed only if no file can take it;
//!   [`Summary::adjusted`] counts these.
//! * The trace can be read whenever the writer is killed: all written packets are whole, with at
//!   most an empty one after them (`stream`). Records that are in no packet yet are lost: less than
//!   256 KiB for each processor, and no more than about a second's if [`Writer::idle`] is called.
//!   `metadata` describes each class before its first record.
//! * The counts of discarded records add up to those passed to [`Writer::discarded`] and those that
//!   could not be written.

mod class;
mod classes;
mod fields;
mod metadata;
mod packet;
mod stream;
mod streams;
mod writer;

pub use writer::{Summary, Writer};
