#include "sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "noise.h"

namespace tercet {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kFiniteMax = 1e38f;
constexpr double kLogprobMin = -9999.0;

Range entries(const int32_t* ends, int64_t row) {
  return {row > 0 ? ends[row - 1] : 0, ends[row]};
}

void check_ids(const char* what, const int32_t* ids, int64_t count, int64_t vocab, int32_t least) {
  for (int64_t i = 0; i < count; ++i)
    if (ids[i] < least || ids[i] >= vocab)
      throw std::invalid_argument(std::string(what) + " names a token outside the vocabulary of " +
                                  std::to_string(vocab));
}

void check_ends(const char* what, const int32_t* ends, int64_t rows) {
  for (int64_t row = 0; row < rows; ++row)
    if (ends[row] < (row > 0 ? ends[row - 1] : 0))
      throw std::invalid_argument(std::string("ends of a ") + what + " do not ascend");
}

// A score after repetition, frequency and presence penalties, in float64; infinite scores stay as
// they are, since 0 x inf would be NaN.
float penalized(float score, int32_t count, const Sampling& sampling, int64_t row) {
  if (!std::isfinite(score)) return score;
  const double repetition = sampling.repetition[row];
  double value = score > 0.0f ? score / repetition : score * repetition;
  value -= double(sampling.frequency[row]) * count + double(sampling.presence[row]) * (count > 0);
  return float(std::clamp(value, -kFiniteMax, kFiniteMax));
}

// A row's logits while its biases, penalties and bans are applied to them, in place: what they were
// is kept aside, in the order of the changes.
class Adjusted {
 public:
  Adjusted(float* logits, const Sampling& sampling, int64_t row, std::vector<float>& before)
      : logits_(logits), sampling_(sampling), biases_(entries(sampling.bias_ends, row)),
        history_(entries(sampling.history_ends, row)), before_(before) {
    before_.clear();
    for (int64_t i = biases_.begin; i < biases_.end; ++i) {
      const float value = sampling_.bias_values[i];
      change(sampling_.bias_ids[i], value == -kInfinity ? 0.0f : value);
    }
    for (int64_t i = history_.begin; i < history_.end; ++i) {
      float& score = logits_[sampling_.history_ids[i]];
      before_.push_back(score);
      score = penalized(score, sampling_.history_counts[i], sampling_, row);
    }
    for (int64_t i = biases_.begin; i < biases_.end; ++i)
      if (sampling_.bias_values[i] == -kInfinity) logits_[sampling_.bias_ids[i]] = -kInfinity;
  }

  bool any() const { return biases_.size() + history_.size() > 0; }

  void undo() {
    for (int64_t i = history_.end; i-- > history_.begin;) restore(sampling_.history_ids[i]);
    for (int64_t i = biases_.end; i-- > biases_.begin;) restore(sampling_.bias_ids[i]);
  }

 private:
  void change(int32_t id, float bias) {
    before_.push_back(logits_[id]);
    logits_[id] += bias;
  }
  void restore(int32_t id) {
    logits_[id] = before_.back();
    before_.pop_back();
  }

