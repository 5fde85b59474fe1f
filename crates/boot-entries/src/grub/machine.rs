//! Runs a script: variables, functions, and what a script does with both.

use super::script::{self, Block, Kind, Part, Statement, Word};
use crate::Problem;
use crate::files::{Image, Place};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Commands that are run, in all.
const STEPS_MAX: u32 = 20_000;
/// Bytes of text that are made and read meanwhile: none of it is kept for longer than the machine is.
const BYTES_MAX: usize = 16 << 20;
/// How deep functions, files and statements run in each other.
const DEPTH_MAX: u32 = 100;

/// What scripts have from the start, as GRUB on a machine without UEFI says it.
const VARIABLES: [(&str, &str); 11] = [
    ("grub_cpu", "i386"),
    ("grub_platform", "pc"),
    ("feature_200_final", "y"),
    ("feature_all_video_module", "y"),
    ("feature_chainloader_bpb", "y"),
    ("feature_default_font_path", "y"),
    ("feature_menuentry_id", "y"),
    ("feature_menuentry_options", "y"),
    ("feature_nativedisk_cmd", "y"),
    ("feature_ntldr", "y"),
    ("feature_platform_search_hint", "y"),
];
const TIMEOUT_STYLE: (&str, &str) = ("feature_timeout_style", "y");

/// How a script goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Next,
    Break,
    Continue,
    /// Out of a function, or a file.
    Return,
    /// Another configuration has taken the place of this one.
    Replaced,
}

pub(super) struct Machine<'image> {
    pub(super) image: &'image Image<'image>,
    variables: BTreeMap<String, String>,
    functions: BTreeMap<String, Block>,
    /// $1 and those that follow, of the functions that run.
    pub(super) arguments: Vec<Vec<String>>,
    /// Whether the last command succeeded.
    pub(super) success: bool,
    pub(super) menu: Vec<super::menu::MenuEntry>,
    pub(super) loaded: super::menu::Loaded,
    /// The script that runs, for people.
    pub(super) file: Rc<str>,
    /// Where in it.
    pub(super) line: u32,
    steps: u32,
    bytes: usize,
    depth: u32,
}

impl<'image> Machine<'image> {
    /// A machine that has loaded the configuration at `place`.
    pub(super) fn new(image: &'image Image<'image>, place: &Place) -> Self {
        let mut machine = Self {
            image,
            variables: BTreeMap::new(),
            functions: BTreeMap::new(),
            arguments: Vec::new(),
            success: true,
            menu: Vec::new(),
            loaded: super::menu::Loaded::default(),
            file: "".into(),
            line: 0,
            steps: 0,
            bytes: 0,
            depth: 0,
        };
        let (device, directory) = (machine.device_name(place.volume), place.directory().path);
        let prefix = format!("({device}){directory}");
        let own = [("root", device.as_str()), ("prefix", &prefix), ("config_directory", &prefix)];
        let id = [TIMEOUT_STYLE, ("menuentry_id_option", "--id")];
        for (name, value) in VARIABLES.into_iter().chain(own).chain(id) {
            machine.variables.insert(name.to_owned(), value.to_owned());
        }
        machine
    }

    pub(super) fn variable(&self, name: &str) -> &str {
        self.variables.get(name).map_or("", String::as_str)
    }

    pub(super) fn set(&mut self, name: &str, value: String) {
        self.variables.insert(name.to_owned(), value);
    }

    pub(super) fn unset(&mut self, name: &str) {
        self.variables.remove(name);
    }

    pub(super) fn problem(&self, sentence: impl Into<String>) -> Problem {
        Problem::new(&*self.file, self.line, sentence)
    }

