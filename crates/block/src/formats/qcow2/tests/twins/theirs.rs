//! What is done to QEMU's twin.

use super::super::output_of;
use super::ours::format_of;
use super::script::{BitmapChange, Making, SnapshotChange, Step};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

pub(super) struct Theirs {
    pub(super) image: PathBuf,
    directory: PathBuf,
}

impl Theirs {
    pub(super) fn of(directory: &Path) -> Self {
        Self { image: directory.join("image"), directory: directory.to_owned() }
    }

    /// Files of the directory are named in `arguments` as they are there.
    fn run(&self, tool: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(tool);
        if self.directory.join("data").exists() || arguments.contains(&"create") {
            // Where QEMU looks for a data file.
            return output_of(command.args(arguments).current_dir(&self.directory));
        }
        // To start a program in another directory, the standard library forks: that is a copy of all page tables.
        for argument in arguments {
            match *argument {
                "image" | "new" | "held" => command.arg(self.directory.join(argument)),
                _ => command.arg(argument),
            };
        }
        output_of(&mut command)
    }

    /// The error is what it said.
    pub(super) fn qemu_img(&self, arguments: &[&str]) -> Result<String, String> {
        let output = self.run("qemu-img", arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(String::from_utf8_lossy(&output.stdout).into_owned()) } else { Err(said) }
    }

    pub(super) fn json(&self, arguments: &[&str]) -> Result<Value, String> {
        let output = self.run("qemu-img", arguments);
        serde_json::from_slice(&output.stdout)
            .map_err(|_| format!("{arguments:?}: {}", String::from_utf8_lossy(&output.stderr)))
    }

    pub(super) fn create(&self, name: &str, making: &Making, size: u64, more: &[&str], data_file: Option<&str>) {
        let data_file = data_file.map_or(String::new(), |name| format!(",data_file={name}"));
        let (options, size) = (making.options() + &data_file, size.to_string());
        let arguments = [&["create", "-q", "-f", "qcow2", "-o", &options], more, &[name, &size]].concat();
        self.qemu_img(&arguments).unwrap();
    }

    pub(super) fn perform(&self, steps: &[Step]) -> Result<(), String> {
        let word = |step: &Step| match step {
            Step::Write { offset, length, byte } => format!("write -P {byte} {offset} {length}"),
            Step::Zero { offset, length, unmap: true } => format!("write -z -u {offset} {length}"),
            Step::Zero { offset, length, unmap: false } => format!("write -z {offset} {length}"),
            Step::Discard { offset, length } => format!("discard {offset} {length}"),
            _ => unreachable!("no request: {step:?}"),
        };
        let words: Vec<_> = steps.iter().map(word).collect();
        let mut arguments = vec!["-f", "qcow2", "-d", "unmap"];
        words.iter().for_each(|word| arguments.extend(["-c", word]));
        let output = self.run("qemu-io", &[&arguments[..], &["image"]].concat());
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        if output.status.success() && !said.contains("failed") { Ok(()) } else { Err(said.into_owned()) }
    }

    pub(super) fn command(&self, step: &Step) -> Result<(), String> {
        match step {
            Step::Resize { size } => {
                self.qemu_img(&["resize", "-q", "--shrink", "-f", "qcow2", "image", &size.to_string()])?;
            }
            Step::Snapshot { change, name } => {
                let option = match change {
                    SnapshotChange::Make => "-c",
                    SnapshotChange::Apply => "-a",
                    SnapshotChange::Remove => "-d",
                };
                self.qemu_img(&["snapshot", option, name, "image"])?;
            }
            Step::Bitmap { change, name } => {
                let granularity;
                let words = match change {
                    BitmapChange::Add { granularity_bytes } => {
                        granularity = granularity_bytes.to_string();
                        vec!["--add", "-g", &granularity]
                    }
                    BitmapChange::Remove => vec!["--remove"],
                    BitmapChange::Clear => vec!["--clear"],
                    BitmapChange::Enable => vec!["--enable"],
                    BitmapChange::Disable => vec!["--disable"],
                    BitmapChange::Merge { source } => vec!["--merge", source],
                };
                self.qemu_img(&[&["bitmap", "-f", "qcow2"], &words[..], &["image", name]].concat())?;
            }
            Step::Commit => drop(self.qemu_img(&["commit", "-q", "-f", "qcow2", "image"])?),
            Step::Rebase { name: "" } => drop(self.qemu_img(&["rebase", "-f", "qcow2", "-b", "", "image"])?),
            Step::Rebase { name } => {
                let format = format_of(&self.directory.join(name));
                self.qemu_img(&["rebase", "-f", "qcow2", "-F", format, "-b", name, "image"])?;
            }
            Step::Convert { making, compress } => {
                let options = making.options();
                let compress = if *compress { &["-c"][..] } else { &[] };
                let words = ["convert", "-q", "-f", "qcow2", "-O", "qcow2", "-o", &options];
                self.qemu_img(&[&words, compress, &["image", "new"]].concat())?;
                std::fs::rename(self.directory.join("new"), &self.image).unwrap();
            }
            Step::Amend { version, is_lazy, refcount_order } => {
                let version = version.map(|version| format!("compat={}", if version == 2 { "0.10" } else { "1.1" }));
                let is_lazy = is_lazy.map(|is| format!("lazy_refcounts={}", if is { "on" } else { "off" }));
                let bits = refcount_order.map(|order| format!("refcount_bits={}", 1 << order));
                let options = [version, is_lazy, bits].into_iter().flatten().collect::<Vec<_>>().join(",");
                self.qemu_img(&["amend", "-q", "-f", "qcow2", "-o", &options, "image"])?;
            }
            _ => unreachable!("a request: {step:?}"),
        }
        Ok(())
    }
}
