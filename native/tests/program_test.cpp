// A whole program: the same bits whatever the number of threads, and errors that say what is wrong.
#include "program.h"

#include <cmath>
#include <cstring>
#include <stdexcept>

#include "check.h"
#include "packing.h"
#include "step.h"

namespace {

using namespace tercet;

constexpr int64_t kHidden = 64, kHeads = 4, kKvHeads = 2, kDim = 16, kFfn = 96, kVocab = 101;
constexpr int64_t kBlocks = 64;

std::vector<float> chance(int64_t count, unsigned seed, float size = 0.3f) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0f, size);
  std::vector<float> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(normal(generator));
  return values;
}

// One decoder layer in INT8 and its memory.
class Tiny {
 public:
  Tiny(const Kernels& kernels, int threads, KvType kv)
      : program_(options(kernels, threads, kv)),
        blocks_(size_t(kBlocks * KvLayout{kv, 1, kKvHeads, kDim}.block_bytes()), 0xff),
        ones_(kHidden, 1.0f) {
    const int x = program_.value(Group::kStep, Grid::kF32, kHidden);
    const int angles = program_.value(Group::kStep, Grid::kF32, 2 * kDim);
    const int normed = token(Group::kStep, kHidden), qkv = floats(128), seen = floats(64);
    const int seen8 = token(Group::kStep, 64), normed2 = token(Group::kStep, kHidden);
    const int gated = floats(kFfn), gated8 = token(Group::kStep, kFfn);
    const int rows = program_.value(Group::kLogits, Grid::kF32, kHidden);
    const int last = token(Group::kLogits, kHidden);
    const int logits = program_.value(Group::kLogits, Grid::kF32, kVocab);
    const PackedWeight table = weight(kVocab, kHidden, 1, 1.0f);
    program_.add("embed", op::Embed{table, x});
    program_.add("angles", op::Angles{{1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005}, angles});
    program_.add("norm", op::Norm{{x, 0}, kHidden, ones_.data(), 1e-5f, normed});
    program_.add("qkv", linear(normed, 128, kHidden, 2, Epilogue::kStore, qkv));
    program_.add("rope", op::Rope{{qkv, 0}, kHeads + kKvHeads, kDim, angles});
    program_.add("append", op::Append{0, {qkv, 64}, {qkv, 96}});
    program_.add("signal", op::Signal{1});
    program_.add("attend", op::Attend{0, {qkv, 0}, 0.25f, seen});
    program_.add("seen8", op::Convert{{seen, 0}, seen8});
    program_.add("o", linear(seen8, kHidden, 64, 3, Epilogue::kAdd, x));
    program_.add("norm2", op::Norm{{x, 0}, kHidden, ones_.data(), 1e-5f, normed2});
    program_.add("glu", linear(normed2, 2 * kFfn, kHidden, 4, Epilogue::kGlu, gated));
    program_.add("gated8", op::Convert{{gated, 0}, gated8});
    program_.add("down", linear(gated8, kHidden, kFfn, 5, Epilogue::kAdd, x));
    program_.add("rows", op::Rows{x, rows});
    program_.add("norm3", op::Norm{{rows, 0}, kHidden, ones_.data(), 1e-5f, last});
    program_.add("head", op::Linear{last, table, Epilogue::kStore, nullptr, logits});
    program_.add("sample", op::Sample{logits});
    program_.seal();
    program_.bind(blocks_.data(), kBlocks, &clock_);
  }

