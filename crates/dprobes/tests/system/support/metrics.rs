//! Metrics, as a scraper asks for them.

use super::run::COMMAND_TIMEOUT;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Metrics that are exported somewhere.
pub(crate) struct Metrics {
    /// Address and port.
    address: String,
}

impl Metrics {
    /// Those that a message of dprobes names.
    #[track_caller]
    pub(crate) fn announced(said: &str) -> Metrics {
        let address = said.split_once("http://").and_then(|(_, rest)| rest.split_once("/metrics"));
        Metrics { address: address.unwrap_or_else(|| panic!("no address: {said}")).0.to_owned() }
    }

    /// What is exported now.
    #[track_caller]
    pub(crate) fn text(&self) -> String {
        let answer = self.answer("GET /metrics HTTP/1.1\r\nHost: test\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        body.to_owned()
    }

    /// What is exported once it is so. (Who asks again at once may get the same values once more.)
    #[track_caller]
    pub(crate) fn once(&self, is_so: impl Fn(&str) -> bool) -> String {
        let end = std::time::Instant::now() + COMMAND_TIMEOUT;
        loop {
            let text = self.text();
            if is_so(&text) {
                return text;
            }
            assert!(std::time::Instant::now() < end, "{text}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// The answer to a request.
    #[track_caller]
    pub(crate) fn answer(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("it listens");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("it answers");
        answer
    }

    /// Whether somebody listens there.
    pub(crate) fn is_there(&self) -> bool {
        TcpStream::connect(&self.address).is_ok()
    }
}

/// The value of a sample, by its name and labels.
#[track_caller]
pub(crate) fn value(text: &str, sample: &str) -> f64 {
    let found = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    found.unwrap_or_else(|| panic!("no {sample} in\n{text}")).parse().expect("a number")
}

/// Reads metrics with Prometheus' own library; prints the samples with their kinds, sorted.
pub(crate) const READ: &str = r#"
import sys
from prometheus_client.parser import text_string_to_metric_families
for family in sorted(text_string_to_metric_families(open(sys.argv[1], newline='').read()), key=lambda it: it.name):
    assert family.documentation, family
    for sample in family.samples:
        labels = sorted(sample.labels.items())
        print(family.type, sample.name, *(f'{name}={value!r}' for name, value in labels), float(sample.value))
"#;
