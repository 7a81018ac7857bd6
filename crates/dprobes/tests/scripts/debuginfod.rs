//! Debug information that a debuginfod server has: here Python's web server, asked by elfutils' client.

use super::support::{Scratch, dprobes};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use testing::Trials;

/// Adds the tests.
pub(crate) fn add(trials: &mut Trials) {
    trials.add("debuginfod: types of a program without debug information", || {
        for tool in ["gcc", "objcopy", "strip", "readelf", "python3", "debuginfod-find"] {
            if testing::find_program(tool).is_none() {
                return testing::skipped("trace: types: debuginfod", tool);
            }
        }
        fetched(&Scratch::new());
    });
}

const SERVER: &str = "
import functools, http.server, sys
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), handler)
print(server.server_port, flush=True)
server.serve_forever()
";

/// A web server, until it is dropped.
struct Server(Child, String);

impl Server {
    fn start(folder: &Path) -> Server {
        let mut command = Command::new("python3");
        command.args(["-c", SERVER]).arg(folder).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("started");
        let mut port = String::new();
        let output = child.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut port).expect("a port");
        Server(child, format!("http://127.0.0.1:{}", port.trim()))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A program that calls a function, and the file with its debug information, which it lacks.
fn stripped(scratch: &Scratch) -> (PathBuf, PathBuf) {
    let source = scratch.file(
        "asked.c",
        "__attribute__((noipa)) int asked(int number, const char *name) { return number + name[0]; }\n\
         int main(void) { return asked(-7, \"name\") != 103; }\n",
    );
    let [program, debug] = ["asked", "asked.debug"].map(|name| scratch.path().join(name));
    let compiled =
        Command::new("gcc").args(["-g", "-Wl,--build-id", "-o"]).arg(&program).arg(source).status();
    assert!(compiled.is_ok_and(|status| status.success()));
    testing::output(Command::new("objcopy").arg("--only-keep-debug").arg(&program).arg(&debug));
    testing::output(Command::new("strip").arg("--strip-debug").arg(&program));
    (program, debug)
}

fn build_id(program: &Path) -> String {
    let notes = testing::output(Command::new("readelf").arg("-n").arg(program));
    let id = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: "));
    id.expect("a build-id").to_owned()
}

fn fetched(scratch: &Scratch) {
    let (program, debug) = stripped(scratch);
    let folder = scratch.path().join("www");
    let server = Server::start(scratch.path());
    let url = format!("{}/www", server.1);
    let script = format!(
        "uprobe:{}:asked {{ printf(\"%d %s\\n\", args.number, str(args.name)); }}",
        program.display()
    );
    let trace = |urls: Option<&str>| {
        let mut command = dprobes();
        command.args(["trace", "-q", &script, "--"]).arg(&program);
        command.env("DEBUGINFOD_CACHE_PATH", scratch.path().join("cache")).env("no_proxy", "127.0.0.1");
        command.env_remove("DEBUGINFOD_URLS").envs(urls.map(|urls| ("DEBUGINFOD_URLS", urls)));
        let output = command.output().expect("it runs");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
        (text(output.stdout), text(output.stderr))
    };
    let (printed, said) = trace(None);
    assert!(printed.is_empty() && said.contains("no debug information"), "{printed}{said}");
    // A server that has something else at that place.
    let place = folder.join("buildid").join(build_id(&program));
    std::fs::create_dir_all(&place).expect("made");
    std::fs::write(place.join("debuginfo"), "no program").expect("written");
    let (printed, said) = trace(Some(&url));
    assert!(printed.is_empty() && said.contains("no debug information"), "{printed}{said}");
    std::fs::remove_dir_all(scratch.path().join("cache")).expect("it was fetched");
    std::fs::copy(debug, place.join("debuginfo")).expect("copied");
    let (printed, said) = trace(Some(&url));
    assert_eq!(printed.trim(), "-7 name", "{said}");
    // What was fetched stays, and is found without a server.
    drop(server);
    let (printed, said) = trace(None);
    assert_eq!(printed.trim(), "-7 name", "{said}");
}
