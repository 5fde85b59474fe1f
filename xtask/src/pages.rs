//! The pages that people read name files, headings, commands, constants and tests that are there.

use crate::figures::bars;
use crate::root;
use std::fs;
use std::path::{Path, PathBuf};

/// Directories without pages or sources of ours.
const BUILT: [&str; 2] = ["target", ".git"];

/// All files of the repository with one of these endings, where nothing is built.
fn files(endings: &[&str]) -> Vec<PathBuf> {
    let (mut found, mut directories) = (Vec::new(), vec![root()]);
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_symlink() {
                continue;
            }
            if path.is_dir() {
                if !path.file_name().is_some_and(|name| BUILT.iter().any(|built| name == *built)) {
                    directories.push(path);
                }
            } else if endings.iter().any(|ending| path.extension().is_some_and(|found| found == *ending)) {
                found.push(path);
            }
        }
    }
    found
}

fn page(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap()
}

/// What stands in backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The cells of each row of a page's tables; a `\|` does not end one.
fn rows(page: &str) -> impl Iterator<Item = Vec<String>> {
    let rows = page.lines().filter_map(|line| line.strip_prefix("| ")?.strip_suffix('|'));
    rows.map(|row| row.replace("\\|", "\u{1}").split('|').map(|cell| cell.trim().replace('\u{1}', "|")).collect())
}

/// Whether a word is the name of a file or a directory, as people write it.
fn is_path(word: &str) -> bool {
    let is_file = [".rs", ".proto", ".toml", ".md"].iter().any(|ending| word.ends_with(ending));
    is_file || word.ends_with('/') || word.contains('/') && !word.starts_with(['/', '-', '<']) && !word.contains(' ')
}

/// `a/{b,c}.rs` is two.
fn expanded(word: &str) -> Vec<String> {
    match word.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?))) {
        Some((before, (inner, after))) => inner.split(',').map(|inner| format!("{before}{inner}{after}")).collect(),
        None => vec![word.to_owned()],
    }
}

/// Paths of the table "where each thing is decided": from `crates/`, from the root, or beside the one before.
#[test]
fn architecture_leads_to_files() {
    let page = page("ARCHITECTURE.md");
    let (_, decided) = page.split_once("## Where each thing is decided").unwrap();
    let decided = decided.split("\n## ").next().unwrap();
    let (mut seen, mut missing) = (0, Vec::new());
    for cells in rows(decided) {
        let mut directory = None;
        for word in quoted(&cells[1]).filter(|word| is_path(word)).flat_map(expanded) {
            let places = match directory.filter(|_: &PathBuf| !word.contains('/')) {
                Some(beside) => vec![beside],
                None => vec![root().join("crates"), root()],
            };
            let found = places.into_iter().map(|place| place.join(&word)).find(|path| path.exists());
            directory = found.as_deref().and_then(Path::parent).map(Path::to_owned);
            seen += 1;
            if found.is_none() {
                missing.push(format!("{}: {word}", cells[0]));
            }
        }
    }
    assert!(missing.is_empty(), "ARCHITECTURE.md names what is not there:\n{}", missing.join("\n"));
    assert!(seen > 100, "{seen} paths");
}

/// The code map: a crate, and files in it or in its `src`.
#[test]
fn the_code_map_leads_to_files_and_has_every_crate() {
    let page = page("ARCHITECTURE.md");
    let (_, map) = page.split_once("## Code map").unwrap();
    let map = map.split("\n## ").next().unwrap();
    let mut crates = Vec::new();
    for cells in rows(map).filter(|cells| cells.len() == 3 && cells[0].starts_with('`')) {
        let directory = root().join(cells[0].trim_matches('`'));
        assert!(directory.join("Cargo.toml").is_file(), "{} is no crate", directory.display());
        for word in quoted(&cells[2]) {
            let found = [directory.join(word), directory.join("src").join(word)].iter().any(|path| path.exists());
            assert!(found, "{word} is not in {}", directory.display());
        }
        crates.push(directory);
    }
    for parent in ["crates", "guests"] {
        for entry in fs::read_dir(root().join(parent)).unwrap() {
            let path = entry.unwrap().path();
            let is_missing = path.join("Cargo.toml").is_file() && !crates.contains(&path);
            assert!(!is_missing, "{} is not in the code map", path.display());
        }
    }
}

