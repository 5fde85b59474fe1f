//! Messages in a table in a BAR (PCI Local Bus 3.0 §6.8.2).

use super::config_space::ConfigSpace;
use super::msi::route;
use super::{Bar, Capability, Message, MessageVector};
use std::sync::Arc;

const ID: u8 = 0x11;
/// Vectors that a table can have.
pub(super) const VECTORS_MAX: usize = 2048;
/// Of the message control.
const ENABLE: u16 = 1 << 15;
const MASK_ALL: u16 = 1 << 14;
const ENTRY_BYTES: usize = 16;
/// Of an entry's fourth word.
const MASKED: u32 = 1;

/// The table, the pending bits and what they do. It has a BAR to itself: the table in the lower half, the pending bits
/// in the upper.
pub(super) struct MsiX {
    bar: Bar,
    capability: usize,
    entries: Vec<Entry>,
    enabled: bool,
    all_masked: bool,
}

struct Entry {
    vector: Arc<dyn MessageVector>,
    words: [u32; 4],
    routed: Option<Message>,
}

impl Entry {
    fn message(&self) -> Message {
        let [low, high, data, _] = self.words;
        Message { address: u64::from(high) << 32 | u64::from(low), data }
    }

    fn is_masked(&self) -> bool {
        self.words[3] & MASKED != 0
    }
}

impl MsiX {
    /// The BAR that `vectors` vectors take, as number `index`.
    pub(super) fn bar(index: u8, vectors: usize) -> Bar {
        let table_bytes = (ENTRY_BYTES * vectors).next_power_of_two();
        // A page at least, so that a guest may hand it to whom it likes.
        Bar { index, bytes: (2 * table_bytes).max(4096) as u32 }
    }

    pub(super) fn capability(bar: Bar, vectors: usize) -> Capability {
        let mut body = Vec::new();
        body.extend((vectors as u16 - 1).to_le_bytes());
        body.extend(u32::from(bar.index).to_le_bytes());
        body.extend((bar.bytes / 2 + u32::from(bar.index)).to_le_bytes());
        Capability { id: ID, body, writable: (ENABLE | MASK_ALL).to_le_bytes().to_vec(), is_bar_window: false }
    }

    pub(super) fn new(bar: Bar, vectors: Vec<Arc<dyn MessageVector>>, capability: usize) -> Self {
        let entry = |vector| Entry { vector, words: [0, 0, 0, MASKED], routed: None };
        let entries = vectors.into_iter().map(entry).collect();
        Self { bar, capability, entries, enabled: false, all_masked: false }
    }

    pub(super) fn bar_index(&self) -> u8 {
        self.bar.index
    }

    /// Does as the configuration space says.
    pub(super) fn follow(&mut self, config: &ConfigSpace) {
        let control = config.get16(self.capability + 2);
        (self.enabled, self.all_masked) = (control & ENABLE != 0, control & MASK_ALL != 0);
        (0..self.entries.len()).for_each(|index| self.update(index));
    }

    /// A read of whole words; others give zeros (§6.8.2: they are undefined).
    pub(super) fn read(&self, offset: u64, data: &mut [u8]) {
        data.fill(0);
        let Some(first) = first_word(offset, data.len()) else { return };
        for (word, bytes) in (first..).zip(data.as_chunks_mut::<4>().0) {
            *bytes = self.word(word).to_le_bytes();
        }
    }

    /// A write of whole words; others, and those of pending bits, do nothing.
    pub(super) fn write(&mut self, offset: u64, data: &[u8]) {
        let Some(first) = first_word(offset, data.len()) else { return };
        for (word, bytes) in (first..).zip(data.as_chunks::<4>().0) {
            let value = u32::from_le_bytes(*bytes);
            let (index, field) = (word / 4, word % 4);
            let Some(entry) = self.entries.get_mut(index) else { return };
            entry.words[field] = match field {
                0 => value & !3,
                3 => value & MASKED,
                _ => value,
            };
            self.update(index);
        }
    }

    fn word(&self, word: usize) -> u32 {
        let pending = self.bar.bytes as usize / 2 / 4;
        match word.checked_sub(pending) {
            None => self.entries.get(word / 4).map_or(0, |entry| entry.words[word % 4]),
            Some(word) => self.pending_bits(word),
        }
    }

    /// 32 pending bits. They are of vectors that are masked (§6.8.3.5).
    fn pending_bits(&self, word: usize) -> u32 {
        let entries = self.entries.iter().skip(32 * word).take(32).enumerate();
        let pending = entries.filter(|(_, entry)| entry.routed.is_none() && entry.vector.is_pending());
        pending.fold(0, |bits, (bit, _)| bits | 1 << bit)
    }

    fn update(&mut self, index: usize) {
        let entry = &mut self.entries[index];
        let on = self.enabled && !self.all_masked && !entry.is_masked();
        let wanted = on.then(|| entry.message());
        route(&*entry.vector, &mut entry.routed, wanted);
    }
}

