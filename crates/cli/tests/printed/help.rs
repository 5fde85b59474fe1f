//! What every command says with --help, at 100 columns.

use crate::expected;
use crate::support::{Yard, blockyard, run};

fn help(words: &[&str]) -> String {
    let mut command = blockyard();
    command.env("COLUMNS", "100").args(words).arg("--help");
    let text = run(&mut command).succeeded().stdout;
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    text.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Names under `Commands:`.
fn commands(help: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help").map(str::to_owned).collect()
}

fn check(words: &[&str], seen: &mut usize) {
    let text = help(words);
    let name = if words.is_empty() { "blockyard".to_owned() } else { words.join("-") };
    expected::check(&format!("help/{name}.txt"), &text);
    *seen += 1;
    let below = commands(&text);
    assert!(!below.is_empty() || text.contains("\nExample"), "{words:?} has no example");
    for command in &below {
        check(&[words, &[command]].concat(), seen);
    }
}

#[test]
fn every_command_says_what_it_does() {
    let mut seen = 0;
    check(&[], &mut seen);
    assert!(seen > 50, "only {seen} commands were found");
}

/// What `--help` shows of images over others is done, where the others lie beside them.
#[test]
fn examples_of_images_over_others_work_as_they_are_written() {
    let yard = Yard::new();
    let image = |words: &str| {
        let mut command = blockyard();
        run(command.current_dir(yard.path("")).args(words.split(' '))).succeeded()
    };
    image("image create base.qcow2 1M");
    for name in ["create", "rebase", "commit"] {
        let text = help(&["image", name]);
        let example = text.lines().find(|line| line.trim_start().starts_with("blockyard") && line.contains("overlay"));
        image(example.unwrap().trim_start().strip_prefix("blockyard ").unwrap());
    }
}

/// Also where the terminal is narrower than that.
#[test]
fn help_fits_the_terminal() {
    for columns in ["60", "80"] {
        let mut command = blockyard();
        command.env("COLUMNS", columns).args(["image", "ls", "--help"]);
        let text = run(&mut command).succeeded().stdout;
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(widest <= columns.parse().unwrap(), "{widest} of {columns}:\n{text}");
    }
}
