// The table of one instruction set.
#include "kernels/all.h"

#define TERCET_JOIN(isa, name) isa##name
#define TERCET_TABLE(isa) TERCET_JOIN(isa, _kernels)
#define TERCET_TEXT(isa) #isa
#define TERCET_NAME(isa) TERCET_TEXT(isa)

namespace tercet {

const Kernels* TERCET_TABLE(TERCET_ISA)() {
  using namespace TERCET_ISA;
  static const Kernels table = {
      .name = TERCET_NAME(TERCET_ISA),
      .linear_bf16 = linear_bf16,
      .linear_int8 = linear_int8,
      .linear_grouped = linear_grouped,
      .norm = norm,
      .convert = convert,
      .embed = embed,
      .head_norm = head_norm,
      .angles = angles,
      .rope = rope,
      .add = add,
      .glu = glu,
      .append = append,
      .attend = attend,
      .merge = merge,
      .scores = {.top_two = top_two,
                 .masses = masses,
                 .within = within,
                 .count_at_least = count_at_least,
                 .keep = keep,
                 .above = above,
                 .count_before = count_before,
                 .group_maxima = group_maxima,
                 .contenders = contenders},
      .sums = {.part = sum_part, .copy = copy_part, .move = move_part},
  };
  return &table;
}

}  // namespace tercet
