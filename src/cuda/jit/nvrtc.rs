// SPDX-License-Identifier: MPL-2.0
//! NVRTC, NVIDIA's run-time compiler for CUDA C++. It is opened at run time if it is installed.
//!
//! cudarc is not used for it, because cudarc knows fewer names of the library, and panics if a function is missing.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;
use std::sync::{Condvar, Mutex, OnceLock};
use std::time::Duration;

use libloading::Library;

use super::error::{NVRTC_NEEDED, NvrtcError};
use crate::libraries::{System, functions};
use crate::process::{Level, lock, log};

/// The environment variable with the path of the library. If it is set, the usual names are not tried.
pub const LIBRARY_VARIABLE: &str = "CUDAGAUSSBLUR_NVRTC";

/// NVRTC, opened when the first kernel is requested. The result of opening it is logged then.
#[derive(Default)]
pub struct LazyNvrtc {
    opened: OnceLock<Result<Nvrtc, NvrtcError>>,
    users: Mutex<usize>,
    /// Notified when no user is left.
    idle: Condvar,
}

/// Counts a thread that may be compiling, until it is dropped.
pub struct NvrtcUser(&'static LazyNvrtc);

impl LazyNvrtc {
    /// NVRTC that is not opened yet.
    pub const fn new() -> Self {
        Self { opened: OnceLock::new(), users: Mutex::new(0), idle: Condvar::new() }
    }

    /// Counts a thread that compiles.
    pub fn enter(&'static self) -> NvrtcUser {
        *lock(&self.users) += 1;
        NvrtcUser(self)
    }

    /// Waits until no thread compiles, for at most `timeout`. Returns whether no thread compiles.
    pub fn wait_until_idle(&self, timeout: Duration) -> bool {
        let waited = self.idle.wait_timeout_while(lock(&self.users), timeout, |users| *users > 0);
        waited.is_ok_and(|(users, _)| *users == 0)
    }

    /// Returns the compiler, or `None` if it cannot be used. Opens it on the first call.
    pub fn get(&self) -> Option<&Nvrtc> {
        let mut is_new = false;
        let opened = self.opened.get_or_init(|| {
            is_new = true;
            Nvrtc::open()
        });
        if is_new {
            log(Level::Info, || match opened {
                Ok(Nvrtc { version: (major, minor), .. }) => {
                    format!("NVRTC {major}.{minor} compiles specialised kernels")
                }
                Err(error) => format!("using the prebuilt kernels for all sizes: {error}"),
            });
        }
        opened.as_ref().ok()
    }
}

impl Drop for NvrtcUser {
    fn drop(&mut self) {
        let mut users = lock(&self.0.users);
        *users -= 1;
        if *users == 0 {
            self.0.idle.notify_all();
        }
    }
}

type Handle = *mut std::ffi::c_void;
type Status = c_int;

functions! {
    /// The library's functions, as nvrtc.h declares them. A program is valid from `create` to `destroy`.
    struct Functions {
        safe [
            version(major: &mut c_int, minor: &mut c_int) -> Status = "nvrtcVersion";
            error_string(status: Status) -> *const c_char = "nvrtcGetErrorString";
            architecture_count(count: &mut c_int) -> Status = "nvrtcGetNumSupportedArchs";
        ]
        unsafe [
            /// # Safety
            /// `architectures` points to the number of elements that `architecture_count` returns.
            architectures(architectures: *mut c_int) -> Status = "nvrtcGetSupportedArchs";
            /// # Safety
            /// All strings end with a NUL, and `headers` and `names` have `count` elements.
            create(
                program: &mut Handle, source: *const c_char, name: *const c_char, count: c_int,
                headers: *const *const c_char, names: *const *const c_char
            ) -> Status = "nvrtcCreateProgram";
            /// # Safety
            /// The program is valid.
            destroy(program: &mut Handle) -> Status = "nvrtcDestroyProgram";
            /// # Safety
            /// The program is valid. `options` has `count` strings, which end with a NUL.
            compile(program: Handle, count: c_int, options: *const *const c_char) -> Status = "nvrtcCompileProgram";
            /// # Safety
            /// The program is valid.
            log_size(program: Handle, bytes: &mut usize) -> Status = "nvrtcGetProgramLogSize";
            /// # Safety
            /// The program is valid. `to` points to the number of bytes that `log_size` returns.
            log(program: Handle, to: *mut c_char) -> Status = "nvrtcGetProgramLog";
            /// # Safety
            /// The program is valid.
            cubin_size(program: Handle, bytes: &mut usize) -> Status = "nvrtcGetCUBINSize";
            /// # Safety
            /// The program is valid. `to` points to the number of bytes that `cubin_size` returns.
            cubin(program: Handle, to: *mut c_char) -> Status = "nvrtcGetCUBIN";
            /// # Safety
            /// The program is valid.
            ptx_size(program: Handle, bytes: &mut usize) -> Status = "nvrtcGetPTXSize";
            /// # Safety
            /// The program is valid. `to` points to the number of bytes that `ptx_size` returns.
            ptx(program: Handle, to: *mut c_char) -> Status = "nvrtcGetPTX";
        ]
    }
}

/// The compiler. The library is never closed, because it keeps threads running and tables in memory.
pub struct Nvrtc {
    functions: Functions,
    version: (i32, i32),
    /// The compute capabilities that NVRTC can compile for, as 10 × major + minor.
    architectures: Vec<i32>,
}

/// The architecture to compile for. Its `Display` is NVRTC's name: `sm_` for machine code, `compute_` for PTX.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Machine code for this architecture.
    Cubin(i32),
    /// PTX for this virtual architecture. The driver compiles it when it is loaded.
    Ptx(i32),
}

