//! The commands that decide what is booted.

use super::condition::{self, Files};
use super::environment_block;
use super::machine::{Flow, Machine, is_name};
use super::menu::MenuEntry;
use super::script::Block;
use crate::boot_loader_specification::{self, Candidate};
use crate::files::Place;
use crate::{Problem, root_argument};
use std::rc::Rc;

/// Entries of a menu that are kept.
const ENTRIES_MAX: usize = 1024;
/// What an entry's file takes at least, to be found and read.
const ENTRY_BYTES: usize = 4096;
/// Commands that fail where there is no screen, keyboard or clock: scripts ask for that.
const FAILING: [&str; 8] =
    ["false", "loadfont", "background_image", "keystatus", "regexp", "cmostest", "videotest", "pcidump"];
/// Commands that start something else than Linux.
const OTHER_SYSTEMS: [&str; 9] =
    ["chainloader", "multiboot", "multiboot2", "xen_hypervisor", "ntldr", "freedos", "kfreebsd", "knetbsd", "kopenbsd"];

type Done = Result<Flow, Problem>;

impl Machine<'_> {
    /// A command of GRUB's; what is not known does nothing, and succeeds.
    pub(super) fn own_command(&mut self, name: &str, words: &[String], block: Option<&Block>) -> Done {
        let mut success = true;
        match name {
            "set" => success = self.set_command(words),
            "unset" => words.iter().for_each(|name| self.unset(name)),
            "test" => success = self.test(words),
            "[" => success = words.split_last().is_some_and(|(last, words)| last == "]" && self.test(words)),
            "load_env" => success = self.load_environment(words)?,
            "configfile" | "source" | "." | "normal" => return self.run_file(name, words),
            "menuentry" | "submenu" => self.menu_entry(name == "submenu", words, block)?,
            "blscfg" => self.boot_loader_specification()?,
            "linux" | "linux16" | "linuxefi" => self.loaded.linux(words, self.line, &self.file),
            "initrd" | "initrd16" | "initrdefi" => self.loaded.initrd(words, self.line, &self.file),
            "return" | "exit" => {
                self.success = words.first().is_none_or(|status| status == "0");
                return Ok(Flow::Return);
            }
            "break" => return Ok(Flow::Break),
            "continue" => return Ok(Flow::Continue),
            other if other == "search" || other.starts_with("search.") => success = self.search(other, words),
            other if FAILING.contains(&other) => success = false,
            other if OTHER_SYSTEMS.contains(&other) => self.loaded.other(other),
            _ => {}
        }
        self.success = success;
        Ok(Flow::Next)
    }

    fn set_command(&mut self, words: &[String]) -> bool {
        let Some((name, value)) = words.first().and_then(|word| word.split_once('=')) else { return true };
        self.set(name, value.to_owned());
        is_name(name)
    }

    fn test(&self, words: &[String]) -> bool {
        let place = |path: &str| self.place(path).ok();
        let files = Files {
            size: &|path| place(path).and_then(|place| self.image.size(&place)),
            is_directory: &|path| place(path).is_some_and(|place| self.image.has_directory(&place)),
        };
        condition::holds(words, &files)
    }

    /// The file that a path means: (hd0,gpt2)/path, or /path on the device `root`.
    pub(super) fn place(&self, path: &str) -> Result<Place, String> {
        let within = path.strip_prefix('(').and_then(|rest| rest.split_once(')'));
        let (device, path) = within.unwrap_or((self.variable("root"), path));
        match self.volume(device) {
            Some(volume) => Ok(self.image.resolve(volume, path)),
            None => Err(format!("{path} is on {device}, which the image does not have")),
        }
    }

    /// What GRUB calls a volume.
    pub(super) fn device_name(&self, volume: usize) -> String {
        let Some(found) = self.image.volumes().get(volume) else { return String::new() };
        match (found.disk, found.partition) {
            (Some(disk), None) => format!("hd{disk}"),
            (Some(disk), Some(partition)) if found.is_gpt => format!("hd{disk},gpt{partition}"),
            (Some(disk), Some(partition)) => format!("hd{disk},msdos{partition}"),
            (None, _) if found.name.contains('/') => format!("lvm/{}", root_argument::mapper_name(&found.name)),
            (None, _) => found.name.clone(),
        }
    }

    /// The volume that GRUB, or a script that is older than its table, calls so.
    fn volume(&self, device: &str) -> Option<usize> {
        let without_table = |name: &str| name.replace(",gpt", ",").replace(",msdos", ",");
        let wanted = without_table(device);
        (0..self.image.volumes().len()).find(|&volume| without_table(&self.device_name(volume)) == wanted)
    }

    /// search: sets a variable, which is `root` if none is named, to the device that something is on.
    fn search(&mut self, command: &str, words: &[String]) -> bool {
        let (mut kind, mut variable, mut sets) = (command.strip_prefix("search.").unwrap_or_default(), None, false);
        let mut names = Vec::new();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--fs-uuid" | "-u" => kind = "fs_uuid",
                "--label" | "-l" | "--fs-label" => kind = "fs_label",
                "--file" | "-f" => kind = "file",
                "--set" | "-s" => sets = true,
                word if word.starts_with("--set=") => variable = word.strip_prefix("--set=").map(str::to_owned),
                "--hint" | "-h" => drop(words.next()),
                word if word.starts_with('-') => {}
                word => names.push(word.to_owned()),
            }
        }
        // `search.fs_uuid UUID VARIABLE HINTS`, and `search --set VARIABLE UUID`.
        let (name, place) = match (command, sets && variable.is_none(), &names[..]) {
            ("search", true, [variable, name, ..]) => (name, Some(variable.clone())),
            ("search", _, [name, ..]) => (name, None),
            (_, _, [name, variable, ..]) => (name, Some(variable.clone())),
            (_, _, [name]) => (name, None),
            _ => return false,
        };
        let Some(found) = self.find_volume(kind, name) else { return false };
        let device = self.device_name(found);
        self.set(&variable.or(place).unwrap_or_else(|| "root".to_owned()), device);
        true
    }

    fn find_volume(&self, kind: &str, name: &str) -> Option<usize> {
        let volumes = self.image.volumes();
        match kind {
            "fs_uuid" => volumes.iter().position(|volume| volume.uuid.eq_ignore_ascii_case(name)),
            "fs_label" => volumes.iter().position(|volume| volume.label == name),
            "file" => (0..volumes.len()).find(|&volume| self.image.has(&self.image.resolve(volume, name))),
            _ => None,
        }
    }

    /// load_env [--file FILE] [NAME…]
    fn load_environment(&mut self, words: &[String]) -> Result<bool, Problem> {
        let (mut file, mut wanted) = (format!("{}/grubenv", self.variable("prefix")), Vec::new());
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "-f" | "--file" => file = words.next().cloned().unwrap_or_default(),
                word if word.starts_with("--file=") => file = word["--file=".len()..].to_owned(),
                word if word.starts_with('-') => {}
                word => wanted.push(word.to_owned()),
            }
        }
        let Some(text) = self.place(&file).ok().and_then(|place| self.image.text(&place)) else { return Ok(false) };
        self.spend(text.len())?;
        for (name, value) in environment_block::parse(&text) {
            if is_name(&name) && (wanted.is_empty() || wanted.contains(&name)) {
                self.set(&name, value);
            }
        }
        Ok(true)
    }

    /// Another script: in place of this one, or as a part of it.
    fn run_file(&mut self, command: &str, words: &[String]) -> Done {
        let path = words.first().cloned().unwrap_or_else(|| format!("{}/grub.cfg", self.variable("prefix")));
        let found = self.place(&path).ok().and_then(|place| Some((self.image.text(&place)?, place)));
        let Some((text, place)) = found else {
            self.success = false;
            return Ok(Flow::Next);
        };
        let replaces = matches!(command, "configfile" | "normal");
        if replaces {
            self.menu.clear();
            let directory = format!("({}){}", self.device_name(place.volume), place.directory().path);
            self.set("config_directory", directory);
        }
        let flow = self.run_configuration(&place, &text)?;
        Ok(if replaces { Flow::Replaced } else { flow })
    }

    fn menu_entry(&mut self, is_submenu: bool, words: &[String], block: Option<&Block>) -> Result<(), Problem> {
        let (mut id, mut arguments) = (String::new(), Vec::new());
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--id" => id = words.next().cloned().unwrap_or_default(),
                "--class" | "--users" | "--hotkey" | "--source" => drop(words.next()),
                word if word.starts_with("--id=") => id = word["--id=".len()..].to_owned(),
                word if word.starts_with("--") => {}
                word => arguments.push(word.to_owned()),
            }
        }
        let Some(body) = block.cloned() else { return Ok(()) };
        let title = arguments.first().cloned().unwrap_or_default();
        let (file, line) = (Rc::clone(&self.file), self.line);
        self.add_entry(MenuEntry { title, id, is_submenu, arguments, body, file, line })
    }

    fn add_entry(&mut self, entry: MenuEntry) -> Result<(), Problem> {
        if self.menu.len() >= ENTRIES_MAX {
            return Err(self.problem(format!("the menu has more than {ENTRIES_MAX} entries")));
        }
        self.menu.push(entry);
        Ok(())
    }

    /// blscfg: entries as files, the newest first, as Fedora's GRUB has them.
    fn boot_loader_specification(&mut self) -> Result<(), Problem> {
        let device = match self.variable("boot") {
            "" => self.variable("root"),
            boot => boot,
        };
        let Some(volume) = self.volume(device) else { return Ok(()) };
        let named = Some(self.variable("blsdir").to_owned()).filter(|directory| !directory.is_empty());
        let usual = ["/loader/entries", "/boot/loader/entries"].map(str::to_owned);
        let directories = named.into_iter().chain(usual).map(|path| self.image.resolve(volume, &path));
        let found = directories.map(|place| boot_loader_specification::text_entries(self.image, &place));
        let mut entries = found.into_iter().find(|entries| !entries.is_empty()).unwrap_or_default();
        self.spend(entries.iter().map(|entry| ENTRY_BYTES + entry.text.bytes).sum())?;
        entries.retain(Candidate::is_linux);
        entries.sort_by(|one, other| crate::version::compare(&other.id, &one.id));
        for entry in entries {
            self.add_specified(&entry)?;
        }
        Ok(())
    }

    /// An entry's file as a menu entry: the values of the variables that it names are GRUB's.
    fn add_specified(&mut self, entry: &Candidate) -> Result<(), Problem> {
        let file: Rc<str> = self.image.shown(&entry.place).into();
        let linux = entry.text.linux.as_ref().map_or("", |(_, path)| path);
        let options = entry.text.options.join(" ");
        let initrds: Vec<_> = entry.text.initrds.iter().map(|(_, path)| path.as_str()).collect();
        let script = format!("linux {linux} {options}\ninitrd {}\n", initrds.join(" "));
        self.spend(script.len())?;
        let body = super::script::parse(&script)
            .map_err(|error| Problem::new(&*file, 0, format!("GRUB cannot run it: {}", error.sentence)))?;
        let id = entry.id.strip_suffix(".conf").unwrap_or(&entry.id).to_owned();
        let title = if entry.text.title.is_empty() { id.clone() } else { entry.text.title.clone() };
        self.add_entry(MenuEntry { title, id, is_submenu: false, arguments: Vec::new(), body, file, line: 0 })
    }
}
