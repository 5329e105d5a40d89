// The sampler against numbers that the reference device gave, and against plain sorted lists.
#include "sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <stdexcept>
#include <stdexcept>

#include "check.h"
#include "noise.h"

namespace {

using namespace tercet;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// One row's parameters, neutral unless changed, and its results.
struct One {
  float temperature = 0, top_p = 1, min_p = 0, repetition = 1, presence = 0, frequency = 0;
  int32_t top_k = 0, choice = 0, position = 0, num_logprobs = -1, scored = -1;
  uint64_t seed = 7;
  std::vector<int32_t> history{}, counts{}, bias_ids{};
  std::vector<float> biases{};

  int32_t token = -1, rank = -1, scored_rank = -1;
  float logprob = kNan, scored_logprob = kNan, margin = kNan;
  std::vector<int32_t> top_ids{};
  std::vector<float> top_logprobs{};

  bool run(const Kernels& kernels, std::vector<float> logits) {
    static SampleScratch scratch;
    const auto histories = int32_t(history.size()), num_biases = int32_t(biases.size());
    const Sampling sampling{&temperature, &top_k,         &top_p,          &min_p,
                            &seed,        &choice,        &position,       &repetition,
                            &presence,    &frequency,     history.data(),  counts.data(),
                            &histories,   bias_ids.data(), biases.data(),  &num_biases,
                            &num_logprobs, &scored};
    const auto vocab = int64_t(logits.size());
    const int64_t columns = std::clamp<int64_t>(num_logprobs, 0, vocab);
    top_ids.assign(size_t(columns), -7);
    top_logprobs.assign(size_t(columns), kNan);
    check_sampling(sampling, 1, vocab);
    const std::vector<float> before = logits;
    const bool good = sample(kernels, logits.data(), vocab, 0, sampling,
                             {&token, &logprob, &rank, top_ids.data(), top_logprobs.data(), columns,
                              &scored_logprob, &scored_rank, &margin},
                             scratch);
    CHECK(!std::memcmp(before.data(), logits.data(), logits.size() * sizeof(float)));
    return good;
  }
};

// What tercet.devices.reference.sampling gave for row r of these logits.
struct Known {
  float temperature;
  int32_t top_k;
  float top_p, min_p;
  bool changed;
  int32_t token;
  float logprob;
  int32_t rank, third, scored_rank;
  float margin;
};

const Known kKnown[] = {
    {0.0f, 0, 1.0f, 0.0f, false, 323, -4.180159f, 1, 969, 1000, 0.003906f},
    {0.0f, 0, 1.0f, 0.0f, true, 646, -4.184065f, 2, 969, 1000, 0.007812f},
    {1.0f, 0, 1.0f, 0.0f, false, 754, -4.780231f, 42, 969, 112, 0.057126f},
    {1.0f, 0, 1.0f, 0.0f, true, 754, -4.780231f, 42, 969, 112, 0.057126f},
    {0.7f, 0, 1.0f, 0.0f, false, 341, -4.278735f, 9, 969, 224, 0.043369f},
    {0.7f, 0, 1.0f, 0.0f, true, 341, -4.278735f, 9, 969, 224, 0.043369f},
    {1.0f, 5, 1.0f, 0.0f, false, 969, -4.175887f, 2, 9, 335, 0.905697f},
    {1.0f, 5, 1.0f, 0.0f, true, 969, -4.175887f, 2, 9, 335, 0.686615f},
    {1.0f, 40, 0.9f, 0.0f, false, 996, -4.326745f, 14, 9, 447, 0.101126f},
    {1.0f, 40, 0.9f, 0.0f, true, 996, -4.326745f, 14, 9, 447, 0.101126f},
    {1.0f, 0, 0.9f, 0.0f, false, 987, -4.258874f, 9, 332, 557, 0.492028f},
    {1.0f, 0, 0.9f, 0.0f, true, 746, -6.485437f, 149, 332, 557, 1.114586f},
    {0.6f, 0, 0.5f, 0.0f, false, 341, -4.249603f, 7, 332, 668, 1.632987f},
    {0.6f, 0, 0.5f, 0.0f, true, 341, -4.249603f, 7, 332, 668, 1.632987f},
    {2.0f, 0, 0.99f, 0.0f, false, 192, -10.537085f, 401, 332, 779, 0.793699f},
    {2.0f, 0, 0.99f, 0.0f, true, 192, -10.537085f, 401, 332, 779, 0.793699f},
    {1.0f, 0, 1.0f, 0.2f, false, 754, -4.734809f, 39, 655, 889, 0.139515f},
    {1.0f, 0, 1.0f, 0.2f, true, 754, -4.734809f, 39, 655, 889, 0.139515f},
    {1.5f, 100, 0.95f, 0.05f, false, 763, -4.784065f, 42, 655, 1, 1.023957f},
    {1.5f, 100, 0.95f, 0.05f, true, 763, -4.784065f, 42, 655, 1, 1.023957f},
    {5.0f, 0, 1.0f, 0.0f, false, 945, -9.345093f, 326, 655, 113, 0.738489f},
    {5.0f, 0, 1.0f, 0.0f, true, 945, -9.345093f, 326, 655, 113, 0.738489f},
    {1.0f, 0, 0.01f, 0.0f, false, 9, -4.175615f, 1, 655, 225, kInf},
    {1.0f, 0, 0.01f, 0.0f, true, 332, -4.183428f, 2, 655, 225, kInf},
};

std::vector<float> known_logits(size_t vocab, uint32_t row) {
  std::vector<float> logits(vocab);
  for (size_t i = 0; i < vocab; ++i)
    logits[i] = float((uint32_t(i) * 2654435761u + row * 40503u) >> 16 & 4095) / 256.0f - 8.0f;
  return logits;
}

// The same by whole sorts: token and margin.
std::pair<int32_t, float> plain(const One& one, const std::vector<float>& scores) {
  std::vector<int32_t> order(scores.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = int32_t(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return scores[size_t(a)] > scores[size_t(b)]; });
  const auto scaled = [&](int32_t id) {
    return (double(scores[size_t(id)]) - double(scores[size_t(order[0])])) / one.temperature;
  };
  if (one.top_k > 0 && one.top_k < int32_t(order.size())) order.resize(size_t(one.top_k));
  double total = 0.0, before = 0.0;
  for (int32_t id : order) total += std::exp(scaled(id));
  const uint64_t key = noise_key(one.seed, one.choice, one.position);
  std::vector<std::pair<double, int32_t>> sums;
  for (int32_t id : order) {
    const bool kept = id == order[0] || before < double(one.top_p) * total;
    before += std::exp(scaled(id));
    if (kept && scaled(id) >= std::log(double(one.min_p)) && std::isfinite(scores[size_t(id)]))
      sums.emplace_back(scaled(id) + gumbel(noise_bits(key, id)), id);
  }
  std::sort(sums.begin(), sums.end(), std::greater<>());
  return {sums[0].second, sums.size() > 1 ? float(sums[0].first - sums[1].first) : kInf};
}

bool close(float a, float b) { return a == b || std::fabs(a - b) <= 2e-5f * (1 + std::fabs(a)); }

std::vector<float> normal(size_t count, std::mt19937& random, float spread) {
  std::normal_distribution<float> draw(0.0f, spread);
  std::vector<float> values(count);
  for (float& value : values) value = draw(random);
  return values;
}

}  // namespace

