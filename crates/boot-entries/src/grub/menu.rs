//! The menu, and the entry that is booted when nobody chooses.

use super::machine::{Flow, Machine};
use super::script::Block;
use crate::{Entry, Loader, Piece, Problem};
use std::rc::Rc;

/// Menus that lead to each other.
const MENUS_MAX: u32 = 8;

/// An entry of a menu, or a menu in it.
#[derive(Clone, Debug)]
pub(super) struct MenuEntry {
    pub(super) title: String,
    /// May be empty.
    pub(super) id: String,
    pub(super) is_submenu: bool,
    pub(super) arguments: Vec<String>,
    pub(super) body: Block,
    pub(super) file: Rc<str>,
    pub(super) line: u32,
}

/// What the commands of an entry have loaded.
#[derive(Clone, Debug, Default)]
pub(super) struct Loaded {
    kernel: Option<Words>,
    initrds: Option<Words>,
    /// The command that starts something else.
    other: Option<String>,
}

/// A command's arguments, and where it stands.
#[derive(Clone, Debug)]
struct Words {
    words: Vec<String>,
    file: Rc<str>,
    line: u32,
}

impl Loaded {
    pub(super) fn linux(&mut self, words: &[String], line: u32, file: &Rc<str>) {
        self.kernel = Some(Words { words: words.to_vec(), file: Rc::clone(file), line });
        self.initrds = None;
    }

    pub(super) fn initrd(&mut self, words: &[String], line: u32, file: &Rc<str>) {
        self.initrds = Some(Words { words: words.to_vec(), file: Rc::clone(file), line });
    }

    pub(super) fn other(&mut self, command: &str) {
        self.other = Some(command.to_owned());
    }
}

impl Machine<'_> {
    /// What the configuration that was run boots; `None` where it has no menu and has loaded nothing.
    pub(super) fn boot_default(&mut self) -> Result<Option<Entry>, Problem> {
        let mut default = self.variable("default").to_owned();
        let mut titles = Vec::new();
        for _ in 0..MENUS_MAX {
            let menu = std::mem::take(&mut self.menu);
            let (first, rest) = default.split_once('>').unwrap_or((&default, ""));
            let Some(entry) = chosen(&menu, first) else {
                return self.loaded.kernel.is_some().then(|| self.entry(&titles, None)).transpose();
            };
            let rest = rest.to_owned();
            self.loaded = Loaded::default();
            titles.push(entry.title.clone());
            let flow = self.run_entry(entry)?;
            if flow != Flow::Replaced && !entry.is_submenu {
                return self.entry(&titles, Some(entry)).map(Some);
            }
            default = if flow == Flow::Replaced { self.variable("default").to_owned() } else { rest };
        }
        Err(self.problem(format!("more than {MENUS_MAX} menus lead to each other")))
    }

    fn run_entry(&mut self, entry: &MenuEntry) -> Result<Flow, Problem> {
        self.set("chosen", entry.title.clone());
        let (file, body) = (Rc::clone(&entry.file), Block::clone(&entry.body));
        let before = (std::mem::replace(&mut self.file, file), self.line);
        let flow = self.call(&body, entry.arguments.clone())?;
        (self.file, self.line) = before;
        Ok(flow)
    }

    fn entry(&self, titles: &[String], entry: Option<&MenuEntry>) -> Result<Entry, Problem> {
        let (file, line) = entry.map_or((&self.file, self.line), |entry| (&entry.file, entry.line));
        let Some(Words { words, file: kernel_file, line: kernel_line }) = &self.loaded.kernel else {
            let why = match &self.loaded.other {
                Some(command) => format!("the entry starts no Linux kernel, but something by {command}"),
                None => "the entry loads no Linux kernel".to_owned(),
            };
            return Err(Problem::new(&**file, line, why));
        };
        let Some((path, options)) = words.split_first() else {
            return Err(Problem::new(&**kernel_file, *kernel_line, "the kernel's name is missing"));
        };
        let piece = |path: &str, file: &str, line| self.piece(path).map_err(|why| Problem::new(file, line, why));
        let initrds = match &self.loaded.initrds {
            Some(initrds) => {
                initrds.words.iter().map(|path| piece(path, &initrds.file, initrds.line)).collect::<Result<_, _>>()?
            }
            None => Vec::new(),
        };
        let options: String = options.iter().map(|option| format!(" {}", quoted(option))).collect();
        Ok(Entry {
            loader: Loader::Grub,
            file: file.to_string(),
            line,
            title: titles.join(">"),
            kernel: piece(path, kernel_file, *kernel_line)?,
            initrds,
            command_line: format!("BOOT_IMAGE={path}{options}"),
            notes: Vec::new(),
        })
    }

    fn piece(&self, path: &str) -> Result<Piece, String> {
        if path.starts_with("newc:") {
            return Err(format!("{path}: files that GRUB makes an initrd of are not supported"));
        }
        let place = self.place(path)?;
        let shown = self.image.shown(&place);
        self.image.piece(place).ok_or_else(|| format!("the image has no file {shown}"))
    }
}

/// The entry of that number, title or id; the first where there is none.
fn chosen<'menu>(menu: &'menu [MenuEntry], name: &str) -> Option<&'menu MenuEntry> {
    let by_number = name.trim().parse::<usize>().ok().and_then(|number| menu.get(number));
    let by_name = || menu.iter().find(|entry| !name.is_empty() && (entry.title == name || entry.id == name));
    by_number.or_else(by_name).or(menu.first())
}

/// An argument as GRUB gives it to Linux: with quotes where it has spaces.
fn quoted(option: &str) -> String {
    let escaped: String = option
        .chars()
        .flat_map(|letter| {
            let escape = matches!(letter, '\\' | '\'' | '"').then_some('\\');
            escape.into_iter().chain([letter])
        })
        .collect();
    if option.contains(' ') { format!("\"{escaped}\"") } else { escaped }
}
