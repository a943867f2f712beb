// SPDX-License-Identifier: MPL-2.0
//! What is done with a frame's planes: which rows with which taps, and what comes before and after. Pure; both engines
//! follow it.

use crate::filter::{BlurParams, Taps};
use crate::frame::{Field, Pixels, PlaneLayout, Role};

/// Which samples are blurred; the others stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Selection {
    /// Luma, grey, red, green and blue.
    pub luma: bool,
    /// Colour difference.
    pub chroma: bool,
    /// Opacity.
    pub alpha: bool,
}

impl Selection {
    /// All of them.
    pub const ALL: Self = Self { luma: true, chroma: true, alpha: true };

    fn has(self, role: Role) -> bool {
        match role {
            Role::Luma => self.luma,
            Role::Chroma => self.chroma,
            Role::Alpha => self.alpha,
        }
    }
}

/// What alpha means for colour. docs/ARCHITECTURE.md has the rule.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Alpha {
    /// Nothing: every channel is blurred for itself.
    #[default]
    Straight,
    /// Its weight: what is transparent does not bleed.
    Premultiply,
}

/// What a frame is blurred with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// The Gaussian.
    pub params: BlurParams,
    /// What of the frame.
    pub planes: Selection,
    /// How alpha counts, where there is one.
    pub alpha: Alpha,
}

impl Options {
    /// Whether nothing of a frame of these planes is blurred.
    pub fn is_passthrough(&self, planes: &[PlaneLayout]) -> bool {
        let selected = |layout: &PlaneLayout| layout.roles().iter().any(|role| self.planes.has(*role));
        self.params.is_passthrough() || !planes.iter().any(selected)
    }
}

impl From<BlurParams> for Options {
    /// All of the frame, every channel for itself.
    fn from(params: BlurParams) -> Self {
        Self { params, planes: Selection::ALL, alpha: Alpha::Straight }
    }
}

/// A plane's taps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaneTaps {
    /// Along rows.
    pub rows: Taps,
    /// Down columns.
    pub columns: Taps,
    /// Along rows for the chroma of packed 4:2:2, in pairs of pixels; else those of `rows`.
    pub chroma_rows: Taps,
}

impl PlaneTaps {
    fn new(params: BlurParams, layout: &PlaneLayout) -> Self {
        let [across, down] = layout.sigma_scale;
        let chroma = if let Pixels::Yuv422 { .. } = layout.pixels { across / 2.0 } else { across };
        Self { rows: params.taps(across), columns: params.taps(down), chroma_rows: params.taps(chroma) }
    }
}

/// Where the alpha of a plane is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AlphaPlace {
    /// In this channel of the plane itself.
    Channel(u8),
    /// In a plane of its own.
    Plane {
        /// Its number.
        plane: usize,
        /// The rows of it that go with the job's.
        field: Field,
        /// By how many bits a place along x and y in it is a place in the job's plane.
        shift: [u32; 2],
    },
}

/// Some rows of a plane, and what is done with them.
#[derive(Debug, Clone, PartialEq)]
pub struct Job {
    /// The plane's number.
    pub plane: usize,
    /// Its rows.
    pub field: Field,
    /// What they are weighed with. `None` where nothing of the plane is blurred: its bytes are copied, all of them.
    pub taps: Option<PlaneTaps>,
    /// The alpha that colour is to be multiplied by before and divided by after.
    pub alpha: Option<AlphaPlace>,
    /// Bit c: channel c is to stay as it was, though others of the plane are blurred.
    pub keep: u32,
}

impl Job {
    /// How many rows above and below its own it reads.
    pub fn row_halo(&self) -> usize {
        self.taps.as_ref().map_or(0, |taps| taps.columns.radius())
    }

    /// The plane of products that is blurred instead, where alpha weighs colour: 16 bits a sample, and the alpha as the last
    /// channel if it comes from a plane of its own.
    pub fn product(&self) -> Option<PlaneLayout> {
        let layout = self.field.layout;
        let apart = match self.alpha? {
            AlphaPlace::Channel(_) => 0,
            AlphaPlace::Plane { .. } => 1,
        };
        Some(PlaneLayout { channels: layout.channels + apart, depth: 16, pixels: Pixels::Low, ..layout })
    }
}

