//! Results as a picture: time over the axis that has several values, one line for each algorithm;
//! bars if no axis has several.
//!
//! Lines show medians over seeds, with the range from the fastest sample to the 99th percentile of
//! the slowest seed behind them. Scales are logarithmic, except that of skew, which starts at zero;
//! no loss is drawn where a loss of one in a million would be. A dashed line shows the time of the
//! link alone for the bytes.
//!
//! | module | what it holds |
//! |---|---|
//! | `data` | which results make which line |
//! | `canvas` | text, lines and boxes on an SVG picture |
//! | `chart` | lines over an axis |
//! | `bars` | bars |

mod bars;
mod canvas;
mod chart;
mod data;

use super::config::Config;
use super::measure::Measured;
use anyhow::{Context, Result, ensure};
use data::{Axis, Figure};
use std::path::Path;

/// Rejects a file whose name does not have a supported extension.
pub fn check(path: &Path) -> Result<()> {
    let is_known = path.extension().is_some_and(|end| end == "svg" || end == "html");
    ensure!(is_known, "--plot {}: the name must end in .svg or .html", path.display());
    Ok(())
}

/// Writes the plot; `table` and `command` are included in an HTML page.
pub fn write(
    path: &Path,
    config: &Config,
    results: &[Measured],
    (table, command): (&str, &str),
) -> Result<()> {
    let picture = picture(config, results)?;
    let text = if path.extension().is_some_and(|end| end == "html") {
        page(&picture, table, command)
    } else {
        picture
    };
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The plot as SVG.
pub fn picture(config: &Config, results: &[Measured]) -> Result<String> {
    let figure = Figure::new(config, results);
    match figure.axis {
        Axis::None => bars::draw(&figure),
        _ => chart::draw(&figure),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn page(picture: &str, table: &str, command: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>omnes sim</title>\n\
         <style>body{{font-family:sans-serif;max-width:70em;margin:2em auto;padding:0 1em}}\
         pre{{overflow:auto}}svg{{max-width:100%;height:auto}}</style>\n{picture}\n\
         <pre>{}</pre>\n<p>Simulated by</p>\n<pre>{}</pre>\n</html>\n",
        escaped(table),
        escaped(command)
    )
}
