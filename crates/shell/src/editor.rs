//! The shell with somebody in front of it: prompt, line editing, history, completion.

use crate::commands;
use crate::completion::Completion;
use crate::keys;
use crate::line;
use crate::workbench::Workbench;
use anyhow::{Context, Result, bail};
use blockyard_block::unchangeable;
use blockyard_command_line::terminal;
use rustyline::error::ReadlineError;
use rustyline::history::FileHistory;
use rustyline::{CompletionType, Config, Editor, Event};
use std::cell::RefCell;
use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::rc::Rc;

/// Lines that are remembered.
const HISTORY_LINES: usize = 1000;

type LineEditor = Editor<Completion, FileHistory>;

/// Reads lines and does what they ask for, until there are no more.
///
/// # Errors
/// When the terminal cannot be read, or the images cannot be closed.
pub(crate) fn run(mut workbench: Workbench) -> Result<()> {
    workbench.is_interactive = true;
    workbench.signals.forgive();
    let workbench = Rc::new(RefCell::new(workbench));
    let config = Config::builder()
        .max_history_size(HISTORY_LINES)
        .and_then(|config| config.history_ignore_dups(true))
        .context("setting up the history")?
        .history_ignore_space(true)
        .completion_type(CompletionType::List)
        .build();
    let history = FileHistory::with_config(&config);
    let mut editor = new_editor(&config, history, &workbench)?;
    let history = history_file();
    if let Some(history) = &history {
        // The first time there is none.
        let _ = editor.load_history(history);
        keep_what_is_seen(&mut editor);
    }
    greet(&workbench.borrow());
    let done = lines(&mut editor, &config, &workbench);
    if let Some(history) = &history {
        // It is a convenience.
        let _ = editor.save_history(history);
    }
    drop(editor);
    workbench.borrow_mut().finish(done)
}

/// An editor that has read nothing yet. One keeps what came in one piece with a line, for the next ones.
fn new_editor(config: &Config, history: FileHistory, workbench: &Rc<RefCell<Workbench>>) -> Result<LineEditor> {
    let mut editor = LineEditor::with_history(config.clone(), history).context("setting up the terminal")?;
    editor.set_helper(Some(Completion::new(Rc::clone(workbench))));
    editor.bind_sequence(Event::Any, keys::handler());
    Ok(editor)
}

/// Forgets what was typed ahead, as the terminal does of what is not read yet: it was to follow what Ctrl-C has ended.
fn forget_typed_ahead(editor: &mut LineEditor, config: &Config, workbench: &Rc<RefCell<Workbench>>) -> Result<()> {
    let history = std::mem::replace(editor.history_mut(), FileHistory::with_config(config));
    *editor = new_editor(config, history, workbench)?;
    Ok(())
}

/// Forgets lines out of a history that could not be typed.
fn keep_what_is_seen(editor: &mut LineEditor) {
    let lines: Vec<_> = editor.history().iter().cloned().collect();
    if lines.iter().all(|line| keys::is_seen(line)) {
        return;
    }
    // It is a convenience.
    let _ = editor.clear_history();
    for line in lines.iter().filter(|line| keys::is_seen(line)) {
        let _ = editor.add_history_entry(line);
    }
}

fn greet(workbench: &Workbench) {
    let mounted = workbench.points().len();
    let disks = workbench.drives().len();
    terminal::tell(&format!(
        "{disks} disk(s), {mounted} mounted file system(s). `help` lists the commands, Tab completes, Ctrl-D ends."
    ));
}

fn lines(editor: &mut LineEditor, config: &Config, shared: &Rc<RefCell<Workbench>>) -> Result<()> {
    loop {
        let text = match editor.readline("blockyard> ") {
            Ok(text) => text,
            Err(ReadlineError::Interrupted) => continue,
            // A terminal that is gone says so too.
            Err(ReadlineError::Eof) => return ended(&shared.borrow()),
            Err(error) => return Err(error).context("cannot read the terminal"),
        };
        if !text.trim().is_empty() {
            // It is a convenience.
            let _ = editor.add_history_entry(&text);
        }
        let mut workbench = shared.borrow_mut();
        // What came while nothing was done was for the line.
        workbench.signals.forget();
        let done = line::parse(text.as_bytes())
            .map_err(anyhow::Error::from)
            .and_then(|line| commands::perform_line(&mut workbench, &line));
        if let Err(error) = done {
            terminal::say(&format!("{error:#}"));
        }
        if workbench.is_over || (workbench.signals.name().is_some() && !workbench.signals.is_ctrl_c()) {
            return ended(&workbench);
        }
        let was_given_up = workbench.signals.is_ctrl_c();
        workbench.signals.forget();
        // An editor borrows it.
        drop(workbench);
        if was_given_up {
            forget_typed_ahead(editor, config, shared)?;
        }
    }
}

/// With `--atomic`, what a signal ends has not been done.
fn ended(workbench: &Workbench) -> Result<()> {
    match workbench.signals.name() {
        Some(signal) if workbench.is_atomic() && !workbench.signals.is_ctrl_c() => bail!("ended by {signal}"),
        _ => {
            workbench.signals.forget();
            Ok(())
        }
    }
}

/// Where lines are remembered: XDG's place for what programs like to keep.
fn history_file() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    let directory = state.join("blockyard");
    // What is read there is said again, and what is written goes where a link leads: nobody else has a say in either.
    unchangeable(directory.ancestors().find(|above| above.exists())?).ok()?;
    if !directory.is_dir() {
        fs::create_dir_all(&state).ok()?;
        DirBuilder::new().mode(0o700).create(&directory).ok()?;
    }
    Some(directory.join("shell_history"))
}