CASE(noise_is_that_of_every_device) {
  const uint64_t key = noise_key(5, -2, 77);
  CHECK(key == 0xa12aacafdc8f61c2u);
  CHECK(noise_bits(key, 0) == 988953112u && noise_bits(key, 49151) == 1885088917u);
}

CASE(rows_are_drawn_as_the_reference_does) {
  for (int32_t i = 0; i < int32_t(std::size(kKnown)); ++i) {
    const Known& known = kKnown[i];
    const int32_t row = i / 2;
    const std::vector<float> logits = known_logits(1000, uint32_t(row));
    One one{.temperature = known.temperature, .top_p = known.top_p, .min_p = known.min_p};
    one.top_k = known.top_k, one.choice = row % 3, one.position = 100 * row;
    one.seed = 0x123456789abcdefu + uint64_t(row), one.num_logprobs = 3, one.scored = row;
    if (known.changed) {
      one.repetition = 1.3f, one.presence = 0.5f, one.frequency = 0.25f;
      for (int32_t j = 0; j < 60; ++j) {
        one.history.push_back(7 * j + row);
        one.counts.push_back(j % 3);
      }
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      one.bias_ids = {500 + row, int32_t(best), 3};
      one.biases = {-kInf, -kInf, 4.5f};
    }
    CHECK(one.run(kernels, logits));
    CHECK(one.token == known.token && one.rank == known.rank);
    CHECK(one.top_ids[2] == known.third && one.scored_rank == known.scored_rank);
    CHECK(close(one.logprob, known.logprob) && close(one.margin, known.margin));
  }
}

