//! The bench's output files: tables as Markdown and CSV, and plots.

use std::path::Path;

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::common::Outcome;

/// A title, column names, and rows of cells.
pub struct Table {
    pub title: &'static str,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("{}\n\n{}|{}\n{rows}", self.title, line(&self.columns), " --- |".repeat(self.columns.len()))
    }

    pub fn csv(&self) -> String {
        let cell = |text: &String| if text.contains(',') { format!("\"{text}\"") } else { text.clone() };
        let line = |cells: &[String]| cells.iter().map(cell).collect::<Vec<_>>().join(",") + "\n";
        let rows: String = self.rows.iter().map(|row| line(row)).collect();
        format!("# {}\n{}{rows}", self.title, line(&self.columns))
    }
}

/// Plots lines on logarithmic axes.
pub fn plot(file: &Path, title: &str, axes: [&str; 2], lines: &[Line]) -> Outcome<()> {
    let (low, high) = bounds(lines, |point| point.0);
    draw(file, title, axes, (low * 0.8..high * 1.25).log_scale(), lines)
}

/// Plots lines over time, with a logarithmic vertical axis.
pub fn plot_over_time(file: &Path, title: &str, axes: [&str; 2], lines: &[Line]) -> Outcome<()> {
    draw(file, title, axes, 0.0..bounds(lines, |point| point.0).1, lines)
}

/// A line's name and points.
pub type Line<'a> = (&'a str, Vec<(f64, f64)>);

/// The least and the greatest of a coordinate.
fn bounds(lines: &[Line], value: fn(&(f64, f64)) -> f64) -> (f64, f64) {
    // A logarithmic axis has no 0.
    let values = lines.iter().flat_map(|(_, points)| points).map(value).filter(|value| *value > 0.0);
    values.fold((f64::MAX, 0.0), |(low, high): (f64, f64), value| (low.min(value), high.max(value)))
}

fn draw<X>(file: &Path, title: &str, axes: [&str; 2], x: X, lines: &[Line]) -> Outcome<()>
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: ValueFormatter<f64>,
{
    let (low, high) = bounds(lines, |point| point.1);
    let root = SVGBackend::new(file, (900, 560)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 22))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(x, (low * 0.8..high * 1.25).log_scale())?;
    chart.configure_mesh().x_desc(axes[0]).y_desc(axes[1]).light_line_style(WHITE).draw()?;
    for (i, (name, points)) in lines.iter().enumerate() {
        let style = Palette99::pick(i).stroke_width(2);
        chart
            .draw_series(LineSeries::new(points.iter().copied(), style).point_size(3))?
            .label(*name)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
    }
    chart
        .configure_series_labels()
        .border_style(BLACK)
        .background_style(WHITE)
        .position(SeriesLabelPosition::UpperLeft)
        .draw()?;
    root.present()?;
    Ok(())
}

/// Plots bars along a logarithmic axis: a name, the figure of this run, and the article's if there is one.
pub fn bars(file: &Path, title: &str, axis: &str, bars: &[(&str, f64, Option<f64>)]) -> Outcome<()> {
    let values = || bars.iter().flat_map(|(_, ours, article)| [Some(*ours), *article]).flatten();
    let (low, high) = (values().fold(f64::MAX, f64::min) * 0.5, values().fold(0.0, f64::max) * 4.0);
    let root = SVGBackend::new(file, (900, 80 + 56 * bars.len() as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 22))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(330)
        .build_cartesian_2d((low..high).log_scale(), 0.0..bars.len() as f64)?;
    chart.configure_mesh().disable_y_mesh().y_labels(0).x_desc(axis).light_line_style(WHITE).draw()?;
    // The first row is on top. The two bars of a row share a height of 1.
    let row = |i: usize| (bars.len() - 1 - i) as f64;
    let ours = bars.iter().enumerate().map(|(i, (_, ours, article))| {
        let bottom = row(i) + if article.is_some() { 0.5 } else { 0.31 };
        (*ours, bottom)
    });
    let article = bars.iter().enumerate().filter_map(|(i, (_, _, article))| Some(((*article)?, row(i) + 0.12)));
    let series: [(&str, Vec<(f64, f64)>); 2] = [("this run", ours.collect()), ("the article", article.collect())];
    let text = |h, v| TextStyle::from(("sans-serif", 13).into_font()).pos(Pos::new(h, v));
    for (i, (name, series)) in series.iter().enumerate() {
        let style = Palette99::pick(i).filled();
        let bar = |(value, bottom): &(f64, f64)| Rectangle::new([(low, *bottom), (*value, bottom + 0.38)], style);
        chart
            .draw_series(series.iter().map(bar))?
            .label(*name)
            .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 14, y + 5)], style));
        for (value, bottom) in series {
            let (x, y) = chart.backend_coord(&(*value, bottom + 0.19));
            root.draw(&Text::new(value.to_string(), (x + 6, y), text(HPos::Left, VPos::Center)))?;
        }
    }
    for (i, (name, ..)) in bars.iter().enumerate() {
        let (x, y) = chart.backend_coord(&(low, row(i) + 0.5));
        root.draw(&Text::new(*name, (x - 8, y), text(HPos::Right, VPos::Center)))?;
    }
    chart
        .configure_series_labels()
        .border_style(BLACK)
        .background_style(WHITE)
        .position(SeriesLabelPosition::LowerRight)
        .draw()?;
    root.present()?;
    Ok(())
}
