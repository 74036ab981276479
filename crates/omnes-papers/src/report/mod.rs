//! The report for people: one self-contained HTML page.
//!
//! Guarantees: no script, no external link, all text escaped; the same findings give the same page.
//! Cost: the figures are simulated again, which takes seconds.

mod chart;
mod contradictions;
mod page;
mod texts;

pub use chart::svg;
pub use page::page as html_page;

/// Escapes text for HTML.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::escape;

    #[test]
    fn text_is_escaped_in_markup() {
        assert_eq!(
            escape("a < b && \"c\" > 'd'"),
            "a &lt; b &amp;&amp; &quot;c&quot; &gt; &#39;d&#39;"
        );
    }
}
