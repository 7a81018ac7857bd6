//! A snapshot as an `ExportMetricsServiceRequest`.
//!
//! | kind | OTLP |
//! |---|---|
//! | counter | Sum, cumulative and monotonic |
//! | gauge | Gauge |
//! | summary | Summary; with numbers below 0 two Sums, `NAME.count` and `NAME.sum`, as a Summary may not have them |
//! | histogram | Histogram, cumulative, without a sum, which is not known |

use serde_json::{Value as Json, json};

use super::attributes::attribute;
use super::resets::Resets;
use crate::model::{Family, Kind, Series, Snapshot, Value};

/// The sums are since the beginning, not since the last request.
const CUMULATIVE: u32 = 2;

/// The request.
pub(crate) fn request(snapshot: &Snapshot, resets: &mut Resets, resource: &Json) -> Vec<u8> {
    let starts = resets.starts(snapshot);
    let time = snapshot.time.to_string();
    let metrics = snapshot.families.iter().zip(&starts).flat_map(|(family, starts)| {
        let points = Points { family, starts, time: &time };
        match &family.kind {
            Kind::Summary { signed: true } => vec![points.counts(), points.sums()],
            kind => vec![points.metric(kind)],
        }
    });
    let metrics: Vec<Json> = metrics.collect();
    let scope = json!({"name": "dprobes", "version": env!("CARGO_PKG_VERSION")});
    let metrics = json!({"scope": scope, "metrics": metrics});
    json!({"resourceMetrics": [{"resource": resource, "scopeMetrics": [metrics]}]}).to_string().into_bytes()
}

/// A family, with the beginning of each series.
struct Points<'a> {
    family: &'a Family,
    starts: &'a [u64],
    time: &'a str,
}

impl Points<'_> {
    fn metric(&self, kind: &Kind) -> Json {
        let Family { name, help, .. } = self.family;
        let (key, data) = match kind {
            Kind::Counter => ("sum", sum(self.numbers(number), true)),
            Kind::Gauge => ("gauge", json!({ "dataPoints": self.numbers(number) })),
            Kind::Summary { .. } => ("summary", json!({ "dataPoints": self.points(summary) })),
            Kind::Histogram(bounds) => {
                let points = self.points(|value, point| histogram(bounds, value, point));
                ("histogram", json!({"dataPoints": points, "aggregationTemporality": CUMULATIVE}))
            }
        };
        json!({"name": name, "description": help, "unit": "1", key: data})
    }

    /// How many numbers summaries have.
    fn counts(&self) -> Json {
        let points = self.numbers(|value| match value {
            Value::Summary { count, .. } => Some((*count).into()),
            _ => None,
        });
        let Family { name, help, .. } = self.family;
        json!({"name": format!("{name}.count"), "description": help, "unit": "1", "sum": sum(points, true)})
    }

    /// Their sums, which fall with numbers below 0.
    fn sums(&self) -> Json {
        let points = self.numbers(|value| match value {
            Value::Summary { sum, .. } => Some(*sum),
            _ => None,
        });
        let Family { name, help, .. } = self.family;
        json!({"name": format!("{name}.sum"), "description": help, "unit": "1", "sum": sum(points, false)})
    }

    /// The points of numbers.
    fn numbers(&self, of: impl Fn(&Value) -> Option<i128>) -> Vec<Json> {
        self.points(|value, point| {
            let Some(number) = of(value) else { return };
            // A number of 64 bits with its sign; what is greater has no place but a double.
            match i64::try_from(number) {
                Ok(number) => point["asInt"] = number.to_string().into(),
                Err(_) => point["asDouble"] = (number as f64).into(),
            }
        })
    }

    /// The points, to which `fill` adds the values.
    fn points(&self, fill: impl Fn(&Value, &mut Json)) -> Vec<Json> {
        let point = |(Series { labels, value }, start): (&Series, &u64)| {
            let labels: Vec<Json> = labels.iter().map(|(name, value)| attribute(name, value)).collect();
            let mut point = json!({"attributes": labels, "timeUnixNano": self.time});
            if self.family.kind != Kind::Gauge {
                point["startTimeUnixNano"] = start.to_string().into();
            }
            fill(value, &mut point);
            point
        };
        self.family.series.iter().zip(self.starts).map(point).collect()
    }
}

