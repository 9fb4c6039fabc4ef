//! Text that must not be shown and must not linger: passwords and keys. It wipes itself when dropped, and its
//! `Debug` says nothing about it.

use std::fmt;

use zeroize::Zeroizing;

/// A secret text, wiped on drop and never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes over the text.
    pub fn new(text: impl Into<String>) -> Self {
        Secret(Zeroizing::new(text.into()))
    }

    /// The text itself, for handing it to an authentication exchange.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(...)")
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Secret::new(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Secret::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_says_nothing() {
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "Secret(...)");
    }
}
