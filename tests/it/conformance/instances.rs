//! Values that a schema allows, made from the schema. Not every value: what is made may still be invalid, so callers
//! check it with a validator.

use std::fmt::Write as _;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use serde_json::{Map, Number, Value, json};

/// References followed and levels made before the shortest value is taken.
const MAX_DEPTH: usize = 12;

pub(crate) struct Instances<'a> {
    root: &'a Value,
    state: u64,
}

/// What a schema says once its references and `allOf` are followed and one alternative is chosen.
#[derive(Default)]
struct View<'a> {
    keywords: Map<String, Value>,
    properties: Vec<(&'a str, Vec<&'a Value>)>,
    required: Vec<&'a str>,
}

impl<'a> Instances<'a> {
    pub(crate) fn of(root: &'a Value, seed: u64) -> Self {
        Self { root, state: seed.wrapping_mul(2).wrapping_add(0x9E37_79B9_7F4A_7C15) }
    }

    /// An object for the whole schema.
    pub(crate) fn arguments(&mut self) -> Map<String, Value> {
        match self.value(&[self.root], 0) {
            Value::Object(arguments) => arguments,
            _ => Map::new(),
        }
    }

    fn random(&mut self) -> u64 {
        // SplitMix64: equal seeds make equal values on every machine.
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, count: usize) -> usize {
        usize::try_from(self.random() % count.max(1) as u64).unwrap()
    }

    fn pick<T: Clone>(&mut self, items: &[T]) -> Option<T> {
        let position = self.below(items.len());
        items.get(position).cloned()
    }

