//! What the step says on a guest's console while it builds.

/// Begins what the step says.
const WORD: &str = "BLOCKYARD-KBUILD ";

/// What the step says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Said {
    /// The build begins, at this time of the guest's clock.
    Begins(f64),
    /// It has ended.
    Ends(f64),
    /// It has not, because of this.
    Failed(String),
}

/// What the step says in a line of the console, which may have something else before it.
pub(super) fn said(line: &str) -> Option<Said> {
    let (_, text) = line.split_once(WORD)?;
    let seconds = |text: &str| text.trim().parse().ok().filter(|seconds: &f64| seconds.is_finite());
    if let Some(time) = text.strip_prefix("begin ") {
        return seconds(time).map(Said::Begins);
    }
    if let Some(time) = text.strip_prefix("end ") {
        return seconds(time).map(Said::Ends);
    }
    text.strip_prefix("failed: ").map(|why| Said::Failed(why.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_step_says_is_found_wherever_it_stands() {
        assert_eq!(said("[ 1.0] x BLOCKYARD-KBUILD begin 12.34\r"), Some(Said::Begins(12.34)));
        assert_eq!(said("BLOCKYARD-KBUILD end 15"), Some(Said::Ends(15.0)));
        assert_eq!(said("BLOCKYARD-KBUILD failed: no gcc\r"), Some(Said::Failed("no gcc".into())));
        for line in ["", "begin 1", "BLOCKYARD-KBUILD begin", "BLOCKYARD-KBUILD end inf", "BLOCKYARD-KBUILD end -"] {
            assert_eq!(said(line), None, "{line}");
        }
    }
}
