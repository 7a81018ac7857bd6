//! Options for exporting metrics.

use std::time::Duration;

use clap::Args;
use export::Target;

use super::values::interval;

/// Where metrics go.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Export {
    /// Give metrics to Prometheus (prometheus:PORT, prometheus:ADDRESS:PORT), or send them to a
    /// collector of OpenTelemetry (otlp:http://HOST:PORT); may be given several times
    ///
    /// Prometheus asks for them, at /metrics; without an address, only this machine is listened to.
    /// OTLP is sent over HTTP as JSON, without TLS. `dprobes help fleet` has the names of the
    /// metrics.
    #[arg(long, value_name = "TARGET")]
    pub(crate) export: Vec<Target>,
    /// The most series that are exported; what is left out is counted
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, requires = "export")]
    pub(crate) export_series: usize,
    /// How often metrics are sent: 10s, 1m
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = interval, requires = "export")]
    pub(crate) export_every: Duration,
}
