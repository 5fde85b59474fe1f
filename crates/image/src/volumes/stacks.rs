//! Stacks: arrays, encrypted volumes, volume groups, upon each other or alone. They are opened before file systems are
//! mounted, by the host's tools in the appliance, and closed when those are unmounted.

use super::keys::Key;
use super::opened_stacks::{StackedDevice, Stacks};
use super::tools::complaint;
use crate::Needs;
use crate::error::{Result, refuse};
use crate::guest::OpenImage;
use blockyard_appliance::tools::{CRYPTSETUP, LVM, MDADM, ToolCall};
use blockyard_block::{Remedy, printable};
use blockyard_protocol::appliance::Volume;
use blockyard_protocol::volume_name::disk_name;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How often somebody may try to type a passphrase.
const TRIES: u32 = 3;
/// How deep they may lie upon each other: each round opens what the one before brought to light.
const ROUNDS_MAX: usize = 8;
/// How often the appliance is booted for what turns out to be needed: once for each that [`Needs`] has, at most.
pub const BOOTS_MAX: usize = 4;
/// Kinds of content, as blkid(8) calls them.
pub const LUKS: &str = "crypto_LUKS";
/// The same of a part of a volume group.
pub const LVM_MEMBER: &str = "LVM2_member";
const RAID_MEMBER: &str = "linux_raid_member";

/// What the appliance has beside the memory that a key takes.
const SYSTEM_BYTES: u64 = 128 << 20;
/// What a header may ask for without being asked whether it is serious: what cryptsetup takes at most (cryptsetup(8),
/// --pbkdf-memory).
const KEY_BYTES_MAX: u64 = 4 << 30;
/// How long it may take to make a key of a passphrase: nothing moves meanwhile.
pub const KEY_TIMEOUT: Duration = Duration::from_secs(600);

/// Who may be asked for passphrases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asking {
    /// Nobody: the keys that are given have to do.
    Nobody,
    /// Whoever the [`Watch`](crate::Watch) asks.
    Somebody,
}

impl OpenImage {
    /// Opens what is closed; whether something was. What cannot be opened is noted.
    ///
    /// # Errors
    /// When a passphrase is wrong, or a tool is missing.
    pub fn open_stacks(&mut self, asking: Asking) -> Result<bool> {
        for _ in 0..BOOTS_MAX {
            match self.open_all(asking) {
                Err(error) => match error.needs() {
                    Some(needs) => self.boot_again(needs)?,
                    None => return Err(error),
                },
                opened => return opened,
            }
        }
        refuse!("its layers want more and more of the appliance")
    }

    /// As [`OpenImage::open_stacks`], in this appliance.
    ///
    /// # Errors
    /// As there, and [`Needs`].
    pub fn open_all(&mut self, asking: Asking) -> Result<bool> {
        let before = self.stacks.opened.len();
        for _ in 0..ROUNDS_MAX {
            let volumes = self.volumes()?;
            let closed: Vec<_> = volumes.iter().filter(|volume| is_closed(volume)).collect();
            let new = |volume: &&&Volume| !self.stacks.tried.contains(&volume.device);
            let new: Vec<Volume> = closed.iter().filter(new).map(|volume| Volume::clone(volume)).collect();
            let can = |volume: &&Volume| {
                volume.r#type != LUKS || asking == Asking::Somebody || !self.keys.of(volume).is_empty()
            };
            let new: Vec<_> = new.iter().filter(can).collect();
            if new.is_empty() {
                break;
            }
            self.install_modules()?;
            self.stacks.tried.extend(new.iter().map(|volume| volume.device.clone()));
            self.assemble(&closed, &new)?;
            for volume in new.iter().filter(|volume| volume.r#type == LUKS) {
                self.unlock(volume, asking)?;
            }
            if new.iter().any(|volume| volume.r#type == LVM_MEMBER) {
                self.activate()?;
            }
        }
        std::mem::take(&mut self.stacks.notes).iter().for_each(|note| self.note(note));
        Ok(self.stacks.opened.len() > before)
    }

