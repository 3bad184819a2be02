// SPDX-License-Identifier: MIT OR Apache-2.0
//! References with more precision than any format: GNU MPFR's functions, correctly rounded to
//! [`PRECISION`] bits.
//!
//! The library is opened when the tests run. Every installation of GCC has it, because the compiler
//! needs it; functions in half turns need version 4.2, which Debian 12 has.

use std::ffi::{CString, c_int, c_long, c_void};
use std::mem::transmute;
use std::sync::OnceLock;

/// The precision of results in bits: that of a double, with a wide margin.
const PRECISION: c_long = 128;

/// A number as the sum of two doubles, the first of which is its rounding.
#[derive(Clone, Copy, Debug)]
pub struct Exact {
    pub high: f64,
    pub low: f64,
}

impl From<f64> for Exact {
    fn from(high: f64) -> Exact {
        Exact { high, low: 0.0 }
    }
}

/// `mpfr_t`, from the library's header.
#[repr(C)]
struct Number {
    precision: c_long,
    sign: c_int,
    exponent: c_long,
    limbs: *mut u64,
}

/// To the nearest, `MPFR_RNDN`.
const NEAREST: c_int = 0;

type Init = unsafe extern "C" fn(*mut Number, c_long);
type Clear = unsafe extern "C" fn(*mut Number);
type SetDouble = unsafe extern "C" fn(*mut Number, f64, c_int) -> c_int;
type GetDouble = unsafe extern "C" fn(*const Number, c_int) -> f64;
type AddDouble = unsafe extern "C" fn(*mut Number, *const Number, f64, c_int) -> c_int;
type OfOne = unsafe extern "C" fn(*mut Number, *const Number, c_int) -> c_int;
type OfTwo = unsafe extern "C" fn(*mut Number, *const Number, *const Number, c_int) -> c_int;
type OfInteger = unsafe extern "C" fn(*mut Number, *const Number, c_long, c_int) -> c_int;
type WithSign = unsafe extern "C" fn(*mut Number, *mut c_int, *const Number, c_int) -> c_int;

/// The address of a function of the library.
fn symbol(name: &str) -> *mut c_void {
    static LIBRARY: OnceLock<usize> = OnceLock::new();
    let library = *LIBRARY.get_or_init(|| {
        // SAFETY: the path is a C string; the library has no constructors that matter.
        let handle = unsafe { libc::dlopen(c"libmpfr.so.6".as_ptr(), libc::RTLD_NOW) };
        assert!(!handle.is_null(), "the tests need libmpfr6, which comes with GCC");
        handle as usize
    });
    let name = CString::new(name).expect("no NUL in it");
    // SAFETY: the handle is of a library that stays loaded; the name is a C string.
    let address = unsafe { libc::dlsym(library as *mut c_void, name.as_ptr()) };
    assert!(!address.is_null(), "libmpfr has no {name:?}: version 4.2 is needed");
    address
}

/// The functions that initialise, set and read numbers.
struct Basics {
    init: Init,
    clear: Clear,
    set: SetDouble,
    get: GetDouble,
    add: AddDouble,
}

fn basics() -> &'static Basics {
    static BASICS: OnceLock<Basics> = OnceLock::new();
    BASICS.get_or_init(|| {
        // SAFETY: the types are those of the functions' prototypes in the library's header.
        unsafe {
            Basics {
                init: transmute::<*mut c_void, Init>(symbol("mpfr_init2")),
                clear: transmute::<*mut c_void, Clear>(symbol("mpfr_clear")),
                set: transmute::<*mut c_void, SetDouble>(symbol("mpfr_set_d")),
                get: transmute::<*mut c_void, GetDouble>(symbol("mpfr_get_d")),
                add: transmute::<*mut c_void, AddDouble>(symbol("mpfr_add_d")),
            }
        }
    })
}

impl Number {
    /// A double, exactly.
    fn new(value: f64) -> Number {
        let mut number = Number { precision: 0, sign: 0, exponent: 0, limbs: std::ptr::null_mut() };
        // SAFETY: the number is initialised before it is set.
        unsafe {
            (basics().init)(&mut number, PRECISION);
            (basics().set)(&mut number, value, NEAREST);
        }
        number
    }

    fn exact(mut self) -> Exact {
        // SAFETY: the number is initialised, here and below.
        let high = unsafe { (basics().get)(&self, NEAREST) };
        if !high.is_finite() {
            return Exact::from(high);
        }
        // SAFETY: as above; source and destination may be one.
        let low = unsafe {
            let this: *mut Number = &mut self;
            (basics().add)(this, this, -high, NEAREST);
            (basics().get)(&self, NEAREST)
        };
        Exact { high, low }
    }
}

impl Drop for Number {
    fn drop(&mut self) {
        // SAFETY: the number is initialised and used no more.
        unsafe { (basics().clear)(self) }
    }
}

/// A function of one number by its OpenCL name.
pub fn unary(name: &str) -> impl Fn(f64) -> Exact {
    let own = match name {
        "rsqrt" => "rec_sqrt",
        "tgamma" => "gamma",
        name => name,
    };
    // SAFETY: MPFR's functions of one number have this prototype.
    let function = unsafe { transmute::<*mut c_void, OfOne>(symbol(&format!("mpfr_{own}"))) };
    // OpenCL's inverse root of -0 has the sign of the zero, like the root.
    let odd = name == "rsqrt";
    move |x| {
        if odd && x == 0.0 {
            return Exact::from(1.0 / x);
        }
        let (argument, mut result) = (Number::new(x), Number::new(0.0));
        // SAFETY: both are initialised.
        unsafe { function(&mut result, &argument, NEAREST) };
        result.exact()
    }
}

/// A function of two numbers.
pub fn binary(name: &str) -> impl Fn(f64, f64) -> Exact {
    // SAFETY: MPFR's functions of two numbers have this prototype.
    let function = unsafe { transmute::<*mut c_void, OfTwo>(symbol(&format!("mpfr_{name}"))) };
    // In MPFR 1 to any power is 1; OpenCL's and IEEE 754's `powr` differ.
    let strict = name == "powr";
    move |x, y| {
        if strict && (x.is_nan() || y.is_nan()) {
            return Exact::from(f64::NAN);
        }
        let (x, y, mut result) = (Number::new(x), Number::new(y), Number::new(0.0));
        // SAFETY: all are initialised.
        unsafe { function(&mut result, &x, &y, NEAREST) };
        result.exact()
    }
}

/// A function of a number and an integer.
pub fn with_int(name: &str) -> impl Fn(f64, i32) -> Exact {
    let own = if name == "pown" { "mpfr_pow_si" } else { "mpfr_rootn_si" };
    // SAFETY: both functions have this prototype.
    let function = unsafe { transmute::<*mut c_void, OfInteger>(symbol(own)) };
    move |x, n| {
        let (x, mut result) = (Number::new(x), Number::new(0.0));
        // SAFETY: both are initialised.
        unsafe { function(&mut result, &x, n.into(), NEAREST) };
        result.exact()
    }
}

/// The logarithm of the gamma function's magnitude, and its sign.
pub fn lgamma(x: f64) -> (Exact, i32) {
    // SAFETY: the function has this prototype.
    let function = unsafe { transmute::<*mut c_void, WithSign>(symbol("mpfr_lgamma")) };
    let (x, mut result, mut sign) = (Number::new(x), Number::new(0.0), 0);
    // SAFETY: the numbers are initialised and `sign` is a place for an integer.
    unsafe { function(&mut result, &mut sign, &x, NEAREST) };
    (result.exact(), sign)
}
