#include "isa.h"

#include "trial.h"

#include <cstdlib>
#include <stdexcept>

#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace tercet {
namespace {

struct Known {
  const char* name;
  const Kernels* (*kernels)();
  bool (*usable)();
};

bool always() { return true; }

#if defined(__x86_64__)
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512vnni");
}

bool has_avx512_bf16() { return has_avx512() && __builtin_cpu_supports("avx512bf16"); }

// CPUID 7.0 EDX: AMX-BF16 22, AMX-TILE 24, AMX-INT8 25. The kernel gives the tiles' state to those
// who ask for it (arch_prctl ARCH_REQ_XCOMP_PERM); children inherit the permission.
bool find_amx() {
#if defined(__linux__)
  if (!has_avx512_bf16()) return false;
  unsigned a = 7, b = 0, c = 0, d = 0;
  __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  const unsigned needed = 1u << 22 | 1u << 24 | 1u << 25;
  if ((d & needed) != needed) return false;
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) return false;
  // Written where no such machine was at hand: they serve only if they prove right on this one.
  return amx_kernels() != nullptr && agree(*amx_kernels(), *avx512_bf16_kernels());
#else
  return false;
#endif
}

bool has_amx() {
  static const bool found = find_amx();
  return found;
}
#endif

const Known kKnown[] = {
#if defined(__x86_64__)
    {"amx", amx_kernels, has_amx},
    {"avx512_bf16", avx512_bf16_kernels, has_avx512_bf16},
    {"avx512", avx512_kernels, has_avx512},
    {"avx2", avx2_kernels, has_avx2},
#endif
    {"portable", portable_kernels, always},
};

}  // namespace

std::vector<std::string> usable_isas() {
  std::vector<std::string> names;
  for (const Known& one : kKnown)
    if (one.usable() && one.kernels() != nullptr) names.emplace_back(one.name);
  return names;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

const Kernels& choose_kernels(const std::string& given) {
  const std::string name = given.empty() ? variable("TERCET_ISA") : given;
  std::string usable;
  for (const Known& one : kKnown) {
    if (!one.usable() || one.kernels() == nullptr) continue;
    if (name.empty() || name == one.name) return *one.kernels();
    usable += usable.empty() ? one.name : std::string(", ") + one.name;
  }
  throw std::invalid_argument("instruction set '" + name + "' is not to be had on this machine, " +
                              "which can use " + usable + ".");
}

}  // namespace tercet