    /// Closes what was opened, so that its last words are written.
    ///
    /// # Errors
    /// When something cannot be closed.
    pub fn close_stacks(&mut self) -> Result<()> {
        while let Some(device) = self.stacks.opened.pop() {
            let (tool, call) = match &device {
                StackedDevice::Array(path) => (&MDADM, mdadm().argument("--stop").argument(path.as_str())),
                StackedDevice::Encrypted(name) => (&CRYPTSETUP, cryptsetup("close").argument(name.as_str())),
                StackedDevice::Group(name) => {
                    let call = self.lvm("vgchange", "").arguments(["--activate", "n", name]);
                    (&LVM, call)
                }
            };
            self.run_tool_well(tool, call)?;
        }
        self.stacks.tried.clear();
        Ok(())
    }

    /// Puts together the arrays that one of `new` belongs to, out of `closed`.
    fn assemble(&mut self, closed: &[&Volume], new: &[&Volume]) -> Result<()> {
        let is_part = |volume: &&&Volume| volume.r#type == RAID_MEMBER;
        let wanted: BTreeSet<_> = new.iter().filter(is_part).map(|volume| &volume.uuid).collect();
        let mut arrays: BTreeMap<&String, Vec<&Volume>> = BTreeMap::new();
        for part in closed.iter().filter(is_part).filter(|part| wanted.contains(&part.uuid)) {
            arrays.entry(&part.uuid).or_default().push(part);
        }
        for parts in arrays.values() {
            if parts.iter().any(|part| part.raid_level == 6) {
                self.needs(Needs { memory_bytes: 0, raid6: true })?;
            }
            self.assemble_one(parts)?;
        }
        Ok(())
    }

    fn assemble_one(&mut self, parts: &[&Volume]) -> Result<()> {
        let Some(first) = parts.first() else { return Ok(()) };
        let arrays = self.stacks.opened.iter().filter(|device| matches!(device, StackedDevice::Array(_))).count();
        let path = array_path(&first.label, arrays);
        let mut call = mdadm().arguments(["--assemble", &path, "--run"]);
        if self.reads_only() {
            call = call.argument("--readonly");
        }
        let end = self.run_tool(&MDADM, parts.iter().fold(call, |call, part| call.device(part.device.as_str())))?;
        let name = if first.label.is_empty() { &first.uuid } else { &first.label };
        let missing = u32::try_from(parts.len()).map_or(0, |there| first.raid_disks.saturating_sub(there));
        let lack = format!(
            "{missing} of the {} disks of the RAID {} are missing: {}",
            first.raid_disks,
            printable(name),
            Remedy::AddDisks
        );
        match (end.status, missing) {
            (Some(0), 0) => self.stacks.opened.push(StackedDevice::Array(path)),
            (Some(0), _) => {
                self.stacks.opened.push(StackedDevice::Array(path));
                self.stacks.notes.push(lack);
            }
            (_, 0) => {
                self.stacks.notes.push(format!(
                    "the RAID {} does not start: {}",
                    printable(name),
                    complaint(&MDADM, &end)
                ));
            }
            _ => self.stacks.notes.push(lack),
        }
        Ok(())
    }

    /// Opens an encrypted volume with the keys that are given for it, or else with what is typed.
    fn unlock(&mut self, volume: &Volume, asking: Asking) -> Result<()> {
        self.needs_key_memory(volume)?;
        let name = encrypted_name(volume);
        let read_only = self.reads_only();
        let given = self.keys.of(volume);
        for key in &given {
            if self.open_encrypted(volume, &name, read_only, key)? {
                return Ok(());
            }
        }
        if !given.is_empty() || asking == Asking::Nobody {
            refuse!("{}: no key that was given opens it", device(volume));
        }
        for key in self.keys.typed() {
            if self.open_encrypted(volume, &name, read_only, &key)? {
                return Ok(());
            }
        }
        let question =
            format!("Passphrase for {} (UUID {}; none leaves it closed): ", device(volume), printable(&volume.uuid));
        for _ in 0..TRIES {
            let Some(key) = self.ask(&question)? else {
                refuse!("{} is encrypted (LUKS): {}", device(volume), Remedy::GiveKey);
            };
            if key.bytes().is_empty() {
                return Ok(());
            }
            if self.open_encrypted(volume, &name, read_only, &key)? {
                self.keys.remember(key);
                return Ok(());
            }
            self.note("no key is available with this passphrase");
        }
        refuse!("{}: the passphrase was wrong {TRIES} times", device(volume))
    }