fn number(value: &Value) -> Option<i128> {
    match value {
        Value::Number(number) => Some(*number),
        _ => None,
    }
}

fn sum(points: Vec<Json>, monotonic: bool) -> Json {
    json!({"dataPoints": points, "aggregationTemporality": CUMULATIVE, "isMonotonic": monotonic})
}

fn summary(value: &Value, point: &mut Json) {
    if let Value::Summary { count, sum } = value {
        point["count"] = count.to_string().into();
        point["sum"] = (*sum as f64).into();
    }
}

fn histogram(bounds: &[i128], value: &Value, point: &mut Json) {
    if let Value::Histogram { counts, .. } = value {
        let all = counts.iter().fold(0_u64, |sum, count| sum.saturating_add(*count));
        point["count"] = all.to_string().into();
        point["bucketCounts"] = counts.iter().map(u64::to_string).collect();
        point["explicitBounds"] = bounds.iter().map(|bound| *bound as f64).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Builder;

    /// All kinds, as a request.
    fn sample() -> Json {
        let labels = vec![("comm".to_owned(), "a\"\n".to_owned())];
        let family = |name: &str, kind, value| Family {
            name: name.into(),
            help: "Help.".into(),
            kind,
            series: vec![Series { labels: labels.clone(), value }],
        };
        let mut builder = Builder::new(100);
        builder.add(family("c", Kind::Counter, Value::Number(u64::MAX.into())));
        builder.add(family("g", Kind::Gauge, Value::Number(-3)));
        builder.add(family("s", Kind::Summary { signed: false }, Value::Summary { count: 2, sum: 7 }));
        builder.add(family("t", Kind::Summary { signed: true }, Value::Summary { count: 2, sum: -7 }));
        let counts = Value::Histogram { counts: vec![1, 0, 2], sum: 9.5 };
        builder.add(family("h", Kind::Histogram(vec![-1, 3]), counts));
        let snapshot = builder.finish(5, 9);
        let resource = json!({"attributes": []});
        let request = request(&snapshot, &mut Resets::default(), &resource);
        serde_json::from_slice(&request).expect("JSON")
    }

    #[test]
    fn each_kind_has_its_message() {
        let sample = sample();
        let metrics = sample["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().expect("metrics");
        let names: Vec<&str> = metrics.iter().filter_map(|metric| metric["name"].as_str()).collect();
        assert_eq!(names, ["c", "g", "s", "t.count", "t.sum", "h"]);
        let point = |index: usize, kind: &str| {
            let mut point = metrics[index][kind]["dataPoints"][0].clone();
            let attribute = json!([{"key": "comm", "value": {"stringValue": "a\"\\x0a"}}]);
            assert_eq!(point["attributes"].take(), attribute);
            point.as_object_mut().expect("an object").remove("attributes");
            point
        };
        let counted = |more: Json| {
            let mut all = json!({"startTimeUnixNano": "5", "timeUnixNano": "9"});
            let more = more.as_object().expect("an object").clone();
            all.as_object_mut().expect("an object").extend(more);
            all
        };
        assert_eq!(point(0, "sum"), counted(json!({"asDouble": u64::MAX as f64})));
        assert_eq!(
            (&metrics[0]["sum"]["isMonotonic"], &metrics[0]["sum"]["aggregationTemporality"]),
            (&true.into(), &2.into())
        );
        assert_eq!(point(1, "gauge"), json!({"timeUnixNano": "9", "asInt": "-3"}));
        assert_eq!(point(2, "summary"), counted(json!({"count": "2", "sum": 7.0})));
        assert_eq!(point(3, "sum"), counted(json!({"asInt": "2"})));
        assert_eq!(point(4, "sum"), counted(json!({"asInt": "-7"})));
        assert_eq!(metrics[4]["sum"]["isMonotonic"], false);
        let buckets = json!({"count": "3", "bucketCounts": ["1", "0", "2"], "explicitBounds": [-1.0, 3.0]});
        assert_eq!(point(5, "histogram"), counted(buckets));
        assert_eq!(metrics[5]["histogram"]["aggregationTemporality"], 2);
    }
}
