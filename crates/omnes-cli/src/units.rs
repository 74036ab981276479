//! Values with units, as typed on the command line and as shown in tables.
//!
//! A value whose unit is part of its meaning (a time, a rate, a share) is rejected without one.
//! Byte counts may be bare; their suffixes are powers of 1024, as usual for message sizes. Rates
//! are powers of 1000, as usual for links. Times and byte counts are parsed by the library
//! ([`omnes::duration`], [`omnes::bytes`]), so that variables and options have the same syntax.
//!
//! All parsers have the signature that clap's `value_parser` expects: text in; a value, or a
//! sentence that names the value, the expected form and an example.

pub use omnes::bytes::parse as parse_bytes;
pub use omnes::duration::{parse as parse_duration, shortest as short_time};
use std::time::Duration;

/// Rounds a figure to multiples of `1 / steps`, for JSON.
pub fn rounded(value: f64, steps: f64) -> f64 {
    (value * steps).round() / steps
}

/// Formats with three significant digits below a thousand, as an integer above.
pub fn significant(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        _ if value >= 100.0 => format!("{value:.0}"),
        _ if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Splits `text` into the number at its start and the unit after it, in lower case.
fn split(text: &str) -> Result<(f64, String), String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number =
        number.parse::<f64>().map_err(|_| format!("`{text}` does not start with a number"))?;
    Ok((number, unit.trim().to_ascii_lowercase()))
}

/// Scales `number` by `factor` to an integer; rejects values out of range.
fn scaled(text: &str, number: f64, factor: f64) -> Result<u64, String> {
    let value = (number * factor).round();
    // 2^53: above it an f64 is no longer exact, and no realistic value is that large.
    if value > 9_007_199_254_740_992.0 {
        return Err(format!("`{text}` is too large"));
    }
    Ok(value as u64)
}

/// Parses bits per second from `1gbit`, `100mbit`, `1.28Gbit/s`, `9600bit`; `none` gives 0, which
/// means no shaping.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    if text == "none" {
        return Ok(0);
    }
    let (number, unit) = split(text)?;
    let factor = match unit.trim_end_matches("/s").trim_end_matches("ps") {
        "bit" => 1e0,
        "kbit" => 1e3,
        "mbit" => 1e6,
        "gbit" => 1e9,
        _ => return Err(format!("`{text}` needs a unit of rate: bit, kbit, mbit or gbit (1gbit)")),
    };
    match scaled(text, number, factor)? {
        0 => Err(format!("`{text}`: a rate must be above zero; `none` means not shaped")),
        bps => Ok(bps),
    }
}

/// Parses a share between 0 and 1 from `1%`, `0.1%`.
pub fn parse_share(text: &str) -> Result<f64, String> {
    let (number, unit) = split(text)?;
    match unit.as_str() {
        "%" if number <= 100.0 => Ok(number / 100.0),
        "%" => Err(format!("`{text}` is more than 100%")),
        "" => Err(format!("`{text}` needs a percent sign ({text}%)")),
        _ => Err(format!("`{text}` must be a number and a percent sign (0.1%)")),
    }
}

/// Formats bytes for people: `8 B`, `64 KiB`, `1.5 MiB`; exact whenever shown without a decimal
/// point.
pub fn format_bytes(bytes: u64) -> String {
    let units = [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    for (unit, size) in units {
        if bytes >= size {
            return if bytes.is_multiple_of(size) {
                format!("{} {unit}", bytes / size)
            } else {
                format!("{:.1} {unit}", bytes as f64 / size as f64)
            };
        }
    }
    format!("{bytes} B")
}

/// Formats microseconds for a table: three significant digits below a thousand, integers above.
pub fn format_us(time: Duration) -> String {
    let us = time.as_nanos() as f64 / 1e3;
    match us {
        _ if us >= 100.0 => format!("{us:.0}"),
        _ if us >= 10.0 => format!("{us:.1}"),
        _ => format!("{us:.2}"),
    }
}

/// Formats bits per second for a table: `1 Gbit/s`, `1.28 Gbit/s`, `100 Mbit/s`.
pub fn format_rate(bps: u64) -> String {
    let units = [("Gbit/s", 1_000_000_000u64), ("Mbit/s", 1_000_000), ("kbit/s", 1_000)];
    for (unit, size) in units {
        if bps >= size {
            return format!("{} {unit}", bps as f64 / size as f64);
        }
    }
    format!("{bps} bit/s")
}

/// Formats a time by its largest units: `0.1 s`, `59 s`, `2 min 5 s`, `3 h 20 min`, `4 d 1 h`.
pub fn format_age(time: Duration) -> String {
    let seconds = time.as_secs();
    let pair = |large: u64, small: u64, names: (&str, &str)| {
        format!("{} {} {} {}", seconds / large, names.0, seconds % large / small, names.1)
    };
    match seconds {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        60..3_600 => pair(60, 1, ("min", "s")),
        3_600..86_400 => pair(3_600, 60, ("h", "min")),
        _ => pair(86_400, 3_600, ("d", "h")),
    }
}

/// Formats a share as percent: `1%`, `0.1%`.
pub fn format_share(share: f64) -> String {
    // Rounded first, so that 0.07 is not shown as 7.000000000000001%.
    format!("{}%", (share * 1e8).round() / 1e6)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn numbers_without_a_required_unit_are_rejected() {
        assert!(parse_rate("1000").unwrap_err().contains("1gbit"));
        assert!(parse_share("1").unwrap_err().contains("1%"));
    }

    #[test]
    fn rate_units_are_powers_of_1000() {
        assert_eq!(parse_rate("1gbit"), Ok(1_000_000_000));
        assert_eq!(parse_rate("1.28Gbit/s"), Ok(1_280_000_000));
        assert_eq!(parse_rate("100mbit"), Ok(100_000_000));
        assert_eq!(parse_rate("none"), Ok(0));
        assert!(parse_rate("0gbit").is_err());
        assert!(parse_rate("fast").is_err());
    }

    #[test]
    fn shares_range_from_0_to_100_percent() {
        assert_eq!(parse_share("0%"), Ok(0.0));
        assert_eq!(parse_share("0.1%"), Ok(0.001));
        assert_eq!(parse_share("100%"), Ok(1.0));
        assert!(parse_share("101%").is_err());
        assert!(parse_share("-1%").is_err());
    }

    #[test]
    fn ages_are_shown_in_their_largest_units() {
        let shown = |ms| format_age(Duration::from_millis(ms));
        assert_eq!(shown(120), "0.1 s");
        assert_eq!(shown(59_900), "59 s");
        assert_eq!(shown(125_000), "2 min 5 s");
        assert_eq!(shown(12_000_000), "3 h 20 min");
        assert_eq!(shown(349_200_000), "4 d 1 h");
    }

    #[test]
    fn values_are_formatted_for_humans() {
        assert_eq!(format_bytes(8), "8 B");
        assert_eq!(format_bytes(65_536), "64 KiB");
        assert_eq!(format_bytes(3 << 19), "1.5 MiB");
        assert_eq!(format_us(Duration::from_nanos(1_234)), "1.23");
        assert_eq!(format_us(Duration::from_micros(12)), "12.0");
        assert_eq!(format_us(Duration::from_millis(12)), "12000");
        assert_eq!(format_rate(1_280_000_000), "1.28 Gbit/s");
        assert_eq!(format_share(0.07), "7%");
    }
}
