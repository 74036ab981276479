//! Source text of Rust and C as words and marks, with comments and the contents of literals
//! blanked.
//!
//! A tokenizer, not a parser: it follows Rust's rules for comments (nested), strings (plain and
//! raw), characters and lifetimes; C's comments and strings are a subset that it reads well enough.
//! Blanking keeps the position of every byte, so offsets and line numbers match the original. Not
//! done: macros are not expanded.

/// One word (letters, digits, `_`) or one mark of the blanked text.
#[derive(Clone, Copy, Debug)]
pub struct Token<'a> {
    /// Word, or mark of one byte.
    pub text: &'a str,
    /// Offset in bytes, in the blanked text and in the original.
    pub at: usize,
    /// Line, counted from 1.
    pub line: usize,
}

/// A function with a body.
#[derive(Debug, PartialEq)]
pub struct Function {
    /// Its bare name.
    pub name: String,
    /// Line of its `fn`, from 1.
    pub line: usize,
    /// Lines from its `fn` to its closing brace, both included.
    pub lines: usize,
}

/// Returns `text` with comments and the contents of literals replaced by blanks, newlines kept.
///
/// The result is ASCII and has the length of `text` in bytes.
pub fn blanked(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = literal_end(text, at).max(at + 1);
        if end == at + 1 {
            out.push(if bytes[at].is_ascii() { char::from(bytes[at]) } else { ' ' });
        } else {
            out.extend(bytes[at..end].iter().map(|&byte| if byte == b'\n' { '\n' } else { ' ' }));
        }
        at = end;
    }
    out
}

/// Returns `text` with the contents of literals replaced by blanks, comments and newlines kept.
pub fn without_literals(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let end = literal_end(text, at).max(at + 1);
        let piece = &text.as_bytes()[at..end];
        if piece.len() == 1 || piece[0] == b'/' {
            out.extend_from_slice(piece)
        } else {
            out.extend(piece.iter().map(|&byte| if byte == b'\n' { byte } else { b' ' }))
        }
        at = end;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// End of the comment or literal that starts at `at`; `at` itself if none starts there.
fn literal_end(text: &str, at: usize) -> usize {
    let bytes = text.as_bytes();
    let rest = &bytes[at..];
    match rest[0] {
        b'/' if rest.starts_with(b"//") => {
            at + rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len())
        }
        b'/' if rest.starts_with(b"/*") => at + block_comment_length(rest),
        b'"' => at + quoted_length(rest, b'"'),
        b'\'' => at + character_length(text, at),
        b'r' if at == 0 || !is_word(bytes[at - 1]) || is_literal_prefix(bytes, at - 1) => {
            at + raw_string_length(rest)
        }
        _ => at,
    }
}

/// True if the byte at `at` is the `b` or `c` of `br"` or `cr"`, not the end of a word.
fn is_literal_prefix(bytes: &[u8], at: usize) -> bool {
    matches!(bytes[at], b'b' | b'c') && (at == 0 || !is_word(bytes[at - 1]))
}

fn block_comment_length(rest: &[u8]) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

fn quoted_length(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Length of the character literal at `at`; 0 for a lifetime.
fn character_length(text: &str, at: usize) -> usize {
    let rest = &text.as_bytes()[at..];
    if rest.get(1) == Some(&b'\\') {
        return quoted_length(rest, b'\'');
    }
    let inside = text[at + 1..].chars().next().map_or(0, char::len_utf8);
    if rest.get(1 + inside) == Some(&b'\'') { inside + 2 } else { 0 }
}

/// Length of the raw string that `rest` starts with; 0 if it is a word that begins with `r`.
fn raw_string_length(rest: &[u8]) -> usize {
    let hashes = rest[1..].iter().take_while(|&&byte| byte == b'#').count();
    if rest.get(1 + hashes) != Some(&b'"') {
        return 0;
    }
    let mut closing = vec![b'#'; hashes + 1];
    closing[0] = b'"';
    let start = hashes + 2;
    rest[start..]
        .windows(closing.len())
        .position(|window| window == closing)
        .map_or(rest.len(), |found| start + found + closing.len())
}

fn is_word(byte: u8) -> bool {
    byte == b'_' || byte.is_ascii_alphanumeric()
}

/// Words and marks of a blanked text, in order.
pub fn tokens(blanked: &str) -> Vec<Token<'_>> {
    let bytes = blanked.as_bytes();
    let (mut tokens, mut at, mut line) = (Vec::new(), 0, 1);
    while at < bytes.len() {
        let length = bytes[at..].iter().take_while(|&&byte| is_word(byte)).count().max(1);
        if bytes[at] == b'\n' {
            line += 1;
        } else if !bytes[at].is_ascii_whitespace() {
            tokens.push(Token { text: &blanked[at..at + length], at, line });
        }
        at += length;
    }
    tokens
}

