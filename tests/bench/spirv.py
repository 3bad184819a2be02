# SPDX-License-Identifier: MIT OR Apache-2.0
"""A reader of SPIR-V for benchmarks: finds the modules in a file, and the arguments of kernels."""

import struct

MAGIC = struct.pack("<I", 0x07230203)
HEADER = 20

OP_ENTRY_POINT, OP_EXECUTION_MODE = 15, 16
OP_TYPE_INT, OP_TYPE_FLOAT, OP_TYPE_VECTOR, OP_TYPE_ARRAY = 21, 22, 23, 28
OP_TYPE_STRUCT, OP_TYPE_POINTER, OP_CONSTANT = 30, 32, 43
OP_FUNCTION, OP_FUNCTION_PARAMETER, OP_FUNCTION_END, OP_DECORATE = 54, 55, 56, 71
# OpLine and OpNoLine may stand before a function.
BETWEEN_FUNCTIONS = OP_FUNCTION, 8, 317
MODE_LOCAL_SIZE, DECORATION_CPACKED = 17, 10
STORAGE_WORKGROUP, STORAGE_FUNCTION = 4, 7


def instructions(module):
    """The opcode and the operands of each instruction, up to the first incomplete one."""
    at = HEADER
    while at + 4 <= len(module):
        opcode, count = struct.unpack_from("<HH", module, at)
        if count == 0 or at + 4 * count > len(module):
            return
        yield opcode, struct.unpack_from(f"<{count - 1}I", module, at + 4)
        at += 4 * count


def modules(data):
    """The modules with a kernel anywhere in `data`."""
    at = data.find(MAGIC)
    while at >= 0:
        next_ = data.find(MAGIC, at + 4)
        rest = data[at:next_ if next_ >= 0 else len(data)]
        end, kernels, ended = HEADER, 0, False
        for opcode, operands in instructions(rest):
            # Data behind the last function may look like instructions, too.
            if ended and opcode not in BETWEEN_FUNCTIONS:
                break
            ended = opcode == OP_FUNCTION_END or ended and opcode != OP_FUNCTION
            end += 4 + 4 * len(operands)
            kernels += opcode == OP_ENTRY_POINT
        if kernels:
            yield rest[:end]
        at = next_


def text(words):
    return struct.pack(f"<{len(words)}I", *words).split(b"\0")[0].decode()


class Types:
    """Sizes and alignments of a module's types in bytes."""

    def __init__(self):
        self.types, self.constants, self.packed = {}, {}, set()

    def note(self, opcode, operands):
        if OP_TYPE_INT <= opcode <= OP_TYPE_POINTER:
            self.types[operands[0]] = opcode, operands[1:]
        elif opcode == OP_CONSTANT:
            self.constants[operands[1]] = operands[2]
        elif opcode == OP_DECORATE and operands[1] == DECORATION_CPACKED:
            self.packed.add(operands[0])

    def layout(self, type_):
        """Size and alignment."""
        opcode, operands = self.types[type_]
        if opcode in (OP_TYPE_INT, OP_TYPE_FLOAT):
            return operands[0] // 8, operands[0] // 8
        if opcode == OP_TYPE_POINTER:
            return 8, 8
        if opcode == OP_TYPE_VECTOR:
            size = self.layout(operands[0])[0] * (4 if operands[1] == 3 else operands[1])
            return size, size
        if opcode == OP_TYPE_ARRAY:
            size, align = self.layout(operands[0])
            return size * self.constants[operands[1]], align
        if opcode == OP_TYPE_STRUCT:
            size, most = 0, 1
            for size_, align in map(self.layout, operands):
                align = 1 if type_ in self.packed else align
                size, most = -(-size // align) * align + size_, max(most, align)
            return -(-size // most) * most, most
        raise ValueError(f"a kernel takes a type of opcode {opcode}")

    def pointers(self, type_, at=0):
        """The offsets of pointers in a value of a type."""
        opcode, operands = self.types[type_]
        if opcode == OP_TYPE_POINTER:
            yield at
        elif opcode == OP_TYPE_ARRAY:
            for i in range(self.constants[operands[1]]):
                yield from self.pointers(operands[0], at + i * self.layout(operands[0])[0])
        elif opcode == OP_TYPE_STRUCT:
            for member in operands:
                size, align = self.layout(member)
                at = at if type_ in self.packed else -(-at // align) * align
                yield from self.pointers(member, at)
                at += size

    def value(self, type_):
        return ":".join(["v" + str(self.layout(type_)[0]), *map(str, self.pointers(type_))])

    def argument(self, type_):
        """A kernel's argument in the words of first.c."""
        opcode, operands = self.types[type_]
        if opcode != OP_TYPE_POINTER:
            return self.value(type_)
        storage, target = operands
        if storage == STORAGE_FUNCTION:  # a structure by value
            return self.value(target)
        return "l1024" if storage == STORAGE_WORKGROUP else "m"


def launches(module):
    """For each kernel a line for first.c: one item, or the group that it requires."""
    types, names, sizes, arguments, function = Types(), {}, {}, {}, None
    for opcode, operands in instructions(module):
        types.note(opcode, operands)
        if opcode == OP_ENTRY_POINT:
            names[operands[1]] = text(operands[2:])
        elif opcode == OP_EXECUTION_MODE and operands[1] == MODE_LOCAL_SIZE:
            sizes[operands[0]] = "x".join(map(str, operands[2:4]))
        elif opcode == OP_FUNCTION:
            function = operands[1]
            arguments[function] = []
        elif opcode == OP_FUNCTION_PARAMETER and function in names:
            arguments[function].append(types.argument(operands[0]))
    return [
        " ".join([name, sizes.get(id_, "1x1"), *arguments[id_]]) for id_, name in names.items()
    ]
