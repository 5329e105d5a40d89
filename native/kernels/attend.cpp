// Paged attention by the best dot products of the instruction set.
#include <type_traits>

#include "kernels/all.h"
#include "kernels/attend_tiles.h"
#include "kernels/attend_unit.h"

namespace tercet::TERCET_ISA {
namespace {

template <typename Kv>
using BestDots = std::conditional_t<kHasTiles, TileDots<Kv, BestTiles>, VectorDots<Kv>>;

}  // namespace

void attend(const Attend& attend, const AttendUnit& unit) {
  if (attend.layout.type == KvType::kInt8)
    AttendTile<BestDots<Int8Kv>>(attend, unit).run();
  else
    AttendTile<BestDots<Bf16Kv>>(attend, unit).run();
}

void merge(const Attend& attend, const MergeUnit& unit) { merge_spans(attend, unit); }

}  // namespace tercet::TERCET_ISA