/// Which word an access begins at: it is one or two whole ones, aligned.
fn first_word(offset: u64, length: usize) -> Option<usize> {
    (matches!(length, 4 | 8) && offset.is_multiple_of(length as u64)).then_some(offset as usize / 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interrupt;
    use crate::pci::Identity;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Recorder {
        calls: Mutex<Vec<Option<Message>>>,
        pending: Mutex<bool>,
    }

    impl Interrupt for Recorder {
        fn signal(&self) {
            *self.pending.lock().unwrap() = true;
        }
    }

    impl MessageVector for Recorder {
        fn unmask(&self, message: Message) {
            self.calls.lock().unwrap().push(Some(message));
            *self.pending.lock().unwrap() = false;
        }
        fn mask(&self) {
            self.calls.lock().unwrap().push(None);
        }
        fn is_pending(&self) -> bool {
            *self.pending.lock().unwrap()
        }
    }

    struct Rig {
        vectors: Vec<Arc<Recorder>>,
        config: ConfigSpace,
        msix: MsiX,
    }

    impl Rig {
        fn new(count: usize) -> Self {
            let identity = Identity { vendor: 1, device: 1, revision: 0, class: 0, subsystem_vendor: 0, subsystem: 0 };
            let vectors: Vec<Arc<Recorder>> = (0..count).map(|_| Arc::default()).collect();
            let bar = MsiX::bar(1, count);
            let mut config = ConfigSpace::new(&identity);
            let capability = config.add_capability(&MsiX::capability(bar, count)).unwrap();
            let msix = MsiX::new(bar, vectors.iter().map(|vector| Arc::clone(vector) as _).collect(), capability);
            Self { vectors, config, msix }
        }

        fn control(&mut self, control: u16) {
            self.config.write(0x42, &control.to_le_bytes());
            self.msix.follow(&self.config);
        }

        fn write(&mut self, offset: u64, value: u32) {
            self.msix.write(offset, &value.to_le_bytes());
        }

        fn read(&self, offset: u64) -> u32 {
            let mut data = [0xaa; 4];
            self.msix.read(offset, &mut data);
            u32::from_le_bytes(data)
        }

        fn calls(&self, vector: usize) -> Vec<Option<Message>> {
            std::mem::take(&mut *self.vectors[vector].calls.lock().unwrap())
        }
    }

    #[test]
    fn the_capability_says_where_and_how_many() {
        let rig = Rig::new(5);
        assert_eq!([0x40, 0x44, 0x48].map(|offset| rig.config.get32(offset)), [0x0004_0011, 1, 0x801]);
        assert_eq!(MsiX::bar(0, VECTORS_MAX).bytes, 64 << 10);
        assert_eq!(MsiX::bar(0, 128).bytes, 4096);
    }

    #[test]
    fn a_vector_is_routed_while_nothing_masks_it() {
        let mut rig = Rig::new(2);
        rig.write(16, 0xfee0_1003);
        rig.write(20, 1);
        rig.write(24, 0x4021);
        rig.write(28, 0);
        assert_eq!([16, 20, 24, 28].map(|offset| rig.read(offset)), [0xfee0_1000, 1, 0x4021, 0]);
        assert!(rig.calls(1).is_empty(), "MSI-X is off");
        rig.control(ENABLE | MASK_ALL);
        assert!(rig.calls(1).is_empty());
        let message = Message { address: 0x1_fee0_1000, data: 0x4021 };
        rig.control(ENABLE);
        assert_eq!(rig.calls(1), [Some(message)]);
        rig.control(ENABLE);
        rig.write(28, 0xfffe);
        assert!(rig.calls(1).is_empty(), "nothing has changed");
        rig.msix.write(24, &[0x22, 0x40, 0, 0, 1, 0, 0, 0]);
        assert_eq!(rig.calls(1), [Some(Message { data: 0x4022, ..message }), None]);
        rig.write(28, 0);
        rig.control(0);
        assert_eq!(rig.calls(1), [Some(Message { data: 0x4022, ..message }), None]);
        assert!(rig.calls(0).is_empty(), "its mask was never lifted");
    }

    #[test]
    fn what_is_masked_is_pending() {
        let mut rig = Rig::new(40);
        rig.control(ENABLE);
        for vector in [0, 33, 39] {
            rig.vectors[vector].signal();
        }
        assert_eq!([0x7fc, 0x800, 0x804, 0x808, 0xffc].map(|offset| rig.read(offset)), [0, 1, 0x82, 0, 0]);
        rig.write(0x800, 0);
        rig.write(33 * 16 + 12, 0);
        assert_eq!(rig.read(0x804), 0x80);
        rig.vectors[33].signal();
        assert_eq!(rig.read(0x804), 0x80, "it was sent");
    }

    #[test]
    fn half_words_and_places_beside_the_table_are_nothing() {
        let mut rig = Rig::new(1);
        rig.control(ENABLE);
        for (offset, length) in [(12, 1), (12, 2), (13, 4), (14, 8), (12, 8), (16, 4), (0x7fc, 4), (0xff8, 8)] {
            rig.msix.write(offset, &[0; 8][..length]);
            let mut data = [0xaa; 8];
            rig.msix.read(offset, &mut data[..length]);
            assert_eq!(data[..length], [0; 8][..length]);
        }
        assert!(rig.calls(0).is_empty());
        assert_eq!(rig.read(12), 1);
    }
}
