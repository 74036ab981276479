//! Lines over an axis, each with its name at its end.

use super::canvas::{
    Anchor, COLOURS, Canvas, FAINT, GREY, INK, Look, Place, colour, text_width, time_label,
};
use super::data::{Figure, Series};
use anyhow::Result;

const LEFT: f64 = 100.0;
const RIGHT: f64 = 740.0;
const TOP: f64 = 90.0;
/// Minimum position of the axis; it is lower if there are many names.
const BOTTOM_MIN: f64 = 490.0;
/// Height below the axis.
const FOOT: f64 = 70.0;
/// Font size of names, and minimum width for them.
const NAME: u32 = 14;
const NAME_WIDTH_MIN: f64 = 196.0;
/// Minimum distance of two names at the ends of lines, and of two ticks.
const NAME_PITCH: f64 = 18.0;
const TICK_PITCH: f64 = 52.0;
/// Shorter times are drawn at this one: a picosecond.
const SHORTEST_US: f64 = 1e-6;

/// Mapping from values to pixels.
struct Scale {
    low: f64,
    high: f64,
    is_log: bool,
    from: f64,
    to: f64,
}

impl Scale {
    fn place(&self, value: f64) -> f64 {
        let bent = |value: f64| if self.is_log { value.max(self.low).ln() } else { value };
        let (low, high) = (bent(self.low), bent(self.high));
        let share = if high > low { (bent(value) - low) / (high - low) } else { 0.5 };
        self.from + (self.to - self.from) * share
    }
}

/// Draws the picture.
pub fn draw(figure: &Figure) -> Result<String> {
    let mut text = String::new();
    let canvas = Canvas::new(&mut text, size(figure))?;
    let head = |size, colour| Look { size, anchor: Anchor::Left, colour };
    canvas.text(&figure.title, (30.0, 30.0), head(22, INK))?;
    canvas.text(&figure.subtitle, (30.0, 56.0), head(14, GREY))?;
    let (x, y) = scales(figure);
    draw_axes(&canvas, figure, (&x, &y))?;
    let place = |spot: &super::data::Spot| (x.place(spot.x), y.place(spot.median_us));
    let mut names = Vec::new();
    if let Some(link) = &figure.link {
        // Far below all results the link's time is not informative, and would compress them.
        let near = link.spots.iter().filter(|spot| spot.median_us >= y.low);
        let places: Vec<Place> = near.map(place).collect();
        for pair in places.windows(2) {
            canvas.dashes((pair[0], pair[1]), GREY)?;
        }
        names.extend(places.last().map(|end| (end.1, link.label.clone(), GREY)));
    }
    for (number, series) in figure.series.iter().enumerate() {
        draw_series(&canvas, series, number, (&x, &y))?;
        let end = series.spots.last().map(|spot| y.place(spot.median_us));
        names.extend(end.map(|end| (end, series.label.clone(), colour(number))));
    }
    names.sort_by(|one, other| one.0.total_cmp(&other.0));
    for (at, (_, name, colour)) in apart(&names, bottom(figure)).into_iter().zip(&names) {
        let look = Look { size: NAME, anchor: Anchor::Left, colour: *colour };
        canvas.text(name, (RIGHT + 14.0, at), look)?;
    }
    canvas.finish()?;
    Ok(text)
}

/// Height of the axis: leaves room above it for all names at the ends of lines.
fn bottom(figure: &Figure) -> f64 {
    BOTTOM_MIN.max(TOP + NAME_PITCH * figure.series.len() as f64)
}

fn size(figure: &Figure) -> (u32, u32) {
    let names = figure.series.iter().map(|series| text_width(&series.label, NAME));
    let width = RIGHT + 14.0 + names.fold(NAME_WIDTH_MIN, f64::max) + 10.0;
    (width as u32, (bottom(figure) + FOOT) as u32)
}

fn draw_series(
    canvas: &Canvas<'_>,
    series: &Series,
    number: usize,
    (x, y): (&Scale, &Scale),
) -> Result<()> {
    let colour = colour(number);
    let places: Vec<Place> =
        series.spots.iter().map(|spot| (x.place(spot.x), y.place(spot.median_us))).collect();
    if number < COLOURS.len() {
        canvas.line(&places, colour, 2)?;
    } else {
        // Colours repeat, and are then distinguished by dashes.
        for pair in places.windows(2) {
            canvas.dashes((pair[0], pair[1]), colour)?;
        }
    }
    for (spot, place) in series.spots.iter().zip(&places) {
        let ends = [(place.0, y.place(spot.low_us)), (place.0, y.place(spot.high_us))];
        canvas.line(&ends, colour, 1)?;
        canvas.dot(*place, colour)?;
    }
    Ok(())
}

fn scales(figure: &Figure) -> (Scale, Scale) {
    let spots = || figure.series.iter().flat_map(|series| &series.spots);
    let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    let is_log = figure.axis.is_log();
    let x = Scale {
        low: least(&mut spots().map(|spot| spot.x)),
        high: most(&mut spots().map(|spot| spot.x)),
        is_log,
        from: LEFT + 20.0,
        to: RIGHT - 10.0,
    };
    let (low, high) =
        (least(&mut spots().map(|spot| spot.low_us)), most(&mut spots().map(|spot| spot.high_us)));
    // A sample may be zero, if a rank is late and everything it waits for has arrived.
    let low = low.max(SHORTEST_US);
    let high = high.max(low);
    let y = Scale { low: low / 2.0, high: high * 1.3, is_log: true, from: bottom(figure), to: TOP };
    (x, y)
}

