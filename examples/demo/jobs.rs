// SPDX-License-Identifier: MPL-2.0
//! What the demo does with a clip: the elements, and the places that these must cover or show.

use std::error::Error;

use super::clip::{Clip, FRAMES};
use super::coverage::{Cover, Marked, Rect};
use super::options::{Options, Task};

const LANDSCAPE: &[u8] = include_bytes!("landscape.jpg");
const BALLOON: Rect = Rect { x: 520, y: 100, width: 124, height: 176 };
const BOAT: Rect = Rect { x: 960, y: 372, width: 196, height: 210 };
/// A place that does not move, and the zone around it in fractions of the picture.
const CORNER: Rect = Rect { x: 960, y: 36, width: 256, height: 54 };
const ZONE: &str = "zone,x=0.75,y=0.05,width=0.2,height=0.075";

/// A portrait, and in it, located by hand, the face from hairline to chin and from ear to ear, the eyes and the mouth, and two things
/// behind the person.
const PORTRAIT: &[u8] = include_bytes!("face.jpg");
const FACE: Rect = Rect { x: 348, y: 124, width: 204, height: 236 };
const FEATURES: Rect = Rect { x: 390, y: 180, width: 120, height: 130 };
const FLAG: Rect = Rect { x: 0, y: 0, width: 150, height: 400 };
const ROCKET: Rect = Rect { x: 720, y: 0, width: 200, height: 480 };

pub struct Job {
    task: Task,
    /// Names of the video and of the picture.
    pub name: &'static str,
    pub picture: &'static str,
    pub elements: String,
    /// Whether all of the picture is blurred.
    pub is_whole: bool,
    /// What the check has shown.
    pub note: String,
    cover: Cover,
    plain: Cover,
}

/// Whether the detector misses the boat, as detectors do in single frames.
fn is_missed(index: usize) -> bool {
    index % 30 >= 27
}

impl Job {
    pub fn new(options: &Options) -> Self {
        let Options { task, sigma, kernel_size, backend, cover, camera, .. } = options;
        let blur = format!("cudagaussblur sigma={sigma} kernel-size={kernel_size} backend={backend}");
        let roi = format!("{blur} region-mode=inside region-sources=roi");
        // Frames in which a face is covered before it is first found. A camera's picture would come so much later.
        let look_ahead = if *camera { 0 } else { 15 };
        let nick = options.cover_nick();
        let missed = (0..FRAMES).filter(|index| is_missed(*index)).count();
        let (name, picture, elements, note) = match task {
            Task::Blur => (
                "blurred",
                "before-after",
                format!("{blur} name=last"),
                "no edge is sharper than the Gaussian can leave it".to_owned(),
            ),
            Task::Regions => (
                "regions",
                "regions",
                format!(
                    "{roi} labels=balloon cover=blur ! {roi} labels=boat cover=mosaic ! \
                     {blur} name=last region-mode=inside region-sources=zones cover=fill zones=<[{ZONE}]>"
                ),
                format!(
                    "each was covered in its frame: a balloon by blur, a boat by mosaic, a zone by fill\n\
                     in {missed} frames the boat had no box, and was covered where it was predicted"
                ),
            ),
            Task::Faces => (
                "faces",
                "faces",
                format!(
                    "centerface name=detector ! queue max-size-buffers=3 ! {roi} name=last labels=face cover={nick} \
                     look-ahead={look_ahead}"
                ),
                "the face was covered in each".to_owned(),
            ),
            Task::Background => (
                "background",
                "background",
                // The mask grows to make up for the grid of weights, as in examples/virtual_camera.py.
                format!(
                    "selfiesegmentation name=detector ! queue max-size-buffers=3 ! {blur} name=last region-mode=outside \
                     region-sources=roi shape=mask grow=4 expand=0"
                ),
                "the face was shown, and what is behind the person was blurred".to_owned(),
            ),
        };
        let plain = Cover::Plain(*sigma, *kernel_size);
        Self { task: *task, name, picture, elements, is_whole: *task == Task::Blur, note, cover: *cover, plain }
    }

    pub fn clip(&self) -> Result<Clip, Box<dyn Error>> {
        match self.task {
            Task::Blur | Task::Regions => Clip::new(LANDSCAPE, [1640, 720], [1280, 720], [360, 0]),
            // So far that the face stays inside of the view.
            Task::Faces | Task::Background => Clip::new(PORTRAIT, [960, 800], [640, 480], [320, 110]),
        }
    }

    /// What a detector would have found.
    pub fn detections(&self, clip: &Clip, index: usize) -> Vec<(&'static str, Rect)> {
        let found = [("balloon", BALLOON), ("boat", BOAT)].into_iter().take(if is_missed(index) { 1 } else { 2 });
        let found = found.filter(|_| self.task == Task::Regions);
        found.filter_map(|(label, rect)| Some((label, clip.place(index, rect)?))).collect()
    }

    /// The places that are checked in a frame. The check knows them without the detections.
    pub fn places(&self, clip: &Clip, index: usize) -> Vec<Marked> {
        let [width, height] = clip.view;
        let (frame, of_picture) = (Rect { x: 0, y: 0, width, height }, |rect| clip.place(index, rect));
        let places = match self.task {
            Task::Blur => vec![("the frame", Some(frame), self.plain)],
            Task::Regions => vec![
                ("the balloon", of_picture(BALLOON), Cover::Blur),
                ("the boat", of_picture(BOAT), Cover::Mosaic),
                ("the zone", Some(CORNER), Cover::Fill),
            ],
            Task::Faces => vec![("the face", of_picture(FACE), self.cover)],
            Task::Background => vec![
                ("the face", of_picture(FEATURES), Cover::Nothing),
                ("the flag", of_picture(FLAG), self.plain),
                ("the rocket", of_picture(ROCKET), self.plain),
            ],
        };
        places.into_iter().filter_map(|(label, rect, cover)| Some(Marked { label, rect: rect?, cover })).collect()
    }
}
