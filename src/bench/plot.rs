//! Plots as SVG.

use super::report::{Mark, Plot, Series};
use plotters::coord::Shift;
use plotters::prelude::*;

const SIZE: (u32, u32) = (760, 440);
const FONT: &str = "sans-serif";

/// Colours that are told apart by the colour-blind, too: Okabe and Ito.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

/// A plot could not be drawn.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw the plot {name}: {reason}")]
pub struct PlotError {
    /// The plot.
    pub name: String,
    /// The drawing library's reason.
    pub reason: String,
}

impl Plot {
    /// The plot as an SVG document.
    ///
    /// # Errors
    /// [`PlotError`] if it has no points, or the library cannot draw it.
    pub fn svg(&self) -> Result<String, PlotError> {
        let mut svg = String::new();
        let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        let drawn = self.draw(&area).and_then(|()| Ok(area.present()?));
        drop(area);
        match drawn {
            Ok(()) => Ok(svg),
            Err(error) => Err(PlotError {
                name: self.name.clone(),
                reason: error.to_string(),
            }),
        }
    }

    fn draw(
        &self,
        area: &DrawingArea<SVGBackend<'_>, Shift>,
    ) -> Result<(), Box<dyn std::error::Error + '_>> {
        let points = || self.series.iter().flat_map(|series| &series.points);
        if points().next().is_none() {
            return Err("it has no points".into());
        }
        let (left, right) = range(points().map(|(x, _)| *x));
        let (bottom, top) = range(points().map(|(_, y)| *y));
        area.fill(&WHITE).map_err(|e| e.to_string())?;
        let above = (top - bottom).max(1e-9) * 0.08;
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, 19))
            .margin(14)
            .x_label_area_size(46)
            .y_label_area_size(62)
            .build_cartesian_2d(left..right, bottom.min(0.0)..top + above)
            .map_err(|e| e.to_string())?;
        chart
            .configure_mesh()
            .x_desc(&self.x)
            .y_desc(&self.y)
            .axis_desc_style((FONT, 15))
            .label_style((FONT, 13))
            .light_line_style(WHITE)
            .bold_line_style(RGBColor(225, 225, 225))
            .draw()
            .map_err(|e| e.to_string())?;
        let mut colour = 0;
        for (at, series) in self.series.iter().enumerate() {
            if at > 0 && series.mark != Mark::Points {
                colour += 1;
            }
            let colour = COLOURS[colour % COLOURS.len()];
            draw_series(&mut chart, series, colour)?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.85))
            .border_style(RGBColor(200, 200, 200))
            .label_font((FONT, 13))
            .draw()
            .map_err(|e| e.to_string())?;
        Ok(())
    }
}

type Chart<'a, 'b> = ChartContext<
    'a,
    SVGBackend<'b>,
    Cartesian2d<plotters::coord::types::RangedCoordf64, plotters::coord::types::RangedCoordf64>,
>;

fn draw_series(chart: &mut Chart, series: &Series, colour: RGBColor) -> Result<(), String> {
    let points = series.points.iter().copied();
    let mut label = Some(series.label.clone());
    if series.mark != Mark::Points {
        let line = LineSeries::new(points.clone(), colour.stroke_width(2));
        let drawn = chart.draw_series(line).map_err(|e| e.to_string())?;
        let sample = move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2));
        drawn.label(label.take().unwrap_or_default()).legend(sample);
    }
    if series.mark != Mark::Line {
        let circles = points.map(|point| Circle::new(point, 4, colour.filled()));
        let drawn = chart.draw_series(circles).map_err(|e| e.to_string())?;
        if let Some(label) = label {
            let sample = move |(x, y)| Circle::new((x + 9, y), 4, colour.filled());
            drawn.label(label).legend(sample);
        }
    }
    Ok(())
}

/// The least and the greatest of some numbers; a span around a single one.
fn range(all: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = all.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| {
        (low.min(x), high.max(x))
    });
    match high > low {
        true => (low, high),
        false => (low - 0.5, high + 0.5),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(points: Vec<(f64, f64)>) -> Plot {
        let series = |label: &str, mark| Series {
            label: label.into(),
            mark,
            points: points.clone(),
        };
        Plot {
            name: "saved".into(),
            title: "Time saved".into(),
            x: "tool time, s".into(),
            y: "time saved, %".into(),
            series: vec![
                series("closed form", Mark::Line),
                series("simulated", Mark::Points),
            ],
        }
    }

    #[test]
    fn a_plot_names_its_axes_and_its_lines() {
        let svg = plot(vec![(0.5, 5.9), (2.25, 21.0), (3.0, 19.4)])
            .svg()
            .unwrap();
        let said = [
            "Time saved",
            "tool time, s",
            "time saved, %",
            "closed form",
            "simulated",
        ];
        for said in said {
            assert!(svg.contains(said), "{said}");
        }
        assert_eq!(
            svg.matches("<circle").count(),
            3 + 1,
            "points and the legend's"
        );
        assert!(svg.trim_end().ends_with("</svg>"));
    }

    #[test]
    fn a_plot_without_points_is_an_error() {
        let error = plot(Vec::new()).svg().unwrap_err().to_string();
        assert_eq!(error, "cannot draw the plot saved: it has no points");
    }
}
