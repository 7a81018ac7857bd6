//! Names with values, and what is said of this machine and process.

use serde_json::{Value, json};

/// The variable with the name of the service, and the one with more attributes, as OpenTelemetry
/// defines them.
const SERVICE: &str = "OTEL_SERVICE_NAME";
const MORE: &str = "OTEL_RESOURCE_ATTRIBUTES";

/// A name with a text.
pub(crate) fn attribute(name: &str, text: &str) -> Value {
    json!({"key": name, "value": {"stringValue": text}})
}

/// A name with a number.
pub(crate) fn number(name: &str, number: i64) -> Value {
    json!({"key": name, "value": {"intValue": number.to_string()}})
}

/// The name of this machine.
pub fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    printable::text(name.trim_end()).into_owned()
}

/// What is told of: the machine, the service with the version of dprobes, and the process.
/// `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` are stronger.
pub fn resource(host: &str, service: &str, pid: u32) -> Value {
    let variable = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
    let given = variable(MORE).map(|text| pairs(&text)).unwrap_or_default();
    let own = [
        ("host.name", host.to_owned()),
        ("service.name", variable(SERVICE).unwrap_or_else(|| service.to_owned())),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
    ];
    let is_own = |name: &str| name == "service.name" && variable(SERVICE).is_some();
    let given: Vec<(String, String)> = given.into_iter().filter(|(name, _)| !is_own(name)).collect();
    let own = own.iter().filter(|(name, _)| given.iter().all(|(other, _)| other != name));
    let mut all: Vec<Value> = own.map(|(name, value)| attribute(name, value)).collect();
    all.push(number("process.pid", pid.into()));
    all.extend(given.iter().map(|(name, value)| attribute(name, value)));
    json!({ "attributes": all })
}

/// The pairs of a list `name=value,name=value`, whose values have bytes as `%2c`.
fn pairs(text: &str) -> Vec<(String, String)> {
    let mut pairs: Vec<(String, String)> = Vec::new();
    for pair in text.split(',') {
        let Some((name, value)) = pair.split_once('=') else { continue };
        let (name, value) = (decoded(name.trim()), decoded(value.trim()));
        // As everywhere: a name is there once.
        if !name.is_empty() && pairs.iter().all(|(other, _)| *other != name) {
            pairs.push((name, value));
        }
    }
    pairs
}

/// A text without its escapes.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, behind @ ..] = rest {
        let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &behind[2..];
            }
            _ => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read_as_opentelemetry_says() {
        let read = pairs("a=1, b=x%2cy%3d ,broken,=no,a=2,c=");
        let read: Vec<String> = read.iter().map(|(name, value)| format!("{name}:{value}")).collect();
        assert_eq!(read, ["a:1", "b:x,y=", "c:"]);
        assert_eq!(decoded("100%"), "100%");
        assert_eq!(decoded("%zz%4"), "%zz%4");
    }

    #[test]
    fn this_process_is_named() {
        let resource = resource("db1", "dprobes", 7).to_string();
        for part in [
            r#"{"key":"host.name","value":{"stringValue":"db1"}}"#,
            r#""service.name""#,
            r#"{"key":"process.pid","value":{"intValue":"7"}}"#,
        ] {
            assert!(resource.contains(part), "{resource}");
        }
    }
}