impl Target {
    /// The compute capability of the architecture.
    pub fn capability(self) -> (i32, i32) {
        let (Self::Cubin(architecture) | Self::Ptx(architecture)) = self;
        (architecture / 10, architecture % 10)
    }
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
    /// Opens the first library that can be used. If there is none, the error is that of the first library that was found.
    pub fn open() -> Result<Self, NvrtcError> {
        let named = std::env::var(LIBRARY_VARIABLE).ok().filter(|path| !path.is_empty());
        let names: Vec<&str> = named.as_deref().map_or(System::CURRENT.nvrtc.to_vec(), |path| vec![path]);
        let mut refused = None;
        for name in &names {
            // SAFETY: loading NVRTC runs its initialisers, which need nothing from this process.
            let Ok(library) = (unsafe { Library::new(*name) }) else { continue };
            match Self::new(name, library) {
                Ok(nvrtc) => return Ok(nvrtc),
                Err(error) => _ = refused.get_or_insert(error),
            }
        }
        Err(refused.unwrap_or_else(|| NvrtcError::NotFound { names: names.join(", ") }))
    }

    fn new(name: &str, library: Library) -> Result<Self, NvrtcError> {
        let functions = Functions::load(Box::leak(Box::new(library)));
        let functions = functions.map_err(|function| NvrtcError::Incomplete { name: name.to_owned(), function })?;
        let (mut major, mut minor, mut count) = (0, 0, 0);
        if functions.version(&mut major, &mut minor) != 0 || (major, minor) < NVRTC_NEEDED {
            return Err(NvrtcError::TooOld { found: (major, minor) });
        }
        let mut architectures = Vec::new();
        if functions.architecture_count(&mut count) == 0 {
            architectures.resize(usize::try_from(count).unwrap_or(0), 0);
            // SAFETY: the vector has the number of elements that the library has returned.
            if unsafe { functions.architectures(architectures.as_mut_ptr()) } != 0 {
                architectures.clear();
            }
        }
        Ok(Self { functions, version: (major, minor), architectures })
    }

    /// The version of NVRTC: major, minor.
    pub fn version(&self) -> (i32, i32) {
        self.version
    }

    /// Chooses what to compile for a device: its own machine code, else the nearest PTX, if the driver for CUDA `driver` accepts
    /// it.
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

    /// Compiles `source`, which includes the `headers` (name, text). Returns the image and the log of the compiler.
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
        // SAFETY: all strings end with a NUL and live until the end of this function, and the arrays have the lengths that are
        // passed. `create` sets the program before it is used. The two functions of each `result` are for the same result.
        unsafe {
            let created = self.functions.create(
                &mut program.0,
                source.as_ptr(),
                name.as_ptr(),
                c_int::try_from(headers.len()).unwrap_or(0),
                contents.as_ptr(),
                names.as_ptr(),
            );
            self.check(created, "")?;
            let count = c_int::try_from(options.len()).unwrap_or(0);
            let compiled = self.functions.compile(program.0, count, options.as_ptr());
            let log = self.result(&program, Functions::log_size, Functions::log).unwrap_or_default();
            let log = String::from_utf8_lossy(&log).trim_end_matches(['\0', '\n']).to_owned();
            self.check(compiled, &log)?;
            let image = match target {
                Target::Cubin(_) => self.result(&program, Functions::cubin_size, Functions::cubin),
                Target::Ptx(_) => self.result(&program, Functions::ptx_size, Functions::ptx),
            };
            Ok((image?, log))
        }
    }

    /// Returns a result of a compilation. `size` and `copy` are the functions that return its size and its bytes.
    ///
    /// # Safety
    /// `create` has set the program. `size` and `copy` are for the same result.
    unsafe fn result(
        &self,
        program: &Program<'_>,
        size: unsafe fn(&Functions, Handle, &mut usize) -> Status,
        copy: unsafe fn(&Functions, Handle, *mut c_char) -> Status,
    ) -> Result<Vec<u8>, NvrtcError> {
        let mut bytes = 0;
        // SAFETY: the caller promises that the program is valid and that both functions are for one result, so `buffer` is as
        // large as the library says.
        unsafe {
            self.check(size(&self.functions, program.0, &mut bytes), "")?;
            let mut buffer = vec![0_u8; bytes];
            self.check(copy(&self.functions, program.0, buffer.as_mut_ptr().cast()), "")?;
            Ok(buffer)
        }
    }

    /// Returns an error with the compiler's log if `status` is a failure.
    fn check(&self, status: Status, log: &str) -> Result<(), NvrtcError> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the library returns a static string for every status.
        let text = unsafe { CStr::from_ptr(self.functions.error_string(status)) };
        Err(NvrtcError::Failed { status: text.to_string_lossy().into_owned(), log: log.to_owned() })
    }
}

/// A program of the library. Dropping it destroys it.
struct Program<'a>(Handle, &'a Functions);

impl Drop for Program<'_> {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: `create` made the program, and it is destroyed only here.
            unsafe { self.1.destroy(&mut self.0) };
        }
    }
}