  float* logits_;
  const Sampling& sampling_;
  Range biases_, history_;
  std::vector<float>& before_;
};

struct Row {
  const ScoreKernels& kernels;
  const float* logits;
  int64_t vocab, index;
  const Sampling& sampling;
  const SampleOutputs& outputs;
  SampleScratch& scratch;
};

// The token and its margin; `top` are the best two of the (adjusted) scores, one of them finite.
Drawn choose(const Row& row, const TopTwo& top) {
  const Sampling& sampling = row.sampling;
  const int64_t at = row.index;
  if (!(sampling.temperature[at] <= 0.0f)) {
    const Heat heat{sampling.temperature[at], sampling.top_k[at], sampling.top_p[at],
                    sampling.min_p[at],
                    noise_key(sampling.seed[at], sampling.choice[at], sampling.position[at])};
    return draw(row.kernels, row.logits, row.vocab, top, heat, row.scratch.draw);
  }
  const bool two = top.second > -kInfinity;
  return {int32_t(top.best_id), two ? top.best - top.second : kInfinity};
}

float logprob(float logit, double total) {
  return float(std::max(double(logit) - total, kLogprobMin));
}

// The best tokens of the raw distribution; -inf logits follow after all others, lowest id first.
void write_top(const Row& row, const TopTwo& top, double total) {
  const int64_t columns = row.outputs.top_columns;
  int32_t* ids = row.outputs.top_ids + row.index * columns;
  float* logprobs = row.outputs.top_logprobs + row.index * columns;
  std::vector<uint64_t>& keys = row.scratch.keys;
  leading(row.kernels, row.logits, row.vocab, columns, top.best, row.scratch.draw.leading, keys);
  int64_t column = 0;
  for (const uint64_t key : keys) ids[column++] = key_id(key);
  for (int32_t id = 0; column < columns && id < row.vocab; ++id)
    if (row.logits[id] == -kInfinity) ids[column++] = id;
  for (int64_t i = 0; i < column; ++i) logprobs[i] = logprob(row.logits[ids[i]], total);
}

// Log-probabilities and ranks of the raw distribution, where they are asked for.
void write_logprobs(const Row& row, const TopTwo& top) {
  const SampleOutputs& outputs = row.outputs;
  const int64_t at = row.index;
  const int32_t wanted = row.sampling.num_logprobs[at], scored = row.sampling.scored_ids[at];
  const float best = top.best == -kInfinity ? 0.0f : top.best;
  const double mass = row.kernels.masses(row.logits, row.vocab, best, 1.0f, nullptr);
  const double total = mass == 0.0 ? std::log(double(row.vocab)) : std::log(mass) + best;
  const auto rank = [&](int64_t id) {
    return int32_t(1 + row.kernels.count_before(row.logits, row.vocab, id));
  };
  if (wanted >= 0) {
    outputs.logprobs[at] = logprob(row.logits[outputs.tokens[at]], total);
    outputs.ranks[at] = rank(outputs.tokens[at]);
  }
  if (scored >= 0) {
    outputs.scored_logprobs[at] = logprob(row.logits[scored], total);
    outputs.scored_ranks[at] = rank(scored);
  }
  if (wanted > 0) write_top(row, top, total);
}

}  // namespace

void check_sampling(const Sampling& sampling, int64_t rows, int64_t vocab) {
  if (rows == 0) return;
  check_ends("history", sampling.history_ends, rows);
  check_ends("bias", sampling.bias_ends, rows);
  check_ids("history", sampling.history_ids, sampling.history_ends[rows - 1], vocab, 0);
  check_ids("bias", sampling.bias_ids, sampling.bias_ends[rows - 1], vocab, 0);
  check_ids("scored_ids", sampling.scored_ids, rows, vocab, -1);
}

bool sample(const Kernels& kernels, float* logits, int64_t vocab, int64_t row,
            const Sampling& sampling, const SampleOutputs& outputs, SampleScratch& scratch) {
  const Row one{kernels.scores, logits, vocab, row, sampling, outputs, scratch};
  outputs.logprobs[row] = outputs.scored_logprobs[row] = 0.0f;
  outputs.ranks[row] = outputs.scored_ranks[row] = 0;
  std::fill_n(outputs.top_ids + row * outputs.top_columns, outputs.top_columns, -1);
  std::fill_n(outputs.top_logprobs + row * outputs.top_columns, outputs.top_columns, 0.0f);

  Adjusted adjusted(logits, sampling, row, scratch.before);
  TopTwo top = kernels.scores.top_two(logits, vocab);
  const bool barred = top.best == -kInfinity;
  const bool asked = sampling.num_logprobs[row] >= 0 || sampling.scored_ids[row] >= 0;
  Drawn drawn{0, kInfinity};
  if (!top.broken && !barred) drawn = choose(one, top);
  const bool touched = adjusted.any();
  adjusted.undo();
  if (top.broken) return false;
  if (touched && (barred || asked)) top = kernels.scores.top_two(logits, vocab);
  if (top.broken) return false;
  if (barred) drawn.token = int32_t(top.best_id);
  outputs.tokens[row] = drawn.token;
  outputs.margins[row] = drawn.margin;
  if (asked) write_logprobs(one, top);
  return true;
}

}  // namespace tercet
