//! What a machine may have, for the report.

use serde::Serialize;

/// One thing that a machine has or lacks.
#[derive(Debug, Serialize)]
pub struct Facility {
    /// What it is called.
    pub name: &'static str,
    /// What takes it.
    pub purpose: &'static str,
    /// Whether it is there and works, as far as can be told at once.
    pub usable: bool,
    /// Where it was found, or what is wrong with it.
    pub reason: String,
    /// What would make it usable.
    pub remedy: Option<String>,
}

impl Facility {
    /// What was found says `Ok` with what, or `Err` with what is wrong and, if there is one, the remedy.
    pub fn new(name: &'static str, purpose: &'static str, found: Result<String, Lack>) -> Self {
        let (usable, reason, remedy) = match found {
            Ok(reason) => (true, reason, None),
            Err(Lack { reason, remedy }) => (false, reason, remedy),
        };
        Self { name, purpose, usable, reason, remedy }
    }
}

/// Why something cannot be used.
#[derive(Debug)]
pub struct Lack {
    /// What is wrong.
    pub reason: String,
    /// What would help.
    pub remedy: Option<String>,
}

impl Lack {
    /// Something that can be helped.
    pub fn new(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { reason: reason.into(), remedy: Some(remedy.into()) }
    }

    /// Something that cannot.
    pub fn for_good(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), remedy: None }
    }
}
