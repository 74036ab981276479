//! Variables of the environment that commands read by themselves; ranks read theirs by
//! [`omnes::Config::from_env`].

use anyhow::{Result, anyhow};

/// The text of a variable, `None` if it is unset or empty.
///
/// # Errors
/// If it is no UTF-8. It is set all the same, so the usual place must not stand for it.
pub fn text(name: &str) -> Result<Option<String>> {
    let Some(value) = std::env::var_os(name).filter(|value| !value.is_empty()) else {
        return Ok(None);
    };
    let text = value.into_string();
    text.map(Some).map_err(|value| anyhow!("{name}={}: it is not valid UTF-8", value.display()))
}
