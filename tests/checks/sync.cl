// SPDX-License-Identifier: MIT OR Apache-2.0
// sync.c launches no kernel.

kernel void none(void)
{
}