  // Logits of all rows of some sequences, each in a table of its own.
  std::vector<float> logits(const std::vector<int32_t>& counts, const std::vector<int32_t>& from) {
    std::vector<int32_t> ids, positions, ends, contexts, tables, table_ends, wanted;
    for (size_t s = 0; s < counts.size(); ++s) {
      for (int32_t i = 0; i < counts[s]; ++i) {
        wanted.push_back(int32_t(ids.size()));
        positions.push_back(from[s] + i);
        ids.push_back(int32_t((7 * s + 13 * size_t(from[s] + i)) % kVocab));
      }
      ends.push_back(int32_t(ids.size()));
      contexts.push_back(from[s] + counts[s]);
      for (int32_t b = 0; b * 16 < contexts.back(); ++b) tables.push_back(int32_t(s) * 16 + b);
      table_ends.push_back(int32_t(tables.size()));
    }
    const auto ints = [](const std::vector<int32_t>& all) {
      return StepArrays::Ints{all.data(), int64_t(all.size())};
    };
    const StepBuilder step({ints(ids), ints(positions), ints(ends), ints(contexts), ints(tables),
                            ints(table_ends), ints(wanted)});
    std::vector<float> found(ids.size() * kVocab);
    program_.logits(step.input(), found.data());
    return found;
  }

  uint64_t clock() const { return clock_; }

 private:
  static Program::Options options(const Kernels& kernels, int threads, KvType kv) {
    Program::Options options;
    options.isa = kernels.name;
    options.threads = threads;
    options.kv = {kv, 1, kKvHeads, kDim};
    options.heads = kHeads;
    return options;
  }
  int floats(int64_t cols) { return program_.value(Group::kStep, Grid::kF32, cols); }
  int token(Group group, int64_t cols) { return program_.value(group, Grid::kToken, cols); }
  PackedWeight weight(int64_t n, int64_t k, unsigned seed, float size) {
    const std::vector<float> values = chance(n * k, seed, size);
    weights_.emplace_back(new tests::Aligned<uint8_t>(
        size_t(packed_bytes_int8(n, k, Outputs::kPlain))));
    pack_int8(values.data(), n, k, Outputs::kPlain, weights_.back()->data());
    return {Format::kInt8, n, k, weights_.back()->data()};
  }
  op::Linear linear(int x, int64_t n, int64_t k, unsigned seed, Epilogue epilogue, int y) {
    return {x, weight(n, k, seed, 0.3f), epilogue, nullptr, y};
  }

  Program program_;
  std::vector<uint8_t> blocks_;
  std::vector<float> ones_;
  uint64_t clock_ = 0;
  std::vector<std::unique_ptr<tests::Aligned<uint8_t>>> weights_;
};

std::vector<float> run(const Kernels& kernels, int threads, KvType kv) {
  Tiny tiny(kernels, threads, kv);
  std::vector<float> all = tiny.logits({150, 1, 33}, {0, 0, 0});
  for (int32_t step = 0; step < 3; ++step) {
    const std::vector<float> more = tiny.logits({1, 1, 1}, {150 + step, 1 + step, 33 + step});
    all.insert(all.end(), more.begin(), more.end());
  }
  return all;
}

}  // namespace

CASE(a_program_gives_the_same_bits_on_any_number_of_threads) {
  for (KvType kv : {KvType::kBF16, KvType::kInt8}) {
    const std::vector<float> alone = run(kernels, 1, kv);
    for (float value : alone) CHECK(std::isfinite(value));
    for (int threads : {2, 3}) {
      const std::vector<float> together = run(kernels, threads, kv);
      CHECK(alone.size() == together.size());
      CHECK(std::memcmp(alone.data(), together.data(), 4 * alone.size()) == 0);
    }
  }
}

CASE(a_step_that_contradicts_itself_is_refused) {
  Tiny tiny(kernels, 2, KvType::kBF16);
  bool refused = false;
  try {
    tiny.logits({1}, {300});  // more blocks than there are
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  CHECK(!refused);  // 19 blocks of 64
  try {
    tiny.logits({1}, {5000});
  } catch (const std::invalid_argument& error) {
    refused = std::string(error.what()).find("block") != std::string::npos;
  }
  CHECK(refused);
}

CASE(each_step_signals_each_layer_once) {
  for (int threads : {1, 2}) {
    Tiny tiny(kernels, threads, KvType::kInt8);
    CHECK(tiny.clock() == 0);
    for (uint64_t step = 1; step <= 3; ++step) {
      tiny.logits({70, 40}, {0, 0});
      CHECK(tiny.clock() == step);
    }
  }
}
