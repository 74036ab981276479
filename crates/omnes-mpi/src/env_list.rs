//! Open MPI's parameter `mca_base_env_list`, a list of variables for the ranks. If it is set, Open
//! MPI's launchers reject `-x`.
//!
//! The list is set in the launcher's arguments, of which only those of the first program count, or
//! in the environment, where it counts even if it is empty. Parameter files, which may also set it,
//! are not read.

use crate::error::Error;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

const LIST: &str = "mca_base_env_list";
const DELIMITER: &str = "mca_base_env_list_delimiter";
/// Options followed by a parameter's name and value.
const OPTIONS: [&str; 4] = ["--mca", "-mca", "--gmca", "-gmca"];
/// Prefix of a parameter's name in the environment.
const PREFIX: &str = "OMPI_MCA_";

/// The list and its delimiter, as set in the environment.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct EnvList {
    list: Option<OsString>,
    delimiter: Option<OsString>,
}

impl EnvList {
    /// Records a variable of the environment, if it concerns the list.
    pub(crate) fn note(&mut self, name: &OsStr, value: &OsStr) {
        match name.to_str().and_then(|name| name.strip_prefix(PREFIX)) {
            Some(LIST) => self.list = Some(value.to_owned()),
            Some(DELIMITER) => self.delimiter = Some(value.to_owned()),
            _ => {}
        }
    }

    /// Adds `added`, each `NAME` or `NAME=VALUE`, to the list in the launcher's arguments, which
    /// are given up to the end of the first program, or to the list in the environment, which then
    /// moves into the arguments. `None` if there is no list.
    ///
    /// Errors if the list already has `LD_PRELOAD`.
    pub(crate) fn with(
        &self,
        added: &[OsString],
        arguments: &[OsString],
    ) -> Result<Option<Vec<OsString>>, Error> {
        let delimiter = value_of(DELIMITER, arguments).map(|at| &arguments[at]);
        let delimiter = delimiter.or(self.delimiter.as_ref()).map_or(&b";"[..], |it| it.as_bytes());
        let mut arguments = arguments.to_vec();
        let place = match (value_of(LIST, &arguments), &self.list) {
            (Some(place), _) => place,
            (None, Some(list)) => {
                arguments.splice(0..0, ["--mca".into(), LIST.into(), list.clone()]);
                2
            }
            (None, None) => return Ok(None),
        };
        arguments[place] = joined(added, &arguments[place], delimiter)?;
        Ok(Some(arguments))
    }
}

/// Index of a parameter's value in the arguments.
fn value_of(parameter: &str, arguments: &[OsString]) -> Option<usize> {
    let is_set = |words: &[OsString]| {
        OPTIONS.iter().any(|option| words[0] == *option) && words[1] == parameter
    };
    arguments.windows(3).position(is_set).map(|at| at + 2)
}

/// The list with `added` in front: Open MPI ignores variables after one that is not set.
fn joined(added: &[OsString], list: &OsStr, delimiter: &[u8]) -> Result<OsString, Error> {
    // Open MPI uses the first character of a longer delimiter.
    let first = delimiter.first().copied().unwrap_or(b';');
    let others: Vec<_> = list.as_bytes().split(|&byte| byte == first).collect();
    if others.iter().any(|it| *it == b"LD_PRELOAD" || it.starts_with(b"LD_PRELOAD=")) {
        return Err(Error::PreloadTwice("mca_base_env_list with"));
    }
    let all = added.iter().map(|it| it.as_bytes()).chain(others);
    let all: Vec<&[u8]> = all.filter(|it| !it.is_empty()).collect();
    Ok(OsString::from_vec(all.join(&first)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// Returns the arguments with `A=1` and `B` added to the list.
    fn with(environment: &[(&str, &str)], arguments: &str) -> Result<Option<String>, Error> {
        let mut list = EnvList::default();
        for (name, value) in environment {
            list.note(name.as_ref(), value.as_ref());
        }
        let arguments: Vec<_> = arguments.split(' ').map(OsString::from).collect();
        let words = list.with(&["A=1".into(), "B".into()], &arguments)?;
        Ok(words.map(|words| words.join(OsStr::new(" ")).into_string().unwrap()))
    }

    #[test]
    fn variables_are_appended_to_a_list_in_the_arguments() {
        for option in OPTIONS {
            let list = |value| format!("-n 2 {option} mca_base_env_list {value} ./a");
            assert_eq!(with(&[], &list("C;D=2")).unwrap(), Some(list("A=1;B;C;D=2")));
        }
        assert_eq!(with(&[], "-n 2 ./a").unwrap(), None);
        assert_eq!(with(&[], "--mca mca_base_env_list").unwrap(), None);
    }

    #[test]
    fn variables_are_added_to_an_environment_list_even_if_empty() {
        let environment = |value| [("OMPI_MCA_mca_base_env_list", value)];
        let line = |list| Some(format!("--mca mca_base_env_list {list} -n 2 ./a"));
        assert_eq!(with(&environment("C"), "-n 2 ./a").unwrap(), line("A=1;B;C"));
        assert_eq!(with(&environment(""), "-n 2 ./a").unwrap(), line("A=1;B"));
        // Arguments take precedence over the environment.
        let own = with(&environment("C"), "--mca mca_base_env_list D ./a").unwrap();
        assert_eq!(own.unwrap(), "--mca mca_base_env_list A=1;B;D ./a");
    }

    #[test]
    fn custom_list_delimiters_are_used() {
        let line = |list| format!("--mca mca_base_env_list {list} ./a");
        let environment = [("OMPI_MCA_mca_base_env_list_delimiter", ",")];
        assert_eq!(with(&environment, &line("C,D")).unwrap(), Some(line("A=1,B,C,D")));
        let delimited = |list| format!("--mca mca_base_env_list_delimiter + {}", line(list));
        assert_eq!(with(&environment, &delimited("C")).unwrap(), Some(delimited("A=1+B+C")));
    }

    #[test]
    fn list_that_sets_ld_preload_is_rejected() {
        for list in ["C;LD_PRELOAD=/a.so", "LD_PRELOAD"] {
            let error = with(&[], &format!("--mca mca_base_env_list {list} ./a")).unwrap_err();
            assert!(matches!(error, Error::PreloadTwice(_)), "{error}");
        }
        assert!(with(&[], "--mca mca_base_env_list LD_PRELOADED ./a").is_ok());
    }
}
