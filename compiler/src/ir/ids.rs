// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers that name things, and what an instruction works on.

use super::arena::id;

id! {
    /// Names an interned [`Constant`] of a module.
    ConstId, "c"
}
id! {
    /// Names a [`Global`] of a module.
    GlobalId, "g"
}
id! {
    /// Names a [`Function`] of a module.
    FunctionId, "f"
}
id! {
    /// Names a source file of a module.
    FileId, "file"
}
id! {
    /// Names a [`Block`] of a function.
    BlockId, "bb"
}
id! {
    /// Names a [`Value`] of a function.
    ValueId, "%"
}

/// What an instruction works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A value of the function.
    Value(ValueId),
    /// A constant of the module.
    Const(ConstId),
}