    /// Whether the appliance has the memory that it takes to make a key of a passphrase.
    pub fn needs_key_memory(&self, volume: &Volume) -> Result<()> {
        let wanted = volume.key_memory_bytes;
        if wanted > KEY_BYTES_MAX && self.has().memory_bytes < wanted.saturating_add(SYSTEM_BYTES) {
            let mebibytes = wanted.saturating_add(SYSTEM_BYTES) >> 20;
            refuse!(
                "a key of {} takes {} MiB of memory: {}",
                device(volume),
                wanted >> 20,
                Remedy::GiveMemory(mebibytes)
            );
        }
        self.needs(Needs { memory_bytes: wanted.saturating_add(SYSTEM_BYTES), raid6: false })
    }

    /// Opens an encrypted volume as /dev/mapper/`name`; false when the key is not its.
    pub(crate) fn open_encrypted(&mut self, volume: &Volume, name: &str, read_only: bool, key: &Key) -> Result<bool> {
        // cryptsetup(8): its exit status when no key fits.
        const WRONG: u32 = 2;
        let mut call = cryptsetup("open").arguments(["--type", "luks", "--disable-keyring", "--key-file", "-"]);
        if read_only {
            call = call.argument("--readonly");
        }
        let call = call.device(volume.device.as_str()).argument(name).stdin(key.bytes());
        let end = self.with_timeout(KEY_TIMEOUT, |image| image.run_tool(&CRYPTSETUP, call))?;
        match end.status {
            Some(0) => {
                self.stacks.opened.push(StackedDevice::Encrypted(name.to_owned()));
                Ok(true)
            }
            Some(WRONG) => Ok(false),
            _ => refuse!("{} cannot be opened: {}", device(volume), complaint(&CRYPTSETUP, &end)),
        }
    }

