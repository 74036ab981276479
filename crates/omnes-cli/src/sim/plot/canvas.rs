//! Text, lines and boxes on an SVG picture, in pixels.

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::{
    Circle, DrawingArea, IntoDrawingArea, PathElement, RGBColor, Rectangle, SVGBackend, ShapeStyle,
    Text,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontTransform, IntoFont, WHITE};

/// A position in the picture: from the left and from the top.
pub type Place = (f64, f64);

/// Colours that people with any kind of colour vision can distinguish (Okabe and Ito).
pub const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(90, 90, 90),
];
/// Colour of text.
pub const INK: RGBColor = RGBColor(30, 30, 30);
/// Colour of less important text and lines.
pub const GREY: RGBColor = RGBColor(110, 110, 110);
/// Colour of grid lines.
pub const FAINT: RGBColor = RGBColor(225, 225, 225);

/// Approximate width of a text, rather too large than too small.
pub fn text_width(text: &str, size: u32) -> f64 {
    text.chars().count() as f64 * f64::from(size) * 0.56
}

/// Colour of the line with this number.
pub fn colour(number: usize) -> RGBColor {
    COLOURS[number % COLOURS.len()]
}

/// Which part of a text is at its position.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    Left,
    Middle,
    Right,
    /// The middle, with the text rotated upwards.
    Upwards,
}

/// Style of a text.
#[derive(Clone, Copy)]
pub struct Look {
    pub size: u32,
    pub anchor: Anchor,
    pub colour: RGBColor,
}

/// See the module header.
pub struct Canvas<'text> {
    area: DrawingArea<SVGBackend<'text>, Shift>,
}

fn pixels((x, y): Place) -> (i32, i32) {
    (x.round() as i32, y.round() as i32)
}

fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("cannot draw: {error}")
}

impl<'text> Canvas<'text> {
    /// Creates a white picture, which is written into `text`.
    pub fn new(text: &'text mut String, size: (u32, u32)) -> Result<Self> {
        let area = SVGBackend::with_string(text, size).into_drawing_area();
        area.fill(&WHITE).map_err(failed)?;
        Ok(Self { area })
    }

    /// Completes the picture.
    pub fn finish(self) -> Result<()> {
        self.area.present().map_err(failed)
    }

    /// Draws a text at a position, vertically centred.
    pub fn text(&self, text: &str, at: Place, look: Look) -> Result<()> {
        let horizontal = match look.anchor {
            Anchor::Left => HPos::Left,
            Anchor::Right => HPos::Right,
            Anchor::Middle | Anchor::Upwards => HPos::Center,
        };
        let font = ("sans-serif", f64::from(look.size)).into_font();
        let font = match look.anchor {
            Anchor::Upwards => font.transform(FontTransform::Rotate270),
            _ => font,
        };
        let style = font.color(&look.colour).pos(Pos::new(horizontal, VPos::Center));
        self.area.draw(&Text::new(text.to_owned(), pixels(at), style)).map_err(failed)
    }

    /// Draws a line through all positions.
    pub fn line(&self, places: &[Place], colour: RGBColor, width: u32) -> Result<()> {
        let places: Vec<_> = places.iter().copied().map(pixels).collect();
        let style = colour.stroke_width(width);
        self.area.draw(&PathElement::new(places, style)).map_err(failed)
    }

    /// Draws a dashed line from one position to another.
    pub fn dashes(&self, (from, to): (Place, Place), colour: RGBColor) -> Result<()> {
        const DASH: f64 = 6.0;
        let length = (to.0 - from.0).hypot(to.1 - from.1);
        let dashes = (length / (2.0 * DASH)).ceil() as u32;
        let along = |pixels: f64| {
            let share = (pixels / length).min(1.0);
            (from.0 + (to.0 - from.0) * share, from.1 + (to.1 - from.1) * share)
        };
        for dash in 0..dashes {
            let start = f64::from(dash) * 2.0 * DASH;
            self.line(&[along(start), along(start + DASH)], colour, 1)?;
        }
        Ok(())
    }

    /// Draws a filled box between two corners.
    pub fn fill(&self, corners: (Place, Place), colour: RGBColor) -> Result<()> {
        let corners = [pixels(corners.0), pixels(corners.1)];
        let style: ShapeStyle = colour.filled();
        self.area.draw(&Rectangle::new(corners, style)).map_err(failed)
    }

    /// Draws a dot.
    pub fn dot(&self, at: Place, colour: RGBColor) -> Result<()> {
        self.area.draw(&Circle::new(pixels(at), 4, colour.filled())).map_err(failed)
    }
}

/// Formats a time for people: `850 ns`, `12.3 us`, `4.56 ms`, `1.2 s`.
pub fn time_label(us: f64) -> String {
    let (value, unit) = match us {
        _ if us >= 0.9995e6 => (us / 1e6, "s"),
        _ if us >= 999.5 => (us / 1e3, "ms"),
        _ if us >= 0.9995 => (us, "us"),
        _ => (us * 1e3, "ns"),
    };
    let digits = if value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    let text = format!("{value:.digits$}");
    let short =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{short} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_labels_have_three_digits_and_a_fitting_unit() {
        let shown = [0.0321, 1.0, 12.34, 999.4, 999.6, 26_470.0, 1_234_000.0].map(time_label);
        assert_eq!(shown, ["32.1 ns", "1 us", "12.3 us", "999 us", "1 ms", "26.5 ms", "1.23 s"]);
    }
}
