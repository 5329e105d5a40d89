// Instruction sets: what the processor (and the kernel: AMX needs permission) lets us use.
#pragma once

#include <string>
#include <vector>

#include "kernels.h"

namespace tercet {

// Names of all that this machine can run, best first; "portable" is always the last.
std::vector<std::string> usable_isas();

// An environment variable, or nothing.
std::string variable(const char* name);

// Kernels of this name; where the name is empty, of what TERCET_ISA forces, or of the best usable
// one. Throws std::invalid_argument with a sentence for a name that is unknown or not usable here.
const Kernels& choose_kernels(const std::string& name);

}  // namespace tercet
