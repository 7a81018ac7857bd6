//! As much of HTTP/1.1 (RFC 9112) as exporting needs.
//!
//! | file | what it contains |
//! |---|---|
//! | `request` | reads the head of a request |
//! | `server` | a server for one page |
//! | `url` | addresses of servers |
//! | `client` | sends a request |
//! | `deadline` | reads and writes that end in time |

mod client;
mod deadline;
mod request;
mod server;
#[cfg(test)]
pub(crate) mod testing;
mod url;

pub(crate) use client::{Answer, Request, post, send};
pub(crate) use server::Server;
pub use url::Url;
