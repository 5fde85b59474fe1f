//! Permissions as chmod(1) takes them: `644`, `u+x`, `go-w,a+X`, `g=u`.

use blockyard_protocol::appliance::ModeClause;

/// Reads a mode.
///
/// # Errors
/// When it is none: a sentence.
pub fn parse(text: &str) -> Result<Vec<ModeClause>, String> {
    let bad = || format!("{text} is no mode: it is like 644 or u+x,go-w");
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        let bits = octal(text).ok_or_else(bad)?;
        return Ok(vec![ModeClause { affected: 0o7777, operator: b'='.into(), bits, ..ModeClause::default() }]);
    }
    let mut clauses = Vec::new();
    for part in text.split(',') {
        symbolic(part.as_bytes(), &mut clauses).ok_or_else(bad)?;
    }
    Ok(clauses)
}

/// An octal mode.
pub fn octal(text: &str) -> Option<u32> {
    u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777)
}

/// `[ugoa]*([-+=]([rwxXst]*|[ugo]))+`
fn symbolic(part: &[u8], clauses: &mut Vec<ModeClause>) -> Option<()> {
    let who_end = part.iter().position(|byte| !b"ugoa".contains(byte))?;
    let (who, mut actions) = part.split_at(who_end);
    // Without anybody named, all are, and the set-ID bits of nobody.
    let affected = if who.is_empty() { 0o1777 } else { who.iter().fold(0, |mask, &who| mask | affected_by(who)) };
    while let [operator @ (b'+' | b'-' | b'='), rest @ ..] = actions {
        let end = rest.iter().position(|byte| b"+-=".contains(byte)).unwrap_or(rest.len());
        let mut clause = ModeClause { affected, operator: (*operator).into(), ..ModeClause::default() };
        match &rest[..end] {
            [from @ (b'u' | b'g' | b'o')] => clause.copy_from = (*from).into(),
            letters => {
                for letter in letters {
                    match letter {
                        b'X' => clause.if_executable = true,
                        letter => clause.bits |= bits(*letter)?,
                    }
                }
            }
        }
        clauses.push(clause);
        actions = &rest[end..];
    }
    (actions.is_empty() && part.len() > who_end).then_some(())
}

fn affected_by(who: u8) -> u32 {
    match who {
        b'u' => 0o4700,
        b'g' => 0o2070,
        b'o' => 0o1007,
        _ => 0o7777,
    }
}

fn bits(letter: u8) -> Option<u32> {
    match letter {
        b'r' => Some(0o444),
        b'w' => Some(0o222),
        b'x' => Some(0o111),
        b's' => Some(0o6000),
        b't' => Some(0o1000),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_those_of_chmod() {
        let clause = |affected, operator: u8, bits| ModeClause {
            affected,
            operator: operator.into(),
            bits,
            ..Default::default()
        };
        assert_eq!(parse("0755").unwrap(), [clause(0o7777, b'=', 0o755)]);
        assert_eq!(parse("u+x,go-w").unwrap(), [clause(0o4700, b'+', 0o111), clause(0o3077, b'-', 0o222)]);
        assert_eq!(parse("u=rw-x").unwrap(), [clause(0o4700, b'=', 0o666), clause(0o4700, b'-', 0o111)]);
        assert_eq!(parse("g=u").unwrap()[0].copy_from, u32::from(b'u'));
        assert!(parse("a+X").unwrap()[0].if_executable);
        for bad in ["", "u", "u+q", "8", "77777", "u+x,", "+x+", "x"] {
            let good = bad == "+x+";
            assert_eq!(parse(bad).is_ok(), good, "{bad}");
        }
    }
}
