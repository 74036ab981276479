//! Bars for results that differ only in the algorithm, from zero to the slowest.

use super::canvas::{Anchor, Canvas, GREY, INK, Look, colour, text_width, time_label};
use super::data::Figure;
use anyhow::Result;

/// Minimum width for names; length of the bars; width for the text after them.
const LEFT_MIN: f64 = 220.0;
const LENGTH: f64 = 500.0;
const BEHIND: f64 = 180.0;
/// Font size of names and times.
const TEXT: u32 = 15;
const TOP: f64 = 110.0;
/// Distance between the tops of two bars, and the height of one.
const PITCH: f64 = 54.0;
const THICKNESS: f64 = 32.0;

/// Draws the picture.
pub fn draw(figure: &Figure) -> Result<String> {
    let height = TOP + PITCH * figure.series.len() as f64 + 30.0;
    let names = figure.series.iter().map(|series| text_width(&series.label, TEXT) + 24.0);
    let left = names.fold(LEFT_MIN, f64::max);
    let mut text = String::new();
    let size = ((left + LENGTH + BEHIND) as u32, height as u32);
    let canvas = Canvas::new(&mut text, size)?;
    let title = |size, colour| Look { size, anchor: Anchor::Left, colour };
    canvas.text(&figure.title, (30.0, 32.0), title(22, INK))?;
    canvas.text(&figure.subtitle, (30.0, 58.0), title(14, GREY))?;
    let spots = || figure.series.iter().flat_map(|series| &series.spots);
    let longest = spots().map(|spot| spot.high_us.max(spot.median_us)).fold(0.0, f64::max);
    let fastest = spots().map(|spot| spot.median_us).fold(f64::INFINITY, f64::min);
    let x = |us: f64| left + LENGTH * us / longest.max(f64::MIN_POSITIVE);
    for (number, series) in figure.series.iter().enumerate() {
        let Some(spot) = series.spots.first() else { continue };
        let top = TOP + PITCH * number as f64;
        let middle = top + THICKNESS / 2.0;
        let look = Look { size: TEXT, anchor: Anchor::Right, colour: INK };
        canvas.text(&series.label, (left - 12.0, middle), look)?;
        canvas.fill(((left, top), (x(spot.median_us), top + THICKNESS)), colour(number))?;
        if spot.low_us < spot.high_us {
            let ends = [x(spot.low_us), x(spot.high_us)];
            canvas.line(&[(ends[0], middle), (ends[1], middle)], INK, 2)?;
            for end in ends {
                canvas.line(&[(end, middle - 6.0), (end, middle + 6.0)], INK, 2)?;
            }
        }
        let times = match spot.median_us / fastest {
            ratio if ratio < 1.005 => String::new(),
            ratio => format!("  ({ratio:.2} x)"),
        };
        let end = x(spot.median_us.max(spot.high_us)) + 10.0;
        let look = Look { size: TEXT, anchor: Anchor::Left, colour: INK };
        canvas.text(&format!("{}{times}", time_label(spot.median_us)), (end, middle), look)?;
    }
    if let Some(spot) = figure.link.as_ref().and_then(|link| link.spots.first())
        && spot.median_us <= longest
    {
        let at = x(spot.median_us);
        canvas.dashes(((at, TOP - 12.0), (at, height - 24.0)), INK)?;
        let label = format!("the link alone: {}", time_label(spot.median_us));
        let look = Look { size: 13, anchor: Anchor::Left, colour: GREY };
        canvas.text(&label, (at, TOP - 22.0), look)?;
    }
    canvas.finish()?;
    Ok(text)
}
