//! The language of grub.cfg (GNU GRUB Manual 2.12, "Shell-like scripting").

use std::rc::Rc;

/// How deep statements may lie in each other.
const DEPTH_MAX: u32 = 64;

/// Statements that follow each other.
pub(super) type Block = Rc<[Statement]>;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Statement {
    /// Where it begins.
    pub(super) line: u32,
    pub(super) kind: Kind,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A command's words, and the block that it may have behind them.
    Command {
        words: Vec<Word>,
        block: Option<Block>,
    },
    /// Conditions, and what is done if one holds.
    If {
        branches: Vec<(Block, Block)>,
        otherwise: Block,
    },
    /// While a condition holds, or until it does.
    Loop {
        until: bool,
        condition: Block,
        body: Block,
    },
    For {
        name: String,
        words: Vec<Word>,
        body: Block,
    },
    Function {
        name: String,
        body: Block,
    },
}

/// Parts that make up a word, or several where a variable that is not quoted holds several.
pub(super) type Word = Vec<Part>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Text { text: String, quoted: bool },
    Variable { name: String, quoted: bool },
}

/// Why a script is none, and in which line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Malformed {
    pub(super) line: u32,
    pub(super) sentence: String,
}

type Result<T> = std::result::Result<T, Malformed>;

fn malformed<T>(line: u32, sentence: impl Into<String>) -> Result<T> {
    Err(Malformed { line, sentence: sentence.into() })
}

/// Reads a script.
pub(super) fn parse(text: &str) -> Result<Block> {
    let tokens = Lexer { letters: text.chars().collect(), at: 0, line: 1 }.tokens()?;
    let mut parser = Parser { tokens, at: 0, depth: 0 };
    let block = parser.block()?;
    match parser.tokens.get(parser.at) {
        None => Ok(block),
        Some(token) => malformed(token.line, "a word that ends something stands where nothing begins"),
    }
}

#[derive(Debug)]
struct Token {
    line: u32,
    /// `None`: a statement ends.
    word: Option<Word>,
}

struct Lexer {
    letters: Vec<char>,
    at: usize,
    line: u32,
}

impl Lexer {
    fn tokens(mut self) -> Result<Vec<Token>> {
        let mut tokens = Vec::new();
        while let Some(letter) = self.peek() {
            let line = self.line;
            match letter {
                '\n' | ';' => {
                    self.next();
                    tokens.push(Token { line, word: None });
                }
                '#' => self.skip_comment(),
                '{' | '}' => {
                    self.next();
                    tokens.push(Token { line, word: Some(vec![plain(letter.to_string())]) });
                }
                '|' | '&' | '<' | '>' => return malformed(line, format!("{letter} is not part of GRUB's language")),
                letter if letter.is_whitespace() => {
                    self.next();
                }
                '\\' if self.letters.get(self.at + 1) == Some(&'\n') => {
                    self.next();
                    self.next();
                }
                _ => {
                    let word = self.word()?;
                    tokens.push(Token { line, word: Some(word) });
                }
            }
        }
        Ok(tokens)
    }

    fn peek(&self) -> Option<char> {
        self.letters.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let letter = self.peek()?;
        self.at += 1;
        self.line += u32::from(letter == '\n');
        Some(letter)
    }

    fn skip_comment(&mut self) {
        while self.peek().is_some_and(|letter| letter != '\n') {
            self.next();
        }
    }

    fn word(&mut self) -> Result<Word> {
        let mut parts = Word::new();
        while let Some(letter) = self.peek() {
            match letter {
                '\'' => self.single_quoted(&mut parts)?,
                '"' => self.double_quoted(&mut parts)?,
                '$' => self.variable(&mut parts, false),
                '\\' => {
                    self.next();
                    match self.next() {
                        Some('\n') | None => {}
                        // What is escaped means nothing else.
                        Some(letter) => push(&mut parts, letter, true),
                    }
                }
                '\n' | ';' | '{' | '}' | '|' | '&' | '<' | '>' => break,
                letter if letter.is_whitespace() => break,
                letter => {
                    self.next();
                    push(&mut parts, letter, false);
                }
            }
        }
        Ok(parts)
    }

    fn single_quoted(&mut self, parts: &mut Word) -> Result<()> {
        let line = self.line;
        self.next();
        parts.push(Part::Text { text: String::new(), quoted: true });
        loop {
            match self.next() {
                Some('\'') => return Ok(()),
                Some(letter) => push(parts, letter, true),
                None => return malformed(line, "a quote is not closed"),
            }
        }
    }

