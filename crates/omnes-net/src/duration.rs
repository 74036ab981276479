//! Times as people type and read them, in one form for variables, options and messages.

use std::time::Duration;

/// Units from small to large, with their nanoseconds.
const UNITS: [(&str, u128); 7] = [
    ("ns", 1),
    ("us", 1_000),
    ("ms", 1_000_000),
    ("s", SECOND),
    ("min", 60 * SECOND),
    ("h", 3_600 * SECOND),
    ("d", 86_400 * SECOND),
];
const SECOND: u128 = 1_000_000_000;
/// Above this a number with a point is no longer exact, and no wait lasts so long: 104 days.
const NANOSECONDS_MAX: f64 = 9_007_199_254_740_992.0;

/// Parses a time such as `50ns`, `25us`, `1.5ms`, `5s`, `2min`, `1h`, `3d`; only 0 needs no unit.
///
/// # Errors
/// A sentence that names the text and what is expected.
pub fn parse(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().map_err(|_| {
        format!("`{text}` is not a duration: give a number with a unit, such as 5s or 25us")
    })?;
    let unit = match unit.trim().to_ascii_lowercase().as_str() {
        "" if number == 0.0 => "s".to_owned(),
        "" => return Err(format!("`{text}` needs a unit of time, such as 25us or 5s")),
        "µs" => "us".to_owned(),
        "m" => "min".to_owned(),
        other => other.to_owned(),
    };
    let known = UNITS
        .iter()
        .find(|(name, _)| *name == unit)
        .ok_or_else(|| format!("`{text}`: a time ends in ns, us, ms, s, min, h or d (25us)"))?;
    let nanoseconds = (number * known.1 as f64).round();
    if nanoseconds > NANOSECONDS_MAX {
        return Err(format!("`{text}` is too long; at most 104d"));
    }
    Ok(Duration::from_nanos(nanoseconds as u64))
}

/// Shortest text that [`parse`] reads as exactly this time: `100s`, `2min`, `1500ns`, `0s`.
#[must_use]
pub fn shortest(time: Duration) -> String {
    let nanoseconds = time.as_nanos();
    if nanoseconds == 0 {
        return "0s".to_owned();
    }
    let exact = UNITS.iter().rev().filter(|(_, unit)| nanoseconds.is_multiple_of(*unit));
    let texts = exact.map(|(name, unit)| format!("{}{name}", nanoseconds / unit));
    texts.min_by_key(String::len).expect("nanoseconds are always exact")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn every_unit_is_parsed() {
        let texts = ["7ns", "25us", "1.5ms", "5s", "2min", "2m", "1h", "3d", "0.5s", "0", "5 s"];
        let nanoseconds = texts.map(|text| parse(text).unwrap().as_nanos());
        let seconds = |count: u128| count * SECOND;
        let expected = [7, 25_000, 1_500_000, seconds(5), seconds(120), seconds(120)];
        assert_eq!(nanoseconds[..6], expected);
        let expected = [seconds(3_600), seconds(259_200), SECOND / 2, 0, seconds(5)];
        assert_eq!(nanoseconds[6..], expected);
    }

    #[test]
    fn invalid_durations_are_rejected_and_quoted_in_the_error() {
        for text in ["", "soon", "-1", "60", "5 parsecs", "inf", "nan", "1e3s", "105d", "."] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
    }

    #[test]
    fn shortest_exact_text_round_trips() {
        let texts =
            ["0s", "1ns", "1500ns", "200us", "5s", "90s", "100s", "2min", "1h", "36h", "2d"];
        for text in texts {
            assert_eq!(shortest(parse(text).unwrap()), text);
        }
    }
}
