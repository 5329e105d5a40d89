// Stand-ins for kernels that are being written; goes away with the last of them.
#include <cstdlib>

#include "kernels/all.h"

namespace tercet::TERCET_ISA {
#define PENDING __attribute__((weak))
PENDING void linear_bf16(const Linear&, Range, Range) { std::abort(); }
PENDING void linear_int8(const Linear&, Range, Range) { std::abort(); }
PENDING void linear_grouped(const Linear&, Range, Range) { std::abort(); }
PENDING void unpack_grouped_row(Format, int64_t, int64_t, const uint8_t*, int64_t, float*) { std::abort(); }
PENDING void norm(const Norm&, Range) { std::abort(); }
PENDING void convert(const Convert&, Range) { std::abort(); }
PENDING void head_norm(const HeadNorm&, Range) { std::abort(); }
PENDING void angles(const Angles&, Range) { std::abort(); }
PENDING void rope(const Rope&, Range) { std::abort(); }
PENDING void add(const Binary&, Range) { std::abort(); }
PENDING void glu(const Binary&, Range) { std::abort(); }
PENDING void embed(const Embed&, Range) { std::abort(); }
PENDING void append(const Append&, Range) { std::abort(); }
PENDING void attend(const Attend&, const AttendUnit&) { std::abort(); }
PENDING void merge(const Attend&, const MergeUnit&) { std::abort(); }
}  // namespace tercet::TERCET_ISA
