// Attention with emulated AMX tiles: on every machine, once.
#define TERCET_ISA emulated
#include "attention_checks.h"
#include "kernels/attend_tiles.h"
#include "kernels/attend_unit.h"

using namespace tercet;
using namespace tercet::tests;

namespace {

template <typename Kv>
using Tile = emulated::AttendTile<emulated::TileDots<Kv, emulated::EmulatedTiles>>;

void attend_tiles(const Attend& attend, const AttendUnit& unit) {
  if (attend.layout.type == KvType::kInt8)
    Tile<emulated::Int8Kv>(attend, unit).run();
  else
    Tile<emulated::Bf16Kv>(attend, unit).run();
}

Kernels with_tiles(const Kernels& kernels) {
  Kernels tiles = kernels;
  tiles.attend = attend_tiles;
  tiles.merge = emulated::merge_spans;
  return tiles;
}

bool first(const Kernels& kernels) { return std::string(kernels.name) == "portable"; }

}  // namespace

CASE(attention_by_tiles_is_that_of_plain_loops) {
  if (!first(kernels)) return;
  const int64_t kShapes[][3] = {{8, 1, 1},  {16, 1, 3},  {64, 2, 3},
                                {80, 1, 2}, {128, 1, 5}, {512, 1, 3}};
  for (const KvType type : kKvTypes)
    for (const auto& [dim, kv_heads, group] : kShapes) {
      World world = make_world(type, dim, kv_heads, group);
      world.open(3, 150, 5);
      check_close(with_tiles(kernels), world, {{0, 0, 1}, {1, 95, 117}, {2, 149, 150}});
    }
}

CASE(attention_by_tiles_is_exact_in_any_company) {
  if (!first(kernels)) return;
  for (const KvType type : kKvTypes)
    for (const int64_t dim : {16, 80})
      check_company(with_tiles(kernels), make_world(type, dim, 1, 3), 135, 3);
}

CASE(sums_of_integers_are_those_of_vectors) {
  if (!first(kernels)) return;
  World world = make_world(KvType::kInt8, 48, 1, 4);
  world.open(1, 140, 3);
  append_rows(kernels, world, {{0, 0, 140}});
  const std::vector<Rows> parts = {{0, 100, 140}};
  Kernels vectors = kernels;
  vectors.attend = [](const Attend& attend, const AttendUnit& unit) {
    emulated::AttendTile<emulated::VectorDots<emulated::Int8Kv>>(attend, unit).run();
  };
  const auto a = attend_rows(with_tiles(kernels), world, parts);
  const auto b = attend_rows(vectors, world, parts);
  CHECK(same(a.data(), b.data(), int64_t(a.size())));
}
