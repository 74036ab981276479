//! A figure as SVG: curves as lines, the paper's points as marks with the bar of their tolerance.

use crate::figure::{Figure, Line, Mark, Scale, Series};
use plotters::coord::Shift;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::io;
use std::ops::Range;

/// Size of a chart.
const SIZE: (u32, u32) = (720, 400);
/// Colours that the colour-blind can tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 6] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
];
const STATED: RGBColor = RGBColor(30, 30, 30);

type Failure = DrawingAreaErrorKind<io::Error>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// The figure as an SVG element to be embedded in a page.
///
/// # Panics
/// Never: writing to a string cannot fail.
pub fn svg(figure: &Figure) -> String {
    let mut text = String::new();
    draw(figure, &SVGBackend::with_string(&mut text, SIZE).into_drawing_area())
        .expect("text takes all that is drawn");
    // Embedded in a page it needs no name space, which looks like a link.
    text.replace(" xmlns=\"http://www.w3.org/2000/svg\"", "")
}

fn draw(figure: &Figure, area: &DrawingArea<SVGBackend, Shift>) -> Result<(), Failure> {
    let (x_scale, y_scale) = (figure.x.1, figure.y.1);
    let (xs, ys) = (span(&xs(figure), x_scale), span(&ys(figure), y_scale));
    let labels = [(&xs, x_scale), (&ys, y_scale)].map(|(span, scale)| labels(span, scale));
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(xs, ys)?;
    chart
        .configure_mesh()
        .x_labels(labels[0])
        .y_labels(labels[1])
        .light_line_style(WHITE.mix(0.0))
        .bold_line_style(BLACK.mix(0.12))
        .x_desc(figure.x.0.as_str())
        .y_desc(figure.y.0.as_str())
        .x_label_formatter(&|value| label(*value, x_scale))
        .y_label_formatter(&|value| label(*value, y_scale))
        .label_style(("sans-serif", 13))
        .draw()?;
    for (series, colour) in figure.series.iter().zip(COLOURS.iter().cycle()) {
        draw_series(&mut chart, series, *colour, (x_scale, y_scale))?;
    }
    for mark in &figure.stated {
        draw_mark(&mut chart, mark, (x_scale, y_scale))?;
    }
    chart
        .configure_series_labels()
        .background_style(WHITE.mix(0.85))
        .border_style(BLACK.mix(0.2))
        .label_font(("sans-serif", 13))
        .position(corner(figure))
        .draw()?;
    area.present()
}

fn draw_series(
    chart: &mut Chart,
    series: &Series,
    colour: RGBColor,
    (x, y): (Scale, Scale),
) -> Result<(), Failure> {
    let points = series.points.iter().map(|point| (place(point.0, x), place(point.1, y)));
    let style = colour.stroke_width(2);
    let drawn = match series.line {
        Line::Solid => chart.draw_series(LineSeries::new(points, style))?,
        Line::Dashed => chart.draw_series(DashedLineSeries::new(points, 6, 4, style))?,
    };
    drawn
        .label(series.name.as_str())
        .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
    Ok(())
}

fn draw_mark(chart: &mut Chart, mark: &Mark, (x, y): (Scale, Scale)) -> Result<(), Failure> {
    let at = (place(mark.x, x), place(mark.y, y));
    let ends = [mark.bar.0, mark.bar.1].map(|end| (at.0, place(end, y)));
    chart.draw_series([PathElement::new(ends, STATED.stroke_width(1))])?;
    chart.draw_series([Circle::new(at, 4, STATED.filled())])?;
    // The label goes towards the middle, so that nothing is cut off.
    let xs = chart.x_range();
    let (side, shift) =
        if at.0 > (xs.start + xs.end) / 2.0 { (HPos::Right, -8) } else { (HPos::Left, 8) };
    let font = ("sans-serif", 12).into_font().color(&STATED).pos(Pos::new(side, VPos::Bottom));
    let name = Text::new(mark.id.clone(), (shift, -3), font);
    chart.draw_series([EmptyElement::at(at) + name])?;
    Ok(())
}

/// The upper corner near which the curves are lower.
fn corner(figure: &Figure) -> SeriesLabelPosition {
    let ends = figure.series.iter().filter_map(|it| Some((it.points.first()?, it.points.last()?)));
    let falls: f64 = ends.map(|(first, last)| first.1 - last.1).sum();
    if falls > 0.0 { SeriesLabelPosition::UpperRight } else { SeriesLabelPosition::UpperLeft }
}

/// Most labels on an axis; on a logarithmic axis at most one per power of two.
fn labels(span: &Range<f64>, scale: Scale) -> usize {
    const MOST: usize = 11;
    match scale {
        Scale::Linear => MOST,
        Scale::Logarithmic => ((span.end - span.start) as usize + 1).min(MOST),
    }
}

fn xs(figure: &Figure) -> Vec<f64> {
    let points = figure.series.iter().flat_map(|series| &series.points).map(|point| point.0);
    points.chain(figure.stated.iter().map(|mark| mark.x)).collect()
}

fn ys(figure: &Figure) -> Vec<f64> {
    let points = figure.series.iter().flat_map(|series| &series.points).map(|point| point.1);
    let marks = figure.stated.iter().flat_map(|mark| [mark.bar.0, mark.y, mark.bar.1]);
    // A linear axis of something that is never negative starts at 0.
    let zero = (figure.y.1 == Scale::Linear).then_some(0.0);
    points.chain(marks).chain(zero).collect()
}

/// Position of a value on its axis.
fn place(value: f64, scale: Scale) -> f64 {
    match scale {
        Scale::Linear => value,
        Scale::Logarithmic => value.max(f64::MIN_POSITIVE).log2(),
    }
}

/// Label of a position on the axis.
fn label(place: f64, scale: Scale) -> String {
    let value = if scale == Scale::Linear { place } else { place.exp2() };
    let digits = if value.abs() >= 100.0 { 0 } else { 2 };
    let text = format!("{value:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

/// Range of the positions of these values, with a small margin.
fn span(values: &[f64], scale: Scale) -> Range<f64> {
    let places = || values.iter().filter(|value| value.is_finite()).map(|it| place(*it, scale));
    let least = places().fold(f64::INFINITY, f64::min);
    let most = places().fold(f64::NEG_INFINITY, f64::max);
    if least <= most {
        let room = ((most - least) * 0.04).max(1e-3);
        let low = if least == 0.0 { 0.0 } else { least - room };
        low..most + 2.0 * room
    } else {
        0.0..1.0
    }
}