/// Functions with a body, nested ones included, in order of their `fn`.
pub fn functions(tokens: &[Token]) -> Vec<Function> {
    let mut functions = Vec::new();
    for (index, pair) in tokens.windows(2).enumerate() {
        let [keyword, name] = pair else { continue };
        let named = name.text.starts_with(|first: char| first == '_' || first.is_alphabetic());
        if keyword.text == "fn" && named {
            functions.extend(item_end(tokens, index).filter(|&end| tokens[end].text == "}").map(
                |end| Function {
                    name: name.text.to_owned(),
                    line: keyword.line,
                    lines: tokens[end].line - keyword.line + 1,
                },
            ));
        }
    }
    functions
}

/// Functions of a C file in the kernel's layout: body between `{` and `}` in the first column.
pub fn c_functions(blanked: &str) -> Vec<Function> {
    let (mut functions, mut head, mut opened) = (Vec::new(), String::new(), 0);
    for (index, line) in blanked.lines().enumerate() {
        if line.trim_end() == "{" {
            opened = index + 1;
        } else if line.trim_end() == "}" && opened > 0 {
            let name = head.rsplit(|mark: char| mark.is_whitespace() || mark == '*').next();
            let name = name.unwrap_or_default().to_owned();
            functions.push(Function { name, line: opened, lines: index + 2 - opened });
            opened = 0;
        } else if opened == 0
            && let Some((before, _)) = line.split_once('(')
        {
            before.trim_end().clone_into(&mut head);
        }
    }
    functions
}

/// Index of the `;`, or of the brace that closes the body, of the item that starts at `start`.
///
/// `None` if the text ends earlier.
pub fn item_end(tokens: &[Token], start: usize) -> Option<usize> {
    let (mut nested, mut braces) = (0_i32, 0_i32);
    for (index, token) in tokens.iter().enumerate().skip(start) {
        match token.text {
            "(" | "[" => nested += 1,
            ")" | "]" => nested -= 1,
            "{" => braces += 1,
            "}" => {
                braces -= 1;
                if braces == 0 && nested == 0 {
                    return Some(index);
                }
            }
            ";" if braces == 0 && nested == 0 => return Some(index),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_in_place() {
        let text =
            "a /* b /* c */ d */ e // f\n\"g\\\"h\" i 'j' '\\'' 'k: &'l m r#\"n\"o\"# p br\"q\" é";
        let blanked = blanked(text);
        let words: Vec<&str> = tokens(&blanked).iter().map(|token| token.text).collect();
        assert_eq!(blanked.len(), text.len());
        assert_eq!(words, ["a", "e", "i", "'", "k", ":", "&", "'", "l", "m", "p", "b"]);
    }

    #[test]
    fn raw_identifiers_and_words_ending_in_r_are_not_strings() {
        let blanked = blanked("r#fn for x in r { a\"}\" }");
        let words: Vec<&str> = tokens(&blanked).iter().map(|token| token.text).collect();
        assert_eq!(words, ["r", "#", "fn", "for", "x", "in", "r", "{", "a", "}"]);
    }

    #[test]
    fn function_lengths_count_from_fn_to_closing_brace() {
        let text =
            "trait T {\n fn none(&self) -> [u8; 4];\n fn one() { '}'; }\n}\nfn three(\n) {\n}\n";
        let blanked = blanked(text);
        let found: Vec<(String, usize, usize)> = functions(&tokens(&blanked))
            .into_iter()
            .map(|function| (function.name, function.line, function.lines))
            .collect();
        assert_eq!(found, [("one".to_owned(), 3, 1), ("three".to_owned(), 5, 3)]);
    }

    #[test]
    fn c_function_lengths_are_found_by_braces() {
        let text = concat!(
            "struct a {\n\tint b;\n};\n\n",
            "static inline enum act *step(struct a *b,\n\tint c)\n",
            "{\n\tif (c) {\n\t}\n}\n"
        );
        let blanked = blanked(text);
        let expected = Function { name: "step".to_owned(), line: 7, lines: 4 };
        assert_eq!(c_functions(&blanked), [expected]);
    }
}
