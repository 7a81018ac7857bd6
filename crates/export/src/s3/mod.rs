//! Files straight into an object store that speaks the S3 protocol.
//!
//! ```text
//! Address    s3://BUCKET/PREFIX         where
//! Settings   AWS_ENDPOINT_URL, ...      by which server, as whom
//! Bucket     signed requests            again, a bounded number of times, if that may help
//! Uploads    parts of 8 MiB and more    kept by the store until all files are whole
//!            commit                     objects, all at the end
//! ```
//!
//! An object appears as a whole or not at all: the store makes it from the parts that it has only
//! when it is told to. Each request's body is signed, so that no other one is taken for it, though
//! there is no TLS.
//!
//! | file | what it contains |
//! |---|---|
//! | `address` | where objects go |
//! | `settings` | the server and the key, by variables of the environment |
//! | `sign` | Signature Version 4 |
//! | `bucket` | requests, and what may pass |
//! | `answers` | what a store says, and what to do about it |
//! | `uploads` | files in parts |

mod address;
mod answers;
mod bucket;
mod settings;
mod sign;
mod uploads;

pub use address::Address;
pub use bucket::Bucket;
pub use settings::Settings;
pub use uploads::{Upload, Uploads};
