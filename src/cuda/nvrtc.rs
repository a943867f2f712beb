// SPDX-License-Identifier: MPL-2.0
//! NVRTC, NVIDIA's compiler of CUDA C++ as a library, if the machine has one. Found and opened at run time.
//!
//! Not by cudarc: it looks for fewer names of the library than there are, and panics where a function is missing.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;

use libloading::Library;

/// Names a path of the library, in place of the usual names.
pub const LIBRARY_VARIABLE: &str = "CUDAGAUSSBLUR_NVRTC";
/// The oldest version that compiles the kernels.
const OLDEST: (i32, i32) = (11, 8);
const NAMES: [&str; 4] = ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"];

type Handle = *mut std::ffi::c_void;
type Status = c_int;

/// The library's functions in use.
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

/// The functions that give the size of a result and the result.
type Getter = (unsafe extern "C" fn(Handle, *mut usize) -> Status, unsafe extern "C" fn(Handle, *mut c_char) -> Status);

#[derive(Debug, Clone, Copy)]
enum What {
    Log,
    Cubin,
    Ptx,
}

/// The compiler. Stays open: it holds threads and tables of its own.
pub struct Nvrtc {
    functions: Functions,
    version: (i32, i32),
    /// Compute capabilities it can compile for, as 10 × major + minor.
    architectures: Vec<i32>,
}

/// What to compile for: `sm_` for machine code, `compute_` for PTX that the driver compiles on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Machine code for this architecture.
    Cubin(i32),
    /// PTX for this virtual architecture.
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
    /// Opens the library; says in a sentence why not.
    pub fn open() -> Result<Self, String> {
        let named = std::env::var(LIBRARY_VARIABLE).ok().filter(|path| !path.is_empty());
        let names: Vec<&str> = named.as_deref().map_or(NAMES.to_vec(), |path| vec![path]);
        // SAFETY: the library's initialisers are its own business, and its functions have the types of nvrtc.h.
        unsafe {
            let library = names.iter().find_map(|name| Library::new(*name).ok());
            let library = library.ok_or_else(|| format!("NVRTC was not found as {}", names.join(", ")))?;
            let functions = Functions::load(&library).map_err(|error| format!("NVRTC cannot be used: {error}"))?;
            // Never closed.
            std::mem::forget(library);
            let (mut major, mut minor, mut count) = (0, 0, 0);
            if (functions.version)(&mut major, &mut minor) != 0 || (major, minor) < OLDEST {
                return Err(format!("NVRTC {major}.{minor} is too old; {}.{} is needed", OLDEST.0, OLDEST.1));
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

    /// What to compile for on a device: its own machine code, else the nearest PTX that a driver for CUDA `driver` takes.
    pub fn target(&self, capability: (i32, i32), driver: (i32, i32)) -> Result<Target, String> {
        let own = capability.0 * 10 + capability.1;
        let (major, minor) = self.version;
        if self.architectures.contains(&own) {
            return Ok(Target::Cubin(own));
        }
        let below = self.architectures.iter().copied().filter(|architecture| *architecture < own).max();
        match below {
            Some(architecture) if self.version <= driver => Ok(Target::Ptx(architecture)),
            Some(_) => Err(format!("NVRTC {major}.{minor} is newer than the driver and does not know the device")),
            None => Err(format!("NVRTC {major}.{minor} does not know the device any more")),
        }
    }

    /// Compiles `source`, which includes the `headers` (name, text). Gives the image and the compiler's log, or the log
    /// alone.
    pub fn compile(
        &self,
        source: &str,
        headers: &[(&str, &str)],
        options: &[String],
        target: Target,
    ) -> Result<(Vec<u8>, String), String> {
        let text = |text: &str| CString::new(text).map_err(|_| "a NUL in the source".to_owned());
        let texts = |texts: Vec<&str>| texts.into_iter().map(text).collect::<Result<Vec<_>, _>>();
        let (source, name) = (text(source)?, c"blur.cu");
        let names = texts(headers.iter().map(|(name, _)| *name).collect())?;
        let contents = texts(headers.iter().map(|(_, content)| *content).collect())?;
        let options = texts(options.iter().map(String::as_str).collect())?;
        let pointers = |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<_>>();
        let (names, contents, options) = (pointers(&names), pointers(&contents), pointers(&options));
        let mut program = Program(ptr::null_mut(), &self.functions);
        // SAFETY: all strings live until the end of this function; the program is made before it is used.
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
            let log = self.result(&program, What::Log).unwrap_or_default();
            let log = String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).to_owned();
            compiled.map_err(|error| format!("{error}\n{log}"))?;
            let what = if let Target::Cubin(_) = target { What::Cubin } else { What::Ptx };
            Ok((self.result(&program, what)?, log))
        }
    }

    /// # Safety
    /// The program has been made.
    unsafe fn result(&self, program: &Program<'_>, what: What) -> Result<Vec<u8>, String> {
        let (size, get) = self.functions.results[what as usize];
        let mut bytes = 0;
        // SAFETY: as above; the buffer is as large as told.
        unsafe {
            self.check(size(program.0, &mut bytes))?;
            let mut buffer = vec![0_u8; bytes];
            self.check(get(program.0, buffer.as_mut_ptr().cast()))?;
            Ok(buffer)
        }
    }

    fn check(&self, status: Status) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the library answers every status with a string of its own.
        let text = unsafe { CStr::from_ptr((self.functions.error_string)(status)) };
        Err(text.to_string_lossy().into_owned())
    }
}

/// A program of the library, freed by itself.
struct Program<'a>(Handle, &'a Functions);

impl Drop for Program<'_> {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: made by `create`, freed once.
            unsafe { (self.1.destroy)(&mut self.0) };
        }
    }
}

impl Functions {
    /// # Safety
    /// The library is NVRTC.
    unsafe fn load(library: &Library) -> Result<Self, libloading::Error> {
        // SAFETY: as above.
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
