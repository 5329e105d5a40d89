// A trial of kernels that no machine of their makers could run: their results beside trusted ones.
#pragma once

#include "kernels.h"

namespace tercet {

// True if products of the doubtful kernels are those of the trusted ones: integers exactly, BF16
// up to rounding. A few microseconds.
bool agree(const Kernels& doubtful, const Kernels& trusted);

}  // namespace tercet
