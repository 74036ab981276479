//! Byte counts as users type them; one format for variables and options.

/// Suffixes and the number of bytes that each denotes.
const UNITS: [(&[&str], u64); 4] = [
    (&["", "b"], 1),
    (&["k", "kb", "kib"], 1 << 10),
    (&["m", "mb", "mib"], 1 << 20),
    (&["g", "gb", "gib"], 1 << 30),
];
/// 2^53: above it, a number with a decimal point is no longer exact, and no size is that large.
const BYTES_MAX: f64 = 9_007_199_254_740_992.0;

/// Parses bytes from `8`, `64k`, `1.5m`, `1g` (powers of 1024); `KiB` and `kB` mean the same as
/// `k`.
///
/// # Errors
/// A sentence that names the text and what is expected.
pub fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: f64 = number.parse().map_err(|_| {
        format!("`{text}` is not a size: give a number of bytes, or one with k, m or g")
    })?;
    let unit = unit.trim().to_ascii_lowercase();
    let known = UNITS.iter().find(|(names, _)| names.contains(&&*unit));
    let (_, factor) =
        known.ok_or_else(|| format!("`{text}`: sizes end in k, m, g or nothing (64k)"))?;
    let bytes = number * *factor as f64;
    if bytes.fract() != 0.0 {
        return Err(format!("`{text}` is not a whole number of bytes"));
    }
    if bytes > BYTES_MAX {
        return Err(format!("`{text}` is too large"));
    }
    Ok(bytes as u64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn size_units_are_powers_of_1024() {
        let texts = ["8", "64k", "64 KiB", "1.5k", "4m", "1g", "8B"];
        let bytes = texts.map(|text| parse(text).unwrap());
        assert_eq!(bytes, [8, 65_536, 65_536, 1536, 4 << 20, 1 << 30, 8]);
    }

    #[test]
    fn invalid_sizes_are_rejected_with_the_reason() {
        for (text, words) in [
            ("many", "is not a size"),
            ("-1", "is not a size"),
            ("1x", "k, m, g or nothing"),
            ("1.5", "not a whole number of bytes"),
            ("99999999g", "too large"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(words) && error.contains(text), "{error}");
        }
    }
}
