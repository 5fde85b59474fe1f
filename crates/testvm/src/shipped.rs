//! Scripts that come with the program.

/// Of the scripts that come with the program: the name, and the text.
const SHIPPED: [(&str, &str); 2] = [("dd", include_str!("scripts/dd.sh")), ("fio", include_str!("scripts/fio.sh"))];

/// A script that comes with the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shipped {
    /// Its name.
    pub name: &'static str,
    /// All of it.
    pub text: &'static str,
}

impl Shipped {
    /// All that there are.
    pub fn all() -> impl Iterator<Item = Self> {
        SHIPPED.into_iter().map(|(name, text)| Self { name, text })
    }

    /// Its name, and what it measures: its first line.
    pub fn about(&self) -> &'static str {
        self.text.lines().next().unwrap_or_default().trim_start_matches(['#', ' '])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Script;

    #[test]
    fn each_script_says_what_it_measures_and_has_steps() {
        for shipped in Shipped::all() {
            let about = shipped.about();
            assert!(about.starts_with(&format!("{}: ", shipped.name)) && about.len() < 110, "{about}");
            assert!(Script::new(shipped.text.to_owned()).unwrap().steps().len() >= 4, "{}", shipped.name);
        }
    }
}
