//! Frames in borrowed memory, processed in one call.

use gstcudagaussblur::engine::{Cover, CudaError, Engine, EngineError, FrameAccess};
use gstcudagaussblur::filter::frame::{Frame, FrameMemory, FramePair, Plane};
use gstcudagaussblur::filter::plan::Options;
use gstcudagaussblur::filter::plane::PlaneMemory;

/// A frame in host memory to write, plane by plane.
pub type FrameMut<'a> = Vec<Plane<&'a mut [u8]>>;

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
    fn frames(&mut self) -> FramePair {
        pair(self.source, self.destination)
    }
}

/// Where the planes of two borrowed frames are; a source without planes stands for the destination, which is covered in place.
pub fn pair(source: &[Plane<&[u8]>], destination: &mut [Plane<&mut [u8]>]) -> FramePair {
    let layouts = destination.iter().map(|plane| plane.layout).collect();
    let from = source.iter().map(|plane| PlaneMemory {
        address: plane.data.as_ptr(),
        pitch: plane.pitch,
        len: plane.data.len(),
    });
    let to = destination.iter_mut().map(|plane| PlaneMemory {
        address: plane.data.as_mut_ptr(),
        pitch: plane.pitch,
        len: plane.data.len(),
    });
    let source = (!source.is_empty()).then(|| FrameMemory::Host(from.collect()));
    FramePair { layouts, source, destination: FrameMemory::Host(to.collect()) }
}