    fn double_quoted(&mut self, parts: &mut Word) -> Result<()> {
        let line = self.line;
        self.next();
        parts.push(Part::Text { text: String::new(), quoted: true });
        while let Some(letter) = self.peek() {
            match letter {
                '"' => {
                    self.next();
                    return Ok(());
                }
                '$' => self.variable(parts, true),
                '\\' => {
                    self.next();
                    match self.next() {
                        Some('\n') | None => {}
                        Some(letter @ ('$' | '"' | '\\')) => push(parts, letter, true),
                        Some(letter) => ['\\', letter].into_iter().for_each(|letter| push(parts, letter, true)),
                    }
                }
                letter => {
                    self.next();
                    push(parts, letter, true);
                }
            }
        }
        malformed(line, "a quote is not closed")
    }

    /// $name, ${name}, $1, $?, $@ and so on; a dollar alone is itself.
    fn variable(&mut self, parts: &mut Word, quoted: bool) {
        self.next();
        let rest = &self.letters[self.at..];
        let (open, inner) = match rest.first() {
            Some('{') => (1, &rest[1..]),
            _ => (0, rest),
        };
        let length = match inner.first() {
            Some('?' | '#' | '*' | '@') => 1,
            Some(first) if first.is_ascii_digit() => inner.iter().take_while(|letter| letter.is_ascii_digit()).count(),
            _ => inner.iter().take_while(|letter| letter.is_ascii_alphanumeric() || **letter == '_').count(),
        };
        let is_closed = open == 0 || inner.get(length) == Some(&'}');
        if length == 0 || !is_closed {
            return push(parts, '$', quoted);
        }
        let name = inner[..length].iter().collect();
        self.at += 2 * open + length;
        parts.push(Part::Variable { name, quoted });
    }
}

fn plain(text: String) -> Part {
    Part::Text { text, quoted: false }
}

fn push(parts: &mut Word, letter: char, is_quoted: bool) {
    match parts.last_mut() {
        Some(Part::Text { text, quoted }) if *quoted == is_quoted => text.push(letter),
        _ => parts.push(Part::Text { text: letter.to_string(), quoted: is_quoted }),
    }
}