    /// Activates what is complete of the volume groups.
    fn activate(&mut self) -> Result<()> {
        let columns = "vg_name,vg_missing_pv_count";
        let groups = self.lvm("vgs", "").arguments(["--noheadings", "--separator", "/", "--options", columns]);
        let groups = self.run_tool_well(&LVM, groups)?;
        let known = |stacks: &Stacks, group: &str| {
            stacks.opened.iter().any(|device| matches!(device, StackedDevice::Group(name) if name == group))
        };
        let volumes = self.lvm("lvs", "").arguments(["--all", "--noheadings", "--options", "segtype"]);
        if self.run_tool_well(&LVM, volumes)?.contains("raid6") {
            self.needs(Needs { memory_bytes: 0, raid6: true })?;
        }
        for line in groups.lines() {
            let Some((group, missing)) = line.trim().split_once('/') else { continue };
            if !is_group_name(group) {
                continue;
            }
            let read_only = if self.reads_only() {
                format!("activation/read_only_volume_list=[\"{group}\"]")
            } else {
                String::new()
            };
            let end = self.run_tool(&LVM, self.lvm("vgchange", &read_only).arguments(["--activate", "y", group]))?;
            if !known(&self.stacks, group) {
                self.stacks.opened.push(StackedDevice::Group(group.to_owned()));
            }
            match missing.parse::<u32>() {
                Ok(missing @ 1..) => {
                    let note =
                        format!("{missing} of the disks of the volume group {group} are missing: {}", Remedy::AddDisks);
                    self.stacks.notes.push(note);
                }
                _ if end.status != Some(0) => {
                    self.stacks.notes.push(format!("the volume group {group}: {}", complaint(&LVM, &end)));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// A command of LVM's, without anybody who is not there: udev, polling and monitoring daemons, backups in /etc, and
    /// checkers of metadata that are other programs. It looks at no disk but the image's.
    pub(crate) fn lvm(&self, command: &str, more: &str) -> ToolCall {
        let filter = global_filter(self.disks());
        let configuration = format!(
            "devices {{ global_filter=[{filter}] use_devicesfile=0 obtain_device_list_from_udev=0 \
             external_device_info_source=\"none\" }} \
             activation {{ udev_sync=0 udev_rules=0 monitoring=0 }} backup {{ backup=0 archive=0 }} \
             global {{ use_lvmpolld=0 thin_check_executable=\"\" cache_check_executable=\"\" }} {more}"
        );
        ToolCall::new()
            .environment("DM_DISABLE_UDEV", "1")
            .argument(command)
            .argument("--config")
            .argument(configuration)
    }

    /// Whether the appliance has what something needs.
    pub(crate) fn needs(&self, needs: Needs) -> Result<()> {
        let has = self.has().memory_bytes >= needs.memory_bytes && (self.has().raid6 || !needs.raid6);
        if has { Ok(()) } else { Err(needs.into()) }
    }
}

/// Whether it has no files before it is opened, or put together with others.
pub fn is_closed(volume: &Volume) -> bool {
    !volume.used && [LUKS, LVM_MEMBER, RAID_MEMBER].contains(&volume.r#type.as_str())
}

/// What LVM looks at: all but the transfer disks, which come behind so many of an image.
fn global_filter(disks: u32) -> String {
    let [one, other] = [disks, disks + 1].map(|disk| format!("\"r|^/dev/{}$|\"", disk_name(disk)));
    format!("{one}, {other}, \"a|.*|\"")
}

fn device(volume: &Volume) -> String {
    printable(&volume.device)
}

/// A call of mdadm(8), without udev, which is not there.
pub fn mdadm() -> ToolCall {
    ToolCall::new().environment("MDADM_NO_UDEV", "1")
}

/// A call of cryptsetup(8), without udev and locks, which are not there.
pub fn cryptsetup(action: &str) -> ToolCall {
    ToolCall::new().environment("DM_DISABLE_UDEV", "1").argument(action).argument("--disable-locks")
}

/// What an encrypted volume is called when it is open: as systemd calls one that no crypttab names.
fn encrypted_name(volume: &Volume) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    if (1..=40).contains(&volume.uuid.len()) && volume.uuid.bytes().all(plain) {
        format!("luks-{}", volume.uuid)
    } else {
        format!("luks-{}", volume.device.replace('/', "-"))
    }
}

/// What an array is called: as it says itself behind the name of the machine that made it, md0 for 0, if that is
/// harmless. The kernel counts from 127 down for names that are none of its numbers.
fn array_path(label: &str, arrays: usize) -> String {
    let name = label.rsplit(':').next().unwrap_or_default();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    match name.parse::<u8>() {
        Ok(number) if number < 100 => format!("/dev/md{number}"),
        _ if (1..=32).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('-') => {
            format!("/dev/md/{name}")
        }
        _ => format!("/dev/md{}", 126usize.saturating_sub(arrays)),
    }
}

/// Whether it is a name of a volume group (lvm(8), "VALID NAMES").
pub fn is_group_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"+_.-".contains(&byte);
    (1..=127).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockyard_protocol::volume_name::DISKS_MAX;

    #[test]
    fn lvm_looks_at_no_transfer_disk() {
        assert_eq!(global_filter(1), "\"r|^/dev/vdb$|\", \"r|^/dev/vdc$|\", \"a|.*|\"");
        assert_eq!(global_filter(DISKS_MAX), "\"r|^/dev/vdy$|\", \"r|^/dev/vdz$|\", \"a|.*|\"");
    }

    #[test]
    fn names_out_of_headers_are_harmless() {
        assert_eq!(array_path("host:0", 0), "/dev/md0");
        assert_eq!(array_path("host:root", 0), "/dev/md/root");
        for odd in ["", "a/b", "host:../x", "--help", "\u{1b}"] {
            assert_eq!(array_path(odd, 1), "/dev/md125", "{odd:?}");
        }
        let volume = |uuid: &str| Volume { device: "vg/secret".into(), uuid: uuid.into(), ..Volume::default() };
        assert_eq!(encrypted_name(&volume("12-ab")), "luks-12-ab");
        assert_eq!(encrypted_name(&volume("../..")), "luks-vg-secret");
        assert!(is_group_name("vg0") && !is_group_name("") && !is_group_name("a\"b") && !is_group_name("-a"));
    }
}
