// SPDX-License-Identifier: MPL-2.0
//! NVRTC, NVIDIA's run-time compiler for CUDA C++, opened at run time if it is installed.
//!
//! Not through cudarc, which knows fewer of the library's names and panics if a function is missing.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;
use std::sync::OnceLock;

use libloading::Library;

use super::error::{NVRTC_NEEDED, NvrtcError};
use crate::libraries::System;
use crate::log::Level;
use crate::process::log;

/// The environment variable with the path of the library, instead of the usual names.
pub const LIBRARY_VARIABLE: &str = "CUDAGAUSSBLUR_NVRTC";

/// NVRTC, opened when the first kernel is requested. Whether it can be used is logged then.
#[derive(Default)]
pub struct LazyNvrtc(OnceLock<Option<Nvrtc>>);

impl LazyNvrtc {
    /// Not opened yet.
    pub const fn new() -> Self {
        Self(OnceLock::new())
    }

    /// The compiler, `None` if it cannot be used.
    pub fn get(&self) -> Option<&Nvrtc> {
        let open = || match Nvrtc::open() {
            Ok(nvrtc) => {
                let (major, minor) = nvrtc.version();
                log(Level::Info, &format!("NVRTC {major}.{minor} compiles specialised kernels"));
                Some(nvrtc)
            }
            Err(error) => {
                log(Level::Info, &format!("using the generic kernels for all sizes: {error}"));
                None
            }
        };
        self.0.get_or_init(open).as_ref()
    }
}

type Handle = *mut std::ffi::c_void;
type Status = c_int;

/// The library's functions that are used.
struct Functions {
    version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status,
    error_string: unsafe extern "C" fn(Status) -> *const c_char,
    architecture_count: unsafe extern "C" fn(*mut c_int) -> Status,
    architectures: unsafe extern "C" fn(*mut c_int) -> Status,
    create: unsafe extern "C" fn(
        *mut Handle,
        *const c_char,
        *const c_char,
        c_int,
        *const *const c_char,
        *const *const c_char,
    ) -> Status,
    destroy: unsafe extern "C" fn(*mut Handle) -> Status,
    compile: unsafe extern "C" fn(Handle, c_int, *const *const c_char) -> Status,
    results: [Getter; 3],
}

/// The functions that return the size of a result, and the result.
type Getter = (unsafe extern "C" fn(Handle, *mut usize) -> Status, unsafe extern "C" fn(Handle, *mut c_char) -> Status);

/// The results of a compilation, in the order of [`Functions::results`].
#[derive(Debug, Clone, Copy)]
enum Output {
    Log,
    Cubin,
    Ptx,
}

/// The compiler. It is never closed, because it keeps threads and tables.
pub struct Nvrtc {
    functions: Functions,
    version: (i32, i32),
    /// The compute capabilities that it can compile for, as 10 × major + minor.
    architectures: Vec<i32>,
}

/// The architecture to compile for. It displays as NVRTC expects it: `sm_` for machine code, `compute_` for PTX.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Machine code for this architecture.
    Cubin(i32),
    /// PTX for this virtual architecture, which the driver compiles when it is loaded.
    Ptx(i32),
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cubin(architecture) => write!(f, "sm_{architecture}"),
            Self::Ptx(architecture) => write!(f, "compute_{architecture}"),
        }
    }
}

impl Nvrtc {
    /// Opens the library.
    pub fn open() -> Result<Self, NvrtcError> {
        let named = std::env::var(LIBRARY_VARIABLE).ok().filter(|path| !path.is_empty());
        let names: Vec<&str> = named.as_deref().map_or(System::CURRENT.nvrtc().to_vec(), |path| vec![path]);
        // SAFETY: NVRTC's initialisers need nothing from this process; the fields of `Functions` have the types of nvrtc.h.
        unsafe {
            let library = names.iter().find_map(|name| Library::new(*name).ok());
            let library = library.ok_or_else(|| NvrtcError::NotFound { names: names.join(", ") })?;
            let functions = Functions::load(&library)?;
            // The functions stay valid, because the library is never closed.
            std::mem::forget(library);
            let (mut major, mut minor, mut count) = (0, 0, 0);
            if (functions.version)(&mut major, &mut minor) != 0 || (major, minor) < NVRTC_NEEDED {
                return Err(NvrtcError::TooOld { found: (major, minor) });
            }
            let mut architectures = Vec::new();
            if (functions.architecture_count)(&mut count) == 0 {
                architectures.resize(usize::try_from(count).unwrap_or(0), 0);
                if (functions.architectures)(architectures.as_mut_ptr()) != 0 {
                    architectures.clear();
                }
            }
            Ok(Self { functions, version: (major, minor), architectures })
        }
    }

    /// Its version: major, minor.
    pub fn version(&self) -> (i32, i32) {
        self.version
    }

