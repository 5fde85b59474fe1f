//! Making and taking apart what volumes are made of. What is open afterwards is closed with the image.

use super::keys::Key;
use super::opened_stacks::StackedDevice;
use super::stacks::{KEY_TIMEOUT, LUKS, cryptsetup, mdadm};
use crate::Needs;
use crate::error::{Result, refuse};
use crate::guest::OpenImage;
use crate::guest::read_in;
use blockyard_appliance::tools::{CRYPTSETUP, LVM, MDADM, ToolCall};
use blockyard_protocol::appliance::{CopyBlocks, Operation, Place, Volume};
use std::io::{self, Read};

/// Bytes at a device's start that every file system and volume says in what it is, as libguestfs has them.
const START_BYTES: u64 = 128 << 10;

impl OpenImage {
    /// A volume group is active, and closed with the image.
    pub fn has_group(&mut self, name: &str) {
        let group = StackedDevice::Group(name.to_owned());
        if !self.stacks.opened.contains(&group) {
            self.stacks.opened.push(group);
        }
    }

    /// There is no such volume group any more.
    pub fn has_no_group(&mut self, name: &str) {
        self.stacks.opened.retain(|device| !matches!(device, StackedDevice::Group(known) if known == name));
    }

    /// Opens an encrypted volume as /dev/mapper/`name`; false when the key is not its.
    ///
    /// # Errors
    /// When it is none, or cannot be opened; [`Needs`] when the appliance has too little memory for it.
    pub fn open_encrypted_as(&mut self, device: &str, name: &str, read_only: bool, key: &Key) -> Result<bool> {
        let volume = self.encrypted(device)?;
        self.needs_key_memory(&volume)?;
        let read_only = read_only || self.reads_only();
        self.open_encrypted(&volume, name, read_only, key)
    }

    /// Runs a command of LVM's with more arguments; what it printed.
    ///
    /// # Errors
    /// What it says when it fails.
    pub fn run_lvm(&mut self, command: &str, more: impl FnOnce(ToolCall) -> ToolCall) -> Result<String> {
        let call = more(self.lvm(command, ""));
        self.run_tool_well(&LVM, call)
    }

    /// An encrypted volume that is not open.
    ///
    /// # Errors
    /// When it is none, or open.
    pub fn encrypted(&mut self, name: &str) -> Result<Volume> {
        let volume = self.volume(Some(name))?;
        if volume.r#type == LUKS { Ok(volume) } else { refuse!("{name} is not encrypted (LUKS), or open already") }
    }

    /// Closes an encrypted volume that is open as /dev/mapper/`name`.
    ///
    /// # Errors
    /// When there is none, or it is in use.
    pub fn close_encrypted(&mut self, name: &str) -> Result<()> {
        let device = StackedDevice::Encrypted(name.to_owned());
        if !self.stacks.opened.contains(&device) {
            refuse!("no encrypted volume is open as /dev/mapper/{name}");
        }
        self.run_tool_well(&CRYPTSETUP, cryptsetup("close").argument(name))?;
        self.stacks.opened.retain(|opened| *opened != device);
        Ok(())
    }

    /// Makes an encrypted volume.
    ///
    /// # Errors
    /// What cryptsetup says.
    pub fn format_encrypted(&mut self, device: &str, key: &Key, options: &[&str]) -> Result<()> {
        if key.bytes().is_empty() {
            refuse!("{device}: a key that is empty keeps nobody out");
        }
        let call = cryptsetup("luksFormat").arguments(["--batch-mode", "--key-file", "-"]);
        let call = call.arguments(options.iter().copied()).device(device).changes_devices();
        let call = call.stdin(key.bytes());
        self.with_timeout(KEY_TIMEOUT, |image| image.run_tool_well(&CRYPTSETUP, call)).map(drop)
    }

    /// Whether the appliance has what an array of that level takes.
    ///
    /// # Errors
    /// [`Needs`].
    pub fn needs_level(&self, level: &str) -> Result<()> {
        self.needs(Needs { memory_bytes: 0, raid6: ["6", "raid6"].contains(&level) })
    }

    /// Makes an array, which is at `path` then.
    ///
    /// # Errors
    /// What mdadm says.
    pub fn create_array(&mut self, path: &str, more: impl FnOnce(ToolCall) -> ToolCall) -> Result<()> {
        self.run_tool_well(&MDADM, more(mdadm().arguments(["--create", path, "--run"])))?;
        self.stacks.opened.push(StackedDevice::Array(path.to_owned()));
        Ok(())
    }

    /// Stops an array.
    ///
    /// # Errors
    /// When it is in use.
    pub fn stop_array(&mut self, array: &Volume) -> Result<()> {
        let mut kept = Vec::new();
        for device in std::mem::take(&mut self.stacks.opened) {
            let is_it = match &device {
                StackedDevice::Array(path) => self.volume(Some(path)).is_ok_and(|volume| volume.device == array.device),
                _ => false,
            };
            kept.extend((!is_it).then_some(device));
        }
        self.stacks.opened = kept;
        self.run_tool_well(&MDADM, mdadm().argument("--stop").device(array.device.as_str())).map(drop)
    }

    /// Zeroes a device's start.
    ///
    /// # Errors
    /// When it is mounted, or cannot be written.
    pub fn clear_start(&mut self, device: &str) -> Result<()> {
        let bytes = START_BYTES.min(self.volume(Some(device))?.size);
        self.write_zeros(device, bytes)
    }

    /// Zeroes the first bytes of a device.
    ///
    /// # Errors
    /// As [`OpenImage::clear_start`].
    pub fn write_zeros(&mut self, device: &str, bytes: u64) -> Result<()> {
        let request = CopyBlocks {
            input: Place::Stream,
            output: Place::Device(device.to_owned()),
            block_size: 1 << 20,
            count: u64::MAX,
            skip: 0,
            seek: 0,
            no_truncate: true,
            disks: self.disks(),
        };
        read_in(self, Operation::CopyBlocks(request), io::repeat(0).take(bytes)).map(drop)
    }
}
