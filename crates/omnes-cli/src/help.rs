//! Help texts: lines that fit any usual terminal as they are.
//!
//! Longer lines would be wrapped at the terminal's edge, and a wrapped command line cannot be
//! copied. Examples are shell commands, with `#` before their explanations.

/// Longest line of a help text.
const WIDTH: usize = 78;

/// Formats a name with its meaning beside it, in lines that fit; the name column has `name_width`.
pub fn described(name: &str, meaning: &str, name_width: usize) -> String {
    let meaning_width = WIDTH - 2 - name_width;
    let mut lines = vec![String::new()];
    for word in meaning.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.len() + 1 + word.len() <= meaning_width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    let names = std::iter::once(name).chain(std::iter::repeat(""));
    names.zip(lines).map(|(name, line)| format!("  {name:<name_width$}{line}\n")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{Command, CommandFactory};

    fn check(command: &Command) {
        for text in [command.get_after_help(), command.get_after_long_help()].into_iter().flatten()
        {
            for line in text.to_string().lines() {
                let name = command.get_name();
                assert!(line.chars().count() <= WIDTH, "omnes {name} --help: {line}");
            }
        }
        command.get_subcommands().for_each(check);
    }

    #[test]
    fn help_examples_are_shown_verbatim() {
        check(&crate::Cli::command());
    }
}
