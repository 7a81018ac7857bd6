//! The arguments of `dprobes header`.

use std::path::PathBuf;

use clap::Args;

/// Make a C header of a description of static probes
///
/// The description is one of DTrace's: `provider server { probe request__start(int, char *); };`.
/// The header has a macro for each probe, SERVER_REQUEST_START(id, path), and one that says whether
/// somebody traces it, SERVER_REQUEST_START_ENABLED(). It needs no other header and no library.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dprobes header server.d -o server_probes.h
  gcc -E -x c server.d | dprobes header - -o server_probes.h      with #include and #if
  dprobes list -u ./server                                        the probes of the built program
  dprobes trace 'usdt:./server:server:request__start { printf(\"%d %s\\n\", arg0, str(arg1)); }' -- ./server")]
pub(crate) struct Header {
    /// The description; with - it is read from standard input
    #[arg(value_name = "FILE.d")]
    pub(crate) file: PathBuf,
    /// The header to write [default: standard output]
    #[arg(short, long, value_name = "FILE.h")]
    pub(crate) output: Option<PathBuf>,
}
