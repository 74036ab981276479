//! Output formats of results, for people or for programs: the same options in every command.

use clap::ValueEnum;

/// Format options as typed; flattened into the arguments of every command that prints results.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct FormatArgs {
    /// Format of results
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
    /// Same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
}

/// Format of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    Table,
    /// For programs: objects whose field names are the same in every version
    Json,
}

impl FormatArgs {
    /// The chosen format.
    pub fn chosen(self) -> Format {
        if self.json { Format::Json } else { self.format }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        format: FormatArgs,
    }

    #[test]
    fn json_flag_and_format_json_are_equivalent_and_exclusive() {
        let chosen = |words: &[&str]| {
            let words = std::iter::once(&"omnes").chain(words);
            Cli::try_parse_from(words).map(|cli| cli.format.chosen())
        };
        assert_eq!(chosen(&[]).unwrap(), Format::Table);
        assert_eq!(chosen(&["--json"]).unwrap(), Format::Json);
        assert_eq!(chosen(&["--format", "json"]).unwrap(), Format::Json);
        assert!(chosen(&["--format", "table", "--json"]).is_err());
    }
}
