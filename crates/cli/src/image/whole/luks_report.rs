//! What `blockyard image info` says of LUKS: as qemu-img does.

use super::qcow2_report::FormatSpecific;
use blockyard_block::{LuksHeader, printable};
use serde::Serialize;
use std::fmt::Write as _;

/// Of a volume.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct LuksReport {
    encrypted: bool,
    format_specific: FormatSpecific<Luks>,
}

/// What a header of LUKS 1 says.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Luks {
    pub cipher_alg: String,
    pub cipher_mode: String,
    pub ivgen_alg: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    ivgen_hash_alg: Option<String>,
    hash_alg: String,
    uuid: String,
    payload_offset: u64,
    master_key_iters: u32,
    slots: Vec<Slot>,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Slot {
    active: bool,
    key_offset: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    iters: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stripes: Option<u32>,
}

impl LuksReport {
    /// Of the volume with this header.
    pub fn of(header: LuksHeader) -> Self {
        Self { encrypted: true, format_specific: FormatSpecific { r#type: "luks", data: Luks::from(header) } }
    }

    /// For people.
    pub fn render(&self, text: &mut String) {
        let luks = &self.format_specific.data;
        let mut line = |key: &str, value: &str| _ = writeln!(text, "{key}: {}", printable(value));
        line("encrypted", "yes");
        line("cipher alg", &luks.cipher_alg);
        line("cipher mode", &luks.cipher_mode);
        line("ivgen alg", &luks.ivgen_alg);
        if let Some(hash) = &luks.ivgen_hash_alg {
            line("ivgen hash alg", hash);
        }
        line("hash alg", &luks.hash_alg);
        line("uuid", &luks.uuid);
        line("payload offset", &luks.payload_offset.to_string());
        line("master key iters", &luks.master_key_iters.to_string());
        for (number, Slot { active, iters, key_offset, stripes }) in luks.slots.iter().enumerate() {
            let what = match (active, iters, stripes) {
                (true, Some(iters), Some(stripes)) => {
                    format!("active, {iters} iterations, {stripes} stripes at offset {key_offset}")
                }
                _ => format!("free, for a key at offset {key_offset}"),
            };
            line(&format!("slot {number}"), &what);
        }
    }
}

impl From<LuksHeader> for Luks {
    fn from(header: LuksHeader) -> Self {
        let (mode, ivgen) = header.mode.split_once('-').unwrap_or((&header.mode, ""));
        let (ivgen, ivgen_hash) = ivgen.split_once(':').map_or((ivgen, None), |(name, hash)| (name, Some(hash)));
        // XTS has two keys, of which each is the cipher's.
        let key_bits = u64::from(header.key_bytes) * if mode == "xts" { 4 } else { 8 };
        let slot = |slot: &blockyard_block::LuksSlot| Slot {
            active: slot.is_active,
            key_offset: slot.key_offset_bytes,
            iters: slot.is_active.then_some(slot.iterations),
            stripes: slot.is_active.then_some(slot.stripes),
        };
        Self {
            cipher_alg: format!("{}-{key_bits}", header.cipher),
            cipher_mode: mode.to_owned(),
            ivgen_alg: ivgen.to_owned(),
            ivgen_hash_alg: ivgen_hash.map(str::to_owned),
            hash_alg: header.hash.clone(),
            uuid: header.uuid.clone(),
            payload_offset: header.payload_offset_bytes,
            master_key_iters: header.iterations,
            slots: header.slots.iter().map(slot).collect(),
        }
    }
}