/// Every crate forbids unsafe code but those of the page's invariant.
#[test]
fn unsafe_code_is_where_architecture_says() {
    let page = page("ARCHITECTURE.md");
    let line = page.lines().find_map(|line| line.strip_prefix("- **`unsafe` only in** ")).unwrap();
    let mut crates: Vec<_> = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path()).collect();
    crates.retain(|directory| {
        let roots = ["src/lib.rs", "src/main.rs"].map(|root| fs::read_to_string(directory.join(root)));
        !roots.into_iter().flatten().all(|root| root.contains("#![forbid(unsafe_code)]"))
    });
    let mut found: Vec<_> = crates.iter().map(|directory| directory.file_name().unwrap().to_str().unwrap()).collect();
    let mut said: Vec<_> = quoted(line).collect();
    found.sort_unstable();
    said.sort_unstable();
    assert_eq!(found, said);
}

/// What a heading is called in a link, as GitHub has it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = kept.chars().filter(|letter| letter.is_alphanumeric() || [' ', '-', '_'].contains(letter));
    kept.collect::<String>().replace(' ', "-")
}

fn anchors(page: &str) -> Vec<String> {
    let mut is_code = false;
    let headings = page.lines().filter(|line| {
        is_code ^= line.starts_with("```");
        !is_code && line.starts_with('#')
    });
    headings.map(anchor).collect()
}

