//! Mistakes in annotations: key, value found, values allowed.

use std::fmt;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The key, e.g. `sluice.dev/quota`, or the field of the pod.
    pub key: String,
    /// Its value; `None` where the key is missing.
    pub found: Option<String>,
    /// The allowed values.
    pub allowed: String,
}

impl Mistake {
    /// A value that is not allowed.
    pub fn new(key: impl Into<String>, found: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self { key: key.into(), found: Some(found.into()), allowed: allowed.into() }
    }

    /// A key that is missing.
    pub fn missing(key: impl Into<String>, allowed: impl Into<String>) -> Self {
        Self { key: key.into(), found: None, allowed: allowed.into() }
    }
}

impl std::error::Error for Mistake {}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.found {
            Some(found) => write!(f, "{}: {found:?} is not allowed: {}", self.key, self.allowed),
            None => write!(f, "{} is missing: {}", self.key, self.allowed),
        }
    }
}

/// All mistakes of one pod; never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(Vec<Mistake>);

impl Mistakes {
    /// An error unless the list is empty.
    ///
    /// # Errors
    /// All mistakes of the list.
    pub fn check(mistakes: Vec<Mistake>) -> Result<(), Self> {
        if mistakes.is_empty() { Ok(()) } else { Err(Self(mistakes)) }
    }

    /// Every mistake, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = &Mistake> {
        self.0.iter()
    }
}

impl From<Mistake> for Mistakes {
    fn from(mistake: Mistake) -> Self {
        Self(vec![mistake])
    }
}

impl IntoIterator for Mistakes {
    type Item = Mistake;
    type IntoIter = std::vec::IntoIter<Mistake>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl std::error::Error for Mistakes {}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, mistake) in self.0.iter().enumerate() {
            let separator = if position == 0 { "" } else { "; " };
            write!(f, "{separator}{mistake}")?;
        }
        Ok(())
    }
}
