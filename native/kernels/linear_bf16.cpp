// y = x W^T with Bf16 numbers: tiles where the machine has them, vectors elsewhere.
#include "kernels/all.h"
#include "kernels/linear_kinds.h"
#include "kernels/tile_panels.h"

namespace tercet::TERCET_ISA {

void linear_bf16(const Linear& linear, Range panels, Range rows) {
  with_epilogue(linear.epilogue, [&]<Epilogue kind> {
    multiply<Bf16, kind>(linear, panels, rows);
  });
}

}  // namespace tercet::TERCET_ISA
