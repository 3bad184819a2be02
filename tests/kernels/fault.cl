// SPDX-License-Identifier: MIT OR Apache-2.0
// Writes through an address that the host chose, for tests of the consequences of a wild pointer.

kernel void fault(ulong address, uint value)
{
    *(global volatile uint *)address = value;
}
