//! Debug information that the file system lacks, from debuginfod servers.
//!
//! If `DEBUGINFOD_URLS` names servers, as for gdb and perf, elfutils' client `debuginfod-find` is
//! asked to fetch a module's debug information into its cache, where crate `image` looks for it.
//! That happens only while a script is compiled, when nothing is probed yet.

use std::env;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Once;
use std::time::Duration;

use image::{DebugTypes, Image, NoTypes};

use crate::messages::tell;
use crate::progress;
use crate::scripts::program_named;

/// The client.
const CLIENT: &str = "debuginfod-find";
/// How often it is looked whether the client has ended.
const LOOK: Duration = Duration::from_millis(20);

/// The types of a module, from its debug information, which is fetched if it is not there.
///
/// # Errors
/// As for [`DebugTypes::read`].
pub(crate) fn types(image: &Image) -> Result<DebugTypes, NoTypes> {
    match DebugTypes::read(image) {
        Err(NoTypes::Missing) if fetch(image) => DebugTypes::read(image),
        read => read,
    }
}

/// Whether servers are named.
pub(crate) fn is_asked() -> bool {
    env::var_os("DEBUGINFOD_URLS").is_some_and(|urls| !urls.as_encoded_bytes().trim_ascii().is_empty())
}

/// The client's program, if it is installed.
pub(crate) fn client() -> Option<PathBuf> {
    program_named(OsStr::new(CLIENT))
}

/// Fetches the debug information of a module. Whether it is there now.
fn fetch(image: &Image) -> bool {
    let Some(build_id) = image.build_id().filter(|_| is_asked()) else { return false };
    let Some(client) = client() else {
        static TOLD: Once = Once::new();
        TOLD.call_once(|| {
            tell("note: DEBUGINFOD_URLS is set, but debuginfod-find (package debuginfod) is not installed");
        });
        return false;
    };
    progress::begin("asking debuginfod servers for debug information");
    let mut command = Command::new(client);
    command.args(["debuginfo", &image::hex(build_id)]);
    let status = wait(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()));
    progress::end();
    // A server that has none is no news: what needs the types says that there are none.
    status.is_ok_and(|status| status.success())
}

fn wait(command: &mut Command) -> std::io::Result<ExitStatus> {
    let mut child = command.spawn()?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        progress::tick();
        std::thread::sleep(LOOK);
    }
}
