// SPDX-License-Identifier: MPL-2.0
//! Runs examples/models.py beside the pipeline: it answers a small picture of each frame.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use gst::prelude::*;
use gst_video::{VideoConverter, VideoConverterConfig, VideoFormat, VideoFrameRef, VideoInfo};

use super::pictures::lock;

/// A model in a process of Python.
pub struct Model {
    python: Child,
    pictures: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Model {
    /// Starts `person` or `faces`.
    ///
    /// # Errors
    /// A sentence, if Python or a module or the model is missing.
    pub fn start(name: &str) -> Result<Self, String> {
        let project = Path::new(env!("CARGO_MANIFEST_DIR"));
        // With NumPy and PyGObject scripts/python finds the Python for which scripts/models installs LiteRT.
        let mut command = Command::new(project.join("scripts/python"));
        command.args(["numpy,gi", "--"]).arg(project.join("examples/models.py")).arg(name);
        // Ctrl-C ends the pipeline, which then has frames left.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut python = command.spawn().map_err(|error| format!("scripts/python does not start: {error}"))?;
        let pictures = python.stdin.take().expect("it is piped");
        let mut answers = BufReader::new(python.stdout.take().expect("it is piped"));
        let mut line = String::new();
        if answers.read_line(&mut line).is_ok() && line == "ready\n" {
            return Ok(Self { python, pictures, answers });
        }
        drop(pictures);
        let said = python.wait_with_output().map(|output| output.stderr).unwrap_or_default();
        let said = String::from_utf8_lossy(&said);
        Err(said.lines().last().unwrap_or("examples/models.py does not start").to_owned())
    }

    /// The answer to a picture: rows of red, green and blue bytes.
    fn answer(&mut self, [width, height]: [u32; 2], pixels: &[u8]) -> std::io::Result<Vec<u8>> {
        self.pictures.write_all(&[width.to_le_bytes(), height.to_le_bytes()].concat())?;
        self.pictures.write_all(pixels)?;
        self.pictures.flush()?;
        let mut length = [0; 4];
        self.answers.read_exact(&mut length)?;
        let mut answer = vec![0; u32::from_le_bytes(length) as usize];
        self.answers.read_exact(&mut answer)?;
        Ok(answer)
    }

    /// Answers each frame that leaves an element of the pipeline: scaled to a picture of `side` by `side`, or with `letterbox`
    /// to the middle of a black one (a multiple of four). `attach` gets the frame, its size and the answer. A frame without an
    /// answer is an error.
    pub fn watch(
        mut self,
        pipeline: &gst::Pipeline,
        element: &str,
        side: u32,
        letterbox: bool,
        attach: impl Fn(&mut gst::BufferRef, [u32; 2], &[u8]) + Send + Sync + 'static,
    ) {
        let element = pipeline.by_name(element).expect("the description names it");
        let pad = element.static_pad("src").expect("a filter has both pads");
        let mut scaler = None::<Scaler>;
        let mut answer = move |caps: &gst::Caps, buffer: &mut gst::Buffer| -> Result<(), Box<dyn std::error::Error>> {
            let info = VideoInfo::from_caps(caps)?;
            if scaler.as_ref().is_none_or(|scaler| scaler.frame != info) {
                scaler = Some(Scaler::new(&info, side, letterbox)?);
            }
            let scaler = scaler.as_mut().expect("it was just made");
            let pixels = scaler.scale(buffer)?;
            let answer =
                self.answer([side; 2], &pixels).map_err(|error| format!("examples/models.py ended: {error}"))?;
            attach(buffer.make_mut(), [info.width(), info.height()], &answer);
            Ok(())
        };
        // Probes must be Sync, and only the streaming thread calls this one.
        let answer = Mutex::new(move |caps: &gst::Caps, buffer: &mut gst::Buffer| answer(caps, buffer));
        pad.add_probe(gst::PadProbeType::BUFFER, move |pad, info| {
            let Some(caps) = pad.current_caps() else { return gst::PadProbeReturn::Drop };
            let Some(buffer) = info.buffer_mut() else { return gst::PadProbeReturn::Ok };
            if let Err(error) = (lock(&answer))(&caps, buffer) {
                gst::element_error!(element, gst::StreamError::Failed, ("{error}"));
                return gst::PadProbeReturn::Drop;
            }
            gst::PadProbeReturn::Ok
        });
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // It ends by itself when its input does, but not while a picture is half read.
        let _ = self.python.kill();
        let _ = self.python.wait();
    }
}

/// Makes a small picture of a frame.
struct Scaler {
    converter: VideoConverter,
    frame: VideoInfo,
    small: VideoInfo,
    pixels: gst::Buffer,
}

impl Scaler {
    fn new(info: &VideoInfo, side: u32, letterbox: bool) -> Result<Self, Box<dyn std::error::Error>> {
        // The converter converts neither of these.
        let small =
            VideoInfo::builder(VideoFormat::Rgb, side, side).fps(info.fps()).interlace_mode(info.interlace_mode());
        let small = small.build()?;
        let mut config = VideoConverterConfig::new();
        config.set_resampler_method(gst_video::VideoResamplerMethod::Linear);
        if letterbox {
            let [width, height] = [info.width(), info.height()].map(|of| of * side / info.width().max(info.height()));
            config.set_dest_x(((side - width) / 2) as i32);
            config.set_dest_y(((side - height) / 2) as i32);
            config.set_dest_width(Some(width as i32));
            config.set_dest_height(Some(height as i32));
        }
        let pixels = gst::Buffer::with_size(small.size())?;
        let converter = VideoConverter::new(info, &small, Some(config))?;
        Ok(Self { converter, frame: info.clone(), small, pixels })
    }

    fn scale(&mut self, frame: &gst::Buffer) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
        let pixels = self.pixels.get_mut().expect("nobody else has it");
        let source = VideoFrameRef::from_buffer_ref_readable(frame, &self.frame)?;
        let mut target = VideoFrameRef::from_buffer_ref_writable(pixels, &self.small)?;
        self.converter.frame_ref(&source, &mut target);
        Ok(target.plane_data(0)?.to_vec())
    }
}
