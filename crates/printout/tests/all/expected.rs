//! What the scripts of `tests/golden` print: the texts of bpftrace 0.17 there, and where 0.24 prints
//! something else, that.

/// What a script prints, as text and as JSON.
pub(crate) fn expected(name: &str) -> (String, String) {
    let (text, json) = golden(name);
    match name {
        // 0.24 has no space behind the name of a histogram.
        "histogram" | "histograms" | "linear" | "linears" | "buckets" | "bars" | "scalars" => {
            (without_space(&text), json)
        }
        // 0.24 has no empty line behind averages and statistics.
        "average" | "averages" => (without_lines(&text), json),
        "statistics" => (text.strip_suffix('\n').expect("an empty line").to_string(), json),
        "divided" => {
            let text = text.replace("@v[2]: 90\n\n", "@v[2]: 90\n");
            (text.strip_suffix('\n').expect("an empty line").to_string(), json)
        }
        // Numbers that a floating-point number cannot hold are strings in 0.24.
        "integers" => {
            let quoted = |json: String, number: &str| json.replace(number, &format!("\"{number}\""));
            (text, quoted(quoted(json, "-9223372036854775807"), "18446744073709551615"))
        }
        // 0.24 compares keys with their signs.
        "keys" => {
            let text = text.replace("@b[-1]: neg\n", "").replace("@b[9]", "@b[-1]: neg\n@b[9]");
            (text, json.replace("{\"9\"", "{\"-1\": \"neg\", \"9\"").replace(", \"-1\": \"neg\"}", "}"))
        }
        // In 0.24, bytes are a list of numbers in JSON.
        "bytes" => (text, json.replace("\"ok\\\\x07\"", "[111,107,7]")),
        // For an empty map, 0.17 prints an empty line, 0.24 nothing, and an object without fields as JSON.
        "empty" => (text.replacen("\n\n\n", "\n\n", 1), format!("{}{json}", empty("@e"))),
        "selection" => {
            // 0.24 divides before it draws the bars.
            let divided = "[2, 4)                 0 |";
            let text = without_space(&text);
            let (before, after) = text.split_once(divided).expect("a count that becomes 0");
            let after = after.split_once('\n').expect("a line").1;
            let text = format!("{before}{divided}{:52}|\n{after}", "");
            let text = text.strip_suffix("\n\n").expect("two empty maps").to_string();
            (text, format!("{json}{}{}", empty("@a"), empty("@h")))
        }
        _ => (text, json),
    }
}

fn empty(map: &str) -> String {
    format!("{{\"type\": \"map\", \"data\": {{\"{map}\": {{}}}}}}\n")
}

fn without_lines(text: &str) -> String {
    format!("\n\n{}", text.trim_start().replace("\n\n", "\n"))
}

fn without_space(text: &str) -> String {
    text.replace(": \n", ":\n")
}

/// What bpftrace 0.17 prints for a script: text, and JSON without the two empty lines that 0.17
/// prints there too when tracing ends.
fn golden(name: &str) -> (String, String) {
    let read = |end| {
        let path = testing::repository().join(format!("crates/printout/tests/golden/{name}.{end}"));
        std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
    };
    let json: String =
        read("json").lines().filter(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect();
    assert!(!read("txt").is_empty(), "{name}");
    // The elements of a list have no space between them in 0.24.
    (read("txt"), json.replace("}, {", "},{"))
}
