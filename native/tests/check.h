// A small test register: CASE(name) { ... } with CHECK, run for every usable instruction set.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "isa.h"

namespace tercet::tests {

struct Case {
  const char* name;
  void (*run)(const Kernels&);
};

inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

struct Register {
  Register(const char* name, void (*run)(const Kernels&)) { cases().push_back({name, run}); }
};

[[noreturn]] inline void failed(const char* file, int line, const std::string& what) {
  std::fprintf(stderr, "%s:%d: %s\n", file, line, what.c_str());
  std::exit(1);
}

#define CASE(name)                                                          \
  static void case_##name(const ::tercet::Kernels& kernels);                \
  static ::tercet::tests::Register register_##name(#name, case_##name);     \
  static void case_##name([[maybe_unused]] const ::tercet::Kernels& kernels)

#define CHECK(condition)                                                    \
  do {                                                                      \
    if (!(condition)) ::tercet::tests::failed(__FILE__, __LINE__, #condition); \
  } while (false)

// Memory aligned as activations and weights are.
template <typename T>
class Aligned {
 public:
  explicit Aligned(size_t count, T value = T{})
      : data_(static_cast<T*>(std::aligned_alloc(64, (count * sizeof(T) + 127) / 64 * 64))),
        count_(count) {
    for (size_t i = 0; i < count; ++i) data_[i] = value;
  }
  ~Aligned() { std::free(data_); }
  Aligned(const Aligned&) = delete;
  Aligned& operator=(const Aligned&) = delete;
  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return count_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }

 private:
  T* data_;
  size_t count_;
};

}  // namespace tercet::tests
