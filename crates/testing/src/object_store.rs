//! An object store that others have written: moto's, if the Python that `DPROBES_PYTHON` names has
//! it. It checks the signature of each request.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::find_program;

/// What a test of it needs.
pub const NEEDS: &str = "the Python module moto with its server (DPROBES_PYTHON)";

/// An object store with the bucket `traces`, until it is dropped.
#[derive(Debug)]
pub struct ObjectStore {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// Its address.
    pub url: String,
    /// A key, in two parts, that may do all.
    pub key: [String; 2],
    /// A key that may not write.
    pub other_key: [String; 2],
}

impl ObjectStore {
    /// Starts one. `None`: the Python of this machine has none.
    ///
    /// # Panics
    /// It does not start.
    pub fn start() -> Option<ObjectStore> {
        let named = std::env::var_os("DPROBES_PYTHON").map(PathBuf::from);
        let python = named.or_else(|| find_program("python3"))?;
        let has = Command::new(&python).args(["-c", "import boto3, moto.server"]).output().ok()?;
        if !has.status.success() {
            return None;
        }
        let mut command = Command::new(python);
        command.args(["-c", include_str!("object_store.py")]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("Python is started");
        let input = child.stdin.take();
        let mut output = BufReader::new(child.stdout.take().expect("it is a pipe"));
        let mut line = String::new();
        output.read_line(&mut line).expect("it says where it is");
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let [url, first, second, other, secret] = <[String; 5]>::try_from(words).expect("it says five words");
        Some(ObjectStore { child, input, output, url, key: [first, second], other_key: [other, secret] })
    }

    /// The variables of the environment that name it, with a key.
    pub fn variables(&self, [first, second]: &[String; 2]) -> Vec<(&'static str, String)> {
        vec![
            ("AWS_ENDPOINT_URL", self.url.clone()),
            ("AWS_REGION", "eu-west-1".to_owned()),
            ("AWS_ACCESS_KEY_ID", first.clone()),
            ("AWS_SECRET_ACCESS_KEY", second.clone()),
        ]
    }

    /// Its objects: name, length, SHA-256.
    pub fn objects(&mut self) -> Vec<String> {
        self.ask("objects")
    }

    /// The names of objects of which it has parts only.
    pub fn uploads(&mut self) -> Vec<String> {
        self.ask("uploads")
    }

    fn ask(&mut self, question: &str) -> Vec<String> {
        writeln!(self.input.as_ref().expect("it is not dropped"), "{question}").expect("it listens");
        let lines = (&mut self.output).lines().map(|line| line.expect("it answers"));
        lines.take_while(|line| line != ".").collect()
    }
}

impl Drop for ObjectStore {
    fn drop(&mut self) {
        // It ends with its input; its server's thread does not keep it.
        drop(self.input.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
