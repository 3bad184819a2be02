// SPDX-License-Identifier: MIT OR Apache-2.0
//! The numbers that name things, and what an instruction works on.

use super::arena::id;

id! {
    /// Names an interned constant of a module.
    ConstId, "c"
}
id! {
    /// Names a global of a module.
    GlobalId, "g"
}
id! {
    /// Names a function of a module.
    FunctionId, "f"
}
id! {
    /// Names a source file of a module.
    FileId, "file"
}
id! {
    /// Names a type of the source.
    SourceTypeId, "type"
}
id! {
    /// Names a call that the front end has inlined.
    InlinedId, "inlined"
}
id! {
    /// Names a block of a function.
    BlockId, "bb"
}
id! {
    /// Names a value of a function.
    ValueId, "%"
}

/// An instruction's operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A value of the function.
    Value(ValueId),
    /// A constant of the module.
    Const(ConstId),
}
