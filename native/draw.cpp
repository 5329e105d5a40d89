#include "draw.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "noise.h"

namespace tercet {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();
constexpr float kMost = std::numeric_limits<float>::max();
constexpr int64_t kBlockMin = 64, kBlockMax = 4096;
constexpr int64_t kSortMax = 128;

// The highest sum and the next. Of equal sums the one wins whose order is higher.
class Winner {
 public:
  explicit Winner(int64_t unless_any) : token_(int32_t(unless_any)) {}

  void offer(double sum, int32_t id, uint64_t order) {
    if (sum > best_ || (sum == best_ && sum > kNone && order > order_)) {
      second_ = best_;
      best_ = sum, token_ = id, order_ = order;
    } else if (sum > second_) {
      second_ = sum;
    }
  }
  double second() const { return second_; }
  Drawn drawn() const {
    if (!(second_ > kNone)) return {token_, std::numeric_limits<float>::infinity()};
    return {token_, float(std::min(best_ - second_, double(kMost)))};
  }

 private:
  double best_ = kNone, second_ = kNone;
  int32_t token_;
  uint64_t order_ = 0;
};

class Draw {
 public:
  Draw(const ScoreKernels& kernels, const float* scores, int64_t n, const TopTwo& top,
       const Heat& heat, DrawScratch& scratch)
      : kernels_(kernels), scores_(scores), n_(n), top_(top), heat_(heat), scratch_(scratch),
        least_(std::log(std::min(heat.min_p, 1.0))), winner_(top.best_id) {}

  Drawn run() {
    if (heat_.top_k > 0 && heat_.top_k < n_) return among_best();
    if (heat_.top_p < 1.0) return among(nucleus(), true);
    return among(0, false);
  }

 private:
  // Relative to the best, over the temperature: 0 at most, never NaN.
  double scaled(float score) const {
    return (double(score) - double(top_.best)) / heat_.temperature;
  }

  void offer(int32_t id, double sum, uint64_t order) {
    if (!(sum >= least_) || !(sum > kNone)) return;
    winner_.offer(sum + gumbel(noise_bits(heat_.key, id)), id, order);
  }

  // Draws among the ids whose key is not below the boundary. The two best give a bound, which the
  // others' noise must reach; it rises from block to block.
  Drawn among(uint64_t boundary, bool sorted) {
    const auto consider = [&](int32_t id) {
      const uint64_t order = order_key(scores_[id], id);
      if (order >= boundary) offer(id, scaled(scores_[id]), sorted ? order : ~uint64_t(id));
    };
    consider(int32_t(top_.best_id));
    if (top_.second_id >= 0) consider(int32_t(top_.second_id));
    Contest contest{scores_, top_.best, 0.0f, lowest(boundary), 0.0f, heat_.key};
    contest.inverse_heat = float(std::min(1.0 / heat_.temperature, double(kMost)));
    std::vector<int32_t>& ids = scratch_.ids;
    ids.resize(size_t(std::max(n_, kBlockMax) + 16));
    int64_t block = kBlockMin;
    for (int64_t begin = 0; begin < n_; begin += block, block = std::min(2 * block, kBlockMax)) {
      contest.bound = below(winner_.second());
      const Range range{begin, std::min(begin + block, n_)};
      const int64_t count = kernels_.contenders(contest, range, ids.data());
      for (int64_t i = 0; i < count; ++i) {
        const int32_t id = ids[size_t(i)];
        if (id != top_.best_id && id != top_.second_id) consider(id);
      }
    }
    return winner_.drawn();
  }

  // A float that is not above the number.
  static float below(double value) {
    const double bounded = std::max(value, -double(kMost));
    return value > kNone ? std::nextafter(float(bounded), -kMost) : float(kNone);
  }

  // What a score must reach to pass the boundary and min-p, or a little less.
  float lowest(uint64_t boundary) const {
    const double drop = least_ * heat_.temperature;
    double lowest = -double(kMost);
    if (drop > -double(kMost)) {
      const double exact = top_.best + drop;
      lowest = std::max(lowest, exact - 1e-6 * (std::fabs(exact) + std::fabs(drop)));
    }
    float result = float(lowest);
    if (boundary > 0) result = std::max(result, key_score(boundary));
    return result;
  }

  // Top-k, and top-p of what it leaves: sums run along the sorted list.
  Drawn among_best() {
    std::vector<uint64_t>& keys = scratch_.keys;
    leading(kernels_, scores_, n_, heat_.top_k, top_.best, scratch_.leading, keys);
    std::vector<double>& values = scratch_.values;
    values.clear();
    double total = 0.0;
    for (const uint64_t key : keys) {
      values.push_back(std::exp(scaled(key_score(key))));
      total += values.back();
    }
    const double target = heat_.top_p * total;
    double up_to = 0.0;
    for (size_t i = 0; i < keys.size(); ++i) {
      up_to += values[i];
      if (i > 0 && !(up_to - values[i] < target && values[i] > 0.0)) continue;
      offer(key_id(keys[i]), scaled(key_score(keys[i])), keys[i]);
    }
    return winner_.drawn();
  }