fn draw_axes(canvas: &Canvas<'_>, figure: &Figure, (x, y): (&Scale, &Scale)) -> Result<()> {
    let tick = |anchor| Look { size: 13, anchor, colour: INK };
    let bottom = y.from;
    for us in steps(y) {
        let height = y.place(us);
        canvas.line(&[(LEFT, height), (RIGHT, height)], FAINT, 1)?;
        canvas.text(&time_label(us), (LEFT - 8.0, height), tick(Anchor::Right))?;
    }
    let mut values: Vec<f64> =
        figure.series.iter().flat_map(|line| &line.spots).map(|spot| spot.x).collect();
    values.sort_by(f64::total_cmp);
    values.dedup();
    let mut free = f64::NEG_INFINITY;
    for value in values {
        let at = x.place(value);
        canvas.line(&[(at, bottom), (at, bottom + 5.0)], INK, 1)?;
        if at >= free {
            canvas.line(&[(at, TOP), (at, bottom)], FAINT, 1)?;
            canvas.text(&figure.axis.label(value), (at, bottom + 18.0), tick(Anchor::Middle))?;
            free = at + TICK_PITCH;
        }
    }
    canvas.line(&[(LEFT, TOP), (LEFT, bottom), (RIGHT, bottom)], INK, 1)?;
    let middle = f64::midpoint(LEFT, RIGHT);
    let title = |anchor| Look { size: 14, anchor, colour: INK };
    canvas.text(figure.axis.title(), (middle, bottom + 46.0), title(Anchor::Middle))?;
    canvas.text("time", (24.0, f64::midpoint(TOP, bottom)), title(Anchor::Upwards))
}

/// Powers of ten within the scale, with 2 and 5 times each if there are few.
fn steps(scale: &Scale) -> Vec<f64> {
    let decades = (scale.high / scale.low).log10();
    let factors: &[f64] = if decades < 3.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let powers = scale.low.log10().floor() as i32..=scale.high.log10().ceil() as i32;
    let all = powers.flat_map(|power| factors.iter().map(move |by| by * 10f64.powi(power)));
    all.filter(|us| (scale.low..=scale.high).contains(us)).collect()
}

/// Heights for names, which are in order, with room between them, above `bottom`.
fn apart<T>(names: &[(f64, String, T)], bottom: f64) -> Vec<f64> {
    let mut heights: Vec<f64> = names.iter().map(|name| name.0).collect();
    for at in 1..heights.len() {
        heights[at] = heights[at].max(heights[at - 1] + NAME_PITCH);
    }
    // Names that were pushed below the axis move up again, and push the others.
    let mut floor = bottom;
    for height in heights.iter_mut().rev() {
        *height = height.min(floor);
        floor = *height - NAME_PITCH;
    }
    heights
}

#[cfg(test)]
mod tests {
    use super::super::data::{Axis, Spot};
    use super::*;

    #[test]
    fn series_labels_keep_their_order_and_spacing() {
        let names = [480.0, 485.0, 489.0].map(|height| (height, String::new(), ()));
        let heights = apart(&names, BOTTOM_MIN);
        assert!(
            heights.windows(2).all(|pair| pair[1] - pair[0] >= NAME_PITCH - 1e-9),
            "{heights:?}"
        );
        assert!(heights[2] <= BOTTOM_MIN);
    }

    #[test]
    fn chart_has_room_for_all_series_labels() {
        let spots = vec![Spot { x: 1.0, median_us: 1.0, low_us: 1.0, high_us: 1.0 }];
        let series = vec![Series { label: "n".repeat(60), spots }; 50];
        let (title, subtitle) = (String::new(), String::new());
        let figure = Figure { title, subtitle, axis: Axis::Ranks, series, link: None };
        let names = vec![(200.0, String::new(), ()); 51];
        let heights = apart(&names, bottom(&figure));
        assert!(heights[0] >= TOP && heights[50] <= bottom(&figure), "{heights:?}");
        let (width, height) = size(&figure);
        assert!(width > 1200 && f64::from(height) > bottom(&figure), "{width} {height}");
    }

    #[test]
    fn zero_samples_are_placed_at_the_bottom_of_the_log_scale() {
        let spot = |x, low_us| Spot { x, median_us: 2.0, low_us, high_us: 3.0 };
        let spots = vec![spot(1.0, 0.0), spot(2.0, 1.0)];
        let series = vec![Series { label: String::new(), spots }];
        let (title, subtitle) = (String::new(), String::new());
        let figure = Figure { title, subtitle, axis: Axis::Ranks, series, link: None };
        let (_, y) = scales(&figure);
        assert!(y.place(0.0) <= BOTTOM_MIN && steps(&y).len() < 10, "{:?}", steps(&y));
        assert!(draw(&figure).is_ok());
    }

    #[test]
    fn scales_of_few_decades_have_intermediate_ticks() {
        let scale = |low, high| Scale { low, high, is_log: true, from: BOTTOM_MIN, to: TOP };
        assert_eq!(steps(&scale(8.0, 60.0)), [10.0, 20.0, 50.0]);
        assert_eq!(steps(&scale(1.0, 10_000.0)).len(), 5);
        assert!((scale(1.0, 100.0).place(10.0) - f64::midpoint(TOP, BOTTOM_MIN)).abs() < 1e-9);
    }
}
