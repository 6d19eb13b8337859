//! Names: of the members of closed sets (in settings, requests, the store, metrics and logs), and types that hold one.

/// Declares enums, and each member's name beside it: `named! { pub enum Effect { Allow = "allow", Block = "block" } }`.
macro_rules! named {
    ($($(#[$meta:meta])* $vis:vis enum $set:ident { $($(#[$member_meta:meta])* $member:ident = $name:literal,)* })*) => {$(
        $(#[$meta])*
        $vis enum $set { $($(#[$member_meta])* $member,)* }

        #[allow(dead_code, reason = "not every set is listed, or read by name")]
        impl $set {
            /// All members, in the order of the declaration.
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

/// A type that holds a name and shows it as it is.
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
