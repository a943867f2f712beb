// SPDX-License-Identifier: MPL-2.0
//! The demo's command line.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::str::FromStr;

use gstcudagaussblur::filter::BlurParams;

use super::coverage::Cover;

/// scripts/demo prints it too, and takes the names of the options from it.
pub const HELP: &str = include_str!("help.txt");

/// What the demo does with the video.
#[derive(Clone, Copy, PartialEq)]
pub enum Task {
    /// Blurs the whole picture.
    Blur,
    /// Covers the zones and boxes of a clip.
    Regions,
    /// Covers faces.
    Faces,
    /// Blurs what is behind a person.
    Background,
}

/// The values of `--cover`.
const COVERS: [(&str, Cover); 3] = [("blur", Cover::Blur), ("mosaic", Cover::Mosaic), ("fill", Cover::Fill)];

pub struct Options {
    pub task: Task,
    /// The first camera instead of a clip.
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
            task: Task::Blur,
            camera: false,
            cover: Cover::Mosaic,
            sigma: 5.0,
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
                "--regions" | "--faces" | "--background" if options.task != Task::Blur => {
                    return Err("give --regions, --faces or --background, and only once".into());
                }
                "--regions" => options.task = Task::Regions,
                "--faces" => options.task = Task::Faces,
                "--background" => options.task = Task::Background,
                "--camera" => options.camera = true,
                "--cover" => {
                    let wanted = value()?;
                    let found = COVERS.into_iter().find(|(nick, _)| *nick == wanted);
                    let (_, cover) =
                        found.ok_or(format!("--cover takes blur, mosaic or fill, not {}", wanted.display()))?;
                    (options.cover, has_cover) = (cover, true);
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
        options.sigma = sigma.unwrap_or(if options.task == Task::Background { 20.0 } else { 5.0 });
        BlurParams::new(options.sigma, options.kernel_size).map_err(|error| error.to_string())?;
        let wrong = [
            (!["auto", "cuda", "cpu"].contains(&&*options.backend), "--backend takes auto, cuda or cpu"),
            (options.task == Task::Regions && options.camera, "--regions uses a generated clip: leave out --camera"),
            (
                options.task == Task::Background && options.kernel_size != 0,
                "--background takes --sigma, not --kernel-size",
            ),
            (has_cover && options.task != Task::Faces, "--cover needs --faces"),
        ];
        match wrong.into_iter().find(|(is_wrong, _)| *is_wrong) {
            Some((_, sentence)) => Err(sentence.into()),
            None => Ok(Some(options)),
        }
    }

    /// The value of the element's property for the cover of faces.
    pub fn cover_nick(&self) -> &'static str {
        COVERS.into_iter().find(|(_, cover)| *cover == self.cover).expect("a cover of the table").0
    }
}

fn number<T: FromStr>(name: &str, value: &OsStr) -> Result<T, String> {
    let parsed = value.to_str().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| format!("{name} takes a number from 0 up, not {}", value.display()))
}
