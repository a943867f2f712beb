//! What the bench writes: a table as Markdown and as CSV, and plots.

use std::path::Path;

use plotters::prelude::*;

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
        let rows: String = self.rows.iter().map(|row| row.join(",") + "\n").collect();
        format!("# {}\n{}\n{rows}", self.title, self.columns.join(","))
    }
}

/// Lines on logarithmic axes.
pub fn plot(file: &Path, title: &str, axes: [&str; 2], lines: &[(&str, Vec<(f64, f64)>)]) -> Outcome<()> {
    let points = || lines.iter().flat_map(|(_, points)| points);
    let range = |value: fn(&(f64, f64)) -> f64| {
        let values = points().map(value);
        let (low, high) =
            values.fold((f64::MAX, 0.0), |(low, high): (f64, f64), value| (low.min(value), high.max(value)));
        (low * 0.8..high * 1.25).log_scale()
    };
    let root = SVGBackend::new(file, (900, 560)).into_drawing_area();
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 22))
        .margin(16)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(range(|point| point.0), range(|point| point.1))?;
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
