// The Python module: a thin edge. Arrays come as buffers that the caller keeps alive.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>

#include "bindings.h"
#include "isa.h"
#include "program.h"
#include "step.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tercet {
namespace {

using Bytes = In<uint8_t>;
using I32 = In<int32_t>;
using F32 = In<float>;

PackedWeight packed(const Bytes& data, Format format, int64_t n, int64_t k) {
  return {format, n, k, data.data()};
}

const float* pointer(const std::optional<F32>& array) { return array ? array->data() : nullptr; }

StepArrays step_arrays(const I32& ids, const I32& positions, const I32& row_ends,
                       const I32& contexts, const I32& tables, const I32& table_ends,
                       const I32& logits_rows) {
  return {{ids.data(), int64_t(ids.size())},
          {positions.data(), int64_t(positions.size())},
          {row_ends.data(), int64_t(row_ends.size())},
          {contexts.data(), int64_t(contexts.size())},
          {tables.data(), int64_t(tables.size())},
          {table_ends.data(), int64_t(table_ends.size())},
          {logits_rows.data(), int64_t(logits_rows.size())}};
}

// The arrays of devices.contract.Sampling, by name; lengths are checked.
struct SamplingArrays {
  explicit SamplingArrays(nb::handle from, const I32& scored, size_t rows) {
    sampling.temperature = get<float>(from, "temperature", rows);
    sampling.top_k = get<int32_t>(from, "top_k", rows);
    sampling.top_p = get<float>(from, "top_p", rows);
    sampling.min_p = get<float>(from, "min_p", rows);
    sampling.seed = get<uint64_t>(from, "seed", rows);
    sampling.choice = get<int32_t>(from, "choice", rows);
    sampling.position = get<int32_t>(from, "position", rows);
    sampling.repetition = get<float>(from, "repetition", rows);
    sampling.presence = get<float>(from, "presence", rows);
    sampling.frequency = get<float>(from, "frequency", rows);
    sampling.history_ends = get<int32_t>(from, "history_ends", rows);
    sampling.bias_ends = get<int32_t>(from, "bias_ends", rows);
    sampling.num_logprobs = get<int32_t>(from, "num_logprobs", rows);
    const size_t histories = rows ? size_t(sampling.history_ends[rows - 1]) : 0;
    const size_t biases = rows ? size_t(sampling.bias_ends[rows - 1]) : 0;
    sampling.history_ids = get<int32_t>(from, "history_ids", histories);
    sampling.history_counts = get<int32_t>(from, "history_counts", histories);
    sampling.bias_ids = get<int32_t>(from, "bias_ids", biases);
    sampling.bias_values = get<float>(from, "bias_values", biases);
    if (scored.size() != rows) throw std::invalid_argument("scored_ids: wrong length");
    sampling.scored_ids = scored.data();
    for (size_t row = 0; row < rows; ++row)
      columns = std::max<int64_t>(columns, sampling.num_logprobs[row]);
  }

  template <typename T>
  const T* get(nb::handle from, const char* name, size_t count) {
    // No conversion: a converted copy would not outlive this function.
    const auto array = nb::cast<In<T>>(from.attr(name), false);
    if (array.size() != count)
      throw std::invalid_argument(std::string(name) + " has " + std::to_string(array.size()) +
                                  " entries, expected " + std::to_string(count));
    return array.data();
  }

