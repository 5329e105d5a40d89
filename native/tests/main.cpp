#include <cstdio>
#include <string>

#include "check.h"

int main(int argc, char** argv) {
  using namespace tercet;
  std::vector<std::string> isas = usable_isas();
  if (argc > 1) isas = {argv[1]};
  for (const std::string& isa : isas) {
    const Kernels& kernels = choose_kernels(isa);
    for (const tests::Case& one : tests::cases()) {
      std::printf("%s: %s\n", isa.c_str(), one.name);
      std::fflush(stdout);
      one.run(kernels);
    }
  }
  return 0;
}
