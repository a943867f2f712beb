// SPDX-License-Identifier: MPL-2.0
//! Numeric properties whose range the element checks itself.
//!
//! GObject answers a value out of range with a warning on stderr and keeps the old value, so that `gst-launch-1.0` would go on
//! with the default and exit with 0. The properties of this module have their range, for `gst-inspect-1.0` and control
//! bindings, but GObject hands every value to the element: the start fails for one that is out of range, and while playing it
//! is refused with a warning message.

use std::ffi::{CString, c_void};

use gst::glib;
use gst::glib::gobject_ffi::{
    self as ffi, GParamSpec, GParamSpecClass, GParamSpecDouble, GParamSpecInt, GParamSpecUInt, GTypeQuery, GValue,
};
use gst::glib::translate::{FromGlib, IntoGlib, ToGlibPtr, from_glib_none};

/// The same property without GObject's check of its range, if it is one of a double, int or uint.
pub fn checked_by_element(spec: glib::ParamSpec) -> glib::ParamSpec {
    if ![glib::Type::F64, glib::Type::I32, glib::Type::U32].contains(&spec.value_type()) {
        return spec;
    }
    let strings = [spec.name(), spec.nick(), spec.blurb().unwrap_or_default()];
    let strings = strings.map(|text| CString::new(text).expect("text of the C API"));
    let [name, nick, blurb] = strings.each_ref().map(|text| text.as_ptr());
    let own: *const GParamSpec = spec.to_glib_none().0;
    // SAFETY: `own` is live, and so are the strings, which are copied. The new type derives from that of `own` and adds no
    // field, so that both instances have the number's range and default at the same place behind GParamSpec.
    unsafe {
        // Without the flags that promise static strings.
        let flags = (*own).flags & !(ffi::G_PARAM_STATIC_STRINGS as u32);
        let new = ffi::g_param_spec_internal(unchecked_type(spec.type_()).into_glib(), name, nick, blurb, flags);
        macro_rules! copy_range {
            ($kind:ty) => {{
                let (from, to) = (&*own.cast::<$kind>(), &mut *new.cast::<$kind>());
                (to.minimum, to.maximum, to.default_value) = (from.minimum, from.maximum, from.default_value);
            }};
        }
        match spec.value_type() {
            glib::Type::F64 => copy_range!(GParamSpecDouble),
            glib::Type::I32 => copy_range!(GParamSpecInt),
            _ => copy_range!(GParamSpecUInt),
        }
        from_glib_none(new)
    }
}

/// The type of such properties: `parent`, a type of numeric properties, without the check of the range.
fn unchecked_type(parent: glib::Type) -> glib::Type {
    let name = CString::new(format!("GstCudaGaussBlur{}", parent.name())).expect("a type's name");
    // SAFETY: the name lives until it is copied. The sizes are those of the parent, and `accept_all` is for its class.
    unsafe {
        let registered = ffi::g_type_from_name(name.as_ptr());
        if registered != ffi::G_TYPE_INVALID {
            return glib::Type::from_glib(registered);
        }
        let mut sizes = std::mem::zeroed::<GTypeQuery>();
        ffi::g_type_query(parent.into_glib(), &mut sizes);
        glib::Type::from_glib(ffi::g_type_register_static_simple(
            parent.into_glib(),
            name.as_ptr(),
            sizes.class_size,
            Some(accept_all),
            sizes.instance_size,
            None,
            0,
        ))
    }
}

/// Initialises the class of such a type.
unsafe extern "C" fn accept_all(class: *mut c_void, _: *mut c_void) {
    unsafe extern "C" fn change_nothing(_: *mut GParamSpec, _: *mut GValue) -> glib::ffi::gboolean {
        glib::ffi::GFALSE
    }
    unsafe extern "C" fn is_valid(_: *mut GParamSpec, _: *mut GValue) -> glib::ffi::gboolean {
        glib::ffi::GTRUE
    }
    let class = class.cast::<GParamSpecClass>();
    // SAFETY: GObject passes the class, a GParamSpecClass that nobody else uses yet. GLib before 2.74 has no `value_is_valid`,
    // but a reserved pointer in its place.
    unsafe {
        (*class).value_validate = Some(change_nothing);
        (*class).value_is_valid = Some(is_valid);
    }
}