  Sampling sampling{};
  int64_t columns = 0;
};

nb::tuple run(Program& program, const I32& ids, const I32& positions, const I32& row_ends,
              const I32& contexts, const I32& tables, const I32& table_ends,
              const I32& logits_rows, nb::handle sampling, const I32& scored_ids) {
  const StepArrays arrays =
      step_arrays(ids, positions, row_ends, contexts, tables, table_ends, logits_rows);
  const size_t rows = logits_rows.size();
  const SamplingArrays asked(sampling, scored_ids, rows);
  check_sampling(asked.sampling, int64_t(rows), program.vocab());
  const auto columns = size_t(std::min(asked.columns, program.vocab()));
  std::vector<int32_t> tokens(rows), ranks(rows), scored_ranks(rows), top_ids(rows * columns);
  std::vector<float> logprobs(rows), scored(rows), margins(rows, INFINITY),
      top_logprobs(rows * columns);
  const SampleOutputs outputs{tokens.data(),      logprobs.data(), ranks.data(),
                              top_ids.data(),     top_logprobs.data(), int64_t(columns),
                              scored.data(),      scored_ranks.data(), margins.data()};
  {
    nb::gil_scoped_release released;
    const StepBuilder step(arrays);
    program.run(step.input(), asked.sampling, outputs);
  }
  return nb::make_tuple(give(std::move(tokens)), give(std::move(logprobs)), give(std::move(ranks)),
                        give(std::move(top_ids), rows, columns),
                        give(std::move(top_logprobs), rows, columns), give(std::move(scored)),
                        give(std::move(scored_ranks)), give(std::move(margins)));
}

Out<float, 2> logits(Program& program, const I32& ids, const I32& positions, const I32& row_ends,
                     const I32& contexts, const I32& tables, const I32& table_ends,
                     const I32& logits_rows) {
  const StepArrays arrays =
      step_arrays(ids, positions, row_ends, contexts, tables, table_ends, logits_rows);
  std::vector<float> values(logits_rows.size() * size_t(program.vocab()));
  {
    nb::gil_scoped_release released;
    const StepBuilder step(arrays);
    program.logits(step.input(), values.data());
  }
  return give(std::move(values), logits_rows.size(), size_t(program.vocab()));
}

Program* make(const std::string& isa, int threads, std::vector<int> cpus, int64_t spin_ns,
              KvType kv_type, int64_t layers, int64_t kv_heads, int64_t head_dim, int64_t heads) {
  Program::Options options;
  options.isa = isa;
  options.threads = threads;
  options.cpus = std::move(cpus);
  options.spin_ns = spin_ns;
  options.kv = {kv_type, layers, kv_heads, head_dim};
  options.heads = heads;
  return new Program(std::move(options));
}

void define_program(nb::module_& module) {
  nb::class_<Program>(module, "Program")
      .def(nb::new_(&make), nb::kw_only(), "isa"_a, "threads"_a, "cpus"_a, "spin_ns"_a,
           "kv_type"_a, "layers"_a, "kv_heads"_a, "head_dim"_a, "heads"_a)
      .def("value", &Program::value, "group"_a, "grid"_a, "cols"_a)
      .def("embed",
           [](Program& self, std::string name, const Bytes& table, Format format, int64_t n,
              int64_t k, int to) {
             self.add(std::move(name), op::Embed{packed(table, format, n, k), to});
           })
      .def("rows", [](Program& self, std::string name, int x,
                      int to) { self.add(std::move(name), op::Rows{x, to}); })
      .def("norm",
           [](Program& self, std::string name, std::pair<int, int64_t> x, int64_t cols,
              const F32& weight, float eps, int to) {
             self.add(std::move(name),
                      op::Norm{{x.first, x.second}, cols, weight.data(), eps, to});
           })
      .def("convert",
           [](Program& self, std::string name, std::pair<int, int64_t> x, int to) {
             self.add(std::move(name), op::Convert{{x.first, x.second}, to});
           })
      .def("angles", [](Program& self, std::string name, std::vector<double> frequencies,
                        int to) { self.add(std::move(name), op::Angles{std::move(frequencies), to}); })
      .def("head_norm",
           [](Program& self, std::string name, std::pair<int, int64_t> x, int64_t heads,
              int64_t head_dim, const F32& weight, float eps) {
             self.add(std::move(name), op::HeadNorm{{x.first, x.second}, heads, head_dim,
                                                    weight.data(), eps});
           })
      .def("rope",
           [](Program& self, std::string name, std::pair<int, int64_t> x, int64_t heads,
              int64_t head_dim, int angles) {
             self.add(std::move(name), op::Rope{{x.first, x.second}, heads, head_dim, angles});
           })
      .def("add",
           [](Program& self, std::string name, std::pair<int, int64_t> a,
              std::pair<int, int64_t> b, int64_t cols, int to) {
             self.add(std::move(name),
                      op::Add{{a.first, a.second}, {b.first, b.second}, cols, to});
           })
      .def("glu",
           [](Program& self, std::string name, std::pair<int, int64_t> a,
              std::pair<int, int64_t> b, int64_t cols, int to) {
             self.add(std::move(name),
                      op::Glu{{a.first, a.second}, {b.first, b.second}, cols, to});
           })
      .def("linear",
           [](Program& self, std::string name, int x, const Bytes& weight, Format format,
              int64_t n, int64_t k, Epilogue epilogue, std::optional<F32> bias, int y) {
             self.add(std::move(name), op::Linear{x, packed(weight, format, n, k), epilogue,
                                                  pointer(bias), y});
           },
           "name"_a, "x"_a, "weight"_a, "format"_a, "n"_a, "k"_a, "epilogue"_a,
           "bias"_a.none(), "y"_a)
      .def("append",
           [](Program& self, std::string name, int64_t layer, std::pair<int, int64_t> keys,
              std::pair<int, int64_t> values) {
             self.add(std::move(name), op::Append{layer, {keys.first, keys.second},
                                                  {values.first, values.second}});
           })
      .def("attend",
           [](Program& self, std::string name, int64_t layer, std::pair<int, int64_t> q,
              float scale, int to) {
             self.add(std::move(name), op::Attend{layer, {q.first, q.second}, scale, to});
           })
      .def("signal", [](Program& self, std::string name,
                        int64_t layer) { self.add(std::move(name), op::Signal{layer}); })
      .def("sample", [](Program& self, std::string name,
                        int logits) { self.add(std::move(name), op::Sample{logits}); })
      .def("seal", &Program::seal)
      .def("bind",
           [](Program& self, uintptr_t address, int64_t num_blocks, uintptr_t clock) {
             self.bind(reinterpret_cast<uint8_t*>(address), num_blocks,
                       reinterpret_cast<uint64_t*>(clock));
           },
           "address"_a, "num_blocks"_a, "clock"_a = 0)
      .def("run", &run)
      .def("logits", &logits)
      .def("watch", &Program::watch)
      .def("timings",
           [](const Program& self) {
             std::vector<std::tuple<std::string, int64_t, int64_t>> all;
             for (const Program::Timing& one : self.timings())
               all.emplace_back(one.name, one.ns, one.steps);
             return all;
           })
      .def_prop_ro("isa", &Program::isa)
      .def_prop_ro("threads", &Program::threads);
}

}  // namespace

