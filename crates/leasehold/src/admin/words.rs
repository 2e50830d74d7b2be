//! Enums of words that a column has: the same in SQL, in JSON and in the output of commands.

/// Defines an enum with the words of a column. `or`: what a word that only a later release knows becomes.
macro_rules! words {
    (
        $(#[$about:meta])* pub enum $name:ident or $other:ident {
            $($(#[$each:meta])* $variant:ident = $word:literal,)*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "snake_case")]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$each])* $variant,)*
        }

        impl $name {
            /// Returns its word.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }

            pub(super) fn read(word: &str) -> Self {
                match word {
                    $($word => Self::$variant,)*
                    _ => Self::$other,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

pub(super) use words;