    fn gather(&mut self, schema: &'a Value, view: &mut View<'a>, hops: usize) {
        let Some(object) = schema.as_object().filter(|_| hops < 2 * MAX_DEPTH) else { return };
        for (keyword, value) in object {
            match (keyword.as_str(), value) {
                ("properties", Value::Object(properties)) => {
                    for (name, property) in properties {
                        match view.properties.iter_mut().find(|(known, _)| known == name) {
                            Some((_, parts)) => parts.push(property),
                            None => view.properties.push((name, vec![property])),
                        }
                    }
                }
                ("required", Value::Array(names)) => view.required.extend(names.iter().filter_map(Value::as_str)),
                ("allOf" | "anyOf" | "oneOf" | "$ref", _) => {}
                _ => {
                    view.keywords.entry(keyword.clone()).or_insert_with(|| value.clone());
                }
            }
        }
        if let Some(target) =
            object.get("$ref").and_then(Value::as_str).and_then(|reference| self.root.pointer(reference.strip_prefix('#')?))
        {
            self.gather(target, view, hops + 1);
        }
        for part in object.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            self.gather(part, view, hops + 1);
        }
        for keyword in ["anyOf", "oneOf"] {
            let Some(parts) = object.get(keyword).and_then(Value::as_array) else { continue };
            // Late in a recursive schema, the alternative that ends it.
            let chosen =
                if hops > MAX_DEPTH { parts.iter().min_by_key(|part| part.to_string().len()) } else { parts.get(self.below(parts.len())) };
            if let Some(chosen) = chosen {
                self.gather(chosen, view, hops + 1);
            }
        }
    }

    fn value(&mut self, parts: &[&'a Value], depth: usize) -> Value {
        let mut view = View::default();
        for part in parts {
            self.gather(part, &mut view, depth);
        }
        let get = |keyword: &str| view.keywords.get(keyword);
        if let Some(constant) = get("const") {
            return constant.clone();
        }
        if let Some(values) = get("enum").and_then(Value::as_array).cloned() {
            return self.pick(&values).unwrap_or_default();
        }
        match self.kind(&view).as_str() {
            "null" => Value::Null,
            "boolean" => (self.below(2) == 0).into(),
            "integer" => self.integer(&view.keywords),
            "number" => self.number(&view.keywords),
            "string" => self.text(&view.keywords).into(),
            "array" => self.array(parts, &view.keywords, depth),
            _ => self.object(&view, depth),
        }
    }

    /// The type that is written, or the one that the keywords are about.
    fn kind(&mut self, view: &View<'_>) -> String {
        let has = |keywords: &[&str]| keywords.iter().any(|keyword| view.keywords.contains_key(*keyword));
        match view.keywords.get("type") {
            Some(Value::String(kind)) => kind.clone(),
            Some(Value::Array(kinds)) => self.pick(kinds).and_then(|kind| kind.as_str().map(str::to_owned)).unwrap_or_default(),
            _ if !view.properties.is_empty() || !view.required.is_empty() => "object".into(),
            _ if has(&["additionalProperties", "patternProperties", "minProperties", "maxProperties", "dependentRequired"]) => {
                "object".into()
            }
            _ if has(&["items", "prefixItems", "minItems", "maxItems", "contains", "uniqueItems"]) => "array".into(),
            _ if has(&["pattern", "format", "minLength", "maxLength"]) => "string".into(),
            _ if has(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]) => "number".into(),
            _ => self.pick(&["string", "integer", "boolean", "object", "array", "null", "number"]).unwrap_or("string").to_owned(),
        }
    }

    fn bounds(keywords: &Map<String, Value>) -> (Option<f64>, Option<f64>, bool, bool) {
        let get = |keyword: &str| keywords.get(keyword).and_then(Value::as_f64);
        let flag = |keyword: &str| keywords.get(keyword) == Some(&Value::Bool(true));
        let (low, high) = (get("minimum"), get("maximum"));
        let (above, below) = (get("exclusiveMinimum"), get("exclusiveMaximum"));
        let least = above.map_or(low, |above| Some(low.map_or(above, |low| low.max(above))));
        let most = below.map_or(high, |below| Some(high.map_or(below, |high| high.min(below))));
        (least, most, above.is_some() || flag("exclusiveMinimum"), below.is_some() || flag("exclusiveMaximum"))
    }

    #[expect(clippy::cast_possible_truncation, reason = "bounds of schemas in tests are small")]
    fn integer(&mut self, keywords: &Map<String, Value>) -> Value {
        let (least, most, above, below) = Self::bounds(keywords);
        let step = keywords.get("multipleOf").and_then(Value::as_f64).filter(|step| step.fract() == 0.0).map_or(1, |step| step as i64);
        let least = least.map(|least| (least.ceil() as i64).saturating_add(i64::from(above && least.fract() == 0.0)));
        let most = most.map(|most| (most.floor() as i64).saturating_sub(i64::from(below && most.fract() == 0.0)));
        let least = least.unwrap_or_else(|| most.unwrap_or(20).min(20).saturating_sub(20));
        let most = most.unwrap_or_else(|| least.saturating_add(20)).max(least);
        let range = usize::try_from((most.saturating_sub(least)).min(1_000)).unwrap_or(0) + 1;
        let value = least + i64::try_from(self.below(range)).unwrap();
        let rounded = value.div_euclid(step) * step;
        (if rounded < least { rounded + step } else { rounded }).into()
    }

    fn number(&mut self, keywords: &Map<String, Value>) -> Value {
        if keywords.contains_key("multipleOf") || self.below(2) == 0 {
            return self.integer(keywords);
        }
        let (least, most, ..) = Self::bounds(keywords);
        let least = least.unwrap_or_else(|| most.unwrap_or(10.0) - 10.0);
        let most = most.unwrap_or(least + 10.0);
        let part = self.below(7) as f64 / 8.0 + 0.0625;
        Number::from_f64(least + (most - least) * part).map_or(Value::from(0), Value::Number)
    }

    fn text(&mut self, keywords: &Map<String, Value>) -> String {
        let count = |keyword: &str| keywords.get(keyword).and_then(Value::as_u64).and_then(|count| usize::try_from(count).ok());
        if let Some(pattern) = keywords.get("pattern").and_then(Value::as_str)
            && let Some(text) = Self::matching(pattern, count("minLength").map(|least| (least, count("maxLength").unwrap_or(least + 8))))
        {
            return text;
        }
        let known = match keywords.get("format").and_then(Value::as_str) {
            Some("date") => "2026-02-03",
            Some("date-time") => "2026-02-03T04:05:06Z",
            Some("time") => "04:05:06Z",
            Some("email") => "a@example.org",
            Some("uri" | "url" | "iri") => "https://example.org/a?b=c",
            Some("uuid") => "0190d0a0-7a3b-7c4d-8e5f-6a7b8c9d0e1f",
            Some("hostname") => "example.org",
            Some("ipv4") => "192.0.2.1",
            Some("ipv6") => "2001:db8::1",
            Some("duration") => "P1D",
            _ => "",
        };
        if !known.is_empty() {
            return known.to_owned();
        }
        let least = count("minLength").unwrap_or(0);
        let most = count("maxLength").unwrap_or(least.max(3) + 5).max(least);
        let length = least + self.below((most - least).min(12) + 1);
        let letters = ['a', 'B', '7', ' ', 'é', '名', '-', '.', '"', '{'];
        (0..length).map(|_| letters[self.below(letters.len())]).collect()
    }

    fn matching(pattern: &str, length: Option<(usize, usize)>) -> Option<String> {
        let bare = pattern.strip_prefix('^').unwrap_or(pattern);
        let bare = bare.strip_suffix('$').unwrap_or(bare);
        // Schemas mean ASCII (ECMA-262), regular expressions of Rust mean Unicode.
        let mut bare = bare.replace("\\d", "[0-9]").replace("\\w", "[A-Za-z0-9_]").replace("\\s", "[ ]");
        if let Some((least, most)) = length
            && bare.starts_with('[')
            && bare.ends_with(['+', '*'])
        {
            bare.truncate(bare.len() - 1);
            write!(bare, "{{{least},{most}}}").ok()?;
        }
        let strategy = proptest::string::string_regex(&bare).ok()?;
        Some(strategy.new_tree(&mut TestRunner::deterministic()).ok()?.current())
    }

    fn array(&mut self, parts: &[&'a Value], keywords: &Map<String, Value>, depth: usize) -> Value {
        let count = |keyword: &str| keywords.get(keyword).and_then(Value::as_u64).and_then(|count| usize::try_from(count).ok());
        let least = count("minItems").unwrap_or(0);
        let most = count("maxItems").unwrap_or(least + 2).max(least);
        let length = if depth > MAX_DEPTH { least } else { least + self.below((most - least).min(3) + 1) };
        let listed = self.find_items(parts, 0);
        let (first, rest) = listed.unwrap_or_default();
        let mut items: Vec<Value> = Vec::new();
        for place in 0..length {
            let item = match (first.get(place), rest) {
                (None, Some(Value::Bool(false))) => break,
                (Some(schema), _) | (None, Some(schema)) => self.value(&[schema], depth + 1),
                (None, None) => json!("x"),
            };
            if keywords.get("uniqueItems") != Some(&Value::Bool(true)) || !items.contains(&item) {
                items.push(item);
            }
        }
        items.into()
    }

    /// The schemas of the first items and of the others, where an array is described.
    fn find_items(&self, parts: &[&'a Value], hops: usize) -> Option<(&'a [Value], Option<&'a Value>)> {
        if hops > MAX_DEPTH {
            return None;
        }
        parts.iter().find_map(|part| {
            let object = part.as_object()?;
            let found = match (object.get("prefixItems"), object.get("items")) {
                (Some(Value::Array(first)), rest) => Some((first.as_slice(), rest)),
                (_, Some(Value::Array(first))) => Some((first.as_slice(), object.get("additionalItems"))),
                (_, Some(rest)) => Some((&[][..], Some(rest))),
                _ => None,
            };
            let target = || self.root.pointer(object.get("$ref")?.as_str()?.strip_prefix('#')?);
            let inner = ["allOf", "anyOf", "oneOf"].iter().filter_map(|keyword| object.get(*keyword)?.as_array()).flatten();
            let inner: Vec<&Value> = inner.chain(target()).collect();
            found.or_else(|| self.find_items(&inner, hops + 1))
        })
    }

    fn object(&mut self, view: &View<'a>, depth: usize) -> Value {
        let mut out = Map::new();
        for (name, parts) in &view.properties {
            let required = view.required.contains(name);
            if required || (depth <= MAX_DEPTH / 3 && self.below(3) > 0) {
                out.insert((*name).to_owned(), self.value(parts, depth + 1));
            }
        }
        for name in &view.required {
            if !out.contains_key(*name) {
                out.insert((*name).to_owned(), "x".into());
            }
        }
        if let Some(Value::Object(patterns)) = view.keywords.get("patternProperties") {
            let patterns: Vec<String> = patterns.keys().cloned().collect();
            for pattern in patterns {
                // Only values that are plain to make: the schemas of patterns are not borrowed.
                if let Some(name) = Self::matching(&pattern, None) {
                    out.entry(name).or_insert_with(|| "x".into());
                }
            }
        }
        if let Some(Value::Object(more)) = view.keywords.get("additionalProperties")
            && self.below(2) == 0
        {
            let value = match more.get("type").and_then(Value::as_str) {
                Some("number" | "integer") => json!(7),
                Some("boolean") => json!(true),
                Some("array") => json!([]),
                Some("object") => json!({}),
                _ => json!("more"),
            };
            out.entry("more").or_insert(value);
        }
        Value::Object(out)
    }
}