#[test]
fn links_lead_somewhere() {
    let mut wrong = Vec::new();
    for file in files(&["md"]) {
        let page = fs::read_to_string(&file).unwrap();
        let targets = page.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
        for target in targets.filter(|target| !target.contains("://")) {
            let (path, heading) = target.split_once('#').unwrap_or((target, ""));
            let there = if path.is_empty() { file.clone() } else { file.parent().unwrap().join(path) };
            let leads = there.exists()
                && (heading.is_empty() || anchors(&fs::read_to_string(&there).unwrap()).iter().any(|it| it == heading));
            if !leads {
                wrong.push(format!("{}: {target}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "links to nothing:\n{}", wrong.join("\n"));
}

/// Pages of `docs/` that sources and pages name are there, and its index has each.
#[test]
fn pages_that_are_named_are_there() {
    let mut wrong = Vec::new();
    for file in files(&["rs", "md", "toml"]) {
        let text = fs::read_to_string(&file).unwrap();
        for rest in text.split("docs/").skip(1) {
            let is_of_a_name = |letter: char| letter.is_ascii_alphanumeric() || ['-', '_', '.'].contains(&letter);
            let name = &rest[..rest.find(|letter| !is_of_a_name(letter)).unwrap_or(rest.len())];
            if name.ends_with(".md") && name != "x.md" && !root().join("docs").join(name).exists() {
                wrong.push(format!("{}: docs/{name}", file.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "pages that are not there:\n{}", wrong.join("\n"));
    let index = page("docs/README.md");
    for entry in fs::read_dir(root().join("docs")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_listed = index.contains(&format!("]({name})"));
        assert!(is_listed || !name.ends_with(".md") || name == "README.md", "docs/README.md does not list {name}");
    }
}

/// Commands of `blockyard` in a page: its lines of code and what stands in backticks, as far as a shell passes them on.
fn commands(page: &str) -> Vec<Vec<&str>> {
    let (mut is_code, mut found) = (false, Vec::new());
    for line in page.lines() {
        is_code ^= line.starts_with("```");
        let line = line.strip_prefix("$ ").unwrap_or(line);
        found.extend(if is_code { vec![line] } else { quoted(line).collect() });
    }
    let of_ours = found.into_iter().filter(|command| command.starts_with("blockyard "));
    let ends = |word: &&str| !["--", "|", "||", "&", "&&", ";", ">", "<", "#"].contains(word);
    let words = of_ours.map(|command| command.split(' ').skip(1).filter(|word| !word.is_empty()).take_while(ends));
    words.map(|words| words.map(|word| word.trim_end_matches([';', ',', ')'])).collect()).collect()
}

/// Commands and their long options are some that `--help` knows, as the tests of it have it.
#[test]
fn commands_are_some_that_there_are() {
    let (mut seen, mut wrong) = (0, Vec::new());
    let verbs = page("docs/shell.md");
    // These speak of other times, too.
    let of_today = |file: &PathBuf| !["CHANGELOG.md", "ARCHITECTURE.md"].iter().any(|name| file.ends_with(name));
    for file in files(&["md"]).into_iter().filter(of_today) {
        let page = fs::read_to_string(&file).unwrap();
        for words in commands(&page) {
            let is_word = |word: &&str| word.chars().all(|letter| letter.is_ascii_lowercase() || letter == '-');
            let names = words.iter().take(2).copied().take_while(|word| !word.starts_with('-') && is_word(word));
            let names: Vec<_> = names.collect();
            let name = match names[..] {
                [] => continue,
                ["image" | "bench" | "testvm", _] => names.join("-"),
                [name, ..] => name.to_owned(),
            };
            seen += 1;
            let help = root().join("crates/cli/tests/data/help").join(name).with_extension("txt");
            let Ok(help) = fs::read_to_string(help) else {
                let is_verb = names.len() == 2 && verbs.contains(&format!("`{}", names[1]));
                if !is_verb {
                    wrong.push(format!("{}: {}", file.display(), words.join(" ")));
                }
                continue;
            };
            for option in words.iter().filter(|word| word.starts_with("--")) {
                let option = option.split('=').next().unwrap_or(option);
                if !help.split([' ', ',', '\n', '`', '.', ';']).any(|word| word == option) {
                    wrong.push(format!("{}: {option} of {}", file.display(), words.join(" ")));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "commands that are none:\n{}", wrong.join("\n"));
    assert!(seen > 100, "{seen} commands");
}

/// Each number of docs/specification.md is held by what it says: constants are quoted as they are defined, tests by
/// their names.
#[test]
fn the_specification_is_held() {
    let page = page("docs/specification.md");
    let mut held = 0;
    for cells in rows(&page).filter(|cells| cells.len() == 3 && cells[2].starts_with('`')) {
        let mut source = None;
        for word in quoted(&cells[2]) {
            if word.starts_with("crates/") {
                let text = fs::read_to_string(root().join(word));
                source = Some((word, text.unwrap_or_else(|error| panic!("{word}: {error}"))));
                continue;
            }
            let (path, text) = source.as_ref().expect("a file comes first");
            let is_name = word.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
            let wanted = if is_name { format!("fn {word}(") } else { word.to_owned() };
            assert!(text.contains(&wanted), "{}: {wanted} is not in {path}", cells[0]);
            held += 1;
        }
    }
    assert!(held > 50, "{held} places");
    for (figure, bar) in bars() {
        let row = format!("| {figure} | {bar} |");
        assert!(page.lines().any(|line| line == row), "docs/specification.md lacks {row}");
    }
}

#[test]
fn what_stands_in_a_page_is_found() {
    assert_eq!(quoted("a `b` c `d`").collect::<Vec<_>>(), ["b", "d"]);
    assert_eq!(rows("| a | `b\\|c` |\n|---|---|\n").collect::<Vec<_>>(), [["a", "`b|c`"]]);
    assert!(is_path("block/src/disk.rs") && is_path("open.rs") && is_path("block/tests/rig"));
    assert!(!is_path("TableChoice") && !is_path("/dev/vda") && !is_path("--atomic"));
    assert_eq!(expanded("a/{b,c}.rs"), ["a/b.rs", "a/c.rs"]);
    assert_eq!(anchor("### Many operations, one boot"), "many-operations-one-boot");
    assert_eq!(anchors("# One\n```\n# no heading\n```\n## Two"), ["one", "two"]);
}

/// But for rows of tables, and words that are wider themselves.
#[test]
fn comments_are_no_wider_than_code() {
    let settings = page("rustfmt.toml");
    let width = settings.lines().find_map(|line| line.strip_prefix("max_width = ")).unwrap();
    let width: usize = width.parse().unwrap();
    let mut wide = Vec::new();
    for path in files(&["rs"]) {
        for (number, line) in (1..).zip(fs::read_to_string(&path).unwrap().lines()) {
            let Some(comment) = line.trim_start().strip_prefix("//") else { continue };
            let text = comment.trim_start_matches(['/', '!']).trim();
            if line.chars().count() > width && !text.starts_with('|') && text.contains(' ') {
                wide.push(format!("{}:{number}", path.display()));
            }
        }
    }
    assert_eq!(wide, Vec::<String>::new());
}
