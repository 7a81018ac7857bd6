//! The argument of `--export`: where metrics go.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

use crate::http::Url;

/// Where metrics go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A page for Prometheus, at this address.
    Prometheus(SocketAddr),
    /// A collector of OpenTelemetry, which is sent them.
    Otlp(Url),
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match kind {
            "prometheus" => address(rest).map(Target::Prometheus),
            "otlp" => rest.parse().map(Target::Otlp),
            _ => Err(
                "expected `prometheus:[ADDRESS:]PORT`, such as `prometheus:9464`, or `otlp:URL`, such as \
                      `otlp:http://localhost:4318`"
                    .to_owned(),
            ),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Target::Prometheus(address) => write!(formatter, "prometheus:{address}"),
            Target::Otlp(url) => write!(formatter, "otlp:{url}"),
        }
    }
}

/// An address to listen at. Without one, only this machine is listened to.
fn address(text: &str) -> Result<SocketAddr, String> {
    let text = text.strip_prefix("localhost:").unwrap_or(text);
    let port = text.parse().map(|port: u16| SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    port.ok().or_else(|| text.parse().ok()).ok_or_else(|| {
        "expected a port, or an address and a port: `prometheus:9464` listens on this machine only, \
         `prometheus:0.0.0.0:9464` and `prometheus:[::]:9464` to all"
            .to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_an_address_only_this_machine_is_listened_to() {
        for (text, meant) in [
            ("prometheus:9464", "prometheus:127.0.0.1:9464"),
            ("prometheus:localhost:9464", "prometheus:127.0.0.1:9464"),
            ("prometheus:0.0.0.0:0", "prometheus:0.0.0.0:0"),
            ("prometheus:[::1]:1", "prometheus:[::1]:1"),
            ("otlp:http://a:4318/", "otlp:http://a:4318"),
        ] {
            assert_eq!(text.parse::<Target>().map(|target| target.to_string()), Ok(meant.to_owned()));
        }
        for bad in [
            "",
            "prometheus",
            "prometheus:",
            "prometheus:65536",
            "prometheus:host",
            "statsd:1",
            "otlp:",
            "otlp:a:1",
            "otlp:https://a",
            "prometheus:-1",
        ] {
            assert!(bad.parse::<Target>().is_err(), "{bad}");
        }
    }
}
