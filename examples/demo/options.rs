// SPDX-License-Identifier: MPL-2.0
//! The demo's command line.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::str::FromStr;

use gstcudagaussblur::filter::BlurParams;

/// scripts/demo prints it too, and takes the names of the options from it.
pub const HELP: &str = include_str!("help.txt");

/// The largest side of a video that x264enc takes.
const LARGEST: u32 = 16384;

/// What the demo does with the video.
#[derive(Clone, Copy, PartialEq)]
pub enum Job {
    /// Blurs the whole picture.
    Blur,
    /// Covers the zones and boxes of a generated clip.
    Regions,
    /// Covers faces.
    Faces,
    /// Blurs what is behind a person.
    Background,
}

#[derive(PartialEq)]
pub enum Input {
    Generated,
    File(PathBuf),
    Camera,
}

/// What hides a place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cover {
    Blur,
    Mosaic,
    Fill,
}

impl Cover {
    /// The value of the element's property.
    pub fn nick(self) -> &'static str {
        match self {
            Self::Blur => "blur",
            Self::Mosaic => "mosaic",
            Self::Fill => "fill",
        }
    }
}

/// What finds faces.
#[derive(Clone, Copy, PartialEq)]
pub enum Detector {
    /// BlazeFace if it is installed, else facedetect.
    Auto,
    BlazeFace,
    Facedetect,
}

pub struct Options {
    pub job: Job,
    pub input: Input,
    pub cover: Cover,
    pub detector: Detector,
    pub sigma: f64,
    pub kernel_size: u32,
    pub backend: String,
    /// The largest width and height of the result.
    pub size: (u32, u32),
    pub out: PathBuf,
}

impl Options {
    /// Parses the arguments. `None` if they ask for help. The error is one sentence for the user.
    pub fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Option<Self>, String> {
        let mut options = Self {
            job: Job::Blur,
            input: Input::Generated,
            cover: Cover::Mosaic,
            detector: Detector::Auto,
            sigma: f64::NAN,
            kernel_size: 0,
            backend: "auto".into(),
            size: (0, 0),
            out: "demo-out".into(),
        };
        let (mut needs_faces, mut sigma, mut size) = (None, None, None);
        while let Some(arg) = args.next() {
            let text = arg.to_string_lossy().into_owned();
            let (name, mut inline) = match text.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(OsString::from(value))),
                _ => (&*text, None),
            };
            let mut value = || inline.take().or_else(|| args.next()).ok_or(format!("{name} needs a value"));
            match name {
                "-h" | "--help" => return Ok(None),
                "--regions" | "--faces" | "--background" if options.job != Job::Blur => {
                    return Err("give --regions, --faces or --background, and only once".into());
                }
                "--regions" => options.job = Job::Regions,
                "--faces" => options.job = Job::Faces,
                "--background" => options.job = Job::Background,
                "--cover" => {
                    let wanted = value()?.to_string_lossy().into_owned();
                    let found = [Cover::Blur, Cover::Mosaic, Cover::Fill].into_iter().find(|c| c.nick() == wanted);
                    options.cover = found.ok_or(format!("--cover takes blur, mosaic or fill, not {wanted}"))?;
                    needs_faces = Some("--cover");
                }
                "--detector" => {
                    options.detector = match &*value()?.to_string_lossy() {
                        "auto" => Detector::Auto,
                        "blazeface" => Detector::BlazeFace,
                        "facedetect" => Detector::Facedetect,
                        other => return Err(format!("--detector takes auto, blazeface or facedetect, not {other}")),
                    };
                    needs_faces = Some("--detector");
                }
                "--sigma" => sigma = Some(number(name, &value()?)?),
                "--kernel-size" => options.kernel_size = number(name, &value()?)?,
                "--backend" => options.backend = value()?.to_string_lossy().into_owned(),
                "--size" => {
                    let wanted = value()?.to_string_lossy().into_owned();
                    let sides = wanted
                        .split_once('x')
                        .and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
                    let is_possible = |(width, height): &(u32, u32)| {
                        [width, height].iter().all(|side| (16..=LARGEST).contains(*side))
                    };
                    let sides = sides.filter(is_possible);
                    size = Some(sides.ok_or(format!(
                        "--size takes a width and a height from 16 to {LARGEST}, such as 1280x720, not {wanted}"
                    ))?);
                }
                "--out" => options.out = value()?.into(),
                _ if name.starts_with('-') && name != "--camera" => return Err(format!("unknown option {name}")),
                _ if options.input != Input::Generated => {
                    return Err(format!("{text} is a second input: give one file, or --camera, or neither"));
                }
                "--camera" => options.input = Input::Camera,
                _ => options.input = Input::File(arg.into()),
            }
        }
        options.sigma = sigma.unwrap_or(if options.job == Job::Background { 20.0 } else { 5.0 });
        options.size = size.unwrap_or(if options.job == Job::Background { (1280, 720) } else { (LARGEST, LARGEST) });
        BlurParams::new(options.sigma, options.kernel_size).map_err(|error| error.to_string())?;
        if !["auto", "cuda", "cpu"].contains(&options.backend.as_str()) {
            return Err(format!("backend={} cannot be used: it must be auto, cuda or cpu", options.backend));
        }
        if options.job == Job::Regions && options.input != Input::Generated {
            return Err("--regions covers marked places of its own clip: leave out the file or the camera".into());
        }
        if size.is_some() && options.input == Input::Generated {
            return Err("--size needs a file or the camera".into());
        }
        if options.job == Job::Background && options.kernel_size != 0 {
            return Err("--background takes --sigma, not --kernel-size".into());
        }
        if let Some(name) = needs_faces
            && options.job != Job::Faces
        {
            return Err(format!("{name} needs --faces"));
        }
        Ok(Some(options))
    }
}

fn number<T: FromStr>(name: &str, value: &OsStr) -> Result<T, String> {
    let parsed = value.to_str().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| format!("{name} takes a number from 0 up, not {}", value.display()))
}
