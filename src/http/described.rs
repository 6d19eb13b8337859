//! OpenAPI schemas for types of `domain` and `service`, which don't depend on OpenAPI themselves.
//!
//! The compiler rejects a schema that lacks a member of its type or has an additional member.
//! `tests/it/service_document.rs` compares everything else with real responses.

use utoipa::openapi::schema::SchemaType;
use utoipa::openapi::{Object, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// Defines schemas for structs and enums: `described! { struct Body of Described { members } … }`. A member that is
/// marked `unless "Vec::is_empty"` is absent if its value is empty.
macro_rules! described {
    () => {};
    ($(#[$meta:meta])* struct $body:ident of $described:ty {
        $($(#[$member_meta:meta])* $member:ident $(unless $absent:tt)?: $type:ty,)*
    } $($more:tt)*) => {
        #[derive(serde::Serialize, utoipa::ToSchema)]
        $(#[$meta])*
        pub(in crate::http) struct $body {
            $($(#[$member_meta])* $(#[serde(skip_serializing_if = $absent)])? $member: $type,)*
        }

        const _: () = {
            type Counterpart = $described;
            const fn has_the_same_members(&Counterpart { $($member: _,)* }: &Counterpart) {}
            let _ = has_the_same_members;
        };

        $crate::http::described::described! { $($more)* }
    };
    ($(#[$meta:meta])* enum $body:ident of $described:ty { $($(#[$variant_meta:meta])* $variant:ident,)* } $($more:tt)*) => {
        #[derive(serde::Serialize, utoipa::ToSchema)]
        $(#[$meta])*
        #[expect(dead_code, reason = "for the description alone")]
        pub(in crate::http) enum $body { $($(#[$variant_meta])* $variant,)* }

        const _: () = {
            type Counterpart = $described;
            const fn has_the_same_variants(value: &Counterpart) {
                match value { $(Counterpart::$variant => {})* }
            }
            let _ = has_the_same_variants;
        };

        $crate::http::described::described! { $($more)* }
    };
}

pub(in crate::http) use described;

/// A tool's result, which is forwarded as text.
pub(in crate::http) struct Content;

impl PartialSchema for Content {
    fn schema() -> RefOr<Schema> {
        let description = "A tool's result. Text is a string, JSON is unchanged, and an image is a data URI. A file is an object with its \
                           type and size and, if the service has a public URL, a link. Several items form an array.";
        Object::builder().schema_type(SchemaType::AnyValue).description(Some(description)).into()
    }
}

impl ToSchema for Content {}
