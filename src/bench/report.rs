//! The result of a bench: sentences, tables, plots and checks. It is written as JSON and read back for the page.

use serde::{Deserialize, Serialize};

/// The result of one bench.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The bench.
    pub name: String,
    /// A heading.
    pub title: String,
    /// The seed of its random numbers.
    pub seed: u64,
    /// How it is measured, and what is simulated: paragraphs of Markdown.
    pub method: Vec<String>,
    /// The results in one sentence each, the most important first: Markdown.
    pub findings: Vec<String>,
    /// The figures.
    pub tables: Vec<Table>,
    /// The plots.
    pub plots: Vec<Plot>,
    /// Expected values, and whether they were met.
    pub checks: Vec<Check>,
}

/// A table of figures.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// A heading.
    pub title: String,
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows, each with a cell for every column.
    pub rows: Vec<Vec<Cell>>,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Its heading, with the unit.
    pub name: String,
    /// Digits after the point when numbers are printed.
    pub decimals: usize,
}

/// A cell of a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// A number.
    Number(f64),
    /// The median of several runs, with their least and greatest value.
    Spread(Spread),
    /// Words.
    Text(String),
}

/// The same figure in several runs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least.
    pub low: f64,
    /// The greatest.
    pub high: f64,
}

/// A plot: one file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plot {
    /// The file's name without its ending.
    pub name: String,
    /// The title.
    pub title: String,
    /// The horizontal axis, with its unit.
    pub x: String,
    /// The vertical axis, with its unit.
    pub y: String,
    /// The lines, each with its label.
    pub series: Vec<Series>,
}

/// A line or a set of points in a plot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The label in the legend.
    pub label: String,
    /// How it is drawn.
    pub mark: Mark,
    /// The points, from left to right.
    pub points: Vec<(f64, f64)>,
}

/// How a series is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// A line.
    Line,
    /// Points, in the colour of the line before them.
    Points,
    /// A line with points.
    Both,
}

/// An expected value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Check {
    /// The expectation.
    pub what: String,
    /// The measured value, with its unit.
    pub found: String,
    /// It was met.
    pub holds: bool,
}

impl Table {
    /// A table without rows. Columns: heading and decimals.
    pub fn new(title: &str, columns: &[(&str, usize)]) -> Self {
        let column = |(name, decimals): &(&str, usize)| Column {
            name: (*name).to_owned(),
            decimals: *decimals,
        };
        Self {
            title: title.to_owned(),
            columns: columns.iter().map(column).collect(),
            rows: Vec::new(),
        }
    }

    /// The table as Markdown, which is readable as plain text, too.
    pub fn markdown(&self) -> String {
        let heads = self.columns.iter().map(|column| column.name.clone());
        let mut rows: Vec<Vec<String>> = vec![heads.collect()];
        rows.extend(self.rows.iter().map(|row| {
            let cells = row.iter().zip(&self.columns);
            cells
                .map(|(cell, column)| cell.text(column.decimals))
                .collect()
        }));
        let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max();
        let widths: Vec<usize> = (0..self.columns.len()).filter_map(width).collect();
        let numeric = |at: usize| {
            let mut cells = self.rows.iter().map(|row| &row[at]);
            cells.all(|cell| !matches!(cell, Cell::Text(text) if text != "-"))
        };
        let line = |row: &Vec<String>| {
            let cells = row.iter().zip(&widths).enumerate();
            let cells = cells.map(|(at, (cell, width))| match numeric(at) {
                true => format!(" {cell:>width$} "),
                false => format!(" {cell:<width$} "),
            });
            format!("|{}|", cells.collect::<Vec<_>>().join("|"))
        };
        let rule = widths
            .iter()
            .enumerate()
            .map(|(at, width)| match numeric(at) {
                true => format!("{}:", "-".repeat(width + 1)),
                false => "-".repeat(width + 2),
            });
        let rule = format!("|{}|", rule.collect::<Vec<_>>().join("|"));
        let mut lines: Vec<String> = rows.iter().map(line).collect();
        lines.insert(1, rule);
        lines.join("\n")
    }
}

impl Cell {
    fn text(&self, decimals: usize) -> String {
        match self {
            Self::Number(number) => format!("{number:.decimals$}"),
            Self::Spread(Spread { median, low, high }) => {
                format!("{median:.decimals$} ({low:.decimals$} to {high:.decimals$})")
            }
            Self::Text(text) => text.clone(),
        }
    }
}

impl Spread {
    /// The spread of these values; zeros if there are none.
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let at = |at: usize| values.get(at).copied().unwrap_or(0.0);
        let last = values.len().saturating_sub(1);
        Self {
            median: (at(last / 2) + at(last.div_ceil(2))) / 2.0,
            low: at(0),
            high: at(last),
        }
    }
}

/// A quantile of these values, by linear interpolation; zero if there are none.
pub(super) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = share * sorted.len().saturating_sub(1) as f64;
    let value = |at: f64| sorted.get(at as usize).copied().unwrap_or(0.0);
    let (below, above) = (value(at.floor()), value(at.ceil()));
    below + (above - below) * at.fract()
}

impl Check {
    /// A value that must be within `tolerance` of another, both in `unit`.
    pub fn near(what: &str, found: f64, wanted: f64, tolerance: f64, unit: &str) -> Self {
        Self {
            what: format!("{what}: {wanted}{unit}, at most {tolerance}{unit} off"),
            found: format!("{found:.2}{unit}"),
            holds: (found - wanted).abs() <= tolerance,
        }
    }

    /// A value that must be at least `wanted`, both in `unit`.
    pub fn at_least(what: &str, found: f64, wanted: f64, unit: &str) -> Self {
        Self {
            what: format!("{what}: at least {wanted}{unit}"),
            found: format!("{found:.2}{unit}"),
            holds: found >= wanted,
        }
    }

    /// A value that must be at most `wanted`, both in `unit`.
    pub fn at_most(what: &str, found: f64, wanted: f64, unit: &str) -> Self {
        Self {
            what: format!("{what}: at most {wanted}{unit}"),
            found: format!("{found:.4}{unit}"),
            holds: found <= wanted,
        }
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl From<Spread> for Cell {
    fn from(spread: Spread) -> Self {
        Self::Spread(spread)
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_lie_between_values() {
        let values = [4.0, 1.0, 2.0, 3.0, 5.0];
        assert_eq!(quantile(&values, 0.5), 3.0);
        assert!((quantile(&values, 0.95) - 4.8).abs() < 1e-9);
        assert_eq!(quantile(&[], 0.5), 0.0);
    }

    #[test]
    fn tables_are_readable_as_text() {
        let mut table = Table::new("", &[("arm", 0), ("saved, %", 1)]);
        table.rows.push(vec!["client".into(), 5.88.into()]);
        let spread = Spread::of(vec![21.0, 20.0, 22.5]);
        table.rows.push(vec!["engine".into(), spread.into()]);
        let lines = [
            "| arm    |            saved, % |",
            "|--------|--------------------:|",
            "| client |                 5.9 |",
            "| engine | 21.0 (20.0 to 22.5) |",
        ];
        assert_eq!(table.markdown(), lines.join("\n"));
    }
}
