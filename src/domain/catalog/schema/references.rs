//! Resolves `$ref`: pointers, anchors and identifiers within the schema. Nothing is ever fetched.

use std::collections::HashMap;
use std::ptr;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};

/// Maximum number of values searched for anchors and identifiers.
const MAX_VALUES: usize = 200_000;

pub(super) struct References<'a> {
    root: &'a Value,
    /// Schemas by anchor and enclosing resource, which is identified by its memory address.
    anchors: HashMap<(usize, &'a str), &'a Value>,
    identifiers: HashMap<&'a str, &'a Value>,
    /// The enclosing resource of each schema in an embedded resource, by the schema's memory address.
    resources: HashMap<usize, &'a Value>,
}

impl<'a> References<'a> {
    pub(super) fn new(root: &'a Value) -> Self {
        let mut found = Self { root, anchors: HashMap::new(), identifiers: HashMap::new(), resources: HashMap::new() };
        found.index();
        found
    }

    fn index(&mut self) {
        let mut waiting: Vec<(&'a Value, &'a Value)> = vec![(self.root, self.root)];
        let mut seen = 0;
        while let Some((value, mut resource)) = waiting.pop() {
            seen += 1;
            if seen > MAX_VALUES {
                return;
            }
            match value {
                Value::Object(object) => {
                    if let Some(id) = identifier(object) {
                        if let Some(anchor) = id.strip_prefix('#') {
                            self.anchors.entry((address(resource), anchor)).or_insert(value);
                        } else {
                            self.identifiers.entry(id.trim_end_matches('#')).or_insert(value);
                            resource = value;
                        }
                    }
                    if !ptr::eq(resource, self.root) {
                        self.resources.insert(address(value), resource);
                    }
                    for keyword in ["$anchor", "$dynamicAnchor"] {
                        if let Some(Value::String(anchor)) = object.get(keyword) {
                            self.anchors.entry((address(resource), anchor)).or_insert(value);
                        }
                    }
                    // These keywords contain data, which may look like a schema.
                    let schemas =
                        object.iter().filter(|(keyword, _)| !matches!(keyword.as_str(), "enum" | "const" | "default" | "examples"));
                    waiting.extend(schemas.filter(|(_, inner)| inner.is_object() || inner.is_array()).map(|(_, inner)| (inner, resource)));
                }
                Value::Array(items) => waiting.extend(items.iter().filter(|item| item.is_object()).map(|item| (item, resource))),
                _ => {}
            }
        }
    }

    /// The schema to which a reference in `schema` points.
    pub(super) fn target(&self, schema: &Value, reference: &str) -> Option<&'a Value> {
        let (uri, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let resource = self.resources.get(&address(schema)).copied().unwrap_or(self.root);
        let base = if uri.is_empty() { Some(resource) } else { self.identified(resource, uri) };
        let fragment = percent_decode_str(fragment).decode_utf8().ok()?;
        let found = base.and_then(|base| match fragment.as_ref() {
            "" => Some(base),
            pointer if pointer.starts_with('/') => base.pointer(pointer).or_else(|| self.root.pointer(pointer)),
            anchor => self.anchors.get(&(address(base), anchor)).copied(),
        });
        found.or_else(|| self.moved(&fragment))
    }

    /// The resource embedded under this URI.
    fn identified(&self, resource: &'a Value, uri: &str) -> Option<&'a Value> {
        if let Some(found) = self.identifiers.get(uri) {
            return Some(found);
        }
        let absolute = |schema: &'a Value| url::Url::parse(identifier(schema.as_object()?)?).ok();
        let base = absolute(resource).or_else(|| absolute(self.root))?;
        let wanted = base.join(uri).ok()?;
        let is_wanted = |id: &str| base.join(id).is_ok_and(|id| id == wanted);
        self.identifiers.iter().find(|(id, _)| is_wanted(id)).map(|(_, found)| *found)
    }

    /// Finds a definition that a converter moved without updating references, such as `#/components/schemas/A` for `$defs/A`.
    fn moved(&self, pointer: &str) -> Option<&'a Value> {
        let (folder, name) = pointer.rsplit_once('/')?;
        if !matches!(folder, "/components/schemas" | "/definitions" | "/$defs") {
            return None;
        }
        let name = name.replace("~1", "/").replace("~0", "~");
        ["$defs", "definitions"].iter().find_map(|folder| self.root.get(folder)?.get(&name))
    }
}

fn address(value: &Value) -> usize {
    ptr::from_ref(value).addr()
}

/// The value of `$id`, or of `id` from draft 4.
fn identifier(object: &Map<String, Value>) -> Option<&str> {
    let old = || object.get("id").filter(|id| id.as_str().is_some_and(|id| id.starts_with('#') || id.contains("://")));
    object.get("$id").or_else(old)?.as_str()
}