/// The work on a frame of these planes, plane by plane and field by field.
pub fn jobs(options: Options, planes: &[PlaneLayout]) -> Vec<Job> {
    let is_alpha = |layout: &PlaneLayout| layout.roles().contains(&Role::Alpha);
    let alpha_plane = planes.iter().position(is_alpha).filter(|_| options.alpha == Alpha::Premultiply);
    let job = |(plane, layout): (usize, &PlaneLayout), field: Field| {
        let kept = |c: usize| u32::from(!options.planes.has(layout.roles[c])) << c;
        let keep: u32 = (0..layout.roles().len()).map(kept).sum();
        if options.params.is_passthrough() || keep.count_ones() == u32::from(layout.channels) {
            return Job { plane, field, taps: None, alpha: None, keep: 0 };
        }
        let alpha = alpha_plane.map(|alpha| match layout.roles().iter().position(|role| *role == Role::Alpha) {
            Some(channel) => AlphaPlace::Channel(channel as u8),
            None => {
                let twin = planes[alpha].fields().nth(field.first_row);
                let twin = twin.expect("the plane of alpha has as many fields as the others");
                let ratio = |axis: usize| twin.layout.sigma_scale[axis] / field.layout.sigma_scale[axis];
                AlphaPlace::Plane {
                    plane: alpha,
                    field: twin,
                    shift: [0, 1].map(|axis| ratio(axis).log2().round() as u32),
                }
            }
        });
        Job { plane, field, taps: Some(PlaneTaps::new(options.params, &field.layout)), alpha, keep }
    };
    planes.iter().enumerate().flat_map(|plane| plane.1.fields().map(move |field| job(plane, field))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(sigma: f64) -> Options {
        BlurParams::new(sigma, 0).unwrap().into()
    }

    fn row_radius(job: &Job) -> Option<usize> {
        job.taps.as_ref().map(|taps| taps.rows.radius())
    }

    fn plane(roles: &[Role], scale: f64) -> PlaneLayout {
        let side = (64.0 * scale) as u32;
        let mut layout = PlaneLayout { sigma_scale: [scale; 2], ..PlaneLayout::new(side, side, roles.len() as u8, 8) };
        layout.roles[..roles.len()].copy_from_slice(roles);
        layout
    }

    #[test]
    fn chroma_is_blurred_by_its_own_scale() {
        let planes = [plane(&[Role::Luma], 1.0), plane(&[Role::Chroma; 2], 0.5)];
        let jobs = jobs(options(4.0), &planes);
        assert_eq!(jobs.iter().map(row_radius).collect::<Vec<_>>(), [Some(16), Some(8)]);
        let pairs = PlaneLayout { pixels: Pixels::Yuv422 { luma: 1 }, ..PlaneLayout::new(9, 9, 4, 8) };
        let taps = super::jobs(options(4.0), &[pairs]).remove(0).taps.unwrap();
        assert_eq!([&taps.rows, &taps.chroma_rows, &taps.columns].map(Taps::radius), [16, 8, 16]);
    }

    #[test]
    fn what_is_not_selected_stays() {
        let only = |luma, chroma, alpha| Options { planes: Selection { luma, chroma, alpha }, ..options(4.0) };
        let planes = [plane(&[Role::Luma], 1.0), plane(&[Role::Chroma; 2], 0.5)];
        let radii = |options| jobs(options, &planes).iter().map(row_radius).collect::<Vec<_>>();
        assert_eq!(radii(only(true, false, true)), [Some(16), None]);
        assert_eq!(radii(only(false, true, true)), [None, Some(8)]);
        assert_eq!(radii(options(0.0)), [None, None]);
        let rgba = [plane(&[Role::Luma, Role::Luma, Role::Luma, Role::Alpha], 1.0)];
        assert_eq!(jobs(only(true, true, false), &rgba)[0].keep, 0b1000);
        assert_eq!(jobs(only(false, true, true), &rgba)[0].keep, 0b0111);
        let alpha_alone = only(false, false, true);
        assert!(alpha_alone.is_passthrough(&planes) && !alpha_alone.is_passthrough(&rgba));
        assert!(options(0.0).is_passthrough(&rgba) && !options(4.0).is_passthrough(&planes));
    }

    #[test]
    fn alpha_is_found_where_it_is() {
        let premultiply = Options { alpha: Alpha::Premultiply, ..options(4.0) };
        let rgba = [plane(&[Role::Alpha, Role::Luma, Role::Luma, Role::Luma], 1.0)];
        let job = &jobs(premultiply, &rgba)[0];
        assert_eq!(job.alpha, Some(AlphaPlace::Channel(0)));
        assert_eq!(job.product().map(|layout| (layout.channels, layout.depth)), Some((4, 16)));
        let planar = [plane(&[Role::Luma], 1.0), plane(&[Role::Chroma], 0.5), plane(&[Role::Alpha], 1.0)];
        let jobs = jobs(premultiply, &planar);
        assert!(matches!(jobs[0].alpha, Some(AlphaPlace::Plane { plane: 2, shift: [0, 0], .. })));
        assert!(matches!(jobs[1].alpha, Some(AlphaPlace::Plane { plane: 2, shift: [1, 1], .. })));
        assert_eq!(jobs[1].product().unwrap().channels, 2);
        assert_eq!(jobs[2].alpha, Some(AlphaPlace::Channel(0)));
        assert_eq!(super::jobs(premultiply, &[plane(&[Role::Luma; 3], 1.0)])[0].alpha, None);
    }
}
