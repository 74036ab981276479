//! Figures of the papers, redrawn: our results as lines, stated values as marks.

/// Scale of an axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Equal steps are equal differences.
    Linear,
    /// Equal steps are equal ratios; all values are above 0.
    Logarithmic,
}

/// Line style of a curve.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Line {
    /// A main result.
    Solid,
    /// A baseline.
    Dashed,
}

/// One of our curves.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// Label in the legend.
    pub name: String,
    /// Line style.
    pub line: Line,
    /// Points with x ascending.
    pub points: Vec<(f64, f64)>,
}

/// A point that the paper states.
#[derive(Clone, PartialEq, Debug)]
pub struct Mark {
    /// Id of the target, such as `MS-M01`.
    pub id: String,
    /// Position on the x axis.
    pub x: f64,
    /// Stated value.
    pub y: f64,
    /// Lowest and highest value within the tolerance.
    pub bar: (f64, f64),
}

/// One figure.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// Title.
    pub title: String,
    /// Label of the x axis, with its unit, and the axis's scale.
    pub x: (String, Scale),
    /// Label of the y axis, with its unit, and the axis's scale.
    pub y: (String, Scale),
    /// Our curves.
    pub series: Vec<Series>,
    /// The paper's points.
    pub stated: Vec<Mark>,
}

impl Series {
    /// A curve of a main result.
    pub fn solid(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.to_owned(), line: Line::Solid, points }
    }

    /// A curve of a baseline.
    pub fn dashed(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.to_owned(), line: Line::Dashed, points }
    }
}

impl Mark {
    /// The only figure of the target `id` at `x`, with the bar of its tolerance.
    ///
    /// # Panics
    /// If the target does not exist or states no figure: a mistake in the figure's code.
    pub fn of(id: &str, x: f64) -> Self {
        let target = crate::Target::find(id).expect("marks stand for targets");
        let y = *target.value.numbers().first().expect("marks stand for figures");
        let bar = crate::Tolerance::of(target).bar(y);
        Self { id: id.to_owned(), x, y, bar }
    }
}
