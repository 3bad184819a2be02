// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs kernels in the interpreter with buffers of plain numbers.

use tally_compiler::check::check;
use tally_compiler::interp::{Arg, InterpError, Launch, Memory, run};
use tally_compiler::ir::Module;
use tally_compiler::parse::parse;

/// A module that has passed the front end.
pub fn front_end(spirv: &[u8]) -> Module {
    let mut module = parse(spirv, &[]).unwrap_or_else(|error| panic!("{error}"));
    check(&mut module).unwrap_or_else(|failure| panic!("{failure}"));
    module
}

/// Numbers as bytes in memory.
pub trait Number: Copy {
    /// Its bytes.
    fn bytes(self) -> Vec<u8>;
    /// The number from its bytes.
    fn from(bytes: &[u8]) -> Self;
}

macro_rules! number {
    ($($ty:ty),*) => {$(
        impl Number for $ty {
            fn bytes(self) -> Vec<u8> {
                self.to_le_bytes().to_vec()
            }
            fn from(bytes: &[u8]) -> Self {
                <$ty>::from_le_bytes(bytes.try_into().expect("as many bytes as the number has"))
            }
        }
    )*};
}
number!(i8, u8, i16, u16, i32, u32, i64, u64, f32, f64);

/// A run of one kernel under construction.
pub struct Run<'m> {
    module: &'m Module,
    kernel: usize,
    args: Vec<Arg>,
    memory: Memory,
    next: u64,
}

/// A buffer of a [`Run`].
#[derive(Clone, Copy)]
pub struct Buffer(u64);

impl<'m> Run<'m> {
    /// A run of the kernel with this name.
    pub fn new(module: &'m Module, kernel: &str) -> Self {
        let (kernel, _) = module.kernel(kernel).unwrap_or_else(|| panic!("no kernel {kernel}"));
        Self { module, kernel, args: Vec::new(), memory: Memory::new(), next: 0x10000 }
    }

    /// Adds a buffer argument.
    pub fn buffer<T: Number>(&mut self, contents: &[T]) -> Buffer {
        let address = self.next;
        self.next += 0x10_0000;
        let bytes = contents.iter().flat_map(|n| n.bytes()).collect();
        self.memory.map(address, bytes).expect("buffers do not overlap");
        self.args.push(Arg::pointer(address));
        Buffer(address)
    }

    /// Adds a value argument.
    pub fn value<T: Number>(&mut self, value: T) {
        self.args.push(Arg::Bytes(value.bytes()));
    }

    /// Adds the bytes of a structure as an argument.
    #[allow(dead_code, reason = "not every test binary passes structures")]
    pub fn bytes(&mut self, bytes: Vec<u8>) {
        self.args.push(Arg::Bytes(bytes));
    }

    /// Adds local memory as an argument.
    #[allow(dead_code, reason = "not every test binary passes local memory")]
    pub fn local(&mut self, bytes: u64) {
        self.args.push(Arg::Local(bytes));
    }

    /// Runs the kernel; an error says why that is not possible.
    pub fn try_launch(&mut self, launch: &Launch) -> Result<(), InterpError> {
        run(self.module, self.kernel, launch, &self.args, &mut self.memory)
    }

    /// Runs the kernel; fails the test if that is not possible.
    pub fn launch(&mut self, launch: &Launch) -> &mut Self {
        self.try_launch(launch).unwrap_or_else(|error| panic!("{error}"));
        self
    }

    /// Runs in one dimension.
    pub fn line(&mut self, global: u64, group: u32) -> &mut Self {
        self.launch(&Launch::linear(global, group))
    }

    /// The contents of a buffer.
    pub fn read<T: Number>(&self, buffer: Buffer) -> Vec<T> {
        let bytes = self.memory.buffer(buffer.0).expect("the buffer is mapped");
        bytes.chunks(std::mem::size_of::<T>()).map(T::from).collect()
    }
}
