// A step's arrays as devices.contract.Batch has them, made ready for the program.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "program.h"

namespace tercet {

struct StepArrays {
  struct Ints {
    const int32_t* data;
    int64_t size;
  };
  Ints ids, positions, row_ends, contexts, tables, table_ends, logits_rows;
};

class StepBuilder {
 public:
  // Throws std::invalid_argument where lengths contradict each other.
  explicit StepBuilder(const StepArrays& arrays) : arrays_(arrays) {
    const int64_t sequences = arrays.row_ends.size, rows = arrays.ids.size;
    if (arrays.contexts.size != sequences || arrays.table_ends.size != sequences ||
        arrays.positions.size != rows)
      throw std::invalid_argument("arrays of a step differ in length");
    row_begin_.assign(1, 0);
    table_begin_.assign(1, 0);
    for (int64_t s = 0; s < sequences; ++s) {
      const int32_t end = arrays.row_ends.data[s];
      if (end < row_begin_.back() || end > rows || arrays.table_ends.data[s] < table_begin_.back())
        throw std::invalid_argument("ends of a step's sequences do not ascend");
      for (int32_t row = row_begin_.back(); row < end; ++row) sequence_.push_back(int32_t(s));
      row_begin_.push_back(end);
      table_begin_.push_back(arrays.table_ends.data[s]);
    }
    if (row_begin_.back() != rows || table_begin_.back() != arrays.tables.size)
      throw std::invalid_argument("rows or blocks of a step belong to no sequence");
  }

  StepInput input() const {
    StepInput input{};
    input.shape = {arrays_.ids.size,        arrays_.row_ends.size, arrays_.positions.data,
                   sequence_.data(),        row_begin_.data(),     arrays_.contexts.data,
                   arrays_.tables.data,     table_begin_.data()};
    input.ids = arrays_.ids.data;
    input.num_logits = arrays_.logits_rows.size;
    input.logits_rows = arrays_.logits_rows.data;
    return input;
  }

 private:
  StepArrays arrays_;
  std::vector<int32_t> sequence_, row_begin_;
  std::vector<int64_t> table_begin_;
};

}  // namespace tercet
