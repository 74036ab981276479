//! Figures of the papers, drawn again: our curves as lines, what is stated as marks.

/// How an axis runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// Equal steps are equal differences.
    Linear,
    /// Equal steps are equal ratios; all values are above 0.
    Logarithmic,
}

/// How a curve is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Line {
    /// A main result.
    Solid,
    /// What it is compared with.
    Dashed,
}

/// A curve of ours.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// What it shows, for the legend.
    pub name: String,
    /// How it is drawn.
    pub line: Line,
    /// Points with x ascending.
    pub points: Vec<(f64, f64)>,
}

/// A point that the paper states.
#[derive(Clone, PartialEq, Debug)]
pub struct Mark {
    /// Id of the target, such as `MS-M01`.
    pub id: String,
    /// Where it stands.
    pub x: f64,
    /// What is stated.
    pub y: f64,
    /// The lowest and highest value within the tolerance.
    pub bar: (f64, f64),
}

/// One figure.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// What it shows.
    pub title: String,
    /// Label of the x axis, with its unit, and how it runs.
    pub x: (String, Scale),
    /// Label of the y axis, with its unit, and how it runs.
    pub y: (String, Scale),
    /// Our curves.
    pub series: Vec<Series>,
    /// The paper's points.
    pub stated: Vec<Mark>,
}

impl Series {
    /// A main result.
    pub fn solid(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.to_owned(), line: Line::Solid, points }
    }

    /// What it is compared with.
    pub fn dashed(name: &str, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.to_owned(), line: Line::Dashed, points }
    }
}

impl Mark {
    /// The only figure of the target `id` at `x`, with the bar of its tolerance.
    ///
    /// # Panics
    /// If there is no such target or it states no figure: a mistake in the figure's code.
    pub fn of(id: &str, x: f64) -> Self {
        let target = crate::Target::find(id).expect("marks stand for targets");
        let y = *target.value.numbers().first().expect("marks stand for figures");
        let bar = crate::Tolerance::of(target).bar(y);
        Self { id: id.to_owned(), x, y, bar }
    }
}