CASE(draws_equal_those_of_whole_sorts) {
  std::mt19937 random(1);
  const auto pick = [&](auto... values) {
    const float all[] = {float(values)...};
    return all[random() % std::size(all)];
  };
  for (int trial = 0; trial < 400; ++trial) {
    const size_t vocab = trial % 40 == 0 ? 20000 : 1 + random() % 1500;
    std::vector<float> logits = normal(vocab, random, pick(0.1, 1, 4));
    if (trial % 5 == 1) for (float& one : logits) one = std::nearbyintf(one * 4);
    if (trial % 5 == 2) std::sort(logits.begin(), logits.end());
    if (trial % 5 == 3) for (size_t i = 1; i < vocab; ++i) if (random() % 3) logits[i] = -kInf;
    One one{.temperature = pick(0.3, 0.7, 1, 1, 2, 50), .top_p = pick(0.01, 0.5, 0.9, 0.99, 1, 1),
            .min_p = pick(0, 0, 0.1, 1)};
    one.top_k = int32_t(pick(0, 0, 1, 3, 40, 900));
    one.seed = random(), one.position = trial;
    CHECK(one.run(kernels, logits));
    const auto [token, margin] = plain(one, logits);
    CHECK(one.token == token);
    CHECK(close(one.margin, margin));
  }
}

CASE(log_probabilities_and_ranks_are_of_the_raw_row) {
  std::mt19937 random(2);
  for (size_t vocab : {size_t(1), size_t(5), size_t(64), size_t(1001), size_t(9000)}) {
    std::vector<float> logits = normal(vocab, random, 3.0f);
    for (size_t i = 0; i < vocab; i += 3) logits[i] = std::nearbyintf(logits[i]);
    if (vocab == 5) logits = {-kInf, 1, -kInf, -kInf, 1};
    double total = 0.0;
    for (float logit : logits) total += std::exp(double(logit));
    std::vector<int32_t> order(vocab);
    for (size_t i = 0; i < vocab; ++i) order[i] = int32_t(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return logits[size_t(a)] > logits[size_t(b)]; });
    One one{.temperature = 1.0f};
    one.num_logprobs = 20, one.scored = int32_t(random() % vocab);
    one.bias_ids = {one.scored}, one.biases = {3.0f};  // changes what is drawn, not what is told
    CHECK(one.run(kernels, logits));
    const auto told = [&](int32_t id) {
      return float(std::max(double(logits[size_t(id)]) - std::log(total), -9999.0));
    };
    const auto place = [&](int32_t id) {
      return int32_t(std::find(order.begin(), order.end(), id) - order.begin() + 1);
    };
    for (size_t i = 0; i < one.top_ids.size(); ++i) {
      CHECK(one.top_ids[i] == order[i]);
      CHECK(close(one.top_logprobs[i], told(order[i])));
    }
    CHECK(one.rank == place(one.token) && close(one.logprob, told(one.token)));
    CHECK(one.scored_rank == place(one.scored) && close(one.scored_logprob, told(one.scored)));
  }
}

CASE(broken_and_barred_rows) {
  for (float broken : {kNan, kInf})
    for (size_t at : {0, 17, 99})
      for (float temperature : {0.0f, 1.0f}) {
        std::vector<float> logits(100, 1.0f);
        logits[at] = broken;
        One one{.temperature = temperature};
        CHECK(!one.run(kernels, logits));
      }
  for (float temperature : {0.0f, 1.0f}) {
    One barred{.temperature = temperature};
    barred.bias_ids = {0, 1, 2, 2}, barred.biases = {-kInf, -kInf, -kInf, 5.0f};
    CHECK(barred.run(kernels, {1, 3, 2}) && barred.token == 1 && barred.margin == kInf);
    One flat{.temperature = temperature};
    flat.num_logprobs = 2;
    CHECK(flat.run(kernels, std::vector<float>(5, -kInf)) && flat.token == 0);
    CHECK(flat.top_ids[0] == 0 && flat.top_ids[1] == 1 && std::isfinite(flat.logprob));
  }
  One greedy;
  CHECK(greedy.run(kernels, {-0.0f, 0.0f, -1.0f}) && greedy.token == 0 && greedy.margin == 0.0f);
}

CASE(extremes_of_scores_and_temperature) {
  for (float temperature : {1e-45f, 1e-38f, 1e-6f, 1.0f, 1e6f, 1e38f})
    for (float top_p : {1.0f, 0.9f, 0.0f})
      for (int32_t top_k : {0, 2}) {
        One one{.temperature = temperature, .top_p = top_p};
        one.top_k = top_k;
        std::vector<float> logits(70, -3e38f);
        logits[50] = 3e38f, logits[3] = -1e38f, logits[9] = 1e-45f;
        CHECK(one.run(kernels, logits));
        CHECK(one.token >= 0 && one.token < 70 && !std::isnan(one.margin));
        CHECK(temperature > 1e30f || one.token == 50);
      }
}

CASE(foreign_tokens_are_refused) {
  const auto refused = [&](One one) {
    try {
      one.run(kernels, {1, 2, 3});
      return false;
    } catch (const std::invalid_argument&) {
      return true;
    }
  };
  One history, bias, scored, fine;
  history.history = {3}, history.counts = {1};
  bias.bias_ids = {-1}, bias.biases = {1.0f};
  scored.scored = 3;
  CHECK(refused(history) && refused(bias) && refused(scored) && !refused(fine));
}
