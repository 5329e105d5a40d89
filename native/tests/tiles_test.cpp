// The AMX kernels with emulated tiles: on every machine, once.
#define TERCET_ISA emulated
#include "kernels/linear_kinds.h"
#include "kernels/tile_panels.h"
#include "linear_test.h"

using namespace tercet;
using namespace tercet::tests;

namespace {

template <typename Kind>
void emulated_linear(const Linear& linear, Range panels, Range rows) {
  emulated::EmulatedTiles tiles;
  emulated::with_epilogue(linear.epilogue, [&]<Epilogue kind> {
    emulated::multiply_tiles<Kind, kind>(tiles, linear, panels, rows);
  });
}

const std::pair<Format, LinearKernel> kKernels[] = {
    {Format::kBF16, emulated_linear<emulated::Bf16>},
    {Format::kInt8, emulated_linear<emulated::Int8>},
};
const Epilogue kEpilogues[] = {Epilogue::kStore, Epilogue::kAdd, Epilogue::kGlu};

bool first(const Kernels& kernels) { return std::string(kernels.name) == "portable"; }

}  // namespace

CASE(tiles_equal_plain_loops) {
  if (!first(kernels)) return;
  unsigned seed = 0;
  for (const auto& [format, kernel] : kKernels)
    for (const Epilogue epilogue : kEpilogues)
      for (const int64_t rows : {1, 2, 15, 16, 17, 31, 32, 33, 48, 65}) {
        Problem problem(format, {50, 130, rows, epilogue, ++seed % 2 == 0}, seed);
        check_against_loops(kernel, format, problem);
      }
}

CASE(tiles_give_rows_the_same_in_any_company) {
  if (!first(kernels)) return;
  std::mt19937 random(9);
  for (const auto& [format, kernel] : kKernels)
    for (const Epilogue epilogue : kEpilogues)
      for (const int64_t rows : {1, 16, 17, 40, 70}) {
        Problem problem(format, {100, 192, rows, epilogue, rows % 2 == 0}, unsigned(rows));
        check_any_company(kernel, problem, random, 4);
      }
}

CASE(tiles_give_extreme_integers_exactly) {
  if (!first(kernels)) return;
  Problem problem(Format::kInt8, {32, 11008, 3}, 1);
  std::fill(problem.w.begin(), problem.w.end(), -1.0f);
  std::fill(problem.x.begin(), problem.x.end(), 3.0f);
  problem.prepare();
  check_against_loops(emulated_linear<emulated::Int8>, Format::kInt8, problem);
}
