//! OTLP, OpenTelemetry's protocol, over HTTP with JSON: the messages of its protocol buffers in
//! their form as JSON, where numbers of 64 bits are strings.
//!
//! | file | what it contains |
//! |---|---|
//! | `attributes` | names with values, and what is said of this process |
//! | `metrics` | a snapshot as a request |
//! | `resets` | since when a series counts |
//! | `client` | sends a request, again if that may help |
//! | `pusher` | sends the metrics at intervals |

mod attributes;
mod client;
mod metrics;
mod pusher;
mod resets;

pub use attributes::{host, resource};
pub use client::{Client, Signal};
pub(crate) use pusher::Pusher;
