//! What chmod(1) makes of permissions.

use crate::appliance::ModeClause;

/// A file's mode after one clause.
pub fn applied(clause: &ModeClause, mode: u32) -> u32 {
    let is_directory = mode & 0o170_000 == 0o040_000;
    let mut bits = match clause.copy_from {
        0 => clause.bits,
        from => {
            let shift = match from as u8 {
                b'u' => 6,
                b'g' => 3,
                _ => 0,
            };
            let copied = (mode >> shift) & 0o7;
            copied * 0o111
        }
    };
    if clause.if_executable && (is_directory || mode & 0o111 != 0) {
        bits |= 0o111;
    }
    let bits = bits & clause.affected;
    match clause.operator as u8 {
        b'+' => mode | bits,
        b'-' => mode & !bits,
        // A directory keeps its set-ID bits unless they are named, as chmod(1) has it.
        _ => {
            let kept = if is_directory { 0o6000 } else { 0 };
            (mode & !(clause.affected & !kept)) | bits
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clause(affected: u32, operator: u8, bits: u32) -> ModeClause {
        ModeClause { affected, operator: operator.into(), bits, ..ModeClause::default() }
    }

    #[test]
    fn clauses_do_what_chmod_does() {
        assert_eq!(applied(&clause(0o7777, b'=', 0o644), 0o100_777), 0o100_644);
        assert_eq!(applied(&clause(0o4700, b'+', 0o111), 0o100_600), 0o100_700);
        assert_eq!(applied(&clause(0o1007, b'-', 0o666), 0o100_666), 0o100_660);
        let executable =
            ModeClause { affected: 0o777, operator: b'+'.into(), if_executable: true, ..Default::default() };
        assert_eq!(applied(&executable, 0o100_644), 0o100_644);
        assert_eq!(applied(&executable, 0o040_644), 0o040_755);
        let copy = ModeClause { affected: 0o070, operator: b'='.into(), copy_from: b'u'.into(), ..Default::default() };
        assert_eq!(applied(&copy, 0o100_704), 0o100_774);
    }
}
