// Attention and append with the kernels of an instruction set.
#include "attention_checks.h"

using namespace tercet;
using namespace tercet::tests;

CASE(attention_is_that_of_plain_loops) {
  const int64_t kShapes[][3] = {{8, 1, 1},  {16, 2, 3},  {64, 3, 3},
                                {80, 1, 2}, {128, 1, 5}, {26, 1, 1}};
  for (const KvType type : kKvTypes)
    for (const auto& [dim, kv_heads, group] : kShapes) {
      World world = make_world(type, dim, kv_heads, group);
      world.open(3, 300, 5);
      check_close(kernels, world, {{0, 0, 1}, {1, 120, 150}, {2, 299, 300}});
    }
}

CASE(wide_heads_and_many_heads_of_one_key) {
  for (const KvType type : kKvTypes) {
    World wide = make_world(type, 512, 1, 3);
    wide.open(1, 40, 5);
    check_close(kernels, wide, {{0, 20, 40}});
    World widest = make_world(type, kMaxHeadDim, 1, 1);
    widest.open(1, 20, 5);
    check_close(kernels, widest, {{0, 18, 20}});
    World many = make_world(type, 16, 1, 71);
    many.open(1, 140, 5);
    check_close(kernels, many, {{0, 138, 140}});
  }
}

CASE(attention_is_exact_in_any_company) {
  for (const KvType type : kKvTypes)
    for (const int64_t dim : {16, 64, 80})
      check_company(kernels, make_world(type, dim, 2, 3), 285, 6);
}

CASE(append_writes_its_tokens_and_clears_the_rest_of_a_block) {
  for (const KvType type : kKvTypes)
    for (const int64_t dim : {6, 16, 80}) {
      World world = make_world(type, dim, 2, 1);
      world.open(1, 60, 9);
      append_rows(kernels, world, {{0, 0, 60}});
      const std::vector<uint8_t> whole(world.blocks, world.blocks + 7 * world.layout.block_bytes());
      for (const int threads : {1, 3, 7}) {
        std::memset(world.blocks, 0xff, whole.size());
        append_rows(kernels, world, {{0, 0, 37}}, threads);
        append_rows(kernels, world, {{0, 37, 38}});
        append_rows(kernels, world, {{0, 38, 60}}, threads);
        CHECK(std::memcmp(world.blocks, whole.data(), whole.size()) == 0);
      }
      // The 61st token and what follows it are zeros, in a block that was full of NaN.
      const uint8_t* last = world.blocks + world.tables[0][3] * world.layout.block_bytes();
      const uint8_t* keys = last + world.layout.offset(1, 0, 1);
      for (int64_t word = 0; word < world.layout.padded_dim() / 4; ++word)
        for (int64_t byte = 12 * 4; byte < 16 * 4; ++byte) CHECK(keys[word * 64 + byte] == 0);
    }
}

CASE(extreme_scores_and_values) {
  for (const KvType type : kKvTypes) {
    const float kSizes[][2] = {{1e4f, 1}, {1e-20f, 1},      {1, 1e-30f}, {0, 1},
                               {3, 0},    {1e-41f, 1e-41f}, {1, 1e30f}};
    for (const auto& [key_size, value_size] : kSizes) {
      World world = make_world(type, 16, 1, 3);
      world.key_size = key_size;
      world.value_size = value_size;
      world.open(1, 150, 4);
      append_rows(kernels, world, {{0, 0, 150}});
      const auto together = attend_rows(kernels, world, {{0, 0, 150}});
      for (const float y : together) CHECK(std::fabs(y) <= 6 * value_size);
      world.open(1, 150, 8);
      const auto alone = one_at_a_time(kernels, world, 0, 150);
      CHECK(same(alone.data(), together.data(), int64_t(together.size())));
    }
  }
}