    /// Uses up some of what a script may make and read.
    pub(super) fn spend(&mut self, bytes: usize) -> Result<(), Problem> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > BYTES_MAX {
            return Err(self.problem(format!("the script makes more than {} MiB of text", BYTES_MAX >> 20)));
        }
        Ok(())
    }

    /// Runs a configuration file.
    pub(super) fn run_configuration(&mut self, place: &Place, text: &str) -> Result<Flow, Problem> {
        self.spend(text.len())?;
        let file = self.image.shown(place).into();
        self.run_text(file, text)
    }

    pub(super) fn run_text(&mut self, file: Rc<str>, text: &str) -> Result<Flow, Problem> {
        let block = script::parse(text).map_err(|error| Problem::new(&*file, error.line, error.sentence))?;
        self.run_in(file, &block)
    }

    /// Runs statements of another file.
    pub(super) fn run_in(&mut self, file: Rc<str>, block: &Block) -> Result<Flow, Problem> {
        let (before, line) = (std::mem::replace(&mut self.file, file), self.line);
        let flow = self.run(block)?;
        (self.file, self.line) = (before, line);
        Ok(if flow == Flow::Return { Flow::Next } else { flow })
    }

    pub(super) fn run(&mut self, block: &[Statement]) -> Result<Flow, Problem> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return Err(self.problem("functions call each other too deep"));
        }
        for statement in block {
            self.line = statement.line;
            let flow = self.statement(statement)?;
            if flow != Flow::Next {
                self.depth -= 1;
                return Ok(flow);
            }
        }
        self.depth -= 1;
        Ok(Flow::Next)
    }

    fn step(&mut self) -> Result<(), Problem> {
        self.steps += 1;
        if self.steps > STEPS_MAX {
            return Err(self.problem(format!("the script runs more than {STEPS_MAX} commands")));
        }
        Ok(())
    }

    fn statement(&mut self, statement: &Statement) -> Result<Flow, Problem> {
        self.step()?;
        match &statement.kind {
            Kind::Command { words, block } => self.command(words, block.as_ref()),
            Kind::Function { name, body } => {
                self.functions.insert(name.clone(), Block::clone(body));
                Ok(Flow::Next)
            }
            Kind::If { branches, otherwise } => {
                for (condition, body) in branches {
                    let flow = self.run(condition)?;
                    if flow != Flow::Next {
                        return Ok(flow);
                    }
                    if self.success {
                        return self.run(body);
                    }
                }
                self.success = true;
                self.run(otherwise)
            }
            Kind::Loop { until, condition, body } => self.repeat(*until, condition, body),
            Kind::For { name, words, body } => {
                for value in self.expand(words)? {
                    self.step()?;
                    self.set(name, value);
                    match self.run(body)? {
                        Flow::Next | Flow::Continue => {}
                        Flow::Break => break,
                        flow => return Ok(flow),
                    }
                }
                Ok(Flow::Next)
            }
        }
    }

    fn repeat(&mut self, until: bool, condition: &Block, body: &Block) -> Result<Flow, Problem> {
        loop {
            self.step()?;
            let flow = self.run(condition)?;
            if flow != Flow::Next || self.success == until {
                self.success = true;
                return Ok(flow);
            }
            match self.run(body)? {
                Flow::Next | Flow::Continue => {}
                Flow::Break => return Ok(Flow::Next),
                flow => return Ok(flow),
            }
        }
    }

    fn command(&mut self, words: &[Word], block: Option<&Block>) -> Result<Flow, Problem> {
        let mut words = self.expand(words)?;
        let negated = words.first().is_some_and(|word| word == "!");
        if negated {
            words.remove(0);
        }
        let flow = self.named_command(words, block)?;
        self.success ^= negated;
        Ok(flow)
    }

    fn named_command(&mut self, mut words: Vec<String>, block: Option<&Block>) -> Result<Flow, Problem> {
        let Some(name) = words.first().cloned() else { return Ok(Flow::Next) };
        if let Some(body) = self.functions.get(&name).cloned() {
            words.remove(0);
            return self.call(&body, words);
        }
        match name.split_once('=') {
            // An assignment without `set`.
            Some((variable, value)) if is_name(variable) && words.len() == 1 => {
                self.set(variable, value.to_owned());
                self.success = true;
                Ok(Flow::Next)
            }
            _ => self.own_command(&name, &words[1..], block),
        }
    }

    /// Runs a block with arguments of its own.
    pub(super) fn call(&mut self, body: &Block, arguments: Vec<String>) -> Result<Flow, Problem> {
        self.arguments.push(arguments);
        let line = self.line;
        let flow = self.run(body)?;
        self.line = line;
        self.arguments.pop();
        Ok(if flow == Flow::Return { Flow::Next } else { flow })
    }

    /// The words that are meant: a variable that is not quoted is as many as it holds.
    fn expand(&mut self, words: &[Word]) -> Result<Vec<String>, Problem> {
        let mut expanded = Vec::new();
        for word in words {
            let mut current = None::<String>;
            for part in word {
                let (text, is_whole) = match part {
                    Part::Text { text, .. } => (text.clone(), true),
                    Part::Variable { name, quoted } => (self.value(name), *quoted),
                };
                // As words, letters that are spaces take more.
                self.spend(text.len() * if is_whole { 1 } else { size_of::<String>() })?;
                if is_whole {
                    current.get_or_insert_default().push_str(&text);
                } else {
                    add_fields(&text, &mut current, &mut expanded);
                }
            }
            expanded.extend(current);
        }
        Ok(expanded)
    }

    fn value(&self, name: &str) -> String {
        let arguments = self.arguments.last().map_or(&[][..], Vec::as_slice);
        match name {
            "?" => u32::from(!self.success).to_string(),
            "#" => arguments.len().to_string(),
            "*" | "@" => arguments.join(" "),
            name if name.bytes().all(|byte| byte.is_ascii_digit()) => {
                let number = name.parse::<usize>().ok().and_then(|number| number.checked_sub(1));
                number.and_then(|number| arguments.get(number)).cloned().unwrap_or_default()
            }
            name => self.variable(name).to_owned(),
        }
    }
}

/// Adds a text whose spaces are between words: the first word goes on with `current`, the last one becomes that.
fn add_fields(text: &str, current: &mut Option<String>, words: &mut Vec<String>) {
    for (number, field) in text.split(char::is_whitespace).enumerate() {
        if number > 0 {
            words.extend(current.take());
        }
        if !field.is_empty() {
            current.get_or_insert_default().push_str(field);
        }
    }
}

/// Whether it can be a variable's.
pub(super) fn is_name(text: &str) -> bool {
    let begins = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    begins && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
