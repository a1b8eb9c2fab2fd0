//! The parameters that a JSON Schema declares, also in schemas that it refers to or combines.

use serde_json::Value;
use std::collections::BTreeSet;

/// Schemas that together describe one value.
const COMBINED: usize = 64;

/// Keywords of a whole schema behind which there may be properties that are not found here.
const ELSEWHERE: [&str; 6] = [
    "$ref",
    "$dynamicRef",
    "then",
    "else",
    "dependentSchemas",
    "unevaluatedProperties",
];

/// These schemas, and those that they refer to or combine.
pub(crate) fn combined<'a>(root: &'a Value, schemas: &[&'a Value]) -> Vec<&'a Value> {
    joined(root, schemas, &["anyOf", "oneOf", "allOf"])
}

/// These schemas, those that they refer to, and those in their lists under `kinds`.
fn joined<'a>(root: &'a Value, schemas: &[&'a Value], kinds: &[&str]) -> Vec<&'a Value> {
    let mut all = schemas.to_vec();
    let mut at = 0;
    while let Some(schema) = all.get(at).copied() {
        at += 1;
        let reference = schema.get("$ref").and_then(Value::as_str);
        let place = reference.and_then(|reference| reference.strip_prefix('#'));
        let referred = place.and_then(|place| root.pointer(place));
        let parts = kinds.iter().filter_map(|kind| schema.get(kind)?.as_array());
        for part in referred.into_iter().chain(parts.flatten()) {
            let is_known = all.iter().any(|known| std::ptr::eq(*known, part));
            if !is_known && all.len() < COMBINED {
                all.push(part);
            }
        }
    }
    all
}

/// The properties of an object with this schema, each with the first schema that it has.
pub(super) fn properties(schema: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let schemas = combined(schema, &[schema]).into_iter();
    let declared = schemas.filter_map(|schema| schema.get("properties")?.as_object());
    let mut seen = BTreeSet::new();
    let properties = declared.flatten();
    let properties = properties.map(|(name, schema)| (name.as_str(), schema));
    properties.filter(move |(name, _)| seen.insert(*name))
}

/// The properties that every object with this schema must have.
pub(super) fn required(schema: &Value) -> impl Iterator<Item = &str> {
    let schemas = joined(schema, &[schema], &["allOf"]).into_iter();
    let listed = schemas.filter_map(|schema| schema.get("required")?.as_array());
    listed.flatten().filter_map(Value::as_str)
}

/// Whether the schema itself lists all properties. `additionalProperties` beside it would refuse others.
pub(super) fn lists_all(schema: &Value) -> bool {
    let own = schema.get("properties");
    let is_own = |name: &str| own.is_some_and(|own| own.get(name).is_some());
    let hides_some = |part: &&Value| ELSEWHERE.iter().any(|keyword| part.get(keyword).is_some());
    let parts = combined(schema, &[schema]);
    parts.len() < COMBINED
        && !parts.iter().any(hides_some)
        && properties(schema).all(|(name, _)| is_own(name))
        && required(schema).all(is_own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn parameters_in_parts_of_a_schema_are_found() {
        let text = json!({"type": "string"});
        let schema = json!({
            "type": "object",
            "properties": {"city": text},
            "anyOf": [
                {"properties": {"id": text}, "required": ["id"]},
                {"$ref": "#/$defs/Named"},
            ],
            "allOf": [{"properties": {"city": {}, "day": text}, "required": ["day"]}],
            "$defs": {"Named": {"properties": {"name": text}, "anyOf": [{"$ref": "#"}]}},
        });
        let names: BTreeSet<&str> = properties(&schema).map(|(name, _)| name).collect();
        assert_eq!(names, BTreeSet::from(["city", "day", "id", "name"]));
        assert_eq!(properties(&schema).count(), 4, "each once");
        assert_eq!(required(&schema).collect::<Vec<_>>(), ["day"]);
        assert!(!lists_all(&schema));
    }

    #[test]
    fn a_schema_that_combines_nothing_but_conditions_lists_all_properties() {
        let conditions = json!([{"required": ["id"]}, {"required": ["name"]}]);
        let properties = json!({"id": {}, "name": {}});
        let listing = json!({"properties": properties, "anyOf": conditions});
        assert!(lists_all(&listing));
        assert!(lists_all(&json!({"type": "object"})));
        for open in [
            json!({"$ref": "https://example.com/schema"}),
            json!({"properties": properties, "required": ["other"]}),
            json!({"properties": properties, "then": {"properties": {"other": {}}}}),
            json!({"properties": properties, "allOf": [
                {"if": {"required": ["id"]}, "then": {"properties": {"other": {}}}},
            ]}),
        ] {
            assert!(!lists_all(&open), "{open}");
        }
    }
}
