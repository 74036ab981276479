//! Environment variables that commands read themselves; ranks read theirs through
//! [`omnes::Config::from_env`].

use anyhow::{Result, anyhow};

/// Text of a variable, `None` if it is unset or empty.
///
/// # Errors
/// If the value is not valid UTF-8. The variable is set nevertheless, so the default place must not
/// be used instead.
pub fn text(name: &str) -> Result<Option<String>> {
    let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let text = value.into_string();
    text.map(Some).map_err(|value| anyhow!("{name}={}: it is not valid UTF-8", value.display()))
}
