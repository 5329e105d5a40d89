// Writing keys and values of a step's rows into their KV blocks.
//
// Threads take different rows, and rows of one block may be written at once. Each row writes the
// bytes of its own token only; the row of a block's first token also clears the tokens after those
// of this step, so that a block never shows what an earlier owner left.
#include "kernels/all.h"
#include "kernels/heads.h"

namespace tercet::TERCET_ISA {
namespace {

// One token of one head: words of neighbouring numbers for keys, places in words of neighbouring
// tokens for values.
template <typename T, int per_word>
void write_keys(const T* numbers, int64_t dim, int64_t token, uint8_t* part) {
  for (int64_t word = 0; word < dim / per_word; ++word)
    std::memcpy(part + (word * kBlockTokens + token) * 4, numbers + word * per_word, 4);
}

template <typename T, int per_word>
void write_values(const T* numbers, int64_t dim, int64_t token, uint8_t* part) {
  T* to = reinterpret_cast<T*>(part) + token / per_word * dim * per_word + token % per_word;
  for (int64_t d = 0; d < dim; ++d) to[d * per_word] = numbers[d];
}

struct Part {
  uint8_t* data;
  bool values;
};

void write_bf16(const float* x, const KvLayout& layout, int64_t token, Part part) {
  const int64_t dim = layout.padded_dim();
  alignas(64) uint16_t numbers[kMaxHeadDim];
  round_head(x, layout.head_dim, dim, numbers);
  if (part.values)
    write_values<uint16_t, 2>(numbers, dim, token, part.data);
  else
    write_keys<uint16_t, 2>(numbers, dim, token, part.data);
}

void write_int8(const float* x, const KvLayout& layout, int64_t token, Part part) {
  const int64_t dim = layout.padded_dim();
  alignas(64) int8_t numbers[kMaxHeadDim];
  int32_t total;
  const float scale = quantize_head(x, layout.head_dim, dim, numbers, &total);
  std::memcpy(part.data + dim * kBlockTokens + token * 4, &scale, 4);
  if (part.values) {
    write_values<int8_t, 4>(numbers, dim, token, part.data);
  } else {
    for (int64_t d = 0; d < dim; ++d) numbers[d] = int8_t(numbers[d] ^ 0x80);  // + 128
    write_keys<int8_t, 4>(numbers, dim, token, part.data);
  }
}

// Zeros for tokens from `begin` on.
void clear_tokens(const KvLayout& layout, int64_t begin, Part part) {
  const int64_t dim = layout.padded_dim(), per_word = layout.type == KvType::kBF16 ? 2 : 4;
  const int64_t number = 4 / per_word;  // bytes
  if (!part.values) {
    for (int64_t word = 0; word < dim / per_word; ++word)
      std::memset(part.data + (word * kBlockTokens + begin) * 4, 0,
                  size_t(kBlockTokens - begin) * 4);
  } else {
    for (int64_t word = begin / per_word; word < kBlockTokens / per_word; ++word) {
      const int64_t kept = begin > word * per_word ? (begin - word * per_word) * number : 0;
      for (int64_t d = 0; d < dim; ++d)
        std::memset(part.data + (word * dim + d) * 4 + kept, 0, size_t(4 - kept));
    }
  }
  if (layout.type == KvType::kInt8)
    std::memset(part.data + dim * kBlockTokens + begin * 4, 0, size_t(kBlockTokens - begin) * 4);
}

}  // namespace

void append(const Append& append, Range rows) {
  const StepShape& step = *append.step;
  const KvLayout& layout = append.layout;
  for (int64_t row = rows.begin; row < rows.end; ++row) {
    const int32_t sequence = step.sequence[row];
    const int64_t position = step.positions[row], token = position % kBlockTokens;
    const int64_t block = step.tables[step.table_begin[sequence] + position / kBlockTokens];
    uint8_t* at = append.blocks + block * layout.block_bytes();
    // Tokens of the block that this step's rows write, counted from its first.
    const int64_t behind = step.row_begin[sequence + 1] - row;
    for (int64_t head = 0; head < layout.kv_heads; ++head) {
      for (const bool values : {false, true}) {
        const Part part{at + layout.offset(append.layer, values, head), values};
        const float* rows_of = values ? append.values : append.keys;
        const int64_t stride = values ? append.values_stride : append.keys_stride;
        const float* x = rows_of + row * stride + head * layout.head_dim;
        if (layout.type == KvType::kBF16)
          write_bf16(x, layout, token, part);
        else
          write_int8(x, layout, token, part);
        if (token == 0 && behind < kBlockTokens) clear_tokens(layout, behind, part);
      }
    }
  }
}

}  // namespace tercet::TERCET_ISA
