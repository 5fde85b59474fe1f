//! Ctrl-A, which tells the console's own keys from the guest's.

/// Ctrl-A.
const ESCAPE: u8 = 1;

/// Keys on their way to the guest.
#[derive(Debug, Default)]
pub(super) struct EscapeKeys {
    escaped: bool,
}

impl EscapeKeys {
    /// Leaves in `keys` what is for the guest. True: somebody wants to leave, and what came after that is for nobody.
    pub(super) fn take(&mut self, keys: &mut Vec<u8>) -> bool {
        let mut leaves = false;
        keys.retain(|&key| {
            if leaves {
                return false;
            }
            let was_escaped = self.escaped;
            self.escaped = key == ESCAPE && !was_escaped;
            match (was_escaped, key) {
                (false, key) => key != ESCAPE,
                (true, b'x' | b'X') => {
                    leaves = true;
                    false
                }
                // As in QEMU: twice is once, and before any other key it is nothing.
                (true, key) => key == ESCAPE,
            }
        });
        leaves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(pieces: &[&[u8]]) -> (Vec<u8>, bool) {
        let (mut keys, mut guest, mut leaves) = (EscapeKeys::default(), Vec::new(), false);
        for piece in pieces {
            let mut piece = piece.to_vec();
            leaves |= keys.take(&mut piece);
            guest.extend(piece);
        }
        (guest, leaves)
    }

    #[test]
    fn ctrl_a_x_leaves_however_it_comes() {
        assert_eq!(taken(&[b"ls\x01xpoweroff\r"]), (b"ls".to_vec(), true));
        assert_eq!(taken(&[b"ls\x01", b"x"]), (b"ls".to_vec(), true));
        assert_eq!(taken(&[b"x\x01ax"]), (b"xx".to_vec(), false));
    }

    #[test]
    fn ctrl_a_twice_is_the_guests() {
        assert_eq!(taken(&[b"a\x01\x01x\x01", b"\x01\x01"]), (b"a\x01x\x01".to_vec(), false));
    }
}