/// The word, if it stands there as it is: only so it can be one of the language's own.
fn literal(word: &Word) -> Option<&str> {
    match &word[..] {
        [Part::Text { text, quoted: false }] => Some(text),
        _ => None,
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: u32,
}

/// The language's own words that end a block.
const ENDS: [&str; 7] = ["then", "elif", "else", "fi", "do", "done", "}"];

impl Parser {
    /// The line of what comes next, or of what came last.
    fn line(&self) -> u32 {
        self.tokens.get(self.at).or(self.tokens.last()).map_or(1, |token| token.line)
    }

    /// The word of the language's own that comes next.
    fn keyword(&self) -> Option<&str> {
        self.tokens.get(self.at).and_then(|token| token.word.as_ref()).and_then(literal)
    }

    fn expect(&mut self, wanted: &str, began: u32) -> Result<()> {
        self.skip_ends();
        if self.keyword() != Some(wanted) {
            return malformed(self.line(), format!("{wanted} is missing for what begins in line {began}"));
        }
        self.at += 1;
        Ok(())
    }

    fn skip_ends(&mut self) {
        while self.tokens.get(self.at).is_some_and(|token| token.word.is_none()) {
            self.at += 1;
        }
    }

    /// Statements up to a word that ends a block: whether it is the right one, who asked for the block knows.
    fn block(&mut self) -> Result<Block> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return malformed(self.line(), format!("statements lie in each other more than {DEPTH_MAX} deep"));
        }
        let mut statements = Vec::new();
        loop {
            self.skip_ends();
            let Some(token) = self.tokens.get(self.at) else { break };
            let (line, keyword) = (token.line, self.keyword().unwrap_or_default().to_owned());
            if ENDS.contains(&keyword.as_str()) {
                break;
            }
            let kind = self.statement(line, &keyword)?;
            statements.push(Statement { line, kind });
        }
        self.depth -= 1;
        Ok(statements.into())
    }

    fn statement(&mut self, line: u32, keyword: &str) -> Result<Kind> {
        match keyword {
            "if" => self.if_statement(line),
            "while" | "until" => {
                self.at += 1;
                let condition = self.block()?;
                let body = self.loop_body(line)?;
                Ok(Kind::Loop { until: keyword == "until", condition, body })
            }
            "for" => {
                self.at += 1;
                let name = self.name(line)?;
                self.expect("in", line)?;
                let words = self.words();
                Ok(Kind::For { name, words, body: self.loop_body(line)? })
            }
            "function" => {
                self.at += 1;
                let name = self.name(line)?;
                self.expect("{", line)?;
                let body = self.block()?;
                self.expect("}", line)?;
                Ok(Kind::Function { name, body })
            }
            _ => self.command(line),
        }
    }

    fn if_statement(&mut self, line: u32) -> Result<Kind> {
        let (mut branches, mut otherwise) = (Vec::new(), Block::from([]));
        // What comes next is if, or elif.
        loop {
            self.at += 1;
            let condition = self.block()?;
            self.expect("then", line)?;
            branches.push((condition, self.block()?));
            if self.keyword() != Some("elif") {
                break;
            }
        }
        if self.keyword() == Some("else") {
            self.at += 1;
            otherwise = self.block()?;
        }
        self.expect("fi", line)?;
        Ok(Kind::If { branches, otherwise })
    }

    fn loop_body(&mut self, line: u32) -> Result<Block> {
        self.expect("do", line)?;
        let body = self.block()?;
        self.expect("done", line)?;
        Ok(body)
    }

    fn name(&mut self, line: u32) -> Result<String> {
        let Some(name) = self.keyword().map(str::to_owned) else { return malformed(line, "a name is missing") };
        self.at += 1;
        Ok(name)
    }

    /// Words up to the end of the statement.
    fn words(&mut self) -> Vec<Word> {
        let mut words = Vec::new();
        while let Some(word) = self.tokens.get(self.at).and_then(|token| token.word.clone()) {
            if matches!(literal(&word), Some("{" | "}")) {
                break;
            }
            words.push(word);
            self.at += 1;
        }
        words
    }

    fn command(&mut self, line: u32) -> Result<Kind> {
        let words = self.words();
        let mut block = None;
        if self.keyword() == Some("{") {
            self.at += 1;
            block = Some(self.block()?);
            self.expect("}", line)?;
        }
        Ok(Kind::Command { words, block })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(text: &str) -> (u32, String) {
        let Malformed { line, sentence } = parse(text).unwrap_err();
        (line, sentence)
    }

    #[test]
    fn words_have_parts() {
        let block = parse("set x=\"a $b\"'$c'\\ \\d${e}\n").unwrap();
        let text = |text: &str, quoted| Part::Text { text: text.into(), quoted };
        let variable = |name: &str, quoted| Part::Variable { name: name.into(), quoted };
        let second = [text("x=", false), text("a ", true), variable("b", true), text("$c d", true)];
        let Kind::Command { words, block: None } = &block[0].kind else { panic!("{block:?}") };
        assert_eq!(words[1][..4], second);
        assert_eq!(words[1][4..], [variable("e", false)]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        assert_eq!(complaint("a\nif true; then\n b\n"), (3, "fi is missing for what begins in line 2".into()));
        assert_eq!(complaint("a\n\n'b\nc"), (3, "a quote is not closed".into()));
        assert_eq!(complaint("menuentry x {\na\n"), (2, "} is missing for what begins in line 1".into()));
        assert_eq!(complaint("a\nb | c\n"), (2, "| is not part of GRUB's language".into()));
        assert_eq!(complaint("fi\n").0, 1);
        assert!(complaint(&"if ".repeat(1000)).1.contains("more than 64 deep"));
        assert!(complaint(&"a {\n".repeat(1000)).1.contains("more than 64 deep"));
    }

    #[test]
    fn fuzz_any_text_is_a_script_or_an_error_with_its_line() {
        let lines = |text: &str| text.lines().count() as u32 + 1;
        blockyard_fuzz::check!(20_000).for_each(|bytes: &[u8]| {
            // Pieces of the language, so that more than the first word is understood.
            const PIECES: [&str; 24] = [
                "if ",
                "then\n",
                "else ",
                "elif ",
                "fi\n",
                "while ",
                "do ",
                "done;",
                "for x in ",
                "function f ",
                "{",
                "}",
                "\"",
                "'",
                "$x",
                "${y}",
                "\\",
                "\n",
                " ",
                "#",
                "menuentry ",
                "a",
                "=",
                "!",
            ];
            let text: String = bytes.iter().map(|&byte| PIECES[usize::from(byte) % PIECES.len()]).collect();
            if let Err(error) = parse(&text) {
                assert!((1..=lines(&text)).contains(&error.line), "{error:?} in {text:?}");
            }
            let _ = parse(&String::from_utf8_lossy(bytes));
        });
    }
}
