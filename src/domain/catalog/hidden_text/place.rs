//! What the strings and members at a place of a schema are.

/// A place in a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A schema: its members are keywords.
    Schema,
    /// A schema for names: its values are names of properties.
    SchemaOfNames,
    /// Schemas or other names by the name of a property.
    Properties,
    /// Schemas by a pattern for names.
    Patterns,
    /// Schemas by another name, such as definitions.
    Definitions,
    /// The name of a property, or a list of them.
    Name,
    /// An allowed value.
    Value,
    /// A regular expression.
    Pattern,
    /// Anything else, such as prose and examples.
    Other,
}

impl Place {
    /// The place of the member with this name.
    pub(super) fn below(self, name: &str) -> Self {
        match self {
            Self::Schema | Self::SchemaOfNames => match name {
                "properties" | "dependentSchemas" | "dependentRequired" | "dependencies" => Self::Properties,
                "patternProperties" => Self::Patterns,
                "$defs" | "definitions" => Self::Definitions,
                "required" => Self::Name,
                "propertyNames" => Self::SchemaOfNames,
                "enum" | "const" if self == Self::SchemaOfNames => Self::Name,
                "enum" | "const" => Self::Value,
                "pattern" => Self::Pattern,
                "title" | "description" | "$comment" | "default" | "examples" | "example" => Self::Other,
                _ => self,
            },
            Self::Properties | Self::Patterns | Self::Definitions => Self::Schema,
            Self::Name | Self::Value | Self::Pattern | Self::Other => self,
        }
    }

    /// Whether the members of an object here are keywords.
    pub(super) fn has_keywords(self) -> bool {
        matches!(self, Self::Schema | Self::SchemaOfNames)
    }

    /// Whether the members of an object here are named like properties of arguments.
    pub(super) fn has_names_of_properties(self) -> bool {
        matches!(self, Self::Properties | Self::Value)
    }
}
