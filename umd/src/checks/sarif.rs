// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reports as SARIF 2.1.0, which code hosting sites show beside the source.

use serde_json::{Value, json};
use strum::VariantArray;

use super::report::{Report, Rule};

const SCHEMA: &str = "https://json.schemastore.org/sarif-2.1.0.json";

/// The document.
pub fn text(reports: &[&Report]) -> String {
    let id = |rule: Rule| <&str>::from(rule);
    let rules: Vec<Value> = Rule::VARIANTS
        .iter()
        .map(|&rule| json!({ "id": id(rule), "shortDescription": { "text": rule.text() } }))
        .collect();
    let results: Vec<Value> = reports.iter().map(|report| result(report)).collect();
    let document = json!({
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": {
                "name": "tally",
                "version": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            "results": results,
        }],
    });
    serde_json::to_string_pretty(&document).expect("only strings are keys")
}

fn result(report: &Report) -> Value {
    let rule: &str = report.rule.into();
    let mut result = json!({
        "ruleId": rule,
        "level": "error",
        "message": { "text": report.text() },
        "occurrenceCount": report.count,
    });
    let place = report.place.as_ref();
    if let Some((place, file)) = place.and_then(|place| Some((place, place.file.as_ref()?))) {
        let mut region = json!({ "startLine": place.line });
        if place.column != 0 {
            region["startColumn"] = json!(place.column);
        }
        if let Some(text) = &place.text {
            region["snippet"] = json!({ "text": text });
        }
        result["locations"] = json!([{
            "physicalLocation": { "artifactLocation": { "uri": uri(file) }, "region": region },
            "logicalLocations": [{ "fullyQualifiedName": place.function, "kind": "function" }],
        }]);
    }
    result
}

/// A path as a URI reference: absolute ones are files.
fn uri(path: &str) -> String {
    let mut out = String::new();
    if path.starts_with('/') {
        out += "file://";
    }
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'.' | b'-' | b'_' | b'~' => {
                out.push(char::from(byte));
            }
            _ => out += &format!("%{byte:02X}"),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::uri;

    #[test]
    fn paths_become_uris() {
        assert_eq!(uri("/a b/k.cl"), "file:///a%20b/k.cl");
        assert_eq!(uri("src/k.cl"), "src/k.cl");
    }
}
