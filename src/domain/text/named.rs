//! Macros for names: enums with a name per member (for settings, requests, the store, metrics and logs), and types that hold a
//! name.

/// Declares an enum with a name for each member: `named! { pub enum Effect { Allow = "allow", Block = "block" } }`.
macro_rules! named {
    ($($(#[$meta:meta])* $vis:vis enum $set:ident { $($(#[$member_meta:meta])* $member:ident = $name:literal,)* })*) => {$(
        $(#[$meta])*
        $vis enum $set { $($(#[$member_meta])* $member,)* }

        #[allow(dead_code, reason = "not every set is listed, or read by name")]
        impl $set {
            /// All members, in order of declaration.
            $vis const ALL: [Self; Self::NAMES.len()] = [$(Self::$member),*];
            /// The names of all members.
            $vis const NAMES: [&'static str; [$($name),*].len()] = [$($name),*];

            #[must_use]
            $vis const fn name(self) -> &'static str {
                match self { $(Self::$member => $name,)* }
            }

            #[must_use]
            $vis fn of_name(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|member| member.name() == name)
            }
        }
    )*};
}

/// Declares conversions and formatting for a type that holds a name.
macro_rules! name_text {
    ($name:ident) => {
        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(&self.0)
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(formatter, "{:?}", &*self.0)
            }
        }
    };
}

pub(crate) use {name_text, named};