  // The key of the last id that top-p keeps. Ids whose masses together cannot lift the rest to
  // the target are left out first. Then the score at the boundary is closed in on until few
  // scores are left between the ends, and these are looked at one by one.
  uint64_t nucleus() {
    const uint64_t first = order_key(top_.best, int32_t(top_.best_id));
    std::vector<float>& masses = scratch_.masses;
    masses.resize(size_t(n_));
    const auto heat = float(heat_.temperature);
    const double total = kernels_.masses(scores_, n_, top_.best, heat, masses.data());
    const double target = heat_.top_p * total;
    if (!(target > 0.0)) return first;
    const double rest = (total - target) / double(n_) * (1.0 - 1e-5);
    const float floor = std::max(float(rest), std::numeric_limits<float>::min());
    const Kept kept = room();
    int64_t count = kernels_.keep(scores_, masses.data(), n_, floor, kept);
    // Scores from `high` on are kept with certainty, those below `low` are not; `before` is the
    // mass of those that are and have been let go.
    double before = 0.0;
    float low = -kMost, high = std::nextafter(top_.best, kMost);
    const double depth = heat_.temperature * (std::log(double(floor)) - 0.01);
    if (double(top_.best) + depth > -double(kMost)) low = float(double(top_.best) + depth);
    while (count > kSortMax) {
      const float middle = low / 2 + high / 2;
      if (!(low < middle && middle < high)) break;
      const Above reached = kernels_.above(kept.scores, kept.masses, count, middle);
      const bool is_low = before + reached.mass >= target;
      (is_low ? low : high) = middle;
      if (!is_low) before += reached.mass;
      count = only(kept, count, low, high);
    }
    std::vector<uint64_t>& keys = scratch_.keys;
    keys.clear();
    for (int64_t i = 0; i < count; ++i) keys.push_back(order_key(kept.scores[i], kept.ids[i]));
    return keys.empty() ? first : last_kept(before, target);
  }

  // Lets go of those whose score is not in [low, high).
  int64_t only(const Kept& kept, int64_t count, float low, float high) {
    std::vector<int32_t>& places = scratch_.leading.ids;
    places.resize(size_t(n_) + 16);
    const int64_t left = kernels_.within(kept.scores, count, low, high, places.data());
    for (int64_t i = 0; i < left; ++i) {
      const int32_t place = places[size_t(i)];
      kept.scores[i] = kept.scores[place];
      kept.masses[i] = kept.masses[place];
      kept.ids[i] = kept.ids[place];
    }
    return left;
  }

  Kept room() {
    const size_t size = size_t(n_) + 16;
    scratch_.ids.resize(size);
    scratch_.kept_scores.resize(size);
    scratch_.kept_masses.resize(size);
    return {scratch_.ids.data(), scratch_.kept_scores.data(), scratch_.kept_masses.data()};
  }

  // The last key, in descending order, before which less than `target` is kept; `before` is what
  // stands before all of them. Large lists are halved until they are worth sorting.
  uint64_t last_kept(double before, double target) {
    std::vector<uint64_t>& keys = scratch_.keys;
    const auto mass = [&](uint64_t key) {
      return double(scratch_.masses[size_t(key_id(key))]);
    };
    auto begin = keys.begin(), end = keys.end();
    while (end - begin > kSortMax) {
      const auto middle = begin + (end - begin) / 2;
      std::nth_element(begin, middle, end, std::greater<>());
      double half = 0.0;
      for (auto key = begin; key != middle; ++key) half += mass(*key);
      if (before + half < target) {
        before += half;
        begin = middle;
      } else {
        end = middle;
      }
    }
    std::sort(begin, end, std::greater<>());
    uint64_t kept = *begin;
    for (auto key = begin; key != end && before < target; ++key) {
      kept = *key;
      before += mass(*key);
    }
    return kept;
  }

  const ScoreKernels& kernels_;
  const float* scores_;
  int64_t n_;
  const TopTwo& top_;
  const Heat& heat_;
  DrawScratch& scratch_;
  double least_;
  Winner winner_;
};

}  // namespace

Drawn draw(const ScoreKernels& kernels, const float* scores, int64_t n, const TopTwo& top,
           const Heat& heat, DrawScratch& scratch) {
  return Draw(kernels, scores, n, top, heat, scratch).run();
}

}  // namespace tercet
