//! Gives what is counted to the systems that watch many machines: Prometheus, which asks for it,
//! and OpenTelemetry, to which it is sent; and files to object stores.
//!
//! ```text
//! tracer's thread                        exporters' threads
//!   Answerer  <--- "what is it now?" ---  Asker  <---  Prometheus: GET /metrics  <--- a scrape
//!      |                                    ^
//!      `-- Builder -> Snapshot -------------'    -->  text, written to the socket
//!                                           ^
//!                                           `-----  OTLP: every ten seconds   ---> a collector
//! ```
//!
//! Design constraints:
//!
//! * The tracer waits for nobody. It looks whether a snapshot is wanted, makes one from memory that
//!   it shares with the probed programs, and goes on. Formatting and the network are for other
//!   threads.
//!   Making snapshots takes at most a tenth of its time, however often somebody asks.
//! * Memory and time are bounded: the number of series by an option, a request by its size and a
//!   deadline, an answer by a deadline.
//! * Keys of maps are strings of probed programs, which may be hostile. A label is one line of
//!   visible characters, and the output is well-formed whatever it holds.
//! * What is left out is counted, in a metric of its own.
//!
//! | file | what it contains |
//! |---|---|
//! | `model` | families of series, and a snapshot of all |
//! | `builder` | makes a snapshot: names, labels, the limit |
//! | `names` | names as Prometheus allows them |
//! | `prometheus` | the text format |
//! | `exchange` | how a thread asks the tracer for a snapshot |
//! | `otlp` | OpenTelemetry's protocol: metrics as JSON, and who sends them |
//! | `http` | a server for one page, and a client |
//! | `s3` | files into an object store |
//! | `target` | the argument of `--export` |
//! | `exporters` | the threads |

#![forbid(unsafe_code)]

mod builder;
mod exchange;
mod exporters;
mod http;
mod model;
mod names;
mod otlp;
mod prometheus;
pub mod s3;
mod target;

pub use builder::Builder;
pub use exchange::{Answerer, Asker, exchange};
pub use exporters::{Bound, Exporters};
pub use http::Url;
pub use model::{Family, Kind, Series, Snapshot, Value};
pub use otlp::{Client, Signal, host, resource};
pub use prometheus::text;
pub use target::Target;