NB_MODULE(_native, module) {
  module.doc() = "Kernels of the CPU device (native/README.md).";
  nb::enum_<Format>(module, "Format")
      .value("F32", Format::kF32)
      .value("BF16", Format::kBF16)
      .value("INT8", Format::kInt8)
      .value("Q4_0", Format::kQ4_0)
      .value("Q4_1", Format::kQ4_1)
      .value("Q4_K", Format::kQ4_K)
      .value("Q6_K", Format::kQ6_K)
      .value("Q8_0", Format::kQ8_0);
  nb::enum_<Grid>(module, "Grid")
      .value("F32", Grid::kF32)
      .value("BF16", Grid::kBF16)
      .value("TOKEN", Grid::kToken)
      .value("GROUP", Grid::kGroup);
  nb::enum_<Epilogue>(module, "Epilogue")
      .value("STORE", Epilogue::kStore)
      .value("ADD", Epilogue::kAdd)
      .value("GLU", Epilogue::kGlu);
  nb::enum_<Group>(module, "Group").value("STEP", Group::kStep).value("LOGITS", Group::kLogits);
  nb::enum_<KvType>(module, "KvType")
      .value("BF16", KvType::kBF16)
      .value("INT8", KvType::kInt8);
  module.def("usable_isas", &usable_isas);
  module.def("chosen_isa", [] { return std::string(choose_kernels("").name); });
  module.def("kv_block_bytes", [](KvType type, int64_t layers, int64_t kv_heads, int64_t head_dim) {
    return KvLayout{type, layers, kv_heads, head_dim}.block_bytes();
  });
  define_packing(module);
  define_sums(module);
  define_exchange(module);
  define_program(module);
}

}  // namespace tercet
