// Paged attention: the layout of KV blocks, and the units in which a step's attention is done.
//
// A block holds 16 tokens of all layers. For each layer, kv head and kind (keys, then values):
//
//   BF16  keys    [dp / 2][16 tokens][2] u16        values  [8 pairs of tokens][dp][2] u16
//   INT8  keys    [dp / 4][16 tokens][4] u8 (+128)  values  [4 quads of tokens][dp][4] s8
//         then float32 scales [16] of the keys            then float32 scales [16] of the values
//
// dp is head_dim rounded up to 16 (BF16, INT8 alike). A context is cut into spans of 128 tokens at
// absolute positions. Each span's softmax stands alone (maximum, sum, weighted values); spans are
// merged in ascending order. So a row's result is the same whether one thread takes all spans in
// turn or several take some each, alone or in a batch, decoding or in a chunk (I4).
#pragma once

#include <cstdint>
#include <vector>

#include "formats.h"

namespace tercet {

inline constexpr int64_t kSpanTokens = 128;
inline constexpr int64_t kMaxHeadDim = 1024;

enum class KvType : int32_t { kBF16, kInt8 };

struct KvLayout {
  KvType type;
  int64_t layers, kv_heads, head_dim;

  int64_t padded_dim() const { return round_up(head_dim, 16); }
  // Bytes of the keys (or values) of one kv head in one layer of one block.
  int64_t part_bytes() const {
    return type == KvType::kBF16 ? padded_dim() * kBlockTokens * 2
                                 : padded_dim() * kBlockTokens + 4 * kBlockTokens;
  }
  int64_t layer_bytes() const { return 2 * kv_heads * part_bytes(); }
  int64_t block_bytes() const { return layers * layer_bytes(); }
  // Offset in a block of part (0 keys, 1 values) of a head in a layer. Both parts of a head lie side
  // by side: they are read together, and scattered pieces are read the faster the longer they are.
  int64_t offset(int64_t layer, int64_t part, int64_t head) const {
    return layer * layer_bytes() + (head * 2 + part) * part_bytes();
  }
};

// What a step's sequences are: shared by all layers. Arrays as in devices.contract.Batch.
struct StepShape {
  int64_t rows, sequences;
  const int32_t* positions;   // [rows]
  const int32_t* sequence;    // [rows] whose row it is
  const int32_t* row_begin;   // [sequences + 1]
  const int32_t* contexts;    // [sequences]
  const int32_t* tables;      // block ids of all sequences
  const int64_t* table_begin; // [sequences + 1]
};

struct Append {
  const StepShape* step;
  KvLayout layout;
  int64_t layer;
  uint8_t* blocks;            // block id b is at blocks + b * block_bytes
  const float *keys, *values; // [rows][kv_heads * head_dim]
  int64_t keys_stride, values_stride;  // floats between rows
};

// Rows [row_begin, row_end) of one sequence with one kv head (its group of query heads), over
// spans [span_begin, span_end), those of them that a row sees. `partial` < 0: these are all spans
// of the rows, results go to y. Otherwise results go to the partials, to be merged: with S spans of
// the unit's last row, span s of row r is at partial + ((r - row_begin) * S + s) * heads_per_group.
struct AttendUnit {
  int32_t sequence, kv_head;
  int32_t row_begin, row_end;
  int32_t span_begin, span_end;
  int64_t partial;
};

struct MergeUnit {
  int32_t row, kv_head;
  int32_t spans;
  int64_t partial;            // of span 0; each span has heads_per_group entries
};

struct Attend {
  const StepShape* step;
  KvLayout layout;
  int64_t layer;
  const uint8_t* blocks;
  int64_t heads;              // query heads, a multiple of kv_heads
  float scale;
  const float* q;             // [rows][heads * head_dim], rotated
  int64_t q_stride;
  float* y;                   // [rows][heads * head_dim]
  int64_t y_stride;
  float* partials;            // [entries][dp + 2]: weighted values, maximum, sum
};

struct AttendPlan {
  std::vector<AttendUnit> units;  // the dearest first
  std::vector<MergeUnit> merges;
  int64_t num_partials = 0;
};

// Cut a step's attention into units for so many threads; pure, fills `plan` anew (its vectors keep
// their memory).
void plan_attention(const StepShape& step, const KvLayout& layout, int64_t heads, int threads,
                    AttendPlan& plan);

}  // namespace tercet
