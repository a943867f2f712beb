// SPDX-License-Identifier: MPL-2.0
//! The demo's command line.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::str::FromStr;

use gstcudagaussblur::filter::BlurParams;

/// scripts/demo prints it too, and takes the names of the options from it.
pub const HELP: &str = include_str!("help.txt");

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

pub struct Options {
    pub job: Job,
    /// The first camera instead of a generated clip.
    pub camera: bool,
    pub cover: Cover,
    pub sigma: f64,
    pub kernel_size: u32,
    pub backend: String,
    pub out: PathBuf,
}

impl Options {
    /// Parses the arguments. `None` if they ask for help. The error is one sentence for the user.
    pub fn parse(mut args: impl Iterator<Item = OsString>) -> Result<Option<Self>, String> {
        let mut options = Self {
            job: Job::Blur,
            camera: false,
            cover: Cover::Mosaic,
            sigma: f64::NAN,
            kernel_size: 0,
            backend: "auto".into(),
            out: "demo-out".into(),
        };
        let (mut has_cover, mut sigma) = (false, None);
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
                "--camera" => options.camera = true,
                "--cover" => {
                    let wanted = value()?.to_string_lossy().into_owned();
                    let found = [Cover::Blur, Cover::Mosaic, Cover::Fill].into_iter().find(|c| c.nick() == wanted);
                    options.cover = found.ok_or(format!("--cover takes blur, mosaic or fill, not {wanted}"))?;
                    has_cover = true;
                }
                "--sigma" => sigma = Some(number(name, &value()?)?),
                "--kernel-size" => options.kernel_size = number(name, &value()?)?,
                "--backend" => options.backend = value()?.to_string_lossy().into_owned(),
                "--out" => options.out = value()?.into(),
                _ if name.starts_with('-') => return Err(format!("unknown option {name}")),
                _ => {
                    return Err(format!(
                        "{text}: scripts/demo and examples/hide.py take files, this program makes clips"
                    ));
                }
            }
        }
        options.sigma = sigma.unwrap_or(if options.job == Job::Background { 20.0 } else { 5.0 });
        BlurParams::new(options.sigma, options.kernel_size).map_err(|error| error.to_string())?;
        if !["auto", "cuda", "cpu"].contains(&options.backend.as_str()) {
            return Err(format!("backend={} cannot be used: it must be auto, cuda or cpu", options.backend));
        }
        if options.job == Job::Regions && options.camera {
            return Err("--regions has a clip of its own: leave out --camera".into());
        }
        if options.job == Job::Background && options.kernel_size != 0 {
            return Err("--background takes --sigma, not --kernel-size".into());
        }
        if has_cover && options.job != Job::Faces {
            return Err("--cover needs --faces".into());
        }
        Ok(Some(options))
    }
}

fn number<T: FromStr>(name: &str, value: &OsStr) -> Result<T, String> {
    let parsed = value.to_str().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| format!("{name} takes a number from 0 up, not {}", value.display()))
}