    /// What to compile for on a device: its own machine code, else the nearest PTX, if a driver for CUDA `driver` accepts that.
    pub fn target(&self, capability: (i32, i32), driver: (i32, i32)) -> Result<Target, NvrtcError> {
        let own = capability.0 * 10 + capability.1;
        if self.architectures.contains(&own) {
            return Ok(Target::Cubin(own));
        }
        let below = self.architectures.iter().copied().filter(|architecture| *architecture < own).max();
        match below {
            Some(architecture) if self.version <= driver => Ok(Target::Ptx(architecture)),
            Some(_) => Err(NvrtcError::NewerThanDriver(self.version)),
            None => Err(NvrtcError::UnsupportedDevice(self.version)),
        }
    }

    /// Compiles `source`, which includes the `headers` (name, text). Returns the image and the compiler's log.
    pub fn compile(
        &self,
        source: &str,
        headers: &[(&str, &str)],
        options: &[String],
        target: Target,
    ) -> Result<(Vec<u8>, String), NvrtcError> {
        let texts = |texts: Vec<&str>| texts.into_iter().map(CString::new).collect::<Result<Vec<_>, _>>();
        let (source, name) = (CString::new(source)?, c"blur.cu");
        let names = texts(headers.iter().map(|(name, _)| *name).collect())?;
        let contents = texts(headers.iter().map(|(_, content)| *content).collect())?;
        let options = texts(options.iter().map(String::as_str).collect())?;
        let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<_>>();
        let (names, contents, options) = (pointers(&names), pointers(&contents), pointers(&options));
        let mut program = Program(ptr::null_mut(), &self.functions);
        // SAFETY: all strings live until the end of this function; `create` sets the program before it is used.
        unsafe {
            self.check((self.functions.create)(
                &mut program.0,
                source.as_ptr(),
                name.as_ptr(),
                c_int::try_from(headers.len()).unwrap_or(0),
                contents.as_ptr(),
                names.as_ptr(),
            ))?;
            let count = c_int::try_from(options.len()).unwrap_or(0);
            let compiled = self.check((self.functions.compile)(program.0, count, options.as_ptr()));
            let log = self.result(&program, Output::Log).unwrap_or_default();
            let log = String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).to_owned();
            compiled.map_err(|error| error.with_log(&log))?;
            let output = if let Target::Cubin(_) = target { Output::Cubin } else { Output::Ptx };
            Ok((self.result(&program, output)?, log))
        }
    }

    /// # Safety
    /// `create` has set the program.
    unsafe fn result(&self, program: &Program<'_>, output: Output) -> Result<Vec<u8>, NvrtcError> {
        let (size, get) = self.functions.results[output as usize];
        let mut bytes = 0;
        // SAFETY: the program is valid, as the caller promises, and the buffer is as large as the library says.
        unsafe {
            self.check(size(program.0, &mut bytes))?;
            let mut buffer = vec![0_u8; bytes];
            self.check(get(program.0, buffer.as_mut_ptr().cast()))?;
            Ok(buffer)
        }
    }

    fn check(&self, status: Status) -> Result<(), NvrtcError> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the library returns a static string for every status.
        let text = unsafe { CStr::from_ptr((self.functions.error_string)(status)) };
        Err(NvrtcError::Failed { status: text.to_string_lossy().into_owned(), log: String::new() })
    }
}

/// A program of the library, destroyed on drop.
struct Program<'a>(Handle, &'a Functions);

impl Drop for Program<'_> {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: `create` made the program, and it is destroyed once.
            unsafe { (self.1.destroy)(&mut self.0) };
        }
    }
}

impl Functions {
    /// # Safety
    /// The library is NVRTC, and stays open while the functions are used.
    unsafe fn load(library: &Library) -> Result<Self, libloading::Error> {
        // SAFETY: the symbols of NVRTC have the types of nvrtc.h, which the fields have.
        unsafe {
            Ok(Self {
                version: *library.get(b"nvrtcVersion")?,
                error_string: *library.get(b"nvrtcGetErrorString")?,
                architecture_count: *library.get(b"nvrtcGetNumSupportedArchs")?,
                architectures: *library.get(b"nvrtcGetSupportedArchs")?,
                create: *library.get(b"nvrtcCreateProgram")?,
                destroy: *library.get(b"nvrtcDestroyProgram")?,
                compile: *library.get(b"nvrtcCompileProgram")?,
                results: [
                    (*library.get(b"nvrtcGetProgramLogSize")?, *library.get(b"nvrtcGetProgramLog")?),
                    (*library.get(b"nvrtcGetCUBINSize")?, *library.get(b"nvrtcGetCUBIN")?),
                    (*library.get(b"nvrtcGetPTXSize")?, *library.get(b"nvrtcGetPTX")?),
                ],
            })
        }
    }
}
