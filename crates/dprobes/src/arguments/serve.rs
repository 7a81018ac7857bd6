//! The arguments of `dprobes serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;

use super::values::address;

/// Show a trace store in the browser, also while it is written
///
/// Prints an address and answers there until it is interrupted. The page has rates over time, a
/// heat map of how long functions took, the calls as a flame graph, tables of functions, probes,
/// processes and threads, and the records, with filters; while the store grows, it follows. The
/// address has a key: whoever has it sees the trace.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes serve trace.dpt
  dprobes attach -p 4711 --at a.out:serve --at a.out:serve:return -o trace.dpt &
  dprobes serve trace.dpt                        what is traced just now
  dprobes serve trace.dpt --listen 8080          at a port of one's choice
  ssh -L 8080:127.0.0.1:8080 host dprobes serve trace.dpt --listen 8080    from another machine")]
pub(crate) struct Serve {
    /// The trace store
    #[arg(value_name = "FILE.dpt")]
    pub(crate) file: PathBuf,
    /// The address to listen on: ADDRESS:PORT, or one of both; without a port, a free one is taken
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", value_parser = address)]
    pub(crate) listen: SocketAddr,
}
