//! Frames in borrowed memory, processed in one call.

use gstcudagaussblur::engine::{Cover, CudaError, Engine, EngineError, FrameAccess};
use gstcudagaussblur::filter::frame::{Destination, Frame, FrameMut, Plane, Source};
use gstcudagaussblur::filter::plan::Options;

/// What an engine does with borrowed memory. Returns why the engine fell back to the CPU, if it did with this frame.
pub trait Borrowing {
    /// Blurs `source` into `destination` and waits. On an error the destination is undefined.
    fn blur(
        &mut self,
        options: impl Into<Options>,
        source: &Frame,
        destination: &mut FrameMut,
    ) -> Result<Option<CudaError>, EngineError>;

    /// Covers parts of a frame in place. All other bytes stay unchanged, and on an error all bytes.
    fn cover(&mut self, cover: &Cover, frame: &mut FrameMut) -> Result<Option<CudaError>, EngineError>;
}

impl Borrowing for Engine {
    fn blur(
        &mut self,
        options: impl Into<Options>,
        source: &Frame,
        destination: &mut FrameMut,
    ) -> Result<Option<CudaError>, EngineError> {
        Ok(self.run(options.into(), Borrowed { source, destination })?.failure)
    }

    fn cover(&mut self, cover: &Cover, frame: &mut FrameMut) -> Result<Option<CudaError>, EngineError> {
        Ok(self.run(cover, Borrowed { source: &[], destination: frame })?.failure)
    }
}

/// The source of a frame that is covered in place has no planes.
struct Borrowed<'a, 's, 'd> {
    source: &'a [Plane<&'s [u8]>],
    destination: &'a mut FrameMut<'d>,
}

// SAFETY: the planes are borrowed, the destination mutably, until this is dropped. They are in pageable memory, which the device does
// not access, so the engine has no cause to leak them.
unsafe impl FrameAccess for Borrowed<'_, '_, '_> {
    fn frames(&mut self) -> (Source<'_>, Destination<'_>) {
        let source =
            self.source.iter().map(|plane| Plane { layout: plane.layout, pitch: plane.pitch, data: plane.data });
        let destination = self.destination.iter_mut().map(|plane| Plane {
            layout: plane.layout,
            pitch: plane.pitch,
            data: &mut *plane.data,
        });
        (Source::Host(source.collect()), Destination::Host(destination.collect()))
    }
}
