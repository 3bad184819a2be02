// SPDX-License-Identifier: MIT OR Apache-2.0
// Remainders of divisions: fmod, remainder.

#include "division.h"

double __tally_far_fmod_f64(double x, double y) { return divide(x, y, false).remainder; }

double __tally_far_remainder_f64(double x, double y) { return divide(x, y, true).remainder; }
